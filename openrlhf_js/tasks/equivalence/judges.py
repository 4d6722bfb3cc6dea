"""What decides about single values, and how verdicts are put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Protocol

from openrlhf_js.tasks.equivalence.tree import Tree
from openrlhf_js.tasks.equivalence.values import rational

Verdict = bool | None  # None: the judge cannot tell


class Judge(Protocol):
    """Decides about scalars."""

    def equal(self, answer: Tree, gold: Tree) -> Verdict:
        """Whether two expressions have the same value, whatever their variables are."""

    def proportional(self, answer: Tree, gold: Tree, positive: bool) -> Verdict:
        """Whether one is a constant multiple of the other, by a positive constant if so asked."""

    def close(self, answer: Tree, gold: Tree, tolerance: Fraction) -> Verdict:
        """Whether the values differ by no more than the tolerance."""


class Exact:
    """Decides between rational numbers, and between single marks."""

    def equal(self, answer: Tree, gold: Tree) -> Verdict:
        if answer == gold:
            return True
        left, right = rational(answer), rational(gold)
        if left is not None and right is not None:
            return left == right
        return False if _is_mark(answer, left) and _is_mark(gold, right) else None

    def proportional(self, answer: Tree, gold: Tree, positive: bool) -> Verdict:
        return True if answer == gold else None

    def close(self, answer: Tree, gold: Tree, tolerance: Fraction) -> Verdict:
        left, right = rational(answer), rational(gold)
        return None if left is None or right is None else abs(left - right) <= tolerance


def _is_mark(tree: Tree, value: Fraction | None) -> bool:
    """Whether the tree is a number, a variable or an infinity: two that differ are unequal."""
    inner = tree.args[0] if tree.kind == "neg" else tree
    return value is not None or tree.kind == "sym" or inner.kind == "inf"


def every(verdicts: Iterable[Verdict]) -> Verdict:
    """The conjunction, which stops at the first False."""
    result: Verdict = True
    for verdict in verdicts:
        if verdict is False:
            return False
        result = result if verdict else None
    return result


def some(verdicts: Iterable[Verdict]) -> Verdict:
    """The disjunction, which stops at the first True."""
    result: Verdict = False
    for verdict in verdicts:
        if verdict:
            return True
        result = result if verdict is False else None
    return result


def matched(answers: Sequence[Tree], golds: Sequence[Callable[[Tree], Verdict]]) -> Verdict:
    """Whether each answer satisfies its own one of the tests, in some order.

    Equality is transitive, so that the first fit may be taken; within a tolerance it nearly is.
    """
    if len(answers) != len(golds):
        return False
    left = list(answers)
    undecided = False
    for is_gold in golds:
        verdicts = []
        for i, answer in enumerate(left):
            verdicts.append(is_gold(answer))
            if verdicts[-1]:
                del left[i]
                break
        else:
            if None not in verdicts:
                return False
            undecided = True
    return None if undecided else True
