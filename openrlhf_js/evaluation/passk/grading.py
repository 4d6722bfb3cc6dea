"""What a response gets: the task's own verdict, and its answer in the form that is voted on."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from openrlhf_js.evaluation.passk.items import Item
from openrlhf_js.tasks import countdown, geometry3k, gsm8k, knights_knaves, math, maze
from openrlhf_js.tasks.answers import last_answer_tag, last_boxed, last_hashes, plain
from openrlhf_js.tasks.arithmetic import evaluate, sides
from openrlhf_js.tasks.equivalence import grader
from openrlhf_js.tasks.knights_knaves_text import SINGULAR, WORDS

THREADS = 32  # answers that hang do so side by side
LONGEST_ANSWER = 500  # characters that are kept
READ = ("correct", "wrong")  # statuses of answers that have the form of one

_MOVE = re.compile(r"left|right|up|down|[lrud]", re.ASCII | re.IGNORECASE)


class Graded(NamedTuple):
    """As `samples.Sample` has them."""

    status: str
    answer: str | None


def grade(item: Item, text: str) -> Graded:
    """The verdict on one response."""
    task = item.task
    status = task.score(text, item.label).status
    own = FORMS[task.NAME]
    answer = own.find(text)
    if answer is not None and status in READ:
        answer = own.canonical(answer)
    return Graded(status, None if answer is None else answer.strip()[:LONGEST_ANSWER])


def grade_all(items: Sequence[Item], texts: Sequence[str]) -> list[Graded]:
    """The verdicts on many responses, one item to each."""
    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(grade, items, texts))


class Form(NamedTuple):
    """How answers of a task are compared.

    Attributes:
        find: the answer in a response, None if there is none.
        canonical: its one spelling, for answers that could be read.
        same: whether two different spellings are the same answer.
    """

    find: Callable[[str], str | None]
    canonical: Callable[[str], str]
    same: Callable[[str, str], bool]


def _equal_text(a: str, b: str) -> bool:
    return a == b


def _equal_mathematics(a: str, b: str) -> bool:
    try:
        return a == b or grader.grade(a, b).status == "correct"
    except ValueError:  # it cannot be a gold answer
        return False


def _boxed_or_hashes(text: str) -> str | None:
    boxed = last_boxed(text)
    return last_hashes(text) if boxed is None else boxed


def _value(answer: str) -> str:
    """What an expression comes to."""
    try:
        return str(evaluate(sides(plain(answer))[0]).value)
    except ZeroDivisionError:
        return "division by zero"


def _roles(answer: str) -> str:
    """Who is what, in alphabetical order."""
    found: set[str] = set()
    waiting: list[str] = []
    for _, word in WORDS.findall(answer.casefold()):
        if word in SINGULAR:
            found.update(f"{name}: {SINGULAR[word]}" for name in waiting)
            waiting = []
        elif word:
            waiting.append(word)
    return ", ".join(sorted(found))


def _moves(answer: str) -> str:
    return "".join(move[0].upper() for move in _MOVE.findall(plain(answer)))


FORMS: dict[str, Form] = {
    math.NAME: Form(last_boxed, str.strip, _equal_mathematics),
    geometry3k.NAME: Form(last_boxed, str.strip, _equal_mathematics),
    gsm8k.NAME: Form(_boxed_or_hashes, str.strip, _equal_mathematics),
    countdown.NAME: Form(last_answer_tag, _value, _equal_text),
    knights_knaves.NAME: Form(last_boxed, _roles, _equal_text),
    maze.NAME: Form(last_answer_tag, _moves, _equal_text),
}
