"""Checks data sets before a training run does: gold answers, prompt lengths, repeated prompts."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from openrlhf_js.data.reading import (
    IMAGE_TAG,
    KEYS,
    Example,
    Keys,
    Line,
    read,
    size_of,
)

BATCH = 256  # examples that are graded side by side


@dataclass
class Tally:
    """What was found in the examples of one datasource."""

    items: int = 0
    gold_right: int = 0
    wrong_refused: int = 0
    duplicates: int = 0
    overlap: int = 0
    tokens: array[int] = field(default_factory=lambda: array("I"))


@dataclass
class Report:
    """What a check found.

    Attributes:
        tallies: by datasource.
        shown: how many problems of each kind are kept.
        problems: those, by kind, each with its place (file:line).
        counts: how many problems of each kind there are.
    """

    shown: int
    tallies: defaultdict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    problems: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, place: str, text: str) -> None:
        """Counts a problem, and keeps it if it is among the first of its kind."""
        self.counts[kind] += 1
        if len(self.problems[kind]) < self.shown:
            self.problems[kind].append(f"{place}: {text}")


class Graded(NamedTuple):
    """Whether the grader tells the gold answer from a wrong one, and what it said where not."""

    gold_right: bool
    wrong_refused: bool
    problem: str


@dataclass(frozen=True)
class Budget:
    """How long a prompt may be, in tokens, and what counts them."""

    count: Callable[[Example], int]
    tokens: int


def check(
    paths: Sequence[Path],
    against: Sequence[Path] = (),
    keys: Keys = KEYS,
    budget: Budget | None = None,
    shown: int = 3,
    progress: Callable[[int], None] = lambda size_bytes: None,
) -> Report:
    """Checks files as one data set, keeping of each line no more than where its prompt stands.

    Args:
        paths: the files.
        against: files that may not share a prompt with them.
        keys: the columns of all files.
        budget: the longest prompt; None leaves lengths out.
        shown: problems of each kind to keep.
        progress: told the size of each line that is done.

    Raises:
        OSError, ValueError: a file cannot be read.
    """
    report = Report(shown)
    elsewhere: dict[bytes, str] = {}
    for path in against:
        for line in read(path, keys):
            place = f"{path}:{line.number}"
            if line.example:
                elsewhere.setdefault(fingerprint(line.example), place)
            else:  # unread, it could hide an overlap
                report.add("no row", place, line.problem)
            progress(line.size_bytes)
    seen: dict[bytes, str] = {}
    with ThreadPoolExecutor() as threads:
        for path in paths:
            rows = 0
            for lines in _batches(read(path, keys)):
                grades = threads.map(grade, [line.example for line in lines if line.example])
                for line in lines:
                    place = f"{path}:{line.number}"
                    if line.example is None:
                        report.add("no row", place, line.problem)
                    else:
                        _look_at(line.example, next(grades), place, budget, report)
                        _look_for(line.example, place, seen, elsewhere, report)
                    progress(line.size_bytes)
                rows += len(lines)
            if not rows:
                report.add("no row", str(path), "the file holds no row")
    return report


def _batches(lines: Iterator[Line]) -> Iterator[list[Line]]:
    return iter(lambda: list(islice(lines, BATCH)), [])


def grade(example: Example) -> Graded:
    """Grades the gold answer and a wrong one as they would come from a model."""
    task, label = example.task, example.label
    try:
        gold = task.score(task.right_response(label), label)
        wrong = task.score(task.wrong_response(label), label)
    except ValueError as error:
        return Graded(False, False, f"the label is malformed: {error}")
    problem = ""
    if gold.value != 1:
        problem = f"the gold answer scores {gold.value:g} ({gold.status}: {gold.detail})"
    elif wrong.value != 0:
        problem = f"a wrong answer scores {wrong.value:g} ({wrong.detail})"
    return Graded(gold.value == 1, wrong.value == 0, problem)


def _look_at(
    example: Example, graded: Graded, place: str, budget: Budget | None, report: Report
) -> None:
    """What one example is by itself."""
    tally = report.tallies[example.datasource]
    tally.items += 1
    tally.gold_right += graded.gold_right
    tally.wrong_refused += graded.wrong_refused
    if graded.problem:
        report.add("graded wrongly", place, graded.problem)
    for problem in _image_problems(example):
        report.add("image", place, problem)
    if budget:
        try:
            tokens = budget.count(example)
        except ValueError as error:
            report.add("no prompt", place, str(error))
            return
        tally.tokens.append(tokens)
        if tokens > budget.tokens:
            text = f"the prompt takes {tokens} tokens, more than {budget.tokens}"
            report.add("too long", place, text)


def _look_for(
    example: Example,
    place: str,
    seen: dict[bytes, str],
    elsewhere: dict[bytes, str],
    report: Report,
) -> None:
    """Where else the prompt of an example stands."""
    tally = report.tallies[example.datasource]
    key = fingerprint(example)
    first = seen.setdefault(key, place)
    if first is not place:
        tally.duplicates += 1
        report.add("duplicate", place, f"the same prompt as {first}")
    if key in elsewhere:
        tally.overlap += 1
        report.add("overlap", place, f"the prompt stands in {elsewhere[key]} too")


def fingerprint(example: Example) -> bytes:
    """12 bytes that are the same for prompts that differ in white space alone.

    Images count by what they hold, so that equal questions about two figures are two prompts.
    """
    digest = hashlib.blake2b(digest_size=12)
    for message in example.messages:
        for part in (message["role"], " ".join(message["content"].split())):
            digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
    for image in example.images:
        try:
            digest.update(hashlib.blake2b(Path(image).read_bytes()).digest())
        except OSError:  # reported where images are looked at
            digest.update(image.encode("utf-8", "surrogatepass"))
    return digest.digest()


def _image_problems(example: Example) -> Iterable[str]:
    tags = example.text.count(IMAGE_TAG)
    if tags != len(example.images):
        yield f"{tags} {IMAGE_TAG} in the prompt, but {len(example.images)} images"
    for image in example.images:
        try:
            size_of(image)
        except ValueError as error:
            yield str(error)
