"""What a response gets: the task's verdict, and its answer in the form that is voted on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple

import openrlhf_js.tasks
from openrlhf_js import __version__
from openrlhf_js.common.files import fingerprint
from openrlhf_js.evaluation.passk.benchmarks import Problem
from openrlhf_js.tasks import countdown, geometry3k, gsm8k, knights_knaves, math, maze
from openrlhf_js.tasks.equivalence import grader

THREADS = 32  # answers that take long do so side by side
LONGEST_ANSWER = 500  # characters that are kept
READ = ("correct", "wrong")  # statuses of answers that could be read
VOTES = (*READ, "timeout", "error")  # the others have no answer that could be voted for


class Grade(NamedTuple):
    """A task's verdict, and the answer that it is about (None: there is none)."""

    status: str
    answer: str | None


class AnswerForm(NamedTuple):
    """How answers of a task are found and compared."""

    find: Callable[[str], str | None]
    canonical: Callable[[str], str]  # the one spelling of an answer that could be read
    same: Callable[[str, str], bool]  # whether two spellings are the same answer


@cache
def grader_version() -> str:
    """This package's version with a fingerprint of its graders; samples of another are regraded."""
    sources = sorted(Path(openrlhf_js.tasks.__file__).parent.rglob("*.py"))
    return f"{__version__}+{fingerprint([*sources, Path(__file__)])[:12]}"


def grade(item: Problem, text: str) -> Grade:
    """The verdict on one response."""
    task = item.task
    status = task.score(text, item.label).status
    form = FORMS[task.NAME]
    answer = form.find(text)
    if answer is not None and status in READ:
        answer = form.canonical(answer)
    return Grade(status, None if answer is None else answer.strip()[:LONGEST_ANSWER])


def grade_all(items: Sequence[Problem], texts: Sequence[str]) -> list[Grade]:
    """The verdicts on many responses, one item to each."""
    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(grade, items, texts))


def majority(
    statuses: Sequence[str], answers: Sequence[str | None], same: Callable[[str, str], bool]
) -> float:
    """The probability that a majority vote among the samples of one item is right.

    Samples with the same answer vote together; all right answers are the same one, since a problem
    such as a maze has several. Samples without a readable answer do not vote; where nobody does,
    the vote is lost. A tie is decided by lot: it counts as the share of right answers in it.
    """
    right = sum(status == "correct" for status in statuses)
    wrong = Counter(
        answer or ""
        for status, answer in zip(statuses, answers, strict=True)
        if status in VOTES and status != "correct"
    )
    if not right or wrong.total() < right:
        return float(right > 0)
    groups: list[tuple[str, int]] = []
    for answer, votes in wrong.items():
        place = next((i for i, (other, _) in enumerate(groups) if same(answer, other)), None)
        if place is None:
            groups.append((answer, votes))
        else:
            groups[place] = (groups[place][0], groups[place][1] + votes)
    most = max(votes for _, votes in groups)
    if right != most:
        return float(right > most)
    return 1 / (1 + sum(votes == most for _, votes in groups))


def _equal_text(a: str, b: str) -> bool:
    return a == b


def _equal_mathematics(a: str, b: str) -> bool:
    try:
        return a == b or grader.grade(a, b).status == "correct"
    except ValueError:  # it cannot be a gold answer
        return False


def _value(answer: str) -> str:
    """The value of an expression."""
    try:
        return str(countdown.evaluate(countdown.sides(answer)[0]).value)
    except ZeroDivisionError:
        return "division by zero"


def _roles(answer: str) -> str:
    """Who is what, in alphabetical order."""
    found: set[str] = set()
    waiting: list[str] = []
    for _, word in knights_knaves.WORDS.findall(answer.casefold()):
        if word in knights_knaves.SINGULAR:
            found.update(f"{name}: {knights_knaves.SINGULAR[word]}" for name in waiting)
            waiting = []
        elif word:
            waiting.append(word)
    return ", ".join(sorted(found))


def _moves(answer: str) -> str:
    return maze.moves_of(answer)[0]


FORMS: dict[str, AnswerForm] = {
    math.NAME: AnswerForm(math.answer_of, str.strip, _equal_mathematics),
    geometry3k.NAME: AnswerForm(geometry3k.answer_of, str.strip, _equal_mathematics),
    gsm8k.NAME: AnswerForm(gsm8k.answer_of, str.strip, _equal_mathematics),
    countdown.NAME: AnswerForm(countdown.answer_of, _value, _equal_text),
    knights_knaves.NAME: AnswerForm(knights_knaves.answer_of, _roles, _equal_text),
    maze.NAME: AnswerForm(maze.answer_of, _moves, _equal_text),
}
