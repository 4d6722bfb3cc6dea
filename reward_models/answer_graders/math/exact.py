r"""Exact values of rational numbers, of polynomial coefficients, and of numbers too long to write.

The last, such as `2^{100000}` or `\binom{2024}{1012}`, are compared by residues: sums, products,
quotients, whole powers and factorials are computed modulo a random prime of 128 bits, drawn when
the process first needs it. Equal expressions have the same residue; different ones of N bits share
it with a probability of about N / 2^{127}. Names, \pi and e stand for random residues.
"""

from __future__ import annotations

import functools
import operator
import secrets
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

from answer_graders.math.tree import Tree, names, number, substituted

MAX_BITS = 4_000  # of a numerator or denominator; their GCD takes quadratic time


def rational(tree: Tree) -> Fraction | None:
    """The exact value, or None if it is not rational, not a number, or over `MAX_BITS`."""
    kind, args = tree
    if kind == "num":
        return args[0]
    operation = OPERATIONS.get(kind)
    if operation is None:
        return None
    operands = [rational(arg) for arg in args]
    if None in operands:
        return None
    try:
        value = operation(*operands)
    except (ValueError, ZeroDivisionError):
        return None
    if _bits(value) > MAX_BITS:
        return None
    return value


def _bits(value: Fraction) -> int:
    return max(abs(value.numerator), value.denominator).bit_length()


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator > 1 or base == exponent == 0:
        raise ValueError
    if _bits(base) * abs(exponent) > MAX_BITS:
        raise ValueError
    return base ** int(exponent)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "neg": operator.neg,
    "add": operator.add,
    "mul": operator.mul,
    "apply": operator.mul,
    "div": operator.truediv,
    "pow": _power,
    "percent": lambda percent: percent / 100,
}


class Parabola(NamedTuple):
    """`square * x^2 + slope * x + constant`."""

    square: Fraction
    slope: Fraction
    constant: Fraction


def parabola(tree: Tree, variable: str) -> Parabola | None:
    """The tree as a polynomial of degree 2 or less with exact coefficients, or None."""
    if _degree(tree, variable) > 2:
        return None
    values = [rational(substituted(tree, variable, number(place))) for place in (-1, 0, 1)]
    below, constant, above = values
    if below is None or constant is None or above is None:
        return None
    mean = (above + below) / 2
    return Parabola(square=mean - constant, slope=(above - below) / 2, constant=constant)


def _degree(tree: Tree, variable: str) -> int:
    """The degree of a polynomial in the variable; more than 2 if the tree is none."""
    if variable not in names(tree):
        return 0
    if tree.kind == "sym":
        return 1
    degrees = [_degree(operand, variable) for operand in tree.args if isinstance(operand, Tree)]
    if tree.kind in ("neg", "add"):
        return max(degrees)
    if tree.kind == "mul" or (tree.kind == "div" and degrees[1] == 0):
        return sum(degrees)
    if tree.kind == "pow" and tree.args[1] == number(2):
        return 2 * degrees[0]
    return 3


# residues

_PRIME_BITS = 128
_MOST_FACTORS = 1 << 17  # of a factorial


@functools.cache
def _prime() -> int:
    """A random prime, modulo which -1 has a square root; random numbers that pass are prime."""
    while True:
        candidate = secrets.randbits(_PRIME_BITS - 2) << 2 | 1 | 1 << (_PRIME_BITS - 1)
        if all(pow(base, candidate - 1, candidate) == 1 for base in (2, 3, 5)):
            return candidate


@functools.lru_cache(maxsize=1 << 10)
def _residue_of_name(name: str) -> int:
    prime = _prime()
    if name != "i":
        return secrets.randbelow(prime)
    while True:
        root = pow(secrets.randbelow(prime), (prime - 1) // 4, prime)
        if root * root % prime == prime - 1:
            return root


def residue(tree: Tree) -> int | None:
    """The residue of a value, or None if it has other operations or cannot be computed."""
    kind, args = tree
    if kind == "num":
        return _quotient(args[0].numerator, args[0].denominator)
    if kind == "sym":
        return _residue_of_name(args[0])
    if kind == "call":
        kind = args[0]
        args = args[1:]
    if kind == "pow":
        return _residue_of_power(residue(args[0]), args[1])
    if kind in ("fact", "binom"):
        try:
            counts = [_count(arg) for arg in args]
        except ValueError:
            return None
        return _factorial(*counts) if kind == "fact" else _binomial(*counts)
    if kind not in _RESIDUES:
        return None
    operands = [residue(arg) for arg in args]
    if None in operands:
        return None
    return _RESIDUES[kind](*operands)


def _quotient(numerator: int, denominator: int) -> int | None:
    """The residue of a quotient, or None if it has none."""
    if denominator % _prime() == 0:
        return None
    return numerator * pow(denominator, -1, _prime()) % _prime()


_RESIDUES: dict[str, Callable[..., int | None]] = {
    "neg": lambda value: -value % _prime(),
    "add": lambda left, right: (left + right) % _prime(),
    "mul": lambda left, right: left * right % _prime(),
    "apply": lambda left, right: left * right % _prime(),
    "div": _quotient,
    "percent": lambda value: _quotient(value, 100),
    "degree": lambda value: _quotient(value * _residue_of_name("\\pi"), 180),
}


def _residue_of_power(base: int | None, exponent_tree: Tree) -> int | None:
    exponent = rational(exponent_tree)
    if base is None or exponent is None or exponent.denominator > 1:
        return None
    if base == 0 and exponent <= 0:
        return None
    return pow(base, int(exponent), _prime())


def _count(tree: Tree) -> int:
    """The value of a tree; ValueError unless it is whole and small enough for a factorial."""
    value = rational(tree)
    if value is None or value.denominator > 1 or not 0 <= value <= _MOST_FACTORS:
        raise ValueError
    return int(value)


def _binomial(count: int, chosen: int) -> int | None:
    if chosen > count:
        return 0
    return _quotient(_factorial(count), _factorial(chosen) * _factorial(count - chosen))


def _factorial(count: int) -> int:
    """The residue of a factorial, from a table that grows on demand."""
    for factor in range(len(_FACTORIALS), count + 1):
        _FACTORIALS.append(_FACTORIALS[-1] * factor % _prime())
    return _FACTORIALS[count]


_FACTORIALS = [1]
