"""Where functions are compared: at the same points for the same two expressions.

Analytic expressions that agree at a few points in no special place agree everywhere. Those with
pieces, as |x - 5| has, are also looked at where the pieces may meet: at, between and beyond the
constants of both sides and their quotients.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from openrlhf_js.tasks.equivalence.exact import line, rational
from openrlhf_js.tasks.equivalence.tree import Tree, node, subtrees, words

Coordinates = tuple[Fraction, ...]


class Point(NamedTuple):
    """Values of variables, in the order of their names, and whether only real results count."""

    coordinates: Coordinates
    is_real: bool


# in no special place

_POSITIVE_POINTS = 3
_MOST_PATTERNS = 12
_LEAST_SIZE = Fraction(1, 5)
_NEAR = Fraction(4, 5)  # how much larger coordinates may be
_FAR = Fraction(4)


@lru_cache(maxsize=64)
def general_points(count: int) -> tuple[tuple[Point, ...], ...]:
    """Points for as many variables: of each tuple, the first at which all have a value counts.

    There are three with positive coordinates, where values may be complex, and one for every other
    pattern of signs of up to three variables. Of each pattern there is a near point, between 0.2
    and 1, and one further away: at one of them a logarithm or a root may have no real value.
    """
    if count == 0:
        return ((Point((), False),),)
    points: list[tuple[Point, ...]] = []
    for index in range(_POSITIVE_POINTS):
        sizes = _coordinates(index, count, _FAR if index else _NEAR)
        points.append((Point(sizes, False),))
    patterns = _sign_patterns(count)
    if count == 1:
        patterns *= 2
    for index, signs in enumerate(patterns, _POSITIVE_POINTS):
        near_sizes = _coordinates(index, count, _NEAR)
        far_sizes = _coordinates(index, count, _FAR)
        near = Point(_signed(signs, near_sizes), True)
        far = Point(_signed(signs, far_sizes), True)
        points.append((far, near) if index % 2 else (near, far))
    return tuple(points)


def _sign_patterns(count: int) -> list[tuple[int, ...]]:
    """All patterns of signs with a minus for up to three variables, and a few for more."""
    if count <= 3:
        return [signs for signs in itertools.product((1, -1), repeat=count) if -1 in signs]
    patterns = [(-1,) * count]
    for index in range(min(count, _MOST_PATTERNS)):
        signs = [1] * count
        signs[index] = -1
        patterns.append(tuple(signs))
    return patterns


def _signed(signs: Sequence[int], sizes: Sequence[Fraction]) -> Coordinates:
    return tuple(sign * size for sign, size in zip(signs, sizes, strict=True))


def _coordinates(index: int, count: int, reach: Fraction) -> Coordinates:
    """The sizes of a point's coordinates, which depend on no name."""
    coordinates = []
    for place in range(count):
        share = _share(f"{index}/{place}")
        coordinates.append(_LEAST_SIZE + share * reach)
    return tuple(coordinates)


def _share(seed: str) -> Fraction:
    """A number between 0 and 1 that is in no special place."""
    digest = hashlib.sha256(seed.encode()).digest()
    return Fraction(int.from_bytes(digest, "big"), 1 << 256)


# where pieces meet

_PIECEWISE = words("abs floor ceil max min root gcd lcm arcsin arccos arctan")
_MOST_CONSTANTS = 8
_MOST_MEETINGS = 24  # places with a positive coordinate where pieces may meet
_SMALL_NUMBERS = range(1, 7)
_BEYOND = (Fraction(3), Fraction(21, 2), Fraction(1001), Fraction(2_000_003, 2))
_POINTS_OF_SEVERAL = 60


def piece_points(trees: Sequence[Tree], variables: Sequence[str]) -> Iterator[Coordinates]:
    """Points where the pieces of expressions with pieces may meet, between and beyond them.

    None for expressions without pieces. `variables`: in the order of the coordinates.
    """
    if not variables or not any(map(_has_pieces, trees)):
        return
    places = _places(_meetings(trees, variables))
    if len(variables) == 1:
        for place in places:
            yield (place,)
        return
    for index in range(_POINTS_OF_SEVERAL):
        coordinates = []
        for variable in range(len(variables)):
            share = _share(f"piece {index}/{variable}")
            coordinates.append(places[int(share * len(places))])
        yield tuple(coordinates)


def _has_pieces(tree: Tree) -> bool:
    for subtree in subtrees(tree):
        if subtree.kind == "call" and subtree.args[0] in _PIECEWISE:
            return True
        if subtree.kind == "pow":
            exponent = rational(subtree.args[1])
            if exponent is not None and exponent.denominator > 1:
                return True
    return False


def _meetings(trees: Sequence[Tree], variables: Sequence[str]) -> list[Fraction]:
    """Positive coordinates where pieces may meet, in order."""
    zeros: dict[Fraction, None] = {}
    for tree in trees:
        for subtree in subtrees(tree):
            zeros |= dict.fromkeys(_zeros(subtree, variables))
    constants = dict.fromkeys(abs(zero) for zero in zeros)
    for tree in trees:
        constants |= dict.fromkeys(_constants(tree))
    constants.pop(Fraction(0), None)
    chosen = list(constants)[:_MOST_CONSTANTS]
    quotients = [first / second for first, second in itertools.product(chosen, repeat=2)]
    meetings = dict.fromkeys([*chosen, *map(Fraction, _SMALL_NUMBERS), *quotients])
    return sorted(list(meetings)[:_MOST_MEETINGS])


def _constants(tree: Tree) -> Iterator[Fraction]:
    """The largest parts of a tree that are exact numbers."""
    value = rational(tree)
    if value is not None:
        yield abs(value)
        return
    for arg in tree.args:
        if isinstance(arg, Tree):
            yield from _constants(arg)


def _zeros(call: Tree, variables: Sequence[str]) -> Iterator[Fraction]:
    """Where the argument of an absolute value is 0, or two of a maximum are equal, if linear."""
    if call.kind != "call" or call.args[0] not in ("abs", "max", "min"):
        return
    arguments = call.args[1:]
    differences = list(arguments) if call.args[0] == "abs" else []
    for first, second in itertools.combinations(arguments[:_MOST_CONSTANTS], 2):
        differences.append(node("add", first, node("neg", second)))
    for difference in differences:
        for variable in variables:
            linear = line(difference, variable)
            if linear is not None and linear.slope:
                yield -linear.constant / linear.slope


def _places(meetings: Sequence[Fraction]) -> list[Fraction]:
    """The meetings, points between each two and beyond the last, with both signs, and 0."""
    places = [Fraction(0)]
    before = Fraction(0)
    for meeting in meetings:
        places += [before + (meeting - before) * Fraction(3, 7), meeting]
        before = meeting
    places += [before * factor + Fraction(1, 3) for factor in _BEYOND]
    places += [Fraction(int(before * factor)) for factor in _BEYOND]
    negative = [-place for place in places[1:]]
    return places + negative
