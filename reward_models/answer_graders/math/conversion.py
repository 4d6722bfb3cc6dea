"""The meaning of units: their sizes in base units, and how to convert values.

pint supplies prefixes, sizes and dimensions, for one name at a time; it evaluates no expression. It
is loaded only when two units with different names are compared.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from answer_graders.math.exact import rational
from answer_graders.math.tree import Tree, node, number, words
from answer_graders.math.units import Unit, merged

_MEANINGS = {  # missing in pint, or different at school; one of several meanings must fit
    "C": "coulomb | celsius",
    "F": "farad | fahrenheit",
    "cc": "centimeter 3",
    "kmh": "kilometer / hour",
    "mpg": "mile / gallon",
    "mmhg": "torr",
    "cmhg": "10 torr",
    "acre": "43560 foot 2",
    "ton": "2000 avoirdupois_pound | 1000 kilogram",
    "lb": "avoirdupois_pound | force_pound",
    "pound": "lb | gbp",
    "fluid_ounce": "1/16 pint",
    "ounce": "1/16 avoirdupois_pound | fluid_ounce",
    "degree": "1/180 pi radian",
    "arcminute": "1/60 degree",
    "arcsecond": "1/3600 degree",
    "singleprime": "foot | arcminute",
    "doubleprime": "inch | arcsecond",
    "gradian": "1/200 pi radian",
    "turn": "2 pi radian | cycle",
    "cycle": "cycle",
    "rpm": "turn / minute",
    "hertz": "cycle / second",
    "becquerel": "decay / second",
    "gauss": "1/10000 tesla",
    "curie": "37000000000 becquerel",
    "gray": "absorbed joule / kilogram",
    "sievert": "equivalent joule / kilogram",
    "steradian": "steradian",
    "lumen": "candela steradian",
    "lux": "lumen / meter 2",
    "decibel": "decibel",
    "month": "month",
    "year": "12 month | 365 day",
    "decade": "10 year",
    "century": "100 year",
    "cent": "1/100 dollar | 1/100 euro",
    "pence": "1/100 gbp",
    "paisa": "1/100 rupee",
}
_SCALES = {"celsius": Fraction("273.15"), "fahrenheit": Fraction("459.67") * 5 / 9}  # zeros in K
_PREFIX = re.compile("femto|pico|nano|micro|milli|centi|deci|deca|hecto|kilo|mega|giga|tera")
# Base units that may be left out, but are not interchangeable: hertz is not becquerel.
_SILENT = words("cycle decay radian absorbed equivalent")
_MOST_MEANINGS = 16
MOST_PARTS = 6  # of a compound quantity
_WITHIN = {  # meaning of a name after a larger unit: 30 degrees 30 minutes, 1h30m
    ("degree", "minute"): "arcminute",
    ("degree", "second"): "arcsecond",
    ("arcminute", "second"): "arcsecond",
    ("day", "m"): "minute",
    ("hour", "m"): "minute",
}
_SHORTEST_NAME = 3  # letters; shorter names are symbols, already spelt out


class BaseUnits(NamedTuple):
    r"""A unit in base units: size \pi^{pi} times `dimensions`, with its own zero at `zero`."""

    size: Fraction
    pi: int
    zero: Fraction
    dimensions: Unit


class Conversion(NamedTuple):
    r"""x in one unit is x times ratio \pi^{pi}, plus offset, in the other."""

    ratio: Fraction
    pi: int = 0
    offset: Fraction = Fraction(0)

    def of(self, value: Tree) -> Tree:
        """The value in the other unit."""
        value = node("mul", value, number(self.ratio))
        if self.pi:
            value = node("mul", value, node("pow", node("sym", "\\pi"), number(self.pi)))
        if self.offset:
            value = node("add", value, number(self.offset))
        return value


SAME = Conversion(Fraction(1))


def conversions(unit: Unit, other: Unit) -> list[Conversion]:
    """The possible conversions from one unit to another; none if their kinds differ."""
    found: dict[Conversion, None] = {}
    for base, other_base in itertools.product(in_base_units(unit), in_base_units(other)):
        if _are_alike(base.dimensions, other_base.dimensions):
            conversion = Conversion(
                ratio=base.size / other_base.size,
                pi=base.pi - other_base.pi,
                offset=(base.zero - other_base.zero) / other_base.size,
            )
            found[conversion] = None
    return list(found)


def _are_alike(dimensions: Unit, other: Unit) -> bool:
    heard, silent = _heard_and_silent(dimensions)
    other_heard, other_silent = _heard_and_silent(other)
    return heard == other_heard and (not silent or not other_silent or silent == other_silent)


def _heard_and_silent(dimensions: Unit) -> tuple[Unit, Unit]:
    silent = tuple(factor for factor in dimensions if factor[0] in _SILENT)
    heard = tuple(factor for factor in dimensions if factor[0] not in _SILENT)
    return heard, silent


def in_base_units(unit: Unit) -> list[BaseUnits]:
    """The possible meanings of a unit in base units; an unknown name is its own base unit.

    A temperature scale has its zero only if the unit is alone: `J/(kg °C)` is `J/(kg K)`.
    """
    meanings = [_meanings(name) for name, _ in unit]
    is_alone = [power for _, power in unit] == [1]
    bases = []
    for meaning in itertools.islice(itertools.product(*meanings), _MOST_MEANINGS):
        size = Fraction(1)
        pi = 0
        factors: list[tuple[str, int]] = []
        for base, (_, power) in zip(meaning, unit, strict=True):
            size *= base.size**power
            pi += base.pi * power
            factors += [(name, exponent * power) for name, exponent in base.dimensions]
        zero = meaning[0].zero if is_alone else Fraction(0)
        bases.append(BaseUnits(size, pi, zero, merged(factors)))
    return bases


@functools.lru_cache(maxsize=1 << 12)
def _meanings(name: str) -> tuple[BaseUnits, ...]:
    """The possible meanings of a name."""
    if name in _SCALES:
        degree = Fraction(5, 9) if name == "fahrenheit" else Fraction(1)
        return (BaseUnits(degree, 0, _SCALES[name], (("kelvin", 1),)),)
    if name in _MEANINGS:
        return tuple(_in_words(name))
    prefix = _PREFIX.match(name)
    if prefix and name[prefix.end() :] in _MEANINGS:
        (scale,) = _meanings(prefix[0] + "meter")
        meanings = _meanings(name[prefix.end() :])
        return tuple(meaning._replace(size=meaning.size * scale.size) for meaning in meanings)
    return (_in_pint(name) or _base_unit(name),)


def _base_unit(name: str) -> BaseUnits:
    return BaseUnits(Fraction(1), 0, Fraction(0), ((name, 1),))


def _in_words(name: str) -> Iterator[BaseUnits]:
    """The meanings of a name in the table above."""
    for text in _MEANINGS[name].split(" | "):
        size, pi, unit = _read(text)
        if text == name:
            yield _base_unit(name)
            continue
        for base in in_base_units(unit):
            yield base._replace(size=base.size * size, pi=base.pi + pi)


def _read(text: str) -> tuple[Fraction, int, Unit]:
    r"""The size, the power of \pi and the unit in a line of `_MEANINGS`."""
    size = Fraction(1)
    pi = 0
    sign = 1
    factors: list[tuple[str, int]] = []
    for index, word in enumerate(text.split()):
        if word == "/":
            sign = -1
        elif word == "pi":
            pi = 1
        elif word[0].isalpha():
            factors.append((word, sign))
        elif index == 0:
            size = Fraction(word)
        else:
            name, power = factors.pop()
            factors.append((name, power * int(word)))
    return size, pi, merged(factors)


@functools.cache
def registry() -> Any:
    """pint's units with exact sizes."""
    import pint  # takes half a second

    return pint.UnitRegistry(non_int_type=Fraction)


def _in_pint(name: str) -> BaseUnits | None:
    """The meaning of a name in pint, spelt out: `millimeter`, `torr`; None if unknown."""
    if len(name) < _SHORTEST_NAME:
        return None
    from pint import OffsetUnitCalculusError
    from pint.util import UnitsContainer

    for prefix, unit, suffix in registry().parse_unit_name(name):
        rest = name.removeprefix(prefix)
        if suffix or len(rest) < _SHORTEST_NAME or (prefix and rest == name):
            continue  # `cat` is not centi-`at`
        container = UnitsContainer({prefix + unit: 1})
        try:
            size, root_units = registry().get_root_units(container, check_nonmult=True)
        except OffsetUnitCalculusError:  # a scale with a prefix: `millicelsius`
            return None
        powers = dict(registry().Quantity(1, root_units).unit_items())
        if size is not None and powers and all(power == int(power) for power in powers.values()):
            dimensions = merged((base, int(power)) for base, power in powers.items())
            return BaseUnits(Fraction(size), 0, Fraction(0), dimensions)
    return None


class Part(NamedTuple):
    """A part of a compound quantity."""

    value: Tree
    unit: Unit
    spelling: str  # of the unit


def compound(parts: Sequence[Part]) -> Tree | None:
    """The value of `1 h 30 min` in its first unit; None if the parts are no such quantity.

    Each part must be less than one unit of the part before; all but the last must be whole numbers.
    """
    first, *others = parts
    total = previous = rational(first.value)
    if total is None or total < 0 or len(parts) > MOST_PARTS:
        return None
    larger = first.unit
    scale = Fraction(1)
    for part in others:
        unit = _within(larger, part)
        value = rational(part.value)
        ratio = _part_of(unit, larger)
        if value is None or previous is None or previous.denominator > 1:
            return None
        if ratio is None or not 0 <= value * ratio < 1:
            return None
        scale *= ratio
        total += value * scale
        previous = value
        larger = unit
    return number(total)


def _part_of(unit: Unit, larger: Unit) -> Fraction | None:
    """The ratio of a unit to a larger unit; None if it is no part of it."""
    for ratio, pi, offset in conversions(unit, larger):
        if ratio < 1 and not pi and not offset:
            return ratio
    return None


def _within(larger: Unit, part: Part) -> Unit:
    """The unit of a part after a larger unit, which may change the meaning of its name."""
    ((larger_name, _), *_), ((name, power), *_) = larger, part.unit
    meaning = _WITHIN.get((larger_name, part.spelling)) or _WITHIN.get((larger_name, name))
    return ((meaning, power),) if meaning else part.unit
