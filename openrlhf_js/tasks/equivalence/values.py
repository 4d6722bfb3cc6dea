"""Exact rational values of trees, with bounded work: what decides most answers at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from openrlhf_js.tasks.equivalence.tree import Tree

MAX_BITS = 4_000  # of a numerator or denominator: a greatest common divisor takes its square


class NotRational(Exception):
    """The tree's value is no rational number, or too large to work out here."""


def rational(tree: Tree, max_bits: int = MAX_BITS) -> Fraction | None:
    """The exact value, or None where it is not rational, not a number, or past the cap."""
    try:
        return _value(tree, max_bits)
    except (NotRational, ZeroDivisionError):
        return None


def _value(tree: Tree, max_bits: int) -> Fraction:
    kind, args = tree
    if kind in ("num", "base"):
        return args[0]
    name, operands = (args[0], args[1:]) if kind == "call" else (kind, args)
    work = _OPERATIONS.get(name)
    if work is None:
        raise NotRational
    values = [_value(arg, max_bits) for arg in operands]
    if name in _GROWING:
        values.append(Fraction(max_bits))
    return _capped(work(*values), max_bits)


def _capped(value: Fraction, max_bits: int) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > max_bits:
        raise NotRational
    return value


def _power(base: Fraction, exponent: Fraction, max_bits: Fraction) -> Fraction:
    if exponent.denominator != 1:
        if exponent.denominator > 64 or base < 0:
            raise NotRational
        base = _root(base, Fraction(exponent.denominator))
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    if size * abs(exponent.numerator) > max_bits and base not in (0, 1, -1):
        raise NotRational
    if base in (0, 1, -1):  # however large the exponent
        if base == 0 and exponent <= 0:
            raise NotRational
        return base if base != -1 or exponent.numerator % 2 else Fraction(1)
    return base**exponent.numerator


def _root(value: Fraction, degree: Fraction) -> Fraction:
    if degree.denominator != 1 or not 1 <= degree <= 64:
        raise NotRational
    sign = -1 if value < 0 and degree % 2 else 1
    value *= sign
    if value < 0:
        raise NotRational
    top, bottom = (_whole_root(part, int(degree)) for part in value.as_integer_ratio())
    return sign * Fraction(top, bottom)


def _whole_root(value: int, degree: int) -> int:
    if degree == 2:
        root = math.isqrt(value)
    else:  # Newton from above, in whole numbers
        root = 1 << -(-value.bit_length() // degree)
        while True:
            better = ((degree - 1) * root + value // root ** (degree - 1)) // degree
            if better >= root:
                break
            root = better
    if root**degree != value:
        raise NotRational
    return root


def _factorial(value: Fraction, max_bits: Fraction, step: int = 1) -> Fraction:
    n = _natural(value, max_bits)
    return Fraction(math.factorial(n) if step == 1 else math.prod(range(n, 0, -step)))


def _binomial(n: Fraction, k: Fraction, max_bits: Fraction) -> Fraction:
    return Fraction(math.comb(_natural(n, max_bits), _natural(k, max_bits)))


def _natural(value: Fraction, max_bits: Fraction) -> int:
    """The value as a natural number whose factorial has about `max_bits` bits or fewer."""
    if value.denominator != 1 or not 0 <= value <= max_bits / 10:
        raise NotRational
    return int(value)


def _integers(*values: Fraction) -> list[int]:
    if any(value.denominator != 1 for value in values):
        raise NotRational
    return [int(value) for value in values]


_OPERATIONS: dict[str, Callable[..., Fraction]] = {
    "neg": lambda a: -a,
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "pct": lambda a: a / 100,
    "pow": _power,
    "fact": _factorial,
    "fact2": lambda a, max_bits: _factorial(a, max_bits, step=2),
    "binom": _binomial,
    "root": _root,
    "abs": abs,
    "floor": lambda a: Fraction(math.floor(a)),
    "ceil": lambda a: Fraction(math.ceil(a)),
    "gcd": lambda *args: Fraction(math.gcd(*_integers(*args))),
    "lcm": lambda *args: Fraction(math.lcm(*_integers(*args))),
    "mod": lambda a, b: a % b,
    "max": lambda *args: max(args),
    "min": lambda *args: min(args),
}
_GROWING = frozenset(("pow", "fact", "fact2", "binom"))  # told the cap, to look before they work
