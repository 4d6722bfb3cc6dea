"""Random draws that give the same values on every machine and Python version.

Python promises that for `random.Random.random` alone: `randrange`, `choice` and `shuffle` have
changed between versions. Here all are made from it.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import Literal, TypeVar

T = TypeVar("T")
Split = Literal["train", "test"]
TEST_SHARE = 16  # one problem in so many is a test problem


class Draws:
    """A stream of draws from a seed, which is text so that streams of several purposes differ."""

    def __init__(self, seed: str):
        self.random = random.Random(seed).random  # seeding with text is part of the promise

    def below(self, bound: int) -> int:
        """A whole number from 0 to `bound` - 1, all equally likely."""
        return int(self.random() * bound)

    def choice(self, values: Sequence[T]) -> T:
        """One of the values."""
        return values[int(self.random() * len(values))]

    def sample(self, values: Sequence[T], count: int) -> list[T]:
        """`count` of the values, in random order, none twice."""
        pool = list(values)
        for i in range(count):
            j = i + int(self.random() * (len(pool) - i))
            pool[i], pool[j] = pool[j], pool[i]
        return pool[:count]


def split_of(key: str) -> Split:
    """The split that a problem belongs to, by its content alone.

    Whatever the seeds, a problem can never be in both: train and test are disjoint by construction.

    Args:
        key: the problem's content in one canonical form, the same for problems that are the same.
    """
    digest = hashlib.sha256(key.encode()).digest()
    return "test" if digest[0] % TEST_SHARE == 0 else "train"
