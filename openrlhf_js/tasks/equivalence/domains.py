"""Sets of real numbers, however they are written, as a list of intervals and single points."""

from __future__ import annotations

from collections.abc import Iterable

from openrlhf_js.tasks.equivalence.holes import REALS, without
from openrlhf_js.tasks.equivalence.members import is_name
from openrlhf_js.tasks.equivalence.tree import Tree

_INFINITY = Tree("inf", ())
_BELOW = Tree("neg", (_INFINITY,))
_DISCRETE = [Tree("field", (name,)) for name in "ZNQ"]


def is_domain(tree: Tree) -> bool:
    """Whether the tree is written as a set of reals and in no other way could be read."""
    if tree.kind != "list":
        return tree.kind in ("union", "minus", "meet", "field")
    operators = [set(item.args[0]) if item.kind == "rel" else set() for item in tree.args]
    if {"!="} in operators:  # `x \geq 0, x \neq 1`, `x \neq 0, 1`
        return not any("=" in each for each in operators)
    return all(each - {"=", "in"} for each in operators)


def is_discrete(tree: Tree) -> bool:
    r"""Whether the tree is a list of inequalities for whole numbers: `x > 2, x \in \mathbb{Z}`."""
    return tree.kind == "list" and any(
        item.kind == "rel" and item.args[0] == ("in",) and item.args[2] in _DISCRETE
        for item in tree.args
    )


def is_continuous(tree: Tree) -> bool:
    """Whether the tree is written as an interval, or with intervals."""
    interval = tree.kind == "group" and len(tree.args) == 4 and tree.args[0] != "\{"
    return interval or is_domain(tree)


def pieces(tree: Tree) -> list[Tree] | None:
    """The intervals and sets whose union the tree is, or None where that cannot be told."""
    kind, args = tree
    if kind == "group" and len(args) == 4 and args[0] in "([" and args[1] in ")]":
        return [tree]
    if kind == "group" and args[0] == "\{":
        return [Tree("group", ("\{", "\}", item)) for item in args[2:]]
    if kind == "empty":
        return []
    if kind == "field":
        return [REALS] if args == ("R",) else None
    if kind == "list":
        return _listed(args)
    if kind == "union":
        return _together(args)
    if kind == "minus":
        holes = args[1].args[2:] if args[1].kind == "group" else (args[1],)
        points = args[1].kind != "group" or args[1].args[0] == "\{"
        return without(pieces(args[0]), holes) if points else None
    if kind == "rel" and args[0] == ("in",):
        return pieces(args[2]) if is_name(args[1]) else None
    return _solutions(tree) if kind == "rel" else None


def _together(trees: Iterable[Tree]) -> list[Tree] | None:
    parts = [pieces(tree) for tree in trees]
    return None if None in parts else [piece for part in parts if part for piece in part]


def _listed(items: tuple[Tree, ...]) -> list[Tree] | None:
    r"""What inequalities of one variable give together, less the points after a `\neq`."""
    if len({item.args[i] for item in items if (i := _side(item))}) > 1:
        return None
    if not any(item.kind == "rel" and item.args[0] == ("!=",) for item in items):
        return _together(items)
    wholes = [item for item in items if is_continuous(item) or _is_inequality(item)]
    holes = [item for item in items if item not in wholes]
    if any(not _side(item) for item in holes if wholes or item.kind == "rel"):
        return None
    values = [item if item.kind != "rel" else item.args[3 - _side(item)] for item in holes]
    return without(_together(wholes) if wholes else [REALS], values)


def _is_inequality(item: Tree) -> bool:
    return item.kind == "rel" and item.args[0] != ("!=",)


def _side(item: Tree) -> int:
    """Which argument of a relation is a variable alone; 0 for none."""
    if item.kind != "rel":
        return 0
    return next((i for i, side in enumerate(item.args) if i and side.kind == "sym"), 0)


def _interval(opening: str, left: Tree, right: Tree, closing: str) -> Tree:
    return Tree("group", (opening, closing, left, right))


def _solutions(tree: Tree) -> list[Tree] | None:
    """What an inequality leaves to the one variable that stands alone in it."""
    operators, *sides = tree.args
    if set(operators) <= {"<", "<="}:
        operators, sides = tuple(">" + op[1:] for op in operators[::-1]), sides[::-1]
    if operators == ("!=",):
        return _listed((tree,))
    if not set(operators) <= {">", ">="}:
        return None
    strict = ["(" if op == ">" else "[" for op in operators]
    closing = [")" if op == ">" else "]" for op in operators]
    if len(sides) == 2 and sides[1].kind == "call" and sides[1].args[0] == "abs":  # a > |x|
        bound, inner = sides[0], sides[1].args[1]
        return _solutions(Tree("rel", (operators * 2, bound, inner, Tree("neg", (bound,)))))
    if len(sides) == 2 and sides[0].kind == "call" and sides[0].args[0] == "abs":  # |x| > a
        inner, bound = sides[0].args[1], sides[1]
        above = _solutions(Tree("rel", (operators, inner, bound)))
        below = _solutions(Tree("rel", (operators, Tree("neg", (bound,)), inner)))
        return [*below, *above] if above and below else None
    if len(sides) == 3 and sides[1].kind == "sym":
        return [_interval(strict[1], sides[2], sides[0], closing[0])]
    if len(sides) == 2 and sides[0].kind == "sym":
        return [_interval(strict[0], sides[1], _INFINITY, ")")]
    if len(sides) == 2 and sides[1].kind == "sym":
        return [_interval("(", _BELOW, sides[0], closing[0])]
    return None
