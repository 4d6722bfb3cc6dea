"""The points at which expressions are compared, always the same for the same two expressions.

Analytic expressions that agree at a few generic points agree everywhere. Piecewise expressions,
such as |x - 5|, are also compared where pieces may meet: at, between and beyond the constants of
both sides and their quotients.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from answer_graders.math.exact import parabola, rational
from answer_graders.math.tree import CONSTANTS, Tree, names, node, subtrees, words

Coordinates = tuple[Fraction, ...]


class Point(NamedTuple):
    """Values of variables, in the order of their names, and whether only real results count."""

    coordinates: Coordinates
    is_real: bool


# generic points

_MASS_OR_CHARGE = words("m q M Q")
_QUANTITIES = words(r"g k l r \hbar \lambda \rho \mu \epsilon \omega \ell")  # besides capitals
_POSITIVE_POINTS = 3
_MOST_PATTERNS = 12
_LEAST_SIZE = Fraction(1, 5)
_NEAR = Fraction(4, 5)  # how far coordinates may exceed _LEAST_SIZE
_FAR = Fraction(4)


@lru_cache(maxsize=64)
def general_points(count: int) -> tuple[tuple[Point, ...], ...]:
    """Points for `count` variables: in each tuple, the first with a value for all trees counts.

    Three have positive coordinates, where values may be complex; every other pattern of signs of up
    to three variables has one. Each pattern has a near point, between 0.2 and 1, and one further
    away, since a logarithm or a root may have no real value at one of them.
    """
    if count == 0:
        return ((Point((), False),),)
    points: list[tuple[Point, ...]] = []
    for index in range(_POSITIVE_POINTS):
        points.append((Point(_coordinates(index, count, _FAR), False),))
    patterns = _sign_patterns(count)
    for index, signs in enumerate(patterns, _POSITIVE_POINTS):
        near_sizes = _coordinates(index, count, _NEAR)
        far_sizes = _coordinates(index, count, _FAR)
        near = Point(_signed(signs, near_sizes), True)
        far = Point(_signed(signs, far_sizes), True)
        points.append((near, far))
    return tuple(points)


def _sign_patterns(count: int) -> list[tuple[int, ...]]:
    """All patterns of signs with a minus for up to three variables, and a few for more."""
    if count <= 3:
        _, *patterns = itertools.product((1, -1), repeat=count)
        return patterns
    patterns = [(-1,) * count]
    for index in range(min(count, _MOST_PATTERNS)):
        signs = [1] * count
        signs[index] = -1
        patterns.append(tuple(signs))
    return patterns


def _signed(signs: Sequence[int], sizes: Sequence[Fraction]) -> Coordinates:
    return tuple(sign * size for sign, size in zip(signs, sizes, strict=True))


def _coordinates(index: int, count: int, reach: Fraction) -> Coordinates:
    """The sizes of a point's coordinates, whatever the names."""
    coordinates = []
    for place in range(count):
        share = _share(f"{index}/{place}")
        coordinates.append(_LEAST_SIZE + share * reach)
    return tuple(coordinates)


def are_physical(variables: Sequence[str]) -> bool:
    """Whether these are positive quantities of a physics formula, with a mass or a charge."""
    letters = {variable.partition("_")[0] for variable in variables}
    others = letters - _MASS_OR_CHARGE
    are_quantities = all(letter in _QUANTITIES or letter.isupper() for letter in others)
    return len(variables) >= 3 and len(others) < len(letters) and are_quantities


def _share(seed: str) -> Fraction:
    """A generic number between 0 and 1."""
    digest = hashlib.sha256(seed.encode()).digest()
    return Fraction(int.from_bytes(digest, "big"), 1 << 256)


# where pieces meet

_MOST_CONSTANTS = 8
_MOST_ENDS = 24
_SMALL_NUMBERS = range(1, 7)
_LARGE_NUMBERS = [10**power + 10**power // 3 for power in range(7)]
_POINTS_OF_SEVERAL = 40
_MOST_NODES = 40_000  # that may be evaluated
_LEAST_POINTS = 16
_ROOT_BITS = 64


def piece_points(trees: Sequence[Tree], variables: Sequence[str]) -> Iterator[Coordinates]:
    """Points where the pieces of piecewise expressions may meet, and between and beyond them.

    No points for other expressions. `variables`: in the order of the coordinates.
    """
    arguments: list[Tree] = []
    for tree in trees:
        arguments += [argument for argument in _arguments(tree) if names(argument) - CONSTANTS]
    if not arguments:
        return
    nodes = sum(1 for tree in trees for _ in subtrees(tree))
    most_points = max(_LEAST_POINTS, _MOST_NODES // nodes)
    if len(variables) == 1:
        places = _places(trees, _meetings(arguments, variables[0]))
        step = 1 + len(places) // most_points
        for place in places[::step]:
            yield (place,)
        return
    places = _places(trees, [])
    for index in range(min(_POINTS_OF_SEVERAL, most_points)):
        shares = [_share(f"piece {index}/{variable}") for variable in range(len(variables))]
        yield tuple(places[int(share * len(places))] for share in shares)


def _arguments(tree: Tree) -> Iterator[Tree]:
    """The arguments of the piecewise functions in a tree; most pieces meet where one is 0."""
    for subtree in subtrees(tree):
        kind, args = subtree
        function = args[0] if kind == "call" else kind
        if function in ("abs", "root", "floor", "ceil"):
            yield args[-1]
        elif function == "pow" and _is_broken(rational(args[1])):
            yield args[0]
        elif function in ("max", "min"):
            for first, second in itertools.combinations(args[1 : 1 + _MOST_CONSTANTS], 2):
                yield node("add", first, node("neg", second))


def _is_broken(exponent: Fraction | None) -> bool:
    return exponent is not None and exponent.denominator > 1


def _meetings(arguments: Sequence[Tree], variable: str) -> list[Fraction]:
    """Zeros (approximate) and turning points of the arguments that are polynomials."""
    meetings = []
    for argument in arguments:
        polynomial = parabola(argument, variable)
        if polynomial is None:
            continue
        square, slope, constant = polynomial
        if square:
            turn = -slope / (2 * square)
            distance = max(turn**2 - constant / square, Fraction(0))
            root = Fraction(math.isqrt(int(distance * 4**_ROOT_BITS)), 2**_ROOT_BITS)
            meetings += [turn - root, turn, turn + root]
        elif slope:
            meetings.append(-constant / slope)
    return meetings


def _places(trees: Sequence[Tree], meetings: Sequence[Fraction]) -> list[Fraction]:
    """Meetings, constants and quotients, places between and beyond, all with both signs."""
    constants = dict.fromkeys(map(abs, meetings))
    for tree in trees:
        constants |= dict.fromkeys(_constants(tree))
    constants.pop(Fraction(0), None)
    first_constants = list(constants)[:_MOST_CONSTANTS]
    ends = [*constants, *map(Fraction, _SMALL_NUMBERS)]
    for dividend, divisor in itertools.product(first_constants, repeat=2):
        ends.append(dividend / divisor)
    ends = list(dict.fromkeys(ends))[:_MOST_ENDS]

    places = []
    for low, high in itertools.pairwise([Fraction(0), *sorted(ends)]):
        places += [low + (high - low) * Fraction(3, 7), high]
    for constant in first_constants:
        places.append(2 * constant + Fraction(1, 3))
    for large in _LARGE_NUMBERS:
        places += [Fraction(large), large + Fraction(2, 5)]
    return [Fraction(0), *places, *(-place for place in places)]


def _constants(tree: Tree) -> Iterator[Fraction]:
    """The exact numbers in a tree, and in their subtrees."""
    value = rational(tree)
    if value is not None:
        yield abs(value)
    for arg in tree.args:
        if isinstance(arg, Tree):
            yield from _constants(arg)
