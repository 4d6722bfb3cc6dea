"""The tree that an answer is read into, and the few ways to put trees together.

Kinds of node and their arguments, where `tree` is any node:

    num Fraction - base (value, text) - sym name - text words - inf - empty - field name
    neg tree - add tree tree - mul tree tree - div tree tree - pow tree tree - pm tree tree
    fact tree - deg tree - pct tree - call name trees... - measure (tree, unit)...
    series variable first last term name - matrix rows... - clock minutes half hour minute
    residue tree modulus - group opening closing trees... - list trees... - ratio trees...
    rel operators sides... - union tree tree - minus tree tree - meet tree tree
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from openrlhf_js.tasks.equivalence.tokens import NotRead


class Tree(NamedTuple):
    """A node: its kind and its arguments, as listed at the top of this file."""

    kind: str
    args: tuple[Any, ...]


def number(value: Fraction | int) -> Tree:
    """A leaf that holds an exact number."""
    return Tree("num", (Fraction(value),))


def multiplied(left: Tree, right: Tree) -> Tree:
    """The product, which for a number and a matrix is a matrix."""
    if right.kind == "matrix" and left.kind != "matrix":
        return Tree(
            "matrix",
            tuple(tuple(Tree("mul", (left, entry)) for entry in row) for row in right.args),
        )
    return Tree("mul", (left, right))


def rectangular(rows: Sequence[tuple[Tree, ...]]) -> Tree:
    """The matrix of the rows; NotRead if they differ in length."""
    if len({len(row) for row in rows}) != 1:
        raise NotRead("rows of unequal length")
    return Tree("matrix", tuple(rows))


def determinant(rows: tuple[tuple[Tree, ...], ...]) -> Tree:
    """The determinant, written out along the first column."""
    if not len(rows) == len(rows[0]) <= 4:
        raise NotRead("a determinant that is not of size 1 to 4")
    if len(rows) == 1:
        return rows[0][0]
    total = number(0)
    for i, row in enumerate(rows):
        minor = determinant(tuple(other[1:] for other in (*rows[:i], *rows[i + 1 :])))
        term = Tree("mul", (row[0], minor))
        total = Tree("add", (total, Tree("neg", (term,)) if i % 2 else term))
    return total


def added(left: Tree | None, sign: str, right: Tree) -> Tree:
    """`left sign right`, where the sign is one of + - pm mp, or the signed right side alone."""
    if sign in ("pm", "mp"):
        right = Tree("neg", (right,)) if sign == "mp" else right
        return Tree("pm", (left or number(0), right))
    right = Tree("neg", (right,)) if sign == "-" else right
    return right if left is None else Tree("add", (left, right))
