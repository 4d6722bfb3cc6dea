r"""Units as answers spell them: `k\Omega`, `m s^{-1}`, `joules per mole kelvin`, `\SI{5}{m/s}`.

A unit is the names of its factors with their powers. This module only reads names; `conversion`
defines what they mean.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from answer_graders.math.tree import NotRead, words
from answer_graders.math.vocabulary import is_sentence, singular

Factors = list[tuple[str, int]]
Unit = tuple[tuple[str, int], ...]  # factors sorted by name, each once

# names

_PREFIXES = dict(
    f="femto", p="pico", n="nano", u="micro", m="milli", c="centi", d="deci", da="deca",
    h="hecto", k="kilo", M="mega", G="giga", T="tera",
)  # fmt: skip
_METRIC = dict(  # symbols that take prefixes
    m="meter", g="gram", s="second", A="ampere", K="kelvin", mol="mole", N="newton", J="joule",
    W="watt", Pa="pascal", Hz="hertz", C="coulomb", V="volt", F="farad", S="siemens", Wb="weber",
    T="tesla", H="henry", lm="lumen", lx="lux", Bq="becquerel", Gy="gray", Sv="sievert",
    kat="katal", Ci="curie", L="liter", l="liter", eV="electronvolt", bar="bar", cal="calorie",
    b="bit", B="byte", Wh="watt_hour", Ah="ampere_hour", M="molar", G="gauss", Ohm="ohm",
    rad="radian",
)  # fmt: skip
# fmt: off
_SYMBOLS_OF = {  # a unit, and its case-sensitive spellings
    "C": "C", "F": "F", "candela": "cd", "inch": "in", "hour": "h", "day": "d", "hectare": "ha",
    "metric_ton": "t", "pence": "p", "mmhg": "mmHg mmhg", "light_year": "ly",
    "astronomical_unit": "au AU", "nautical_mile": "nmi", "dalton": "u Da amu", "decibel": "dB",
    "angstrom": "AA",
    "kilogram": "Kg KG kgs", "kilometer": "KM kms", "gram": "gm gms", "centimeter": "CM cms",
    "milliliter": "mls mLs", "hertz": "hz", "kilohertz": "khz KHz", "gigahertz": "ghz",
    "pascal": "pa", "kilopascal": "kpa KPa", "kilojoule": "kj KJ", "kilowatt": "kw KW",
    "kilowatt_hour": "kwh KWh KWH Kwh", "kilovolt": "KV", "kilonewton": "KN", "kilobyte": "KB",
    "kilocalorie": "Cal Kcal",
}
_WORDS_OF = {  # a unit, and its other names and abbreviations, in any case
    "inch": "inche", "foot": "ft feet", "yard": "yd", "mile": "mi", "lb": "lb", "ounce": "oz",
    "gallon": "gal", "quart": "qt", "pint": "pt", "hour": "hr", "minute": "min", "second": "sec",
    "year": "yr", "week": "wk", "month": "mo", "degree": "deg", "cc": "cc", "atmosphere": "atm",
    "horsepower": "hp", "kmh": "kmh kph kmph", "mpg": "mpg", "british_thermal_unit": "btu",
    "foot_pound": "ft-lb foot-pound", "radian": "rad", "bar": "bar",
    "kilogram": "kilo", "siemens": "siemen mho", "kiloohm": "kilohm", "megaohm": "megohm",
    "celsius": "celsiu centigrade", "henry": "henrie", "metric_ton": "tonne", "lux": "luxe",
    "ampere": "amp", "electronvolt": "electron-volt", "light_year": "light-year lightyear",
    "watt_hour": "watt-hour", "nautical_mile": "nautical-mile", "turn": "revolution rev",
    "milliliter": "cubic-centimeter", "arcminute": "arcmin", "arcsecond": "arcsec",
    "dollar": "usd buck", "yen": "jpy", "rupee": "rs inr", "euro": "eur", "gbp": "gbp",
    "percent": "pct percentage", "cent": "penny", "pence": "pennie", "paisa": "paise",
    "century": "centurie", "millennium": "millennia", "molar": "molarity", "gauss": "gaus",
    "won": "krw", "yuan": "cny rmb renminbi", "ruble": "rub rouble", "shekel": "ils",
    "peso": "php", "lira": "try", "naira": "ngn", "dong": "vnd", "bitcoin": "btc", "baht": "thb",
    "hryvnia": "uah", "franc": "chf",
}
_OPERATORS_OF = {  # a power or a quotient, and the words for it
    "2": "sq square squared", "3": "cu cubic cubed", "/": "/ per",
}
_TWO_WORDS = {  # the second word is in lower case, without the plural s
    "degree c": "celsius", "degree celsiu": "celsius", "degree centigrade": "celsius",
    "degree f": "fahrenheit", "degree fahrenheit": "fahrenheit", "degree k": "kelvin",
    "degree kelvin": "kelvin", "light year": "light_year", "nautical mile": "nautical_mile",
    "metric ton": "metric_ton", "metric tonne": "metric_ton", "electron volt": "electronvolt",
    "fluid ounce": "fluid_ounce", "fl oz": "fluid_ounce", "astronomical unit": "astronomical_unit",
    "us dollar": "dollar", "mm hg": "mmhg", "cm hg": "cmhg", "foot pound": "foot_pound",
    "standard atmosphere": "atmosphere",
}
# fmt: on
SYMBOLS: dict[str, str] = {}  # a symbol, and its unit
for _symbol, _metric_name in _METRIC.items():
    SYMBOLS[_symbol] = _metric_name
    for _prefix, _prefix_name in _PREFIXES.items():
        SYMBOLS[_prefix + _symbol] = _prefix_name + _metric_name
for _spelt_name, _spellings in _SYMBOLS_OF.items():
    SYMBOLS |= dict.fromkeys(_spellings.split(), _spelt_name)
_SYMBOLS_IN_LOWER_CASE = frozenset(symbol.lower() for symbol in SYMBOLS)
_WORDS: dict[str, str] = {}  # in lower case, without the plural s: `hrs` is hr
for _spelt_name, _spellings in _WORDS_OF.items():
    _WORDS |= dict.fromkeys(_spellings.split(), _spelt_name)
_OPERATORS: dict[str, str] = {}
for _operator, _spellings in _OPERATORS_OF.items():
    _OPERATORS |= dict.fromkeys(_spellings.split(), _operator)


def unit_name(word: str) -> str:
    """The name of the unit that a symbol or a word stands for: kilometer for `km` and `Kilometres`.

    Symbols are case-sensitive, since `mL` is not `ML`; words and abbreviations are not.
    """
    if word in SYMBOLS:
        return SYMBOLS[word]
    lower = singular(word) if len(word) > 1 else word
    if lower in _WORDS:
        return _WORDS[lower]
    if word.lower() in _SYMBOLS_IN_LOWER_CASE:
        return word
    return lower.replace("metre", "meter").replace("litre", "liter")


def is_known(word: str) -> bool:
    """Whether a word or symbol, such as `hrs` or `kHz`, is that of a unit."""
    return word in SYMBOLS or singular(word) in _WORDS


def merged(factors: Iterable[tuple[str, int]]) -> Unit:
    """The unit with these factors, each name once."""
    powers: Counter[str] = Counter()
    for name, power in factors:
        powers[name] += power
    return tuple((name, power) for name, power in sorted(powers.items()) if power)


# words after a value

_SKIPPED = words("of the a an ^ * 1")
_MOST_WORDS = 10
_SIZE_LETTERS = ("K", "B")  # 5 K may be five thousand, and 5 B five billion
_POWER_OF_A_WORD = re.compile("-?[1-9]")
_SQUARE_BEFORE = re.compile(r"\b(square|sq|cubic|cu) (\w+)")


def unit_of(text: str) -> Unit:
    """The unit that words such as `km / h`, `square feet`, `cm ^ 2` or `red apples` stand for."""
    phrase = _SQUARE_BEFORE.sub(r"\2 \1", text).split()
    names = [
        _OPERATORS.get(word.lower()) or unit_name(word) for word in phrase if word not in _SKIPPED
    ]
    is_unit = any(name[0].isalpha() for name in names) and phrase[0] not in _SIZE_LETTERS
    if not is_unit or len(phrase) > _MOST_WORDS or is_sentence(phrase):
        raise NotRead("a number in a sentence")
    factors: Factors = []
    sign = 1
    for name in names:
        if name == "/":
            sign = -1
        elif not _POWER_OF_A_WORD.fullmatch(name):
            factors.append((name, sign))
        elif factors:
            factors[-1] = (factors[-1][0], factors[-1][1] * int(name))
    return merged(factors)


# symbols after a number

_MOST_FACTORS = 10
_DEEPEST = 3  # nested brackets
_SHORTEST_WORD = 4  # letters; a shorter word must be known
_LETTERS = re.compile(r"\s*(?:\\([A-Za-z])(?![A-Za-z])|([A-Za-z]+(?:-[A-Za-z]{2,})*))")
_OHM = re.compile(r"\s*\\Omega(?![A-Za-z])")
_MICRO = re.compile(r"\s*\\mu(?![A-Za-z])\s*")
_ANGSTROM = re.compile(r"\s*\\AA(?![A-Za-z])")
_FRACTION = re.compile(r"\s*\\frac(?=\s*\{)")
_OPENING = re.compile(r"\s*([({])")
_CLOSING = {"(": re.compile(r"\s*\)"), "{": re.compile(r"\s*\}")}
_POWER = re.compile(r"\s*\^\s*(?:\{\s*(-?[1-9])\s*\}|(-?[1-9])(?![\d.]))")
_POWER_BEHIND = re.compile(r"(-?[1-9])(?![\w.]|,\d)")  # `s-1`
_POWER_IN_WORDS = re.compile(r"\s+(?:(squared)|cubed)\b")
_POWER_BEFORE = re.compile(r"\s*(?:(square|sq)|cubic|cu)\s+(?=[A-Za-z])")
_NOTHING = re.compile(r"(?:\s*\{\s*\})?")
_DIVIDED = re.compile(r"\s*(?:1\s*)?(?:/|per\b)")
_JOINS = re.compile(
    r"\s*(?:(/|per\b|an?\b(?=\s+(?:second|minute|hour|day|week|month|year)\b))"
    r"|\*|(?:of|the|an?)\b)"
)
_BEHIND = re.compile(r"\s*(?:\Z|[,;=<>)\]}:]|\\[}\\]|\\approx|(?:and|or)\b|\{?\d)")
_JOINED_SYMBOLS = re.compile(r"(?:kg|mol|Pa|[ACJKNTVW]|g(?=cm))(?:kg|mol|Pa|[ckm]m|[ACJKLNVhms])+")
_SYMBOL = re.compile("kg|mol|Pa|[ckm]m|.")
_SPEED = re.compile("([ckm]?m)s")  # `ms^{-1}` is metres per second at school


class UnitInText(NamedTuple):
    """A unit and where its text ends."""

    unit: Unit
    end: int


def unit_at(text: str, position: int) -> UnitInText | None:
    """The unit at a position after a number; None if there is none.

    It must be followed by the end of the quantity: a comma, a bracket, the next number of
    `1 h 30 min`.
    """
    reader = _Reader(text, position)
    try:
        unit = merged(reader.product(depth=0))
    except NotRead:
        return None
    if not unit or not _BEHIND.match(text, reader.position):
        return None
    return UnitInText(unit, reader.position)


class _Reader:
    """Reads products, quotients and powers of units; NotRead where there are too many."""

    def __init__(self, text: str, position: int):
        self.text = text
        self.position = position
        self.count = 0  # of the names read so far

    def takes(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Moves past a match of the pattern here, and returns it."""
        match = pattern.match(self.text, self.position)
        if match:
            self.position = match.end()
        return match

    def product(self, depth: int) -> Factors:
        """All factors that follow; those after a slash are divisors: `J/mol K`."""
        sign = -1 if self.takes(_DIVIDED) else 1
        factors: Factors = []
        while True:
            end = self.position
            joint = self.takes(_JOINS) if factors else None
            factor = self.factor(depth)
            if not factor:
                self.position = end
                return factors
            if joint and joint[1]:
                sign = -1
            factors += _raised(factor, sign)

    def factor(self, depth: int) -> Factors:
        """A name or a bracket with its power; empty if there is none."""
        self.takes(_NOTHING)
        before = self.takes(_POWER_BEFORE)
        power = 1
        if before:
            power = 2 if before[1] else 3
        content = self.fraction(depth) or self.bracket(depth)
        if content:
            return _raised(content, power * self.power())
        word = self.word()
        power *= self.power()
        *others, last = _names_of(word, power < 0)
        self.count += 1 + len(others)
        if self.count > _MOST_FACTORS:
            raise NotRead("a unit of too many factors")
        if not last:
            return []
        return [*((name, 1) for name in others), (last, power)]

    def fraction(self, depth: int) -> Factors:
        r"""The factors of `\frac{m}{s}`; empty if there is no fraction."""
        if not self.takes(_FRACTION):
            return []
        numerator = self.bracket(depth)
        return numerator and numerator + _raised(self.bracket(depth), -1)

    def bracket(self, depth: int) -> Factors:
        """The product in brackets; empty if there is none."""
        start = self.position
        opening = self.takes(_OPENING)
        if opening and depth < _DEEPEST:
            factors = self.product(depth + 1)
            if self.takes(_CLOSING[opening[1]]):
                return factors
        self.position = start
        return []

    def power(self) -> int:
        """The power after a factor, or 1."""
        in_words = self.takes(_POWER_IN_WORDS)
        if in_words:
            return 2 if in_words[1] else 3
        power = self.takes(_POWER) or self.takes(_POWER_BEHIND)
        return int(power[power.lastindex or 0]) if power else 1

    def word(self) -> str:
        r"""A symbol, a word, or two words that are one name; `\mu` becomes u, and `\Omega` Ohm."""
        if self.takes(_OHM):
            return "Ohm"
        if self.takes(_ANGSTROM):
            return "AA"
        micro = self.takes(_MICRO)
        if micro and self.takes(_OHM):
            return "uOhm"
        letters = self.takes(_LETTERS)
        if not letters:
            return ""
        word = letters[1] or letters[2]
        if micro:
            return "u" + word
        if word in _PREFIXES and self.takes(_OHM):
            return word + "Ohm"
        following = _LETTERS.match(self.text, self.position)
        if following:
            two_words = f"{singular(word)} {singular(following[0].strip(' ' + chr(92))).lower()}"
            if two_words in _TWO_WORDS:
                self.position = following.end()
                return _TWO_WORDS[two_words]
        return word


def _raised(factors: Factors, power: int) -> Factors:
    return [(name, exponent * power) for name, exponent in factors]


def _names_of(word: str, is_divided_by: bool) -> list[str]:
    """The units that a word names, several for `Nm`; `[""]` if it names none."""
    speed = _SPEED.fullmatch(word) if is_divided_by else None
    if speed:
        return [SYMBOLS[speed[1]], "second"]
    if word in SYMBOLS:
        return [SYMBOLS[word]]
    if _JOINED_SYMBOLS.fullmatch(word):
        return [SYMBOLS[symbol] for symbol in _SYMBOL.findall(word)]
    name = unit_name(word)
    parts = word.split("-")
    if len(parts) > 1 and name not in _NAMES:
        return [unit_name(part) for part in parts]
    is_word = len(word) >= _SHORTEST_WORD or name in _NAMES
    if not is_word or word.lower() in _OPERATORS or is_sentence([word]):
        return [""]
    return [name]


_NAMES = frozenset(_SYMBOLS_OF) | frozenset(_WORDS_OF) | frozenset(_METRIC.values())


# units in LaTeX's package siunitx

_MACRO = re.compile(r"\\(?:([a-zA-Z]+)|[ ,;:>])\s?|[.~]")
_MACROS = {
    "per": "/", "squared": "^2", "cubed": "^3", "square": " square ", "cubic": " cubic ",
    "celsius": " celsius", "degreeCelsius": " celsius", "degree": " degrees", "percent": "%",
    "tothe": "^", "cdot": "*", "times": "*", "Omega": "\\Omega ", "mu": "\\mu ", "%": "%",
    "text": "", "mathrm": "", "frac": "\\frac",
}  # fmt: skip
_JOINED_MACROS = frozenset(_PREFIXES.values()) | words("kilo mega deca deka")
_DIVISOR = re.compile(  # the divisor of `\per`: only the next unit, with its prefix and power
    rf"\\per(?![a-zA-Z])\s*"
    rf"(?:\\(?:square|cubic|{'|'.join(sorted(_JOINED_MACROS))})(?![a-zA-Z])\s*){{0,3}}"
    r"\\?[a-zA-Z]+(?:\s*\\(?:squared|cubed|tothe\s*\{\d\})(?![a-zA-Z]))?"
)


def _macro(macro: re.Match[str]) -> str:
    name = macro[1]
    if name is None:
        return " "
    if name in _MACROS:
        return _MACROS[name]
    return f" {name}" if name not in _JOINED_MACROS else f" {name}\0"


def without_siunitx(command: re.Match[str]) -> str:
    r"""`5\text{ m/s}` for `\SI{5}{m/s}` and `\qty{5}{\meter\per\second}`.

    The divisors come last: `\watt\per\meter\kelvin` is W K / m.
    """
    number, _, unit = command.groups()
    unit = _DIVISOR.sub("", unit) + "".join(_DIVISOR.findall(unit))
    spelt = _MACRO.sub(_macro, unit).replace("\0 ", "")
    return rf"{number or ''}\text{{ {spelt.strip()}}}"
