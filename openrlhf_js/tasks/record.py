"""The record of a task: all that is said of it anywhere is read from here.

The data program, checks, rewards, help, evaluation and the table of reward files read the records
of `catalogue.py`. Records load no heavy library, so that `--help` can read them at once.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, get_args

from openrlhf_js.common.labels import label_text
from openrlhf_js.tasks.base import Item, Message, Score, Split, Wording

NOT_OPTIONS = ("count", "seed", "split", "progress")  # which every task takes


class Option(NamedTuple):
    """An option of a task's problems: a flag of `data build`, a key of a benchmark's `options`.

    Its name and default are those of the parameter of `generate` or `load`.
    """

    type: Any
    description: str


WORDING = Option(Wording, "of the prompts: our own, or the paper's")
SOURCE = Option(str | None, "hub id, its downloaded folder, or a file, which is taken whole")


@dataclass(frozen=True, kw_only=True)
class GeneratedProblems:
    """Problems that are made from a seed."""

    generate: Callable[..., Iterator[Item]]
    """`generate(count, seed, split, **options)`: the same seed gives the same problems, all
    different, and a larger count continues a smaller one. No problem is in both splits. ValueError
    where there are too few."""
    options: Mapping[str, Option]
    default_counts: Mapping[str, int]
    """How many problems a split gets unless the user says so; the paper's numbers, if it has the
    task."""
    splits: tuple[str, ...] = get_args(Split)


@dataclass(frozen=True, kw_only=True)
class PublishedProblems:
    """Problems of a published data set, or of the user's file."""

    load: Callable[..., Iterator[Item]]
    """`load(split, **options, progress=...)`: the problems in the order of the data set."""
    options: Mapping[str, Option]
    splits: tuple[str, ...]
    used: Callable[..., dict[str, Any]] = lambda split, **options: options
    """`used(split, **options)`: the options with the task's own choice in place of None."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkRecord:
    """Which problems `eval passk` asks, and how it samples responses to them."""

    samples: int
    """Responses to each problem."""
    temperature: float
    max_new_tokens: int
    top_p: float = 1.0
    split: str = "test"
    count: int | None = None
    """Of the problems; None: all."""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Task:
    """A verifiable task: its problems, and a grader of responses to them.

    `label` and `score` raise ValueError where a label is malformed.
    """

    name: str
    """Of its program (`data build NAME`), and the first part of its rows' datasource."""
    summary: str
    """One line: what is asked."""
    right_if: str
    """Ends the sentence "A response is right if ...", in Markdown."""
    label_form: str
    """What the label of a row is, in Markdown."""
    prompt: Callable[[Item], list[Message]]
    label: Callable[[Item], str]
    """The gold answer as text."""
    score: Callable[[str, str], Score]
    """`score(response, label)`."""
    right_response: Callable[[str], str]
    """A response that scores 1, of a label."""
    wrong_response: Callable[[str], str]
    """A response that scores 0, of a label."""
    problems: GeneratedProblems | PublishedProblems | None = None
    """None for a task that only grades."""
    kind: Callable[[Item], str] | None = None
    """What tells the kinds of problems apart: the second part of a row's datasource."""
    reward_file: str = "mixed.py"
    """The file of reward_models/ that grades it. `mixed.py` grades every task, by datasource."""
    reads_label: Callable[[str], bool] = lambda label: True
    """Whether the gold answer is recognised in all of its notations."""
    voted_answer: Callable[[str], str | None] = str
    """The answer of a response in the one spelling that a majority votes on."""
    same_answer: Callable[[str, str], bool] = operator.eq
    """Whether two wrong answers are one, for the same vote."""
    benchmarks: Mapping[str, BenchmarkRecord] = field(default_factory=dict)
    """By the names that `eval passk --tasks` takes."""

    def defaults(self) -> dict[str, Any]:
        """The options of its problems with their defaults."""
        if self.problems is None:
            return {}
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
        """What a row says of where it is from: the task, and the kind of problem if it has any."""
        return f"{self.name}/{self.kind(item)}" if self.kind else self.name
