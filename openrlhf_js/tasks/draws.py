"""Random draws that give the same values on every machine and Python version.

Python promises that for `random.Random.random` alone: `randrange`, `choice` and `shuffle` have
changed between versions. Here all are made from it.
"""

from __future__ import annotations

import hashlib
import random
from array import array
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar, get_args

T = TypeVar("T")
Split = Literal["train", "test"]
TEST_SHARE = 8  # one kind of problem in so many is of the test split


class Draws:
    """A stream of draws from a seed, which is text so that streams of several purposes differ."""

    def __init__(self, seed: str):
        self.random = random.Random(seed).random  # seeding with text is part of the promise

    @classmethod
    def of_split(cls, task: str, split: Split, seed: int) -> Draws:
        """The stream for a split of a task; ValueError if there is no such split."""
        if split not in get_args(Split):
            raise ValueError(f"split must be train or test, got {split!r}")
        return cls(f"{task}/{split}/{seed}")

    def below(self, bound: int) -> int:
        """A whole number from 0 to `bound` - 1, all equally likely."""
        return int(self.random() * bound)

    def choice(self, values: Sequence[T]) -> T:
        """One of the values."""
        return values[int(self.random() * len(values))]

    def sample(self, values: Sequence[T], count: int) -> list[T]:
        """`count` of the values, in random order, none twice, in time that grows with `count`."""
        moved: dict[int, T] = {}  # what a shuffle would have put at places other than its own
        drawn = []
        for i in range(count):
            j = i + int(self.random() * (len(values) - i))
            drawn.append(moved.get(j, values[j]))
            moved[j] = moved.get(i, values[i])
        return drawn


class Seen:
    """Which problems have come already, in 8 to 24 bytes each.

    A problem is known by 8 bytes of a digest. One that shares them with another, which is next to
    impossible among millions, merely never comes, and that on every machine alike.
    """

    def __init__(self) -> None:
        # A digest is in the first slot that was free from its own place on; 0 is a free one.
        self._slots = array("Q", bytes(8 << 10))
        self._count = 0

    def add(self, key: str) -> bool:
        """Whether a problem is new, of which this is the content; from then on it is not."""
        digest = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") or 1
        at = self._place(digest)
        if self._slots[at]:
            return False
        self._slots[at] = digest
        self._count += 1
        if 3 * self._count > 2 * len(self._slots):
            self._grow()
        return True

    def _place(self, digest: int) -> int:
        """Where a digest is, or where it belongs."""
        last = len(self._slots) - 1
        at = digest & last
        while self._slots[at] not in (0, digest):
            at = (at + 1) & last
        return at

    def _grow(self) -> None:
        old, self._slots = self._slots, array("Q", bytes(16 * len(self._slots)))
        for digest in filter(None, old):
            self._slots[self._place(digest)] = digest


def first(tries: int, draw: Callable[[], T | None]) -> T | None:
    """What is drawn first that is not None, or None where all tries fail."""
    return next((found for _ in range(tries) if (found := draw()) is not None), None)


def split_of(key: str) -> Split:
    """The split that a problem belongs to, by its content alone.

    Whatever the seeds, a problem can never be in both: train and test are disjoint by construction.

    Args:
        key: the problem's content in one canonical form, the same for problems that are the same.
    """
    digest = hashlib.sha256(key.encode()).digest()
    return "test" if digest[0] % TEST_SHARE == 0 else "train"
