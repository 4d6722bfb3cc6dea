"""Sets of real numbers, however they are written, as a list of intervals and single points."""

from __future__ import annotations

import itertools

from openrlhf_js.tasks.equivalence.tree import Tree
from openrlhf_js.tasks.equivalence.values import rational

_INFINITY = Tree("inf", ())
_BELOW = Tree("neg", (_INFINITY,))
_ENDS = {"<": "(", "<=": "[", ">": ")", ">=": "]"}


def is_domain(tree: Tree) -> bool:
    """Whether the tree is written as a set of reals and in no other way could be read."""
    return tree.kind in ("union", "minus", "meet", "field") or (
        tree.kind == "list"
        and all(item.kind == "rel" and set(item.args[0]) - {"=", "in"} for item in tree.args)
    )


def pieces(tree: Tree) -> list[Tree] | None:
    """The intervals and sets whose union the tree is, or None where that cannot be told."""
    kind, args = tree
    if kind == "group" and len(args) == 4 and args[0] in "([" and args[1] in ")]":
        return [tree]
    if kind == "group" and args[0] == "\\{":
        return [Tree("group", ("\\{", "\\}", item)) for item in args[2:]]
    if kind == "empty":
        return []
    if kind == "field":
        return [_interval("(", _BELOW, _INFINITY, ")")] if args == ("R",) else None
    if kind in ("union", "list"):
        parts = [pieces(arg) for arg in args]
        return None if None in parts else [piece for part in parts if part for piece in part]
    if kind == "minus":
        return _without(args[0], args[1])
    return _solutions(tree) if kind == "rel" else None


def _interval(opening: str, left: Tree, right: Tree, closing: str) -> Tree:
    return Tree("group", (opening, closing, left, right))


def _solutions(tree: Tree) -> list[Tree] | None:
    """What an inequality leaves to the one variable that stands alone in it."""
    operators, *sides = tree.args
    if set(operators) <= {"<", "<="}:
        operators, sides = tuple(">" + op[1:] for op in operators[::-1]), sides[::-1]
    if operators == ("!=",):
        return _without(Tree("field", ("R",)), Tree("group", ("\\{", "\\}", sides[1])))
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


def _without(whole: Tree, holes: Tree) -> list[Tree] | None:
    """The open intervals between the points that are taken out of the reals."""
    if whole != Tree("field", ("R",)) or (holes.kind == "group" and holes.args[0] != "\\{"):
        return None
    members = holes.args[2:] if holes.kind == "group" else (holes,)
    points = [(rational(point), point) for point in members]
    if len(points) > 1:
        if any(value is None for value, _ in points):
            return None
        points.sort(key=lambda pair: pair[0] or 0)
    ends = [_BELOW, *(point for _, point in points), _INFINITY]
    return [_interval("(", left, right, ")") for left, right in itertools.pairwise(ends)]
