"""Read a unit's words: what it measures, and how many base units it is, exactly.

Words that are no known unit stand for themselves, so that `5 apples` is not `5 oranges`.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from openrlhf_js.tasks.equivalence.tokens import NUMBER_WORDS, NotRead

_INCH = Fraction(254, 10000)  # in metres
_POUND = Fraction(45359237, 100_000_000)  # in kilograms
_KNOWN: dict[str, dict[str, Fraction | int | str]] = {
    "length": {
        "m": 1, "meter": 1, "metre": 1, "km": 1000, "kilometer": 1000, "kilometre": 1000,
        "cm": "1/100", "centimeter": "1/100", "centimetre": "1/100", "mm": "1/1000",
        "millimeter": "1/1000", "millimetre": "1/1000", "inch": _INCH, "in": _INCH, "inche": _INCH,
        "ft": 12 * _INCH, "foot": 12 * _INCH, "feet": 12 * _INCH,
        "yd": 36 * _INCH, "yard": 36 * _INCH, "mi": 63360 * _INCH, "mile": 63360 * _INCH,
    },
    "time": {
        "s": 1, "sec": 1, "second": 1, "ms": "1/1000", "min": 60, "minute": 60, "h": 3600,
        "hr": 3600, "hour": 3600, "day": 86400, "week": 604800,
    },
    "years": {"month": 1, "year": 12, "yr": 12, "decade": 120, "century": 1200},
    "mass": {
        "kg": 1, "kilogram": 1, "g": "1/1000", "gram": "1/1000", "mg": "1/1000000", "lb": _POUND,
        "pound": _POUND, "oz": _POUND / 16, "ounce": _POUND / 16, "tonne": 1000,
    },
    "litre": {
        "l": 1, "liter": 1, "litre": 1, "ml": "1/1000", "milliliter": "1/1000",
        "millilitre": "1/1000", "dl": "1/10", "kl": 1000,
    },
    "gallon": {"gallon": 1, "gal": 1, "quart": "1/4", "qt": "1/4", "pint": "1/8", "cup": "1/16"},
    "dollar": {"dollar": 1, "usd": 1, "buck": 1, "cent": "1/100", "dime": "1/10"},
    "gbp": {"gbp": 1}, "euro": {"euro": 1, "eur": 1}, "yen": {"yen": 1, "jpy": 1},
    "rupee": {"rupee": 1, "rs": 1, "inr": 1},
    "degree": {"degree": 1, "deg": 1}, "radian": {"radian": 1, "rad": 1},
    "percent": {"percent": 1, "pct": 1, "percentage": 1},
    "celsius": {"celsiu": 1}, "fahrenheit": {"fahrenheit": 1},
}  # fmt: skip
_UNITS = {
    word: (dimension, Fraction(factor))
    for dimension, words in _KNOWN.items()
    for word, factor in words.items()
}
_POWERS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}
_SPEEDS = {"mph": "mi / h", "kmh": "km / h", "kph": "km / h"}
_IGNORED = frozenset(("of", "the", "a", "an", "in", "approximately", "about"))
# These say something of what is counted, which must be said too.
_IGNORED |= {
    "negative", "wrong", "incorrect", "false", "invalid", "impossible", "fewer", "inverse",
    "reciprocal",
}  # fmt: skip
# A number in a sentence is no number with a unit.
SENTENCE = frozenset((
    "is", "are", "was", "not", "no", "none", "than", "more", "less", "least", "most", "if",
    "when", "where", "over", "times", "isn't", "but", "except", "plus", "minus", "because",
    "since", "however", "wait", "maybe", "either", "neither", "between",
))  # fmt: skip
# Nor is one whose value the words change: `12 below zero`, `12 factorial`, `12 point five`.
_CHANGING = NUMBER_WORDS | {
    "below", "under", "beneath", "factorial", "doubled", "tripled", "halved", "divided", "raised",
    "too", "root", "double", "twice", "triple",
}  # fmt: skip
# How many there are of a unit is said before it: `3 thousand km`, or of what it is a rate.
_AMOUNTS = frozenset((
    "dozen", "dozens", "score", "gross", "hundred", "hundreds", "thousand", "thousands", "million",
    "millions", "billion", "trillion", "half", "halves", "thirds", "quarters", "tenths",
    "hundredths", "thousandths",
))  # fmt: skip
MAX_WORDS = 8


class Unit(NamedTuple):
    """What is measured, as powers of base dimensions, and the size in base units."""

    dimensions: frozenset[tuple[str, int]]
    factor: Fraction


@lru_cache(maxsize=1024)
def unit(text: str) -> Unit:
    """The unit that words such as `km / h`, `square feet`, `cm ^ 2` or `red apples` stand for.

    Raises:
        NotRead: if the words make a sentence rather than a unit.
    """
    pieces = " ".join(_SPEEDS.get(piece, piece) for piece in text.split()).split()
    if len(pieces) > MAX_WORDS or (SENTENCE | _CHANGING).intersection(
        piece.lower() for piece in pieces
    ):
        raise NotRead("a number in a sentence")
    powers: dict[str, int] = {}
    factor = Fraction(1)
    side, given = 1, 1  # of the fraction bar; the power that `square` announces
    for i, piece in enumerate(pieces):
        if piece in _AMOUNTS and powers and pieces[i - 1] not in ("/", "per"):
            raise NotRead("an amount behind a unit")
        if piece in ("/", "per"):
            side = -1
        elif piece in _POWERS:
            given = _POWERS[piece]
        elif (piece[0].isalpha() and piece.lower() not in _IGNORED) or piece == "in":
            raised = pieces[i + 1 : i + 2] == ["^"]
            power = side * (_exponent("".join(pieces[i + 2 : i + 3])) if raised else given)
            name, size = _UNITS.get(_singular(piece), (_singular(piece), Fraction(1)))
            powers[name] = powers.get(name, 0) + power
            factor *= size**power
            given = 1
    if pieces and not powers:
        raise NotRead("words that are no unit")
    return Unit(frozenset((name, power) for name, power in powers.items() if power), factor)


def _singular(word: str) -> str:
    word = word if len(word) == 1 and word not in "LSGH" else word.lower()
    return word[:-1] if len(word) > 2 and word.endswith("s") and not word.endswith("ss") else word


def _exponent(text: str) -> int:
    if text.lstrip("-") not in ("1", "2", "3", "4"):
        raise NotRead("a unit's power is from 1 to 4")
    return int(text)
