r"""Spell an answer in one way: LaTeX, unicode and plain text become the same short ASCII text.

Only spelling changes here (`\dfrac`, `½`, `1\,000`, `$5$`, `\text{ and }`); what the text means is
read in `syntax`. Every pattern takes time in proportion to the text, whatever it holds.
"""

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
    "°": r"^\circ ",
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

_PAIRED_DOLLARS = re.compile(r"(?<!\\)\$([^$\\]*(?:\\[^$][^$\\]*)*)\$(?!\d)")
_SPACES = re.compile(
    r"(?<!\\)\\[ ,;:>]|~|\s"
    r"|\\(?:q?quad|thinspace|enspace|hfill|displaystyle|textstyle|limits)(?![a-zA-Z])"
)
_DELIMITERS = re.compile(r"(?<!\\)\\[()\[\]!]")
_DOUBLED = re.compile(r"\\\\(?=[a-zA-Z])")
_SIZES = re.compile(
    r"\\(?:left|right|[bB]igg?[lrm]?|(?:measured)?angle|triangle)(?![a-zA-Z])\s?\.?"
)
_COLOURS = re.compile(r"\\(?:text)?color\s?(?:\[[a-zA-Z]{1,20}\])?\s?\{[^{}]{1,40}\}")
_FONT_SIZES = re.compile(
    r"\\(?:tiny|small|normalsize|large|Large|LARGE|[hH]uge|bf|it|rm)(?![a-zA-Z])"
)
_DECORATIONS = re.compile(r"\\(?:boxed|fbox|underline|cancel|uline|emph|pmb)\s?(?=\{)")
_STYLES = re.compile(
    r"\\(?:math(?:rm|bf|it|sf|cal|normal)|text(?:rm|bf|it|sf|normal)?|mbox|hbox|operatorname)\*?\s?(?=\{)"
)
_WRAPPERS = re.compile(
    r"\\(?:boldsymbol|bm|mathbb(?=\{[^RZNQC]))\s?(?=\{)"
    r"|\\(?:vec|hat|overrightarrow)\s?(?=\{ ?[^\d\s])"
)
_COMMAND = re.compile(r"\\([a-zA-Z]+)")
_ALIASES = {
    "dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "sfrac": "frac", "nicefrac": "frac",
    "dbinom": "binom", "dot": "bar", "tbinom": "binom",
    "le": "leq", "leqslant": "leq", "ge": "geq", "geqslant": "geq", "ne": "neq",
    "varnothing": "emptyset", "cdot": "*", "times": "*", "ast": "*", "div": "/", "lt": "<",
    "gt": ">",
    "lbrace": "{", "rbrace": "}", "lbrack": "[", "rbrack": "]", "lvert": "|", "rvert": "|",
    "vert": "|", "degree": "circ", "colon": ":", "textdollar": "$", "Reals": "mathbb{R}",
    "R": "mathbb{R}", "dots": "ldots", "cdots": "ldots", "dotsc": "ldots", "percent": "%",
    "backslash": "setminus", "smallsetminus": "setminus", "overline": "bar", "varphi": "phi",
    "varepsilon": "epsilon", "vartheta": "theta", "newline": "\\", "lor": "vee", "land": "wedge",
    "mid": "mid", "pounds": "gbp", "texteuro": "euro", "cent": "cents", "to": "rightarrow",
}  # fmt: skip
_BARE = frozenset("*/<>[]|:")  # aliases that are no commands
_ORDINAL = re.compile(
    "|".join(
        rf"{after}\s?(?:\^\s?)?(?:\{{?\\text\{{\s?{end}\s?\}}\}}?|\{{{end}\}}|{end}\b)"
        for after, end in (
            (r"(?<=1)(?<!11)", "st"),
            (r"(?<=2)(?<!12)", "nd"),
            (r"(?<=3)(?<!13)", "rd"),
            (r"(?<=\d)", "th"),
        )
    )
)
_SHORT_FRACTION = re.compile(r"\\(frac|binom)\s?(\d)\s?(?=[\d{\\a-zA-Z])")
_SHORT_DENOMINATOR = re.compile(r"(\\(?:frac|binom)\{\d+\})\s?(\d)(?!\d)")
_GROUPED = re.compile(r"(?<![\d.,])(\d{1,3})((?:(?:\{,\}|[ '])\d{3})+)(?![\d,])")
_NOT_DIGITS = re.compile(r"\D+")
_BOXED = re.compile(r"\A\\f?box(?:ed)?\s?\{([^{}]*)\}\Z")
_DIGITS_AS_TEXT = re.compile(r"\\text\{\s?([0-9A-F]+)\s?\}(?=_)")
_BASE = re.compile(
    r"(?<![0-9A-F])([0-9A-F]+) ?\(?(?:\\text\{ ?)?\(? ?base ?-?\}? ?(\d{1,2}|[a-z]{3,})\b\)?\}?\)?"
)
_BRACKETED_BASE = re.compile(r"\((?=[A-F]*\d)([0-9A-F]+)\)_(?=[\d{])")
_INFIX = re.compile(r"\{([^{}\\]*)\\(choose|over)(?![a-z]) ?([^{}\\]*)\}")
_TIMES_TEN = re.compile(r"(?<=\d) ?[xX] ?(?=10 ?\^)")
_TEXT_DOLLARS = re.compile(r"\\text\s?\{\s?\$([^$]*)\$\s?\}")
_REMARK = re.compile(r"(?:\\text ?\{ ?)?\((?:approximately|approx\.?|roughly|rounded)\) ?\}?")
_ABBREVIATED = re.compile(
    r"\b(sq|cu|ft|in|yd|mi|lbs?|oz|hrs?|mins?|secs?|cm|mm|km|kg|gal|pt|qt|units)\.(?![\w.])"
)
_MOD = re.compile(r"\\text\{ ?mod ?\}|(?<![\\a-zA-Z])mod(?![a-zA-Z])")
_BRACKETED_MOD = re.compile(r"\( ?\\b?mod *(?! )([^()]{1,40})\)")
_COMBINATIONS = re.compile(
    r"(?<![\w.)\]}^])(?:\{\} ?)?(?:[_^]\{?(\d{1,4})\}? ?|(\d{1,4}))C_?\{?(\d{1,4})\}?(?![\w{])"
    r"|(?<![\w}])C_\{?(\d{1,4})\}? ?\^ ?\{?(\d{1,4})\}?(?![\w{])"
)
_BRACKETED_PROVISO = re.compile(r" ?,? ?\( ?([a-z] ?\\in ?\\mathbb\{[NZ]\}) ?\)\Z")
_EMPTY_TEXT = re.compile(r"\\text\{\s*(?:\.\s*)?\}")


def normal(text: str) -> str:
    r"""The text in its canonical spelling.

    Thin spaces, sizes, styles and dollar pairs are gone; synonyms have one name; digits grouped
    by spaces or `{,}` are joined (a group comma stays, since `1,200` may also be a list); a `$`
    that is left is money, spelt `\usd`.
    """
    if not text.isascii():
        text = text.translate(_TABLE)
        text = _RAISED.sub(lambda run: _script("^", run[0], _SUPERSCRIPTS), text)
        text = _LOWERED.sub(lambda run: _script("_", run[0], _SUBSCRIPTS), text)
        text = unicodedata.normalize("NFKC", text)
        text = "".join(char for char in text if unicodedata.category(char) != "Cf")  # no width
    text = text.strip()
    if text.isdigit() and text.isascii():
        return text
    boxed = _BOXED.match(text)
    if boxed:
        text = boxed[1].strip()
    if "\\" in text:
        if r"\begin" not in text:
            text = _DOUBLED.sub(r"\\", text)
        text = _TEXT_DOLLARS.sub(r"\1", text)
        text = _DELIMITERS.sub("", text)
        text = _SIZES.sub("", text)
        text = _COLOURS.sub("", text)
        text = _FONT_SIZES.sub("", text)
        text = _DECORATIONS.sub("", text)
        text = _STYLES.sub(r"\\text", text)
        text = _WRAPPERS.sub("", text)
        text = _COMMAND.sub(_alias, text)
        text = text.replace(r"\%", "%").replace(r"\$", r"\usd ").replace(r"\#", "#")
        text = text.replace(r"\mathbb R", r"\mathbb{R}")
        text = _DIGITS_AS_TEXT.sub(r"\1", text)
        text = _INFIX.sub(_prefixed, text)
        text = _EMPTY_TEXT.sub(" ", text)
    if "$" in text:
        text = _PAIRED_DOLLARS.sub(r"\1", text).replace("$", r"\usd ")
    text = _SPACES.sub(" ", text).strip(' "').replace("Rs.", "Rs ")
    text = " ".join(_ABBREVIATED.sub(r"\1 ", text).split())
    if text.startswith("**") and text.endswith("**"):
        text = text[2:-2]
    text = _TIMES_TEN.sub("*", text.replace("**", "^"))
    text = _GROUPED.sub(lambda number: number[1] + _NOT_DIGITS.sub("", number[2]), text)
    text = text.replace("{,}", "." if text.count("{,}") == 1 else ",")
    if "\\frac" in text or "\\binom" in text:
        text = _SHORT_FRACTION.sub(r"\\\1{\2}", text)
        text = _SHORT_DENOMINATOR.sub(r"\1{\2}", text)
    text = _ORDINAL.sub("", text)
    if "mod" in text:
        text = _BRACKETED_MOD.sub(r"\\pmod{\1}", _MOD.sub(r"\\mod ", text))
    if "C" in text:
        text = _COMBINATIONS.sub(_binomial, text)
    if "(" in text:
        text = _REMARK.sub("", text)
        text = _BRACKETED_PROVISO.sub(r", \1", text.rstrip(" ."))
    if "base" in text:
        text = _BASE.sub(r"\1_{\2}", text)
    text = _BRACKETED_BASE.sub(r"\1_", text)
    return text.strip() if text.endswith("...") else text.rstrip(" .,;:\\").lstrip()


def _script(sign: str, run: str, table: dict[str, str]) -> str:
    return sign + "{" + "".join(table[char] for char in run) + "}"


def _prefixed(infix: re.Match[str]) -> str:
    name = {"choose": "binom", "over": "frac"}[infix[2]]
    return rf"\{name}{{{infix[1]}}}{{{infix[3]}}}"


def _binomial(found: re.Match[str]) -> str:
    """The binomial that `{}_5C_2`, `5C2` or `C_5^2` is."""
    n, k = (part for part in found.groups() if part)
    return rf"\binom{{{n}}}{{{k}}}"


def _alias(command: re.Match[str]) -> str:
    name = command[1]
    alias = _ALIASES.get(name)
    if alias is None:
        return command[0]
    return alias if alias in _BARE else "\\" + alias
