"""Which problems an inline run samples responses to: in a given order, chosen, or filtered."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import islice
from statistics import fmean
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from openrlhf_js.estimators.selection import PromptSelector, Rule
from openrlhf_js.study.design import UNIFORM, Run, StudySettings, selection_of
from openrlhf_js.study.prompts import distinct_problems, problem_stream, training_problems
from openrlhf_js.study.run_estimator import keys_of
from openrlhf_js.tiny.tasks import Problem

GRESO_START = 0.5
GRESO_CHANGE = 0.01
GRESO_BOUNDS = (0.05, 0.95)
GRESO_LEAST = 0.01  # probability of a visit
GRESO_TARGETS = {True: 0.25 / 3, False: 0.25 * 2 / 3}  # share of groups all solved, all failed


class ProblemBatch(NamedTuple):
    """Problems of one step."""

    problems: Sequence[Problem]
    weights: Tensor  # (n,) of their advantages


class OrderFigures(NamedTuple):
    """Of a run's batches; None where prompts are not chosen."""

    effective_prompts: float | None = None
    oldest: int | None = None


class ProblemOrder(Protocol):
    """What an inline run asks of the order of its problems."""

    problems: Sequence[Problem]
    """All of them."""
    filters: bool
    """Whether groups of equal rewards are dropped, and others sampled in their place."""

    def figures(self) -> OrderFigures:
        """What was measured of the batches so far."""

    def batch(self, step: int, size: int) -> ProblemBatch:
        """So many more problems of a step."""

    def learn(self, step: int, problems: Sequence[Problem], rewards: Tensor) -> None:
        """Learns from rewards (n, m) of a step."""


def problem_order(run: Run, settings: StudySettings) -> ProblemOrder:
    """The order of a run's problems, as its estimator's label says."""
    selection = selection_of(run.estimator)
    if selection in (UNIFORM, "dynamic"):
        return GivenOrder(training_problems(run, settings), filters=selection == "dynamic")
    problems = distinct_problems(run, settings)
    if selection == "greso":
        return SkippingOrder(problems, problem_stream(run, settings), seed=run.seed)
    return ChosenOrder(problems, run.prompts, seed=run.seed, selection=selection)


class GivenOrder:
    """One problem after the other; with `filters`, DAPO's dynamic sampling (Yu et al., 2025).

    As OpenRLHF does it, each group of equal rewards is replaced by one of the next problem.
    """

    def __init__(self, problems: Sequence[Problem], *, filters: bool):
        self.problems = problems
        self.filters = filters
        self._stream = iter(problems)

    def figures(self) -> OrderFigures:
        """Nothing is measured."""
        return OrderFigures()

    def batch(self, step: int, size: int) -> ProblemBatch:
        """The next problems."""
        return ProblemBatch(list(islice(self._stream, size)), torch.ones(size))

    def learn(self, step: int, problems: Sequence[Problem], rewards: Tensor) -> None:
        """Nothing."""


class Streak(NamedTuple):
    """The last visits of a problem whose rewards were all equal, and equal to one another."""

    solved: bool
    visits: int


class SkippingOrder:
    """GRESO: the longer a problem's rewards have all been equal, the likelier it is skipped.

    A problem whose last z visits were all solved (or all failed) is skipped with probability
    1 - p^z, at most 0.99, and groups of equal rewards that were sampled are dropped. p differs for
    solved and failed problems; from the second pass on, it falls by 0.01 after a step with more
    such groups than its target, and rises by 0.01 after others, from 0.05 to 0.95. Zheng et al.
    (2025, arXiv 2506.02177), equations and constants; the bounds are of the authors' code. They
    sample whole batches anew where groups were dropped, which costs more responses than this.
    """

    filters = True

    def __init__(self, problems: Sequence[Problem], stream: Iterator[Problem], *, seed: int):
        self.problems = problems
        self._stream = stream
        self._rng = random.Random(seed)
        self._streaks: dict[Problem, Streak] = {}
        self._exploration = {True: GRESO_START, False: GRESO_START}
        self._drawn = 0  # from the stream
        self._step = 0
        self._groups = 0  # of the step so far
        self._equal = {True: 0, False: 0}

    def figures(self) -> OrderFigures:
        """Nothing is measured."""
        return OrderFigures()

    def batch(self, step: int, size: int) -> ProblemBatch:
        """The next problems that are not skipped."""
        if step != self._step:
            self._adjust()
            self._step = step
        problems: list[Problem] = []
        while len(problems) < size:
            problem = next(self._stream)
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
        return float(max(exploration**streak.visits, GRESO_LEAST))

    def _adjust(self) -> None:
        """Explores more or less, by the shares of equal groups in the step that has ended."""
        if self._drawn > len(self.problems):
            low, high = GRESO_BOUNDS
            for solved, target in GRESO_TARGETS.items():
                too_many = self._equal[solved] / max(1, self._groups) >= target
                change = -GRESO_CHANGE if too_many else GRESO_CHANGE
                exploration = self._exploration[solved] + change
                self._exploration[solved] = min(max(exploration, low), high)
        self._groups = 0
        self._equal = {True: 0, False: 0}


class ChosenOrder:
    """Those whose rewards are predicted to vary are drawn more often."""

    filters = False

    def __init__(self, problems: Sequence[Problem], batch_size: int, *, seed: int, selection: str):
        self.problems = problems
        rule: Rule = "spo" if selection == "spo" else "variance"
        self._selector = PromptSelector(keys_of(problems), batch_size, seed, rule=rule)
        self._weighted = selection == "weighted"
        self._logged: list[dict[str, float]] = []

    def figures(self) -> OrderFigures:
        """The mean effective number of prompts, and the longest wait of any."""
        return OrderFigures(
            effective_prompts=fmean(logged["js/effective_prompts"] for logged in self._logged),
            oldest=int(max(logged["js/oldest_prompt"] for logged in self._logged)),
        )

    def batch(self, step: int, size: int) -> ProblemBatch:
        """The problems of a step, as many as the selector chooses."""
        self._logged.append(self._selector.describe(step))
        problems = [self.problems[row] for row in self._selector.choose(step)]
        weights = torch.ones(len(problems))
        if self._weighted:
            weights = self._selector.weights(keys_of(problems), step).float()
        return ProblemBatch(problems, weights)

    def learn(self, step: int, problems: Sequence[Problem], rewards: Tensor) -> None:
        """Learns from the rewards (n, m) of a step."""
        self._selector.learn(keys_of(problems), rewards, step)
