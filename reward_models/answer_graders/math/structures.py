r"""Writes out matrices and lists: transposed, `\det`, `diag`, `1, 2, \ldots, 9`.

A matrix is a group of its rows, which are groups in square brackets; a column vector is a group of
its elements.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction

from answer_graders.math.exact import rational
from answer_graders.math.tree import (
    NotRead,
    Tree,
    is_equation,
    is_group,
    items_of,
    node,
    number,
    sides_of,
)

MOST_TERMS = 1_000  # of a list that is written out
_MOST_ROWS = 6  # of a determinant

Rows = Sequence[Sequence[Tree]]


def rows_of(matrix: Tree) -> Rows | None:
    """The rows of a matrix, all of one length, or None if the tree is no matrix."""
    if not is_group(matrix, "()"):
        return None
    rows = items_of(matrix)
    if not all(is_group(row, "[]") for row in rows):
        return None
    elements = [items_of(row) for row in rows]
    if len(set(map(len, elements))) != 1:
        return None
    return elements


def matrix_of(rows: Rows) -> Tree:
    """The matrix with these rows; a column if each has one element."""
    if len(rows[0]) == 1:
        return node("group", "()", *(element for (element,) in rows))
    return node("group", "()", *(node("group", "[]", *row) for row in rows))


def transposed(tree: Tree, is_column: bool) -> Tree:
    """The transpose of a matrix; a vector is a row unless `is_column`."""
    rows = rows_of(tree)
    if rows is None:
        rows = [[element] for element in items_of(tree)] if is_column else [items_of(tree)]
    return matrix_of(list(zip(*rows, strict=True)))


def diagonal(vector: Tree) -> Tree:
    """The matrix with the elements of a vector on its diagonal, and 0 elsewhere."""
    if vector.kind != "group":
        raise NotRead("a diagonal of one element")
    elements = items_of(vector)
    size = len(elements)
    rows = [[number(0)] * size for _ in elements]
    for place, element in enumerate(elements):
        rows[place][place] = element
    return matrix_of(rows)


def determinant(rows: Rows) -> Tree:
    """The determinant, expanded along the first row; exact if all elements are."""
    size = len(rows)
    if size > _MOST_ROWS or any(len(row) != size for row in rows):
        raise NotRead(f"a determinant that is not square, or of more than {_MOST_ROWS} rows")

    @functools.cache
    def minor(columns: tuple[int, ...]) -> Tree:
        """The determinant of these columns in the last rows, as many as columns."""
        total = number(0 if columns else 1)
        for place, column in enumerate(columns):
            element = rows[size - len(columns)][column]
            term = node("mul", element, minor(columns[:place] + columns[place + 1 :]))
            if element != number(0):
                total = node("add", total, node("neg", term) if place % 2 else term)
        value = rational(total)
        return total if value is None else number(value)

    return minor(tuple(range(size)))


def written_out(terms: Sequence[Tree], last: Tree) -> list[Tree]:
    r"""All terms of an arithmetic progression such as `1, 3, \ldots, 9`; NotRead if it is none.

    After a single term, the step is 1.
    """
    first, *others = terms
    if is_equation(first):  # `x = 1, 2, \ldots, 9`
        first = sides_of(first)[-1]
    values = [_exact(term) for term in (first, *others)]
    step = values[1] - values[0] if len(values) > 1 else Fraction(1)
    end = _exact(last)
    count = (end - values[0]) / step + 1 if step else Fraction(0)
    if count.denominator != 1 or not len(values) < count <= MOST_TERMS:
        raise NotRead("no arithmetic progression that is written out")
    progression = [values[0] + place * step for place in range(int(count))]
    if progression[: len(values)] != values:
        raise NotRead("no arithmetic progression")
    return [number(value) for value in progression]


def _exact(term: Tree) -> Fraction:
    value = rational(term)
    if value is None:
        raise NotRead("a list that goes on from what is no number")
    return value
