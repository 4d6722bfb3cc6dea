"""What every verifiable task offers, and what a grader says of a response."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

Item = Mapping[str, Any]  # one problem, in its task's own fields
Message = dict[str, str]  # {"role": ..., "content": ...}
Status = Literal["correct", "wrong", "no_answer", "malformed", "timeout", "error"]
STATUSES: tuple[Status, ...] = get_args(Status)


class Score(NamedTuple):
    """What a grader says of one response.

    Attributes:
        value: the reward: 1.0 for `correct`, 0.0 for every other status.
        status: `correct`; `wrong`: another answer; `no_answer`: none was given; `malformed`: what
            was given cannot be read as an answer; `timeout`: grading it took too long; `error`:
            the grader broke on it.
        detail: for a person, in one line: what was compared, or what is wrong with it.
    """

    value: float
    status: Status
    detail: str


def scored(status: Status, detail: str) -> Score:
    """The score that belongs to a status."""
    return Score(float(status == "correct"), status, detail)


class Task(Protocol):
    """A task is a module with these names, and with those of `Generated` or of `Loaded`."""

    NAME: str

    def prompt(self, item: Item) -> list[Message]:
        """The messages that ask for the item's answer."""

    def label(self, item: Item) -> str:
        """The gold label, as text that survives JSON lines; ValueError if the item has none."""

    def score(self, response: str, label: str) -> Score:
        """Grades a response; ValueError if the label is malformed, whatever the response."""

    def right_response(self, label: str) -> str:
        """A response that scores 1, made from the label alone."""

    def wrong_response(self, label: str) -> str:
        """A well-formed response that scores 0 with status `wrong`."""


@runtime_checkable
class Generated(Task, Protocol):
    """A task that makes its problems, for the splits `train` and `test`.

    Attributes:
        generate: called with `count`, `seed`, `split` and the task's own options, yields items.
    """

    generate: Callable[..., Iterator[Item]]


@runtime_checkable
class Loaded(Task, Protocol):
    """A task whose problems are published, or in files.

    Attributes:
        SPLITS: those that can be loaded.
        load: called with `split`, the task's own options and `progress` (see `hub.rows`), yields
            items.
        used: called with `split` and the options, returns the options that `load` then uses: those
            given, and its own choice where one is None.
    """

    SPLITS: tuple[str, ...]
    load: Callable[..., Iterator[Item]]
    used: Callable[..., dict[str, Any]]


def as_given(split: str, **options: Any) -> dict[str, Any]:
    """The `used` of a task that chooses nothing itself."""
    return options
