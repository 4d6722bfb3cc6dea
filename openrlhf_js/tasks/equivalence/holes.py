"""Take single points out of intervals: `[0, 2] \\setminus \\{1\\}` is two intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from openrlhf_js.tasks.equivalence.tree import Tree
from openrlhf_js.tasks.equivalence.values import rational

MAX_HOLES = 64
_INFINITY = Tree("inf", ())
_BELOW = Tree("neg", (_INFINITY,))
REALS = Tree("group", ("(", ")", _BELOW, _INFINITY))


def without(intervals: list[Tree] | None, holes: Sequence[Tree]) -> list[Tree] | None:
    """The intervals less the points, or None where the order of their ends cannot be told."""
    if intervals == [REALS] and len(holes) == 1:  # of any value
        return [_interval("(", _BELOW, holes[0], ")"), _interval("(", holes[0], _INFINITY, ")")]
    if len(holes) > MAX_HOLES:
        return None
    for hole in holes:
        at = _size(hole)
        if intervals is None or at is None:
            return None
        cut = [_cut(interval, hole, at) for interval in intervals]
        intervals = None if None in cut else [piece for parts in cut if parts for piece in parts]
    return intervals


def _cut(interval: Tree, hole: Tree, at: Fraction | float) -> list[Tree] | None:
    """What is left of one interval, which may be a single point."""
    opening, closing, *ends = interval.args
    if opening == "\\{":
        point = _size(ends[0])
        return None if point is None else [interval] * (point != at)
    low, high = map(_size, ends)
    if low is None or high is None:
        return None
    if low < at < high:
        return [
            _interval(opening, ends[0], hole, ")"),
            _interval("(", hole, ends[1], closing),
        ]
    opening, closing = "(" if at == low else opening, ")" if at == high else closing
    return [_interval(opening, ends[0], ends[1], closing)]


def _interval(opening: str, left: Tree, right: Tree, closing: str) -> Tree:
    return Tree("group", (opening, closing, left, right))


def _size(end: Tree) -> Fraction | float | None:
    if end in (_INFINITY, _BELOW):
        return math.inf if end == _INFINITY else -math.inf
    return rational(end)
