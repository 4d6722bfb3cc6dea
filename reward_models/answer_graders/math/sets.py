"""Sets of reals: intervals, inequalities and finite sets, also joined by set operations.

Two sets are the same if they agree on every end point of either set, and on one point between
each two neighbours.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

from answer_graders.math.exact import parabola, rational
from answer_graders.math.tree import (
    NotRead,
    Tree,
    is_set,
    items_of,
    names,
    node,
    number,
    relation_node,
    replaced,
    sides_of,
    signs_of,
    subtrees,
)

_SET_KINDS: dict[str, Callable[[list[bool]], bool]] = {  # from membership in the operands
    "union": any,
    "meet": all,
    "minus": lambda operands: operands[0] and not operands[1],
}
_RELATIONS = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "=": operator.eq,
}
_TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}  # after multiplication by a negative number
_CONSTANTS = frozenset(["\\pi", "e"])
_ANY_VARIABLE = node("sym", "_")  # the variable of a set without a name
_DISTANCE = node("sym", "distance")  # stands for `|x - 2|`
_UNBOUNDED = (math.inf, -math.inf)

Sizes = dict[Tree, Any]  # numbers for the sides of relations that are not variables
SizesOf = Callable[[Sequence[Tree]], Sequence[Fraction] | None]


def infinite(tree: Tree) -> float:
    """Plus or minus infinity, or 0."""
    if tree.kind == "neg":
        return -infinite(tree.args[0])
    return math.inf if tree.kind == "inf" else 0


def same_set(left: Tree, right: Tree, sizes_of: SizesOf) -> bool:
    """Whether two trees are the same set of reals.

    `sizes_of` returns numbers in the same order as the values of the end points, or None if one is
    not real. NotRead if a tree is no set of reals, or an inequality not solved for one variable.
    """
    domains = [_domain(left), _domain(right)]
    sizes: Sizes = {}
    ends: dict[Tree, None] = {}
    variables: set[str] = set()
    for side in _sides(domains):
        variable = _variable(side)
        if variable is not None:
            variables.add(variable)
        elif names(side) - _CONSTANTS:
            raise NotRead("inequalities that are not solved for one variable")
        elif infinite(side):
            sizes[side] = infinite(side)
        else:
            ends[side] = None
    if len(variables - set(_ANY_VARIABLE.args)) > 1:
        raise NotRead("inequalities of several variables")
    numbers = sizes_of(list(ends))
    if numbers is None:
        return False
    sizes |= zip(ends, numbers, strict=True)
    is_empty = True
    for point in _points_to_try(sizes):
        holds = _holds(domains[0], sizes, point)
        if holds != _holds(domains[1], sizes, point):
            return False
        is_empty = is_empty and not holds
    # An empty set is only what says so: a pair such as (5, 2) is a point, not an interval.
    return not is_empty or any(is_set(tree) and not items_of(tree) for tree in (left, right))


def _sides(domains: list[Tree]) -> Iterator[Tree]:
    for domain in domains:
        for subtree in subtrees(domain):
            if subtree.kind == "rel":
                yield from sides_of(subtree)


def _points_to_try(sizes: Sizes) -> list[Any]:
    """All end points, one point between each two, and one beyond on either side."""
    ends = {0}
    for size in sizes.values():
        if size not in _UNBOUNDED:
            ends.add(size)
    points = sorted(ends)
    between = [(low + high) / 2 for low, high in pairwise(points)]
    beyond = [points[0] - 1, points[-1] + 1]
    return points + between + beyond


def _variable(tree: Tree) -> str | None:
    """The name of the variable, if the tree is one."""
    if tree.kind != "sym" or tree.args[0] in _CONSTANTS:
        return None
    return str(tree.args[0])


def _domain(tree: Tree, is_alternative: bool = False) -> Tree:
    """The set as relations joined by set operations; NotRead if it is not a set of reals.

    An equation is a set of reals only as one of several alternatives: `x < 1 or x = 2`.
    """
    kind = tree.kind
    if kind == "list":  # several conditions, or several intervals
        has_conditions = any(item.kind == "rel" for item in tree.args)
        kind = "meet" if has_conditions else "union"
    if kind in _SET_KINDS:
        operands = [_domain(item, kind == "union") for item in tree.args]
        return Tree(kind, tuple(operands))
    if is_set(tree):
        return node("union", *map(_point, items_of(tree)))
    condition = _interval(tree) or tree
    if condition.kind != "rel":
        raise NotRead("no set of reals")
    signs = set(signs_of(condition))
    if not signs <= _RELATIONS.keys():
        raise NotRead("no set of reals")
    if "=" in signs and not is_alternative:
        raise NotRead("an equation rather than a set of reals")
    without_distance = _without_distance(condition)
    if without_distance:
        return _domain(without_distance, is_alternative=True)
    variables = [side for side in sides_of(condition) if _variable(side) is not None]
    solved = condition if len(variables) == 1 else _solved(condition)
    if solved is None:
        raise NotRead("an inequality that is not solved for one variable")
    return solved


def _without_distance(condition: Tree) -> Tree | None:
    """`x - 2 > 3 or x - 2 < -3` for `|x - 2| > 3`; None unless there is exactly one distance."""
    distances = {
        tree for tree in subtrees(condition) if tree.kind == "call" and tree.args[0] == "abs"
    }
    if len(distances) != 1:
        return None
    (distance,) = distances
    sides = [replaced(side, distance, _DISTANCE) for side in sides_of(condition)]
    conditions = []
    for sign, left, right in zip(signs_of(condition), sides, sides[1:], strict=False):
        solved = _solved(relation_node([sign], [left, right]))
        if solved is None:
            return None
        (solved_sign,) = signs_of(solved)
        name, value = sides_of(solved)
        if name != _DISTANCE:
            name, value = value, name
            solved_sign = _TURNED.get(solved_sign, solved_sign)
        conditions.append(_of_distance(distance.args[1], solved_sign, value))
    return node("meet", *conditions)


def _of_distance(difference: Tree, sign: str, size: Tree) -> Tree:
    """The condition on the difference that `|difference| < size` states, for any sign."""
    above = relation_node([sign], [difference, size])
    below = relation_node([_TURNED.get(sign, sign)], [difference, node("neg", size)])
    if sign in ("=", "!=") and (rational(size) or 0) < 0:
        raise NotRead("a negative distance")
    return node("union" if sign in (">", ">=", "=") else "meet", above, below)


def _solved(condition: Tree) -> Tree | None:
    """`x < -3` for `-2x > 6`: a relation with one linear side, solved for its variable, or None."""
    sides = sides_of(condition)
    unknown_sides = [side for side in sides if names(side) - _CONSTANTS]
    if len(unknown_sides) != 1 or len(names(unknown_sides[0])) != 1:
        return None
    unknown_side = unknown_sides[0]
    (variable,) = names(unknown_side)
    linear = parabola(unknown_side, variable)
    if linear is None or linear.square != 0 or linear.slope == 0:
        return None
    solved_sides = []
    for side in sides:
        solved = node("sym", variable)
        if side != unknown_side:
            shifted = node("add", side, number(-linear.constant)) if linear.constant else side
            solved = node("div", shifted, number(linear.slope)) if linear.slope != 1 else shifted
        solved_sides.append(solved)
    signs = signs_of(condition)
    if linear.slope < 0:
        signs = tuple(_TURNED.get(sign, sign) for sign in signs)
    return relation_node(signs, solved_sides)


def _point(tree: Tree) -> Tree:
    """A point as a relation."""
    if infinite(tree) or _variable(tree) is not None:
        raise NotRead("a set of other things than numbers")
    return relation_node(["="], [_ANY_VARIABLE, tree])


def _interval(tree: Tree) -> Tree | None:
    """The relation that an interval stands for; None if the tree is no valid interval."""
    if tree.kind != "group" or len(tree.args) != 3:
        return None
    brackets, low, high = tree.args
    if len(brackets) != 2:
        return None
    opening, closing = brackets
    low_sign = "<=" if opening == "[" else "<"
    high_sign = "<=" if closing == "]" else "<"
    if low_sign == "<=" and infinite(low):
        return None
    if high_sign == "<=" and infinite(high):
        return None
    return relation_node([low_sign, high_sign], [low, _ANY_VARIABLE, high])


def _holds(domain: Tree, sizes: Sizes, point: Any) -> bool:
    """Whether a point is in a set of reals."""
    if domain.kind in _SET_KINDS:
        is_member = _SET_KINDS[domain.kind]
        return is_member([_holds(operand, sizes, point) for operand in domain.args])
    values = []
    for side in sides_of(domain):
        values.append(sizes.get(side, point))
    for sign, left, right in zip(signs_of(domain), values, values[1:], strict=False):
        if not _RELATIONS[sign](left, right):
            return False
    return True
