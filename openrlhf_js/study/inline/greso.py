"""GRESO: prompts whose rewards were all equal lately are skipped (Zheng et al., 2025)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from openrlhf_js.study.inline.order import ProblemBatch, ProblemOrder
from openrlhf_js.tiny.tasks import Problem

START = 0.5
CHANGE = 0.01
BOUNDS = (0.05, 0.95)
LEAST = 0.01  # probability of a visit
TARGETS = {True: 0.25 / 3, False: 0.25 * 2 / 3}  # share of groups all solved, all failed


class Streak(NamedTuple):
    """The last visits of a problem whose rewards were all equal, and equal to one another."""

    solved: bool
    visits: int


class SkippingOrder(ProblemOrder):
    """GRESO: the longer a problem's rewards have all been equal, the likelier it is skipped.

    A problem whose last z visits were all solved (or all failed) is skipped with probability
    1 - p^z, at most 0.99, and groups of equal rewards that were sampled are dropped. p differs for
    solved and failed problems; from the second pass on, it falls by 0.01 after a step with more
    such groups than its target, and rises by 0.01 after others, from 0.05 to 0.95. Zheng et al.
    (2025, arXiv 2506.02177), equations and constants; the bounds are of the authors' code. They
    sample whole batches anew where groups were dropped, which costs more responses than this.
    """

    def __init__(self, problems: Sequence[Problem], stream: Iterator[Problem], *, seed: int):
        super().__init__(problems, stream, filters=True)
        self._rng = random.Random(seed)
        self._streaks: dict[Problem, Streak] = {}
        self._exploration = {True: START, False: START}
        self._drawn = 0  # from the stream
        self._step = 0
        self._groups = 0  # of the step so far
        self._equal = {True: 0, False: 0}

    def batch(self, step: int, size: int) -> ProblemBatch:
        """The next problems that are not skipped."""
        if step != self._step:
            self._adjust()
            self._step = step
        problems: list[Problem] = []
        while len(problems) < size:
            problem = next(self.stream)
            self._drawn += 1
            if self._rng.random() < self._probability(problem):
                problems.append(problem)
        return ProblemBatch(problems, torch.ones(size))

    def learn(self, step: int, problems: Sequence[Problem], rewards: Tensor) -> None:
        """Counts the groups of equal rewards."""
        rates = rewards.mean(1).tolist()
        self._groups += len(problems)
        for problem, rate in zip(problems, rates, strict=True):
            former = self._streaks.pop(problem, None)
            if 0 < rate < 1:
                continue
            solved = rate == 1
            self._equal[solved] += 1
            visits = 1
            if former is not None and former.solved == solved:
                visits += former.visits
            self._streaks[problem] = Streak(solved, visits)

    def _probability(self, problem: Problem) -> float:
        """That a problem is not skipped."""
        streak = self._streaks.get(problem)
        if streak is None:
            return 1.0
        exploration = self._exploration[streak.solved]
        return float(max(exploration**streak.visits, LEAST))

    def _adjust(self) -> None:
        """Explores more or less, by the shares of equal groups in the step that has ended."""
        if self._drawn > len(self.problems):
            low, high = BOUNDS
            for solved, target in TARGETS.items():
                too_many = self._equal[solved] / max(1, self._groups) >= target
                change = -CHANGE if too_many else CHANGE
                exploration = self._exploration[solved] + change
                self._exploration[solved] = min(max(exploration, low), high)
        self._groups = 0
        self._equal = {True: 0, False: 0}
