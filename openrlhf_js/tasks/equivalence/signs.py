"""Spell unicode signs as LaTeX: roots, raised digits, Greek letters, `≤`, `½`, `€`."""

# ruff: noqa: RUF001

from __future__ import annotations

import re
import unicodedata

_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ", "0123456789+-()ni", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋", "0123456789+-", strict=True))
_SIGNS = {
    "−–—‐‑‒": "-",
    "×·⋅∙∗✕": "*",
    "÷": "/",
    "⁄∕": "/",
    "√": r" \sqrt ",
    "∛": r" \sqrt[3] ",
    "∜": r" \sqrt[4] ",
    "∞": r" \infty ",
    "°º˚": r"^\circ ",
    "≤⩽": r" \leq ",
    "≥⩾": r" \geq ",
    "≠": r" \neq ",
    "≈": r" \approx ",
    "≡": r" \equiv ",
    "±": r" \pm ",
    "∓": r" \mp ",
    "∪": r" \cup ",
    "∩": r" \cap ",
    "∖": r" \setminus ",
    "∈": r" \in ",
    "∅": r" \emptyset ",
    "⟨": r" \langle ",
    "⟩": r" \rangle ",
    "⌊": r" \lfloor ",
    "⌋": r" \rfloor ",
    "⌈": r" \lceil ",
    "⌉": r" \rceil ",
    "ℝ": r" \mathbb{R} ",
    "ℤ": r" \mathbb{Z} ",
    "ℕ": r" \mathbb{N} ",
    "€": r" \euro ",
    "£": r" \gbp ",
    "¥": r" \yen ",
    "¢": r"\cents ",
    "’‘`´": "'",
    "“”": '"',
    "，、": ", ",
    "；": "; ",
    "。": ".",
    "∶": ":",
    "∠△": " ",
}
_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma"
    " sigma tau upsilon phi chi psi omega"
)
_VULGAR = {
    "½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅕": (1, 5), "⅖": (2, 5),
    "⅗": (3, 5), "⅘": (4, 5), "⅙": (1, 6), "⅚": (5, 6), "⅐": (1, 7), "⅛": (1, 8), "⅜": (3, 8),
    "⅝": (5, 8), "⅞": (7, 8), "⅑": (1, 9), "⅒": (1, 10),
}  # fmt: skip
_TABLE = str.maketrans(
    {chr(ord("α") + i): rf" \{name} " for i, name in enumerate(_GREEK.split())}
    | {chr(ord("Α") + i): rf" \{name.title()} " for i, name in enumerate(_GREEK.split())}
    | {sign: ascii_ for signs, ascii_ in _SIGNS.items() for sign in signs}
    | {sign: rf"\frac{{{p}}}{{{q}}}" for sign, (p, q) in _VULGAR.items()}
)
_RAISED = re.compile("[" + "".join(_SUPERSCRIPTS) + "]+")
_LOWERED = re.compile("[" + "".join(_SUBSCRIPTS) + "]+")


def in_ascii(text: str) -> str:
    """The text with LaTeX in the place of mathematical signs, and without invisible characters."""
    text = text.translate(_TABLE)
    text = _RAISED.sub(lambda run: _script("^", run[0], _SUPERSCRIPTS), text)
    text = _LOWERED.sub(lambda run: _script("_", run[0], _SUBSCRIPTS), text)
    text = unicodedata.normalize("NFKC", text)
    return "".join(char for char in text if unicodedata.category(char) != "Cf")  # no width


def _script(sign: str, run: str, table: dict[str, str]) -> str:
    return sign + "{" + "".join(table[char] for char in run) + "}"
