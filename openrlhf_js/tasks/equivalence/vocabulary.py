"""Words in answers: units, number words, and what makes a sentence of a number."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from itertools import zip_longest
from typing import NamedTuple

from openrlhf_js.tasks.equivalence.tree import NotRead, words

Unit = tuple[str, ...]  # names of units, their powers and signs

# fmt: off
_SPELLINGS = {  # a unit, or a word between units, and how else it is spelt
    "m": "meter metre", "km": "kilometer kilometre", "cm": "centimeter centimetre",
    "mm": "millimeter", "in": "inch inche", "ft": "foot feet", "yd": "yard", "mi": "mile",
    "s": "sec second", "ms": "millisecond", "min": "minute", "h": "hr hrs hour", "year": "yr",
    "kg": "kilogram", "g": "gram", "mg": "milligram", "lb": "lbs pound", "oz": "ounce",
    "l": "liter litre", "ml": "mL milliliter", "dl": "dL", "kl": "kL", "gallon": "gal",
    "quart": "qt", "pint": "pt", "N": "newton", "J": "joule", "kj": "kJ", "W": "watt", "kw": "kW",
    "A": "ampere", "V": "volt", "hz": "Hz", "khz": "kHz", "mhz": "MHz", "pa": "Pa", "kpa": "kPa",
    "K": "kelvin", "C": "celsius", "F": "fahrenheit", "B": "byte", "kb": "KB", "mb": "MB",
    "gb": "GB", "tb": "TB", "dollar": "usd buck", "euro": "eur", "gbp": "", "yen": "jpy",
    "rupee": "rs Rs inr", "degree": "deg", "radian": "rad", "percent": "pct percentage",
    "2": "square sq squared", "3": "cubic cu cubed", "/": "per", "kmh": "kph",
}
_SIZES = {  # of the units that are no base units
    "km": "1000 m", "cm": "1/100 m", "mm": "1/1000 m", "in": "0.0254 m", "ft": "0.3048 m",
    "yd": "0.9144 m", "mi": "1609.344 m", "ms": "1/1000 s", "min": "60 s", "h": "3600 s",
    "day": "86400 s", "week": "604800 s", "kg": "1000 g", "mg": "1/1000 g", "lb": "453.59237 g",
    "oz": "28.349523125 g", "l": "1/1000 m 3", "dl": "1/10000 m 3", "ml": "1/1000000 m 3",
    "kl": "1 m 3", "gallon": "4 quart", "pint": "1/2 quart", "kmh": "5/18 m / s", "kj": "1000 J",
    "kw": "1000 W", "khz": "1000 hz", "mhz": "1000000 hz", "kpa": "1000 pa", "cent": "1/100 dollar",
}
# fmt: on
_UNIT_NAMES: dict[str, str] = {}
for _unit_name, _spellings in _SPELLINGS.items():
    _UNIT_NAMES |= dict.fromkeys([_unit_name, *_spellings.split()], _unit_name)
_UNIT_SIZES: dict[str, tuple[Fraction, Unit]] = {}
for _unit_name, _meaning in _SIZES.items():
    _size, *_base = _meaning.split()
    _UNIT_SIZES[_unit_name] = (Fraction(_size), tuple(_base))
_SKIPPED_IN_UNITS = words("of the a an ^ * 1")
_MOST_UNIT_WORDS = 10
_UNIT_POWER = re.compile("-?[1-9]")

SHORT_WORDS = (_UNIT_NAMES.keys() - {"in"}) | words("am pm AM PM of is an no No")
# A number in a sentence is no number with a unit, nor is one whose value or sense the words change.
_SENTENCE = words(
    """is are was not no none than more less least most if when where over time isn't but except
    plus minus because since however wait maybe either neither between below under beneath factorial
    doubled tripled halved divided raised too root double twice thrice triple negative wrong
    opposite incorrect false invalid impossible fewer inverse reciprocal score gross"""
)
_COUNTING = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
    fifteen sixteen seventeen eighteen nineteen twenty"""

MONTHS = words(
    """January February March April May June July August September October November December"""
)

NUMBER_WORDS = {word: value for value, word in enumerate(_COUNTING.split())}
ORDINALS = {word + "th": value for word, value in NUMBER_WORDS.items()}
ORDINALS |= dict(first=1, third=3, fifth=5, eighth=8, ninth=9, twelfth=12)
_SHARES = ORDINALS | dict(half=2, halve=2, quarter=4, hundredth=100, thousandth=1000)
SIZES: dict[str, Fraction | int] = {}
for _share, _parts in _SHARES.items():
    if _parts > 1:
        SIZES[_share] = Fraction(1, _parts)
SIZES |= dict(ten=10, dozen=12, hundred=100, thousand=1000, million=10**6, billion=10**9)
SIZES["trillion"] = 10**12
_CHANGES_A_NUMBER = _SENTENCE | SIZES.keys() | NUMBER_WORDS.keys()


def singular(word: str) -> str:
    """The word in lower case and without its plural's s; units of one letter keep their case."""
    if len(word) > 1 or word in "LSGH":
        word = word.lower()
    is_plural = len(word) > 2 and word.endswith("s") and not word.endswith("ss")
    if is_plural:
        return word.removesuffix("s")
    return word


def is_sentence(phrase: Iterable[str]) -> bool:
    """Whether words say something of a number rather than what is counted: `12 below zero`."""
    for word in phrase:
        for form in (word, singular(word)):
            if form in _CHANGES_A_NUMBER or form.endswith("th"):
                return True
    return False


def unit_of(text: str) -> Unit:
    """The unit that words such as `km / h`, `square feet`, `cm ^ 2` or `red apples` stand for."""
    phrase = re.sub(r"\b(square|sq|cubic|cu) (\w+)", r"\2 \1", text).split()
    unit = []
    for word in phrase:
        if word not in _SKIPPED_IN_UNITS:
            word = singular(word)
            unit.append(_UNIT_NAMES.get(word, word))
    is_unit = any(name[0].isalpha() for name in unit)
    if not is_unit or len(phrase) > _MOST_UNIT_WORDS or is_sentence(phrase):
        raise NotRead("a number in a sentence")
    return tuple(unit)


class BaseUnits(NamedTuple):
    """What a unit is in base units: 1000 m for `km`, 1/3600 m and 1/s for `m / h`."""

    size: Fraction
    dimensions: tuple[tuple[str, int], ...]  # base units and their powers, by name


def in_base_units(unit: Unit) -> BaseUnits:
    """The unit in base units; one that is not known, such as `apple`, is a base unit itself."""
    size = Fraction(1)
    powers: Counter[str] = Counter()
    for name, power in _factors(unit):
        factor, base = _UNIT_SIZES.get(name, (Fraction(1), (name,)))
        size *= factor**power
        for base_name, base_power in _factors(base):
            powers[base_name] += base_power * power
    dimensions = [(name, power) for name, power in sorted(powers.items()) if power]
    return BaseUnits(size, tuple(dimensions))


def _factors(unit: Unit) -> list[tuple[str, int]]:
    """The names in a unit with their powers: m with 1 and s with -2 in `m / s 2`."""
    factors: list[tuple[str, int]] = []
    sign = 1
    for name, following in zip_longest(unit, unit[1:], fillvalue=""):
        if name == "/":
            sign = -1
        elif not _UNIT_POWER.fullmatch(name):
            power = int(following) if _UNIT_POWER.fullmatch(following) else 1
            factors.append((name, sign * power))
    return factors
