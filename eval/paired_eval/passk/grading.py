"""Grades of responses: the task's verdict, and the answer in the form that is voted on."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple

import answer_graders
from answer_graders import marks
from answer_graders.prompt_files import Example
from paired_eval import __version__

THREADS = 32  # slow answers are graded in parallel
LONGEST_ANSWER = 500  # characters that are kept
NOT_VOTING = ("no_answer", "malformed")


class Grade(NamedTuple):
    """A task's verdict, and the answer that it is about (None: there is none)."""

    status: str
    answer: str | None


@cache
def grader_version() -> str:
    """This package's version with a fingerprint of its graders; samples of another are regraded.

    The fingerprint covers every module of `answer_graders` except its programs. Thinking marks that
    are named are part of the version, so other marks lead to regrading, too.
    """
    package = Path(answer_graders.__file__).parent
    names = (path.relative_to(package) for path in package.rglob("*.py"))
    sources = sorted(name.as_posix() for name in names if name.parts[0] != "programs")
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for source in sources:
        content = hashlib.sha256((package / source).read_bytes())
        digest.update(f"{source} {content.hexdigest()}\n".encode())
    return "+".join([__version__, digest.hexdigest()[:12], *marks.named_marks()])


def grade(item: Example, text: str) -> Grade:
    """The verdict on one response."""
    status = item.task.score(text, item.label).status
    answer = None if status in NOT_VOTING else item.task.voted_answer(text)
    return Grade(status, None if answer is None else answer.strip()[:LONGEST_ANSWER])


def grade_all(items: Sequence[Example], texts: Sequence[str]) -> list[Grade]:
    """The verdicts on many responses, one item to each."""
    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(grade, items, texts))


def majority(
    statuses: Sequence[str], answers: Sequence[str | None], same: Callable[[str, str], bool]
) -> float:
    """The probability that a majority vote among the samples of one item is right.

    Samples with the same answer vote together; all right answers count as one, since a problem such
    as a maze has several. Samples without a readable answer do not vote; without any vote the
    answer is wrong. A tie is broken at random: it counts as the share of right answers in it.
    """
    right = sum(status == "correct" for status in statuses)
    wrong = Counter(
        answer or ""
        for status, answer in zip(statuses, answers, strict=True)
        if status not in ("correct", *NOT_VOTING)
    )
    if not right or wrong.total() < right:
        return float(right > 0)
    groups: Counter[str] = Counter()
    for answer, votes in wrong.items():
        groups[next((other for other in groups if same(answer, other)), answer)] += votes
    most = max(groups.values())
    if right != most:
        return float(right > most)
    return 1 / (1 + sum(votes == most for votes in groups.values()))
