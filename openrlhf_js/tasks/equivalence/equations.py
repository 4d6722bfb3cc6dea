r"""The parts of an equation, an inequality or a rounding: `x = 2 + 3 = 5`, `x \approx 0.33`."""

from __future__ import annotations

from fractions import Fraction

from openrlhf_js.tasks.equivalence.members import has_ellipsis, is_name, is_name_sum
from openrlhf_js.tasks.equivalence.tree import Tree

_LEAST_UNIT = Fraction(1, 10**20)
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def is_rounding(tree: Tree) -> bool:
    """Whether a sign of rounding stands in a chain."""
    return tree.kind == "rel" and "~" in tree.args[0]


def parts(tree: Tree) -> tuple[Tree, Tree]:
    """What stands before the first sign of rounding, and after it."""
    operators, *sides = tree.args
    at = operators.index("~")
    return (
        _chain(operators[:at], sides[: at + 1]),
        _chain(operators[at + 1 :], sides[at + 1 :]),
    )


def _chain(operators: tuple[str, ...], sides: list[Tree]) -> Tree:
    return Tree("rel", (operators, *sides)) if operators else sides[0]


def rounding_error(value: Fraction) -> Fraction:
    """How far a rounded value may be from the exact one: a unit of its last digit, or 5 %."""
    unit, scaled = Fraction(1), abs(value)
    while scaled.denominator > 1 and unit > _LEAST_UNIT:
        unit, scaled = unit / 10, scaled * 10
    while scaled and scaled % 10 == 0:
        unit, scaled = unit * 10, scaled / 10
    share = abs(value) / 20
    return share if scaled.denominator > 1 else min(unit, max(share, unit / 2))


def sides_of(tree: Tree) -> tuple[Tree, ...]:
    """The values that an equation or chain gives to a name: `x = 2 + 3 = 5` gives `2 + 3` and 5.

    What is asked may be a sum of names, `m + n = 5 + 7 = 12`, or be written out with an ellipsis.
    """
    sides = tree.args[1:]
    if is_name(sides[0]):
        sides = sides[1:]
    elif is_name(sides[-1]):
        sides = sides[:-1]
    elif len(sides) > 2 and is_name_sum(sides[0]):
        sides = sides[1:]
    return tuple(side for side in sides if not has_ellipsis(side)) or sides


def ascending(tree: Tree) -> Tree:
    """The inequality with its sides from the least to the greatest, where all its signs agree."""
    operators, *sides = tree.args
    if set(operators) <= {">", ">="}:
        return Tree("rel", (tuple(_FLIPPED[op] for op in operators[::-1]), *sides[::-1]))
    return tree


def difference(tree: Tree) -> Tree:
    """The left side minus the right one."""
    return Tree("add", (tree.args[1], Tree("neg", (tree.args[2],))))
