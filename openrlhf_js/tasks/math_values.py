"""Exact rational values of trees, with bounded work: what decides most answers at once."""

from __future__ import annotations

import math
from fractions import Fraction

from openrlhf_js.tasks.math_syntax import Tree

MAX_BITS = 4_000  # of a numerator or denominator: a greatest common divisor takes its square
_MAX_FACTORIAL = 400


class NotRational(Exception):
    """The tree's value is no rational number, or too large to work out here."""


def rational(tree: Tree, max_bits: int = MAX_BITS) -> Fraction | None:
    """The exact value, or None where it is not rational, not a number, or past the cap."""
    try:
        return _value(tree, max_bits)
    except (NotRational, ZeroDivisionError, RecursionError):
        return None


def _value(tree: Tree, max_bits: int) -> Fraction:
    kind, args = tree
    if kind in ("num", "base"):
        return args[0]
    work = _OPERATIONS.get(kind)
    if work is None or (kind == "call" and args[0] not in _CALLS):
        raise NotRational
    if kind == "call":
        return _capped(_CALLS[args[0]](*(_value(arg, max_bits) for arg in args[1:])), max_bits)
    values = [_value(arg, max_bits) for arg in args]
    if kind == "pow":
        return _power(*values, max_bits=max_bits)
    return _capped(work(*values), max_bits)


def _capped(value: Fraction, max_bits: int) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > max_bits:
        raise NotRational
    return value


def _power(base: Fraction, exponent: Fraction, max_bits: int) -> Fraction:
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


def whole(value: Fraction, limit: int = _MAX_FACTORIAL) -> int:
    """The value as a natural number up to a limit.

    Raises:
        NotRational: if it is none.
    """
    if value.denominator != 1 or not 0 <= value <= limit:
        raise NotRational
    return int(value)


def _integers(*values: Fraction) -> list[int]:
    if any(value.denominator != 1 for value in values):
        raise NotRational
    return [int(value) for value in values]


_OPERATIONS = {
    "neg": lambda a: -a,
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "fact": lambda a: Fraction(math.factorial(whole(a))),
    "pct": lambda a: a / 100,
    "pow": _power,
    "call": None,
}
_OPERATIONS["call"] = _OPERATIONS["neg"]  # its own table stands below
_CALLS = {
    "root": _root,
    "abs": abs,
    "floor": lambda a: Fraction(math.floor(a)),
    "ceil": lambda a: Fraction(math.ceil(a)),
    "binom": lambda a, b: Fraction(math.comb(whole(a), whole(b))),
    "fact2": lambda a: Fraction(math.prod(range(whole(a), 0, -2))),
    "gcd": lambda *args: Fraction(math.gcd(*_integers(*args))),
    "lcm": lambda *args: Fraction(math.lcm(*_integers(*args))),
    "max": max,
    "min": min,
}
