"""Gold answers: what a label asks for, read once."""

from __future__ import annotations

import contextlib
import re
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field

from openrlhf_js.tasks.equivalence.compare import members
from openrlhf_js.tasks.equivalence.readings import readings
from openrlhf_js.tasks.equivalence.spelling import normal
from openrlhf_js.tasks.equivalence.statements import gold_statements
from openrlhf_js.tasks.equivalence.tokens import decimal
from openrlhf_js.tasks.equivalence.tree import NotRead, Tree

MAX_CHARS = 2_000


class Gold(NamedTuple):
    """One of the answers that a label asks for."""

    text: str  # in canonical spelling
    trees: tuple[Tree, ...]  # its readings; none where our grammar ends
    within: Fraction = Fraction(0)  # the greatest difference that is allowed
    unit_is_asked_for: bool = False  # so that no other unit will do


class _Fields(BaseModel, extra="forbid", strict=True):
    """A label in JSON."""

    answer: str | Annotated[list[str], Field(min_length=1)]
    unit: str | None = None
    tolerance: str | None = None


@lru_cache(maxsize=1 << 15)
def golds_of(label: str) -> tuple[Gold, ...]:
    """What a label asks for: plain text or LaTeX, or a JSON object.

    The object has `answer` (a text, or a list of texts that are all needed, in any order), and
    perhaps `unit` and `tolerance` (numbers between commas). ValueError if the label is malformed.
    """
    if not isinstance(label, str) or not label.strip():
        raise ValueError(f"label is {label!a:.80}: give the gold answer as text, not empty")
    is_json = re.match(r'\s*\{\s*"', label)
    fields = _Fields.model_validate_json(label) if is_json else _Fields(answer=label)
    answers = [fields.answer] if isinstance(fields.answer, str) else fields.answer
    may_be_lists = len(answers) > 1 or fields.tolerance  # "-1,7"
    golds: list[Gold] = []
    for answer in answers:
        text = _canonical(answer, label)
        trees = _gold_trees(text, fields.unit or "")
        if trees and may_be_lists:
            for member in members(trees[0]):
                golds.append(Gold(text, (member,)))
        else:
            golds.append(Gold(text, trees))
    tolerances = _tolerances(fields.tolerance or "", len(golds))
    with_tolerances = []
    for gold, within in zip(golds, tolerances, strict=True):
        with_tolerances.append(
            gold._replace(within=within, unit_is_asked_for=fields.unit is not None)
        )
    return tuple(with_tolerances)


def is_readable(label: str) -> bool:
    """Whether the grammar reads every gold answer; if not, only equal text or math-verify counts.

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
    for spelling in (normal(f"{text} {unit}"), text):
        with contextlib.suppress(NotRead, RecursionError):
            trees: list[Tree] = []
            for tree in readings(spelling):
                trees += gold_statements(tree)
            return tuple(trees)
    return ()


def _tolerances(text: str, count: int) -> list[Fraction]:
    """The allowed difference of each of `count` answers."""
    values = []
    try:
        for piece in text.split(","):
            values.append(decimal(piece.strip() or "0"))
    except (NotRead, ValueError):
        raise ValueError(f"tolerance {text!a:.80}: give a decimal number such as 1e-2") from None
    if len(values) not in (1, count):
        raise ValueError(f"tolerance {text!a:.80} is for {len(values)} answers of {count}")
    return (values * count)[:count]
