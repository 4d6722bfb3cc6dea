r"""Spell an answer in one way: LaTeX, unicode and plain text become the same short ASCII text.

Only spelling changes here (`\dfrac`, `½`, `1\,000`, `$5$`, `\text{ and }`); `syntax` reads what the
text means. Every pattern takes time in proportion to the text, whatever it holds.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import functools
import re
import unicodedata

from openrlhf_js.tasks.equivalence.spelling_rules import (
    LATEX_RULES,
    PLAIN_RULES,
    WHOLE_ANSWER_RULES,
    Replacement,
    Rule,
)

_SIGNS = r"""
− – — ‐ ‑ ‒ - × · ⋅ ∙ ∗ ✕ * ÷ ⁄ ∕ / √ \sqrt ∛ \sqrt[3] ∜ \sqrt[4] ∞ \infty ° º ˚ ^{\circ} ≤ ⩽ \leq
≥ ⩾ \geq ≠ \neq ≈ \approx ≡ \equiv ± \pm ∓ \mp ∪ \cup ∩ \cap ∖ \setminus ∈ \in ∅ \emptyset
⟨ \langle ⟩ \rangle ⌊ \lfloor ⌋ \rfloor ⌈ \lceil ⌉ \rceil ℝ \mathbb{R} ℤ \mathbb{Z} ℕ \mathbb{N}
ℚ \mathbb{Q} ℂ \mathbb{C} € \euro £ \gbp ¥ \yen ¢ \cents ’ ‘ ` ´ ′ ' “ ” " ， 、 , ； ; 。 . ∶ :
∠ \angle
△ \, → \rightarrow ∨ \vee ∧ \wedge ¬ \neg ℏ \hbar α \alpha β \beta γ \gamma δ \delta ε \epsilon
θ \theta λ \lambda μ \mu π \pi ρ \rho σ \sigma τ \tau φ \phi ω \omega Δ \Delta Σ \Sigma Ω \Omega
"""
_TRANSLATED: dict[int, str] = {}
for _sign in reversed(_SIGNS.split()):  # each run of signs stands before its spelling
    if _sign.isascii():
        _spelling = f" {_sign} " if _sign[0] == "\\" else _sign
    else:
        _TRANSLATED[ord(_sign)] = _spelling

_compatible = functools.partial(unicodedata.normalize, "NFKC")


def _compiled(rules: list[Rule]) -> list[tuple[str, re.Pattern[str], Replacement]]:
    return [(rule.where, re.compile(rule.pattern), rule.to) for rule in rules]


_PLAIN = _compiled(WHOLE_ANSWER_RULES + PLAIN_RULES)
_LATEX = _compiled(WHOLE_ANSWER_RULES + LATEX_RULES + PLAIN_RULES)


def normal(text: str) -> str:
    r"""The text in its canonical spelling; a `$` that is no delimiter is money, spelt `\usd`."""
    text = (text if text.isascii() else _in_ascii(text)).strip()
    if text.isascii() and text.isdigit():
        return text
    if "\\\\" in text and r"\begin" not in text:
        text = re.sub(r"\\\\(?=[a-zA-Z])", r"\\", text)
    for where, pattern, to in _LATEX if "\\" in text else _PLAIN:
        if where in text:
            text = pattern.sub(to, text)
    is_decimal_comma = text.count("{,}") == 1
    text = text.strip(' "').replace("{,}", "." if is_decimal_comma else ",")
    return text.rstrip(" .,;:\\").lstrip()


# Units and counters in Chinese, Japanese and Korean, behind a number. Words that change a number,
# such as 万 (ten thousand), are none.
_COUNTERS = """个 個 只 隻 条 條 人 名 位 本 张 張 枚 辆 輛 件 棵 次 种 種 台 双 雙 支 岁 歲 歳 匹
    つ 개 명 마리 권"""
_UNITS = {
    "mm": "毫米 ミリメートル 밀리미터",
    "cm": "厘米 公分 センチメートル 센티미터",
    "\\m": "米 公尺 メートル 미터",
    "km": "千米 公里 キロメートル 킬로미터",
    "\\g": "克 グラム 그램",
    "kg": "千克 公斤 キログラム 킬로그램",
    "mL": "毫升 ミリリットル 밀리리터",
    "\\L": "升 公升 リットル 리터",
    "\\s": "秒 秒钟 秒鐘 초",
    "minutes": "分钟 分鐘 분",
    "\\h": "小时 小時 時間 시간",
    "days": "天 日 일",
    "degrees": "度 도",
    "yuan": "元",
    "yen": "円",
    "won": "원",
    "": _COUNTERS,
}
_SPELT_UNITS = {word: unit for unit, words in _UNITS.items() for word in words.split()}
for _length in ("毫米", "厘米", "米", "千米"):
    _SPELT_UNITS["平方" + _length] = f"{_SPELT_UNITS[_length]}^2"
    _SPELT_UNITS["立方" + _length] = f"{_SPELT_UNITS[_length]}^3"
_UNIT_WORDS = "|".join(sorted(_SPELT_UNITS, key=len, reverse=True))
_UNIT = re.compile(rf"(?<=[\d)}}{{ ])(?:{_UNIT_WORDS})(?![ぁ-ヿ一-鿿가-힣])")


def _in_ascii(text: str) -> str:
    """The text with LaTeX in the place of mathematical signs, and without invisible characters."""
    text = re.sub("[⁰ⁱ¹²³⁴-⁹⁺⁻⁽⁾ⁿ]+", lambda run: f"^{{{_compatible(run[0])}}}", text)
    text = re.sub("[₀-₉₊₋]+", lambda run: f"_{{{_compatible(run[0])}}}", text)
    text = re.sub("([¼-¾⅐-⅞])", r" \1 ", text)
    text = _UNIT.sub(lambda word: f" {_SPELT_UNITS[word[0]]} ", text)
    text = _compatible(text.translate(_TRANSLATED)).replace("⁄", "/")
    return "".join(char for char in text if unicodedata.category(char) != "Cf")
