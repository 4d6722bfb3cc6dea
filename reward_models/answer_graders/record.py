"""The parts of a task: its record, scores and labels, and helpers that generate problems.

Everything about a task is read from its record: by the data program, checks, rewards, help,
evaluation and the table of reward files. This module loads no heavy library, so that `--help` is
fast.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import operator
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from answer_graders.labels import label_text

T = TypeVar("T")
Kind = TypeVar("Kind")
Item = Mapping[str, Any]  # one problem; the fields depend on the task
Message = dict[str, str]  # {"role": ..., "content": ...}
Split = Literal["train", "test"]  # of tasks that generate their problems
Wording = Literal["own", "paper"]  # of prompts: ours, or that of the paper's examples
Status = Literal["correct", "wrong", "no_answer", "malformed", "timeout", "error"]
STATUSES: tuple[Status, ...] = get_args(Status)
NOT_OPTIONS = ("count", "seed", "split")  # parameters of every task


class Score(NamedTuple):
    """The grade of one response: 1.0 for `correct`, 0.0 for every other status.

    `wrong`: another answer (Reasoning Gym may give it part of the score); `no_answer`: there is no
    answer; `malformed`: the answer cannot be read; `timeout`: grading took too long; `error`: the
    grader failed. `detail` is one line for people to read.
    """

    value: float
    status: Status
    detail: str


def scored(status: Status, detail: str) -> Score:
    """The score that belongs to a status."""
    return Score(float(status == "correct"), status, detail)


def with_text_label(score: Callable[[str, str], Score]) -> Callable[[str, Any], Score]:
    """Makes a task's `score` accept labels as data rows hold them: text, or a whole number.

    Any other label, or a response that is not text, raises a ValueError that names its type.
    """

    @functools.wraps(score)
    def score_of_row(response: str, label: Any) -> Score:
        if not isinstance(response, str):
            raise ValueError(
                f"a response must be text, got {type(response).__name__}: {response!r:.80}; of a "
                "conversation give the last message's content"
            )
        return score(response, label if isinstance(label, str) else label_text(label))

    return score_of_row


def read_label(label: str, read: Callable[[Any], T], form: str) -> T:
    """The result of `read` on a JSON label; a ValueError that names the form if it raises."""
    try:
        return read(json.loads(label))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise ValueError(f"a label is {form}, got {label!r:.200}") from None


class Option(NamedTuple):
    """An option of a task's problems: a flag of `data build`, or a key of a benchmark's `options`.

    Its name and default come from the parameter of `generate` or `load`.
    """

    type: Any
    description: str


WORDING = Option(Wording, "wording of the prompts: our own, or the paper's")
SOURCE = Option(
    str | None,
    "source of the data: a hub id, its downloaded folder, or a file, which is taken whole",
)


@dataclass(frozen=True, kw_only=True)
class GeneratedProblems:
    """Problems generated from a seed."""

    generate: Callable[..., Iterator[Item]]
    """`generate(count, seed, split, **options)`: the same seed gives the same problems, all
    different, and a larger count continues a smaller one. No problem is in both splits. ValueError
    where there are too few."""
    options: Mapping[str, Option]
    default_counts: Mapping[str, int]
    """How many problems a split gets by default; the paper's numbers if it has the task."""
    splits: tuple[str, ...] = get_args(Split)


@dataclass(frozen=True, kw_only=True)
class PublishedProblems:
    """Problems of a published data set, or of the user's file."""

    load: Callable[..., Iterator[Item]]
    """`load(split, **options)`: the problems in the order of the data set."""
    options: Mapping[str, Option]
    splits: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class BenchmarkRecord:
    """The problems that `eval passk` uses, and how it samples responses."""

    samples: int = 16
    """Responses to each problem."""
    temperature: float = 0.7
    max_new_tokens: int = 2048
    top_p: float = 1.0
    split: str = "test"
    count: int | None = None
    """The number of problems; None: all."""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Task:
    """A verifiable task: its problems, and a grader of responses to them.

    `label` and `score` raise ValueError where a label is malformed.
    """

    name: str
    """The name of its program (`data build NAME`), and the first part of a row's datasource."""
    summary: str
    """One line: what is asked."""
    right_if: str
    """Ends the sentence "A response is right if ...", in Markdown."""
    label_form: str
    """The content of a row's label, in Markdown."""
    prompt: Callable[[Item], list[Message]]
    label: Callable[[Item], str]
    """The gold answer as text."""
    score: Callable[[str, Any], Score]
    """`score(response, label)`; in this package, wrapped by `with_text_label`."""
    right_response: Callable[[str], str]
    """A response that scores 1, from a label."""
    wrong_response: Callable[[str], str]
    """A response that scores 0, from a label."""
    problems: GeneratedProblems | PublishedProblems
    kind: Callable[[Item], str] | None = None
    """The kind of a problem: the second part of a row's datasource."""
    reward_file: str = "mixed.py"
    """The file in reward_models/ that grades it. `mixed.py` grades every task, by datasource."""
    reads_label: Callable[[str], bool] = lambda label: True
    """Whether the gold answer is recognised in all its notations."""
    voted_answer: Callable[[str], str | None] = str
    """The answer of a response in a canonical spelling, for majority voting."""
    same_answer: Callable[[str, str], bool] = operator.eq
    """Whether two wrong answers count as the same answer in that vote."""
    benchmarks: Mapping[str, BenchmarkRecord] = field(default_factory=dict)
    """The benchmarks by name, as `eval passk --tasks` takes them."""

    def defaults(self) -> dict[str, Any]:
        """The options of its problems with their defaults."""
        if isinstance(self.problems, GeneratedProblems):
            source = self.problems.generate
        else:
            source = self.problems.load
        parameters = inspect.signature(source).parameters
        return {name: parameters[name].default for name in parameters if name not in NOT_OPTIONS}

    def check_label(self, label: Any) -> str:
        """The label as plain text; ValueError unless the task can grade against it."""
        text = label_text(label)
        self.score("", text)
        return text

    def datasource(self, item: Item) -> str:
        """The datasource of a row: the task, and the kind of problem if the task has kinds."""
        return f"{self.name}/{self.kind(item)}" if self.kind else self.name


# Generating problems

TEST_SHARE = 8  # one problem in so many belongs to the test split


def random_of(task: str, split: Split, seed: int) -> random.Random:
    """The random generator for a split of a task."""
    return random.Random(f"{task}/{split}/{seed}")


def split_of(key: str) -> Split:
    """The split of a problem, from its canonical content, so that no seed puts it into both."""
    digest = hashlib.sha256(key.encode()).digest()
    return "test" if digest[0] % TEST_SHARE == 0 else "train"


def is_new(seen: set[int], key: str) -> bool:
    """Whether a problem is new; its hash is added to `seen`."""
    size_before = len(seen)
    seen.add(hash(key))
    return len(seen) > size_before


def in_turn(
    draw: Callable[[Kind], Item | None], kinds: Sequence[Kind], count: int, tries: int, name: str
) -> Iterator[Item]:
    """`count` problems, taking the kinds in turn; the other kinds make up for an exhausted one.

    A kind is exhausted when `draw` returns None `tries` times in a row. ValueError if all are, or
    if one gave no problem; its message has `name`, in which {} stands for the kind.
    """
    turns = deque(kinds)
    counts = dict.fromkeys(kinds, 0)
    total = 0
    while total < count:
        kind = turns[0]
        item = next(filter(None, (draw(kind) for _ in range(tries))), None)
        if item:
            counts[kind] += 1
            total += 1
            turns.rotate(-1)
            yield item
            continue
        turns.popleft()
        if not turns or not counts[kind]:
            raise ValueError(
                f"only {counts[kind]} different {name.format(kind)} found, {total} in all, of "
                f"{count}: ask for fewer, or for other kinds"
            )
