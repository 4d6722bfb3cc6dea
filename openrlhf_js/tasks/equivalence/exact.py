"""Exact values: of rational numbers, and of the slope of a line."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

from openrlhf_js.tasks.equivalence.tree import Tree, names, number, substituted

MAX_BITS = 4_000  # of a numerator or denominator: a greatest common divisor takes its square


def rational(tree: Tree) -> Fraction | None:
    """The exact value, or None where it is not rational, not a number, or past the cap."""
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
    if abs(base) == 1:
        return base ** int(exponent % 2)
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


class Line(NamedTuple):
    """`slope * x + constant`."""

    slope: Fraction
    constant: Fraction


def line(tree: Tree, variable: str) -> Line | None:
    """The tree as a linear expression of the variable with exact coefficients, or None."""
    coefficients = parabola(tree, variable)
    if coefficients is None or coefficients.square or _degree(tree, variable) != 1:
        return None
    return Line(slope=coefficients.slope, constant=coefficients.constant)


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
    """The degree of a polynomial in the variable; more than 2 where it is none."""
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
