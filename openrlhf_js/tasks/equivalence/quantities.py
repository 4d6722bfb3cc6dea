"""Numbers with a unit: which values to compare when one side has a unit, both have, or none."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from openrlhf_js.tasks.equivalence.tokens import NotRead
from openrlhf_js.tasks.equivalence.tree import Tree, number
from openrlhf_js.tasks.equivalence.units import Unit, unit
from openrlhf_js.tasks.equivalence.values import rational

_DEGREE = unit("degree")
_PERCENT = unit("percent")
_CENT = unit("cent")
_TEMPERATURES = {"C": unit("celsius"), "F": unit("fahrenheit")}


class Quantity(NamedTuple):
    """A value, and its unit if one is written."""

    value: Tree
    unit: Unit | None


def quantity(tree: Tree) -> Quantity:
    """The tree as a value with its unit.

    Raises:
        NotRead: if parts with different units are put together (`3 hours 5 apples`), or the words
            behind a number are no unit.
    """
    kind, args = tree
    if kind == "measure":
        return _measured(args)
    if kind in ("deg", "pct"):
        return Quantity(args[0], _DEGREE if kind == "deg" else _PERCENT)
    if kind == "neg":
        inner = quantity(args[0])
        return (
            Quantity(Tree("neg", (inner.value,)), inner.unit)
            if inner.unit
            else Quantity(tree, None)
        )
    if kind == "mul" and args[0].kind == "deg" and args[1].args[0] in _TEMPERATURES:
        return Quantity(args[0].args[0], _TEMPERATURES[args[1].args[0]])
    return Quantity(tree, None)


def _in_unit_of(tree: Tree, other: Quantity) -> Quantity:
    """`5m` beside `6 cm` is five metres rather than a product."""
    if other.unit and tree.kind == "mul" and tree.args[1].kind == "sym":
        value, name = tree.args[0], tree.args[1].args[0]
        if name.isalpha() and unit(name).dimensions == other.unit.dimensions:
            return Quantity(value, unit(name))
    return Quantity(tree, None)


def _measured(parts: tuple[tuple[Tree, str], ...]) -> Quantity:
    units = [unit(text) for _, text in parts]
    if len(parts) == 1:
        value = parts[0][0]
        if value.kind == "deg" and parts[0][1] in _TEMPERATURES:
            return Quantity(value.args[0], _TEMPERATURES[parts[0][1]])
        if value.kind == "pct":  # a percentage of something
            return Quantity(value.args[0], _PERCENT)
        return Quantity(value, units[0] if units[0].dimensions else None)
    falling = all(big.factor > small.factor for big, small in pairwise(units))
    if len({part.dimensions for part in units}) > 1 or not falling:
        raise NotRead("several quantities")
    total = _times(parts[0][0], units[0].factor)
    for (value, _), part in zip(parts[1:], units[1:], strict=True):
        total = Tree("add", (total, _times(value, part.factor)))
    return Quantity(total, Unit(units[0].dimensions, Fraction(1)))


def readings(answer: Quantity, gold: Quantity) -> Iterator[tuple[Tree, Tree]]:
    """The pairs of values of which one must agree; none where the units contradict each other.

    A unit may be missing on one side. A percentage may then be meant as its hundredth or, from 1
    up, as the number before the sign; degrees may then be meant in radians.
    """
    if answer.unit is None:
        answer = _in_unit_of(answer.value, gold)
    elif gold.unit is None:
        gold = _in_unit_of(gold.value, answer)
    left, right = answer.value, gold.value
    if answer.unit is None or gold.unit is None:
        yield from _one_sided(left, right, answer.unit or gold.unit, answer.unit is None)
    elif answer.unit.dimensions == gold.unit.dimensions:
        if answer.unit.factor == gold.unit.factor:
            yield left, right
        else:
            yield _times(left, answer.unit.factor), _times(right, gold.unit.factor)


def _one_sided(
    left: Tree, right: Tree, given: Unit | None, on_gold: bool
) -> Iterator[tuple[Tree, Tree]]:
    if given == _PERCENT:
        percent = rational(right if on_gold else left)
        if percent is None or abs(percent) >= 1:
            yield left, right
        given_value = Tree("pct", (right if on_gold else left,))
        yield (left, given_value) if on_gold else (given_value, right)
        return
    yield left, right
    if given == _CENT and not on_gold:  # `75 cents` where dollars are asked for
        yield _times(left, _CENT.factor), right
    if given == _DEGREE:
        in_radians = Tree("deg", (right if on_gold else left,))
        yield (left, in_radians) if on_gold else (in_radians, right)


def _times(value: Tree, factor: Fraction) -> Tree:
    return value if factor == 1 else Tree("mul", (value, number(factor)))
