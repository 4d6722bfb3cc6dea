"""Decide whether an answer's text is a gold answer, as far as a judge of scalars can tell."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

from openrlhf_js.tasks.equivalence.compare import close, same
from openrlhf_js.tasks.equivalence.judges import Judge, Verdict, matched, some
from openrlhf_js.tasks.equivalence.labels import Gold
from openrlhf_js.tasks.equivalence.members import members
from openrlhf_js.tasks.equivalence.readings import readings
from openrlhf_js.tasks.equivalence.tree import Tree

_IDLE_SPACE = re.compile(r" (?![A-Za-z0-9])|(?<![A-Za-z0-9]) ")


def decide(text: str, wanted: Gold, judge: Judge) -> Verdict:
    """Whether the canonical text is the gold answer; None where the judge cannot tell.

    Raises:
        NotRead: if the text cannot be read as an answer.
    """
    if (text,) == wanted.texts:
        return True
    if not all(wanted.trees) and _unspaced(text) == _unspaced(wanted.texts[0]):
        return True
    answers = readings(text)
    if not all(wanted.trees):
        return None
    plain = wanted.tolerances == (None,)
    tests = [
        _test(trees, tolerance, judge)
        for trees, tolerance in zip(wanted.trees, wanted.tolerances, strict=True)
    ]
    if plain:
        return some(tests[0](answer) for answer in answers)
    return some(matched(members(answer), tests) for answer in answers)


def _unspaced(text: str) -> str:
    """The text without the spaces that part no two letters or digits."""
    return _IDLE_SPACE.sub("", text)


def _test(
    trees: tuple[Tree, ...], tolerance: Fraction | None, judge: Judge
) -> Callable[[Tree], Verdict]:
    """The question whether an answer fits one of the gold answers."""

    def test(answer: Tree) -> Verdict:
        if tolerance is None:
            return some(same(answer, tree, judge) for tree in trees)
        return some(close(answer, tree, tolerance, judge) for tree in trees)

    return test
