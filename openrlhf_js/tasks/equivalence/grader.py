"""Grade a mathematical answer: at once where that is cheap and exact, else in a worker process."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from functools import partial

from openrlhf_js.tasks import pool
from openrlhf_js.tasks.equivalence import compare
from openrlhf_js.tasks.equivalence.compare import Judge, Undecided
from openrlhf_js.tasks.equivalence.labels import MAX_CHARS, Gold, golds_of
from openrlhf_js.tasks.equivalence.readings import readings
from openrlhf_js.tasks.equivalence.spelling import normal
from openrlhf_js.tasks.equivalence.statements import without_modulus
from openrlhf_js.tasks.equivalence.syntax import read
from openrlhf_js.tasks.equivalence.tokens import decimal
from openrlhf_js.tasks.equivalence.tree import NotRead, Tree, node
from openrlhf_js.tasks.record import Score, scored

_NUMERAL = re.compile(r"-?(?:\d+|[1-9]\d{0,2}(?:,\d{3})+)(?:\.\d+)?\Z", re.ASCII)
_OPTION = re.compile(r"\(?[a-e]\)?")  # an option's letter
_RATIO = re.compile(r"\d{1,2} ?: ?\d\d", re.ASCII)
_LAKHS = re.compile(r"-?[1-9]\d?(?:,\d\d)+,\d{3}", re.ASCII)  # grouped as in India
_LETTER_UNIT = re.compile(  # the whole answer is a number and a unit: `5 m`
    r"\A(-?(?:[^A-Za-z\\,;=<>+-]|\\(?:frac|sqrt|pi)(?![a-z]))+) ([ABCFJKLNVWghlms])\Z"
)

check_label = golds_of  # for its ValueError


def grade(answer: str | None, label: str) -> Score:
    """The score of an extracted answer, None if there is none; ValueError for a malformed label.

    No answer raises: a bug of ours costs the answer that shows it, not the training run.
    """
    golds = golds_of(label)
    if answer is None:
        return scored("no_answer", "no final answer")
    if len(answer) > MAX_CHARS:
        return scored("malformed", f"{len(answer)} characters: at most {MAX_CHARS} are graded")
    is_right = None
    try:
        text = normal(answer)
        if not text:
            return scored("malformed", "an empty answer")
        with contextlib.suppress(NotRead, Undecided, RecursionError):
            is_right = decide(text, golds, Judge())
    except Exception as bug:
        return scored("error", f"{type(bug).__name__} on {answer!a:.80}")
    gold_text = " ; ".join(gold.text for gold in golds)
    compared = f"{text!a:.80} against {gold_text!a:.80}"
    if is_right is not None:
        return scored("correct" if is_right else "wrong", compared)
    score = pool.grade("openrlhf_js.tasks.equivalence.numeric:compare", answer, label)
    return score._replace(detail=f"{compared}: {score.detail}")


def decide(text: str, golds: tuple[Gold, ...], judge: Judge) -> bool:
    """Whether the canonical text is the gold answer; NotRead if one of them cannot be read."""
    first = golds[0]
    if len(golds) == 1 and text.replace(", ", ",") == first.text.replace(", ", ","):
        return True
    if not all(gold.trees for gold in golds):
        raise NotRead("a label that is no plain answer")
    is_plain = len(golds) == 1 and not first.within
    gold_tree = first.trees[0]
    is_number = is_plain and gold_tree.kind == "num"
    if is_number and _NUMERAL.match(text):  # most answers
        return decimal(text) == gold_tree.args[0]
    tests = []
    for gold in golds:
        own = replace(judge, within=gold.within, unit_is_asked_for=gold.unit_is_asked_for)
        tests.append(partial(_fits, own, gold.trees))
    for answer in _answers(text):
        if is_number:
            answer = without_modulus(answer)
        answers = [answer] if is_plain else compare.members(answer)
        if compare.matched(answers, tests):
            return True
    return False


def _answers(text: str) -> list[Tree]:
    """The readings of an answer: an option may have a small letter, and a time be a ratio.

    A number that is grouped as in India may be a list, too.
    """
    if _OPTION.fullmatch(text):
        small_letter = node("sym", text)
        return [small_letter, *readings(text.upper())]
    if _RATIO.fullmatch(text):
        return [*readings(text), read(text)]
    if _LAKHS.fullmatch(text):
        return [*readings(text), read(text.replace(",", ""))]
    with_unit = _LETTER_UNIT.sub(r"\1 \\\2", text)
    return readings(with_unit)


def _fits(judge: Judge, golds: tuple[Tree, ...], answer: Tree) -> bool:
    """Whether an answer is one of the readings of a gold answer."""
    return any(judge.same(answer, gold) for gold in golds)
