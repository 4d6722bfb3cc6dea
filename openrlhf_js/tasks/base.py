"""What every verifiable task offers, what a grader says of a response, how problems are made."""

from __future__ import annotations

import hashlib
import json
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, get_args, runtime_checkable

T = TypeVar("T")
Kind = TypeVar("Kind")
Item = Mapping[str, Any]  # one problem, in its task's own fields
Message = dict[str, str]  # {"role": ..., "content": ...}
Split = Literal["train", "test"]  # of the tasks that generate their problems
Wording = Literal["own", "paper"]  # of prompts: ours, or as the paper's examples have it
Status = Literal["correct", "wrong", "no_answer", "malformed", "timeout", "error"]
STATUSES: tuple[Status, ...] = get_args(Status)
TEST_SHARE = 8  # one kind of problem in so many belongs to the test split
Progress = Callable[[int], None]  # called with the number of rows read so far


class Score(NamedTuple):
    """What a grader says of one response: 1.0 for `correct`, 0.0 for every other status.

    `wrong`: another answer, which Reasoning Gym gives a part of the score; `no_answer`: none was
    given; `malformed`: it cannot be read; `timeout`: grading took too long; `error`: the grader
    failed. `detail` is one line for a person.
    """

    value: float
    status: Status
    detail: str


def scored(status: Status, detail: str) -> Score:
    """The score that belongs to a status."""
    return Score(float(status == "correct"), status, detail)


class Task(Protocol):
    """A task is a module with these names, and with those of `Generated` or of `Loaded`.

    `label` is the gold answer as text, `score` grades a response against it; both raise ValueError
    where there is none. `right_response` and `wrong_response` of a label score 1 and 0.
    """

    NAME: str

    def prompt(self, item: Item) -> list[Message]: ...
    def label(self, item: Item) -> str: ...
    def score(self, response: str, label: str) -> Score: ...
    def right_response(self, label: str) -> str: ...
    def wrong_response(self, label: str) -> str: ...


@runtime_checkable
class Generated(Task, Protocol):
    """A task that generates its problems: `generate(count, seed, split, **options)`.

    The same seed gives the same problems, all different, and a larger count continues a smaller
    one. No problem is in both splits. ValueError where there are too few.
    """

    generate: Callable[..., Iterator[Item]]


@runtime_checkable
class Loaded(Task, Protocol):
    """A task with published problems: `load(split, **options, progress=...)`.

    `used(split, **options)` returns the options with the task's own choice in place of None.
    """

    SPLITS: tuple[str, ...]
    load: Callable[..., Iterator[Item]]
    used: Callable[..., dict[str, Any]]


def as_given(split: str, **options: Any) -> dict[str, Any]:
    """The `used` of a task that chooses nothing itself."""
    return options


def no_progress(rows: int) -> None:
    """The progress that nobody looks at."""


def check_label(task: Task, label: Any) -> str:
    """The label as plain text; ValueError unless it is text that the task can grade against."""
    if not isinstance(label, str):
        raise ValueError(
            f'a label must be text, as in "42", got {type(label).__name__}: {label!r:.80}'
        )
    plain = str(label)  # without the attributes that the plug-in gives it
    task.score("", plain)
    return plain


def read_label(label: str, read: Callable[[Any], T], form: str) -> T:
    """What `read` makes of a JSON label; ValueError naming the form if it raises."""
    try:
        return read(json.loads(label))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise ValueError(f"a label is {form}, got {label!r:.200}") from None


def random_of(task: str, split: Split, seed: int) -> random.Random:
    """The random numbers for a split of a task."""
    return random.Random(f"{task}/{split}/{seed}")


def split_of(key: str) -> Split:
    """The split of a problem, by its content in a canonical form: no seed puts it into both."""
    digest = hashlib.sha256(key.encode()).digest()
    return "test" if digest[0] % TEST_SHARE == 0 else "train"


def is_new(seen: set[int], key: str) -> bool:
    """Whether a problem comes for the first time; `seen` keeps its hash."""
    known = len(seen)
    seen.add(hash(key))
    return len(seen) > known


def in_turn(
    draw: Callable[[Kind], Item | None], kinds: Sequence[Kind], count: int, tries: int, what: str
) -> Iterator[Item]:
    """`count` problems, of each kind in turn; an exhausted kind leaves the rest to the others.

    A kind is exhausted when `draw` gives None so many `tries` in a row; ValueError if all are.
    """
    turns = deque(kinds)
    counts = dict.fromkeys(kinds, 0)
    total = 0
    while total < count:
        kind = turns[0]
        item = _first_drawn(draw, kind, tries)
        if item:
            counts[kind] += 1
            total += 1
            turns.rotate(-1)
            yield item
            continue
        turns.popleft()
        if not turns or not counts[kind]:
            raise ValueError(
                f"only {counts[kind]} different {what.format(kind)} found, {total} in all, of "
                f"{count}: ask for fewer, or for other kinds"
            )


def _first_drawn(draw: Callable[[Kind], Item | None], kind: Kind, tries: int) -> Item | None:
    for _ in range(tries):
        item = draw(kind)
        if item:
            return item
    return None
