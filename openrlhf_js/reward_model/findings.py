"""Kinds of problems in preference files, and how many of each keep a file from being trained on."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple


class Kind(NamedTuple):
    """A kind of problem: how it is called, and what share of the pairs may have it."""

    text: str
    share: float | None  # None: none, whatever the user allows


KINDS = {
    "no pair": Kind("row that is no pair", None),
    "no text": Kind("pair that cannot be made into text", None),
    "empty": Kind("pair with an empty side", 0),
    "same": Kind("pair whose sides are the same", 0),
    "roles": Kind("conversation with roles out of order", 0),
    "prompts": Kind("pair whose sides answer different prompts", 0),
    "torn": Kind("pair whose prompt the chat template changes once the response follows", 0),
    "cut": Kind("pair longer than --data.max_len, which would be cut", 0.05),
    "repeated": Kind("pair that was there before", 0.05),
    "reversed": Kind("pair that was there the other way round", 0.05),
}
ALLOWABLE = [name for name, kind in KINDS.items() if kind.share is not None]


@dataclass
class Tally:
    """What was found in one file.

    Attributes:
        pairs: how many there are.
        batches: that is, of `BATCH` rows.
        counts: of the problems, by kind.
        tokens: of the longer side; for the first 10,240 pairs and every 32nd batch.
    """

    pairs: int = 0
    batches: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    tokens: array[int] = field(default_factory=lambda: array("I"))


@dataclass
class Report:
    """What a check found.

    Attributes:
        shown: how many problems of each kind are kept.
        tallies: by file.
        problems: the first of each kind, each with its place.
    """

    shown: int
    tallies: dict[str, Tally] = field(default_factory=dict)
    problems: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @property
    def pairs(self) -> int:
        """How many there are."""
        return sum(tally.pairs for tally in self.tallies.values())

    @property
    def counts(self) -> Counter[str]:
        """How many problems of each kind there are."""
        return sum((tally.counts for tally in self.tallies.values()), Counter())

    def stopping(self, allowed: Collection[str] = ()) -> list[str]:
        """The kinds of problems that must not be trained on, unless they are allowed.

        Args:
            allowed: of `ALLOWABLE`.
        """
        counts = self.counts
        return [
            name
            for name, kind in KINDS.items()
            if name not in allowed and counts[name] > (kind.share or 0) * self.pairs
        ]

    def add(self, kind: str, file: str, place: str, text: str) -> None:
        """Counts a problem, and keeps it if it is among the first of its kind."""
        self.tallies[file].counts[kind] += 1
        if len(self.problems[kind]) < self.shown:
            self.problems[kind].append(f"{file}, {place}: {text}" if place else f"{file}: {text}")
