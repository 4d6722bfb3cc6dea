"""What tasks are made of: problems, scores, labels in JSON, and how problems are generated."""

from __future__ import annotations

import hashlib
import json
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, get_args

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


def no_progress(rows: int) -> None:
    """The progress that nobody looks at."""


def read_label(label: str, read: Callable[[Any], T], form: str) -> T:
    """What `read` makes of a JSON label; ValueError naming the form if it raises."""
    try:
        return read(json.loads(label))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise ValueError(f"a label is {form}, got {label!r:.200}") from None


# Generating problems


def random_of(task: str, split: Split, seed: int) -> random.Random:
    """The random numbers for a split of a task."""
    return random.Random(f"{task}/{split}/{seed}")


def split_of(key: str) -> Split:
    """The split of a problem, by its content in a canonical form: no seed puts it into both."""
    digest = hashlib.sha256(key.encode()).digest()
    return "test" if digest[0] % TEST_SHARE == 0 else "train"


def is_new(seen: set[int], key: str) -> bool:
    """Whether a problem comes for the first time; `seen` keeps its hash."""
    size_before = len(seen)
    seen.add(hash(key))
    return len(seen) > size_before


def in_turn(
    draw: Callable[[Kind], Item | None], kinds: Sequence[Kind], count: int, tries: int, name: str
) -> Iterator[Item]:
    """`count` problems, of each kind in turn; an exhausted kind leaves the rest to the others.

    A kind is exhausted when `draw` gives None so many `tries` in a row; ValueError if all are, with
    the `name` of the problems, which has {} for the kind.
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
                f"only {counts[kind]} different {name.format(kind)} found, {total} in all, of "
                f"{count}: ask for fewer, or for other kinds"
            )


def _first_drawn(draw: Callable[[Kind], Item | None], kind: Kind, tries: int) -> Item | None:
    for _ in range(tries):
        item = draw(kind)
        if item:
            return item
    return None
