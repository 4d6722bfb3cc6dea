"""Which problems an inline run trains on at each step: in a given order, or chosen."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from openrlhf_js.estimators.selection import PromptSelector, Rule
from openrlhf_js.study.design import UNIFORM, Run, StudySettings, selection_of
from openrlhf_js.study.prompts import distinct_problems, training_problems
from openrlhf_js.study.run_estimator import keys_of
from openrlhf_js.tiny.tasks import Problem


class ProblemBatch(NamedTuple):
    """The problems of one step."""

    problems: Sequence[Problem]
    weights: Tensor  # (n,) of their advantages


class OrderFigures(NamedTuple):
    """Of a run's batches; None where they come in a given order."""

    effective_prompts: float | None = None
    oldest: int | None = None


class ProblemOrder(Protocol):
    """What an inline run asks of the order of its problems."""

    problems: Sequence[Problem]
    """All of them."""

    def figures(self) -> OrderFigures:
        """What was measured of the batches so far."""

    def batch(self, step: int) -> ProblemBatch:
        """The problems of a step."""

    def learn(self, step: int, problems: Sequence[Problem], rewards: Tensor) -> None:
        """Learns from the rewards (n, m) of a step."""


def problem_order(run: Run, settings: StudySettings) -> ProblemOrder:
    """The order of a run's problems, as its estimator's label says."""
    selection = selection_of(run.estimator)
    if selection == UNIFORM:
        return GivenOrder(training_problems(run, settings), run.prompts)
    return ChosenOrder(
        distinct_problems(run, settings),
        run.prompts,
        seed=run.seed,
        selection=selection,
    )


class GivenOrder:
    """One batch after the other."""

    def __init__(self, problems: Sequence[Problem], batch_size: int):
        self.problems = problems
        self._batch_size = batch_size

    def figures(self) -> OrderFigures:
        """Nothing is measured."""
        return OrderFigures()

    def batch(self, step: int) -> ProblemBatch:
        """The problems of a step."""
        first = step * self._batch_size
        problems = self.problems[first : first + self._batch_size]
        return ProblemBatch(problems, torch.ones(len(problems)))

    def learn(self, step: int, problems: Sequence[Problem], rewards: Tensor) -> None:
        """Nothing."""


class ChosenOrder:
    """Those whose rewards are predicted to vary are drawn more often."""

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

    def batch(self, step: int) -> ProblemBatch:
        """The problems of a step."""
        self._logged.append(self._selector.describe(step))
        problems = [self.problems[row] for row in self._selector.choose(step)]
        weights = torch.ones(len(problems))
        if self._weighted:
            weights = self._selector.weights(keys_of(problems), step).float()
        return ProblemBatch(problems, weights)

    def learn(self, step: int, problems: Sequence[Problem], rewards: Tensor) -> None:
        """Learns from the rewards (n, m) of a step."""
        self._selector.learn(keys_of(problems), rewards, step)
