"""Grades mathematical answers: at once if that is cheap and exact, else in a worker process."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field, ValidationError

from answer_graders import pool
from answer_graders.math.compare import Judge, Undecided, matched, members
from answer_graders.math.parts import are_consecutive, labelled_parts, parts_tree, readings_of_parts
from answer_graders.math.readings import durations, readings
from answer_graders.math.spelling import normal
from answer_graders.math.statements import gold_statements, without_modulus
from answer_graders.math.syntax import read
from answer_graders.math.tokens import decimal
from answer_graders.math.tree import NotRead, Tree, node, subtrees
from answer_graders.record import Score, scored

MAX_CHARS = 2_000  # of an answer
_NUMERAL = re.compile(r"-?(?:\d+|[1-9]\d{0,2}(?:,\d{3})+)(?:\.\d+)?\Z", re.ASCII)
_WITH_UNITS = ("measure", "quantity", "degree", "percent")  # kinds of trees
_METRIC = "gmL"  # units of a gold numeral; other letters, as in `5 h`, are variables
_BLANK = re.compile(r"(?<!\w) +| +(?!\w)")  # that separates nothing
_SPACED = re.compile(r"-?[\d.,]+ [^\d]", re.ASCII)  # a number, a space, other text
_OPTION = re.compile(r"\(?[a-e]\)?")  # an option's letter
_RATIO = re.compile(r"\d{1,3} ?: ?\d\d(?: ?: ?\d\d)?", re.ASCII)
_LAKHS = re.compile(r"-?[1-9]\d?(?:,\d\d)+,\d{3}", re.ASCII)  # grouped as in India
_DECIMAL_COMMA = re.compile(  # an only comma, outside brackets, that groups no thousands
    r"\A([^()\[\]{},]*?(?<![\d.]))(?![1-9]\d{0,2},\d{3}(?!\d))"
    r"(\d+|[1-9]\d{0,2}(?:\.\d{3})+),(\d+)(?![\d.])([^()\[\]{},]*)\Z"
)
_LETTER_UNIT = re.compile(  # a unit of one letter after a number, and nothing else: `5 m`
    r"\A(-?(?:[^A-Za-z\\,;=<>+-]|\\(?:frac|sqrt|pi)(?![a-z]))+)(?<![*/^]) ([ABCFJKLNVWghlms])\Z"
)


# the label


class Gold(NamedTuple):
    """One of the answers that a label asks for."""

    text: str  # in canonical spelling
    trees: tuple[Tree, ...]  # its readings; none if our grammar cannot read it
    within: Fraction = Fraction(0)  # the greatest allowed difference
    unit_is_asked_for: bool = False  # then no other unit counts

    @property
    def has_unit(self) -> bool:
        """Whether the unit of an answer matters."""
        return any(part.kind in _WITH_UNITS for tree in self.trees for part in subtrees(tree))


class _Fields(BaseModel, extra="forbid", strict=True):
    """A label in JSON."""

    answer: str | Annotated[list[str], Field(min_length=1)]
    unit: str | None = None
    tolerance: str | None = None

    @property
    def answers(self) -> list[str]:
        """All gold answers."""
        return [self.answer] if isinstance(self.answer, str) else self.answer


def _fields_of(label: str) -> _Fields:
    """The fields of a label, which is plain text or JSON; ValueError for other JSON."""
    if not re.match(r'\s*\{\s*"', label):
        return _Fields(answer=label)
    try:
        return _Fields.model_validate_json(label)
    except ValidationError:
        raise ValueError(
            'a label in JSON has "answer" (a text, or a list of texts), and may have "unit" and '
            f'"tolerance" (texts): got {label!a:.80}'
        ) from None


def answers_of(label: str) -> list[str]:
    """The gold answers of a label, as they are written; ValueError if it is malformed."""
    return _fields_of(label).answers


@lru_cache(maxsize=1 << 15)
def golds_of(label: str) -> tuple[Gold, ...]:
    """The gold answers of a label, which is plain text, LaTeX or a JSON object.

    The object has `answer` (a text, or a list of texts, all needed, in any order), and optionally
    `unit` and `tolerance` (numbers separated by commas). ValueError if the label is malformed.
    """
    if not isinstance(label, str) or not label.strip():
        raise ValueError(f"label is {label!a:.80}: give the gold answer as text, not empty")
    fields = _fields_of(label)
    answers = fields.answers
    may_be_lists = len(answers) > 1 or fields.tolerance  # "-1,7"
    golds: list[Gold] = []
    for answer in answers:
        text = _canonical(answer, label)
        trees = _gold_trees(text, fields.unit or "")
        if trees and may_be_lists:
            golds += [Gold(text, (member,)) for member in members(trees[0])]
        else:
            golds.append(Gold(text, trees))
    tolerances = _tolerances(fields.tolerance or "", len(golds))
    asked_for = fields.unit is not None
    return tuple(
        gold._replace(within=within, unit_is_asked_for=asked_for)
        for gold, within in zip(golds, tolerances, strict=True)
    )


def is_readable(label: str) -> bool:
    """Whether the grammar reads all gold answers; others need equal text.

    ValueError if the label is malformed.
    """
    return all(gold.trees for gold in golds_of(label))


def _canonical(answer: str, label: str) -> str:
    """The canonical text of a gold answer; ValueError if it is too long, broken or empty."""
    if len(answer) > MAX_CHARS:
        raise ValueError(f"gold answer of {len(answer)} characters: at most {MAX_CHARS}")
    braces = re.sub(r"\\.", "", answer, flags=re.DOTALL)
    if braces.count("{") != braces.count("}"):
        raise ValueError(f"gold answer {answer!a:.80} has braces that do not match")
    text = normal(answer)
    if not text:
        raise ValueError(f"label {label!a:.80} has an empty answer")
    return text


def _gold_trees(text: str, unit: str) -> tuple[Tree, ...]:
    """The readings of a gold answer: `5 m` may be metres; `5 h`, `x m`, `1/2 m` are products."""
    parts = labelled_parts(text)
    if parts:
        tree = parts_tree(parts, lambda value: _gold_trees(value, unit))
        return (tree,) if all(tree.args[1:]) else ()
    may_be_unit = unit or (text[-1] in _METRIC and _NUMERAL.match(text[:-2]))
    readings_of = _answers if may_be_unit else readings
    for spelling in (normal(f"{text} {unit}"), text):
        with contextlib.suppress(NotRead, RecursionError):
            trees: list[Tree] = []
            for tree in readings_of(spelling):
                trees += gold_statements(tree)
            return tuple(trees)
    return ()


def _tolerances(text: str, count: int) -> list[Fraction]:
    """The allowed difference for each of `count` answers."""
    values = []
    try:
        for piece in text.split(","):
            values.append(decimal(piece.strip() or "0"))
    except (NotRead, ValueError):
        raise ValueError(f"tolerance {text!a:.80}: give a decimal number such as 1e-2") from None
    if len(values) not in (1, count):
        raise ValueError(f"tolerance {text!a:.80} is for {len(values)} answers of {count}")
    return (values * count)[:count]


# the answer


def grade(answer: str | None, label: str) -> Score:
    """The score of an extracted answer (None: there is none); ValueError for a malformed label.

    An answer never raises: a bug in the grader costs that answer, not the training run.
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
    score = pool.grade("answer_graders.math.numeric:compare", answer, label)
    return score._replace(detail=f"{compared}: {score.detail}")


def decide(text: str, golds: tuple[Gold, ...], judge: Judge) -> bool:
    """Whether the canonical text equals the gold answer; NotRead if either cannot be read."""
    first = golds[0]
    if len(golds) == 1 and _BLANK.sub("", text) == _BLANK.sub("", first.text):
        return True
    if not all(gold.trees for gold in golds):
        raise NotRead("a label that is no plain answer")
    is_plain = len(golds) == 1 and not first.within
    gold_tree = first.trees[0]
    is_number = is_plain and gold_tree.kind == "num"
    if is_number and _NUMERAL.match(text):  # most answers
        return decimal(text) == gold_tree.args[0]
    answers = _answers(text, units=any(gold.has_unit for gold in golds))
    if len(golds) == 1 and _SPACED.match(text) and _SPACED.match(first.text):
        answers, golds = _as_quantities(answers, first)
    tests = []
    for gold in golds:
        gold_judge = replace(judge, within=gold.within, unit_is_asked_for=gold.unit_is_asked_for)
        tests.append(partial(gold_judge.fits, golds=gold.trees))
    for answer in answers:
        if is_number:
            answer = without_modulus(answer)
        if answer.kind == "parts" and len(golds) > 1:
            is_right = _in_order(answer, tests)
        else:
            is_right = matched([answer] if is_plain else members(answer), tests)
        if is_right:
            return True
    return False


def _as_quantities(answers: list[Tree], gold: Gold) -> tuple[list[Tree], tuple[Gold]]:
    """Only the readings with units, if both sides have some: as units, `6 mN` is not `6 N m`."""
    answers_with_units = [tree for tree in answers if tree.kind == "quantity"]
    gold_trees = tuple(tree for tree in gold.trees if tree.kind == "quantity")
    if answers_with_units and gold_trees:
        return answers_with_units, (gold._replace(trees=gold_trees),)
    return answers, (gold,)


def _in_order(parts: Tree, tests: Sequence[Callable[[Tree], bool]]) -> bool:
    """Whether each labelled part satisfies the test in its place."""
    values = readings_of_parts(parts)
    if not are_consecutive(parts.args[0]) or len(values) != len(tests):
        return False
    return all(any(map(test, readings)) for test, readings in zip(tests, values, strict=True))


def _answers(text: str, units: bool = True) -> list[Tree]:
    """The readings of an answer: an option may be in lower case, and a time may be a ratio.

    A number grouped as in India may also be a list, `5 m` a product, and the list `0,75` a number
    with a decimal comma. `units`: whether letters after numbers may be units, and a time a
    duration.
    """
    parts = labelled_parts(text)
    if parts:
        return [parts_tree(parts, _answers)]
    if _OPTION.fullmatch(text):
        small_letter = node("sym", text)
        return [small_letter, *readings(text.upper())]
    if _RATIO.fullmatch(text):
        trees = [*readings(text), read(text)]
        return trees + durations(text) if units else trees
    if _LAKHS.fullmatch(text):
        return [*readings(text), read(text.replace(",", ""))]
    with_unit = _LETTER_UNIT.sub(r"\1 \\\2", text)
    trees = readings(with_unit, units)
    if with_unit != text:
        trees += readings(text, units=False)
    if _DECIMAL_COMMA.match(text):
        with contextlib.suppress(NotRead):
            trees += _answers(_DECIMAL_COMMA.sub(_with_point, text), units)
    return trees


def _with_point(number: re.Match[str]) -> str:
    before, digits, decimals, behind = number.groups()
    return f"{before}{digits.replace('.', '')}.{decimals}{behind}"
