"""Spells Unicode signs, digits and units in ASCII, and mathematical signs in LaTeX."""

# ruff: noqa: RUF001
from __future__ import annotations

import re
import unicodedata

# fmt: off
_SIGNS = {  # a spelling, and the signs that it replaces
    "-": "−–—‐‑‒", "*": "×·⋅∙∗✕", "/": "÷⁄∕", r" \pm ": "±", r" \mp ": "∓", r" \infty ": "∞",
    r" \sqrt ": "√", r" \sqrt[3] ": "∛", r" \sqrt[4] ": "∜", r"^{\circ}": "°º˚", r" \hbar ": "ℏ",
    r" \leq ": "≤⩽", r" \geq ": "≥⩾", r" \neq ": "≠", r" \approx ": "≈", r" \equiv ": "≡",
    r" \cup ": "∪⋃", r" \cap ": "∩", r" \setminus ": "∖", r" \in ": "∈", r" \emptyset ": "∅",
    r" \mathbb{R} ": "ℝ", r" \mathbb{Z} ": "ℤ", r" \mathbb{N} ": "ℕ", r" \mathbb{Q} ": "ℚ",
    r" \mathbb{C} ": "ℂ", r" \vee ": "∨", r" \wedge ": "∧", r" \neg ": "¬", r" \rightarrow ": "→",
    r" \langle ": "⟨", r" \rangle ": "⟩", r" \lfloor ": "⌊", r" \rfloor ": "⌋",
    r" \lceil ": "⌈", r" \rceil ": "⌉", r" \angle ": "∠", r" \, ": "△",
    r" \euro ": "€", r" \gbp ": "£", r" \yen ": "¥￥", r" \cents ": "¢￠", r" \inr ": "₹₨",
    r" \krw ": "₩", r" \rub ": "₽", r" \ils ": "₪", r" \php ": "₱", r" \ngn ": "₦",
    r" \vnd ": "₫", r" \uah ": "₴", r" \btc ": "₿", r" \thb ": "฿", " angstrom ": "Å\u212b",
    r"^{\circ}C ": "℃", r"^{\circ}F ": "℉", r" \Omega ": "\u2126", r" \mu ": "\u00b5",
    " or ": "或", " and ": "和且", "''": "″",
    "`": "’‘", "'": "´′", '"': "“”", ",": "，、", ";": "；", ".": "。", ":": "∶",
}
# fmt: on
_GREEK_LETTERS = "αβγδεθλμπρστφωΔΣΩ"
_GREEK_NAMES = """alpha beta gamma delta epsilon theta lambda mu pi rho sigma tau phi omega
    Delta Sigma Omega"""
for _letter, _name in zip(_GREEK_LETTERS, _GREEK_NAMES.split(), strict=True):
    _SIGNS[rf" \{_name} "] = _SIGNS.get(rf" \{_name} ", "") + _letter
_ASCII = str.maketrans({sign: to for to, signs in _SIGNS.items() for sign in signs})

# Units and counters after a number in Chinese, Japanese and Korean. Words that change the number,
# such as 万 (ten thousand), are not among them.
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


def _compatible(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def _iso_date(date: re.Match[str]) -> str:
    year, month, day = map(int, date.groups())
    return f"{year}-{month:02}-{day:02}"


def in_ascii(text: str) -> str:
    """Spells mathematical signs as LaTeX and drops invisible characters.

    ASCII stays as it is.
    """
    if text.isascii():
        return text
    text = re.sub("[⁰ⁱ¹²³⁴-⁹⁺⁻⁽⁾ⁿ]+", lambda run: f"^{{{_compatible(run[0])}}}", text)
    text = re.sub("[₀-₉₊₋]+", lambda run: f"_{{{_compatible(run[0])}}}", text)
    text = re.sub("([¼-¾⅐-⅞])", r" \1 ", text)
    text = re.sub(r"(\d{4}) ?年 ?(\d\d?) ?月 ?(\d\d?) ?日", _iso_date, text)
    text = re.sub("[①-⑳]", lambda sign: f"({_compatible(sign[0])}) ", text)
    text = _UNIT.sub(lambda word: f" {_SPELT_UNITS[word[0]]} ", text)
    text = _compatible(text.translate(_ASCII)).replace("⁄", "/")
    return "".join(char for char in text if unicodedata.category(char) != "Cf")
