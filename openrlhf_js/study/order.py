"""Which problems an inline run samples responses to: in a given order, chosen, or filtered."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from statistics import fmean

import torch
from torch import Tensor

from openrlhf_js.estimators.selection import PromptSelector, Rule
from openrlhf_js.study.batches import OrderFigures, ProblemBatch, ProblemOrder
from openrlhf_js.study.design import UNIFORM, Run, StudySettings, selection_of
from openrlhf_js.study.greso import SkippingOrder
from openrlhf_js.study.prompts import distinct_problems, problem_stream, training_problems
from openrlhf_js.study.run_estimator import keys_of
from openrlhf_js.tiny.tasks import Problem


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
        """Learns nothing."""


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
        """The problems of a step; `size` is that of a whole batch, since none is dropped."""
        choice = self._selector.choice(step)
        self._logged.append(choice.logged)
        problems = [self.problems[row] for row in choice.rows]
        weights = choice.weights.float() if self._weighted else torch.ones(len(problems))
        return ProblemBatch(problems, weights)

    def learn(self, step: int, problems: Sequence[Problem], rewards: Tensor) -> None:
        """Learns from the rewards (n, m) of a step."""
        self._selector.learn(keys_of(problems), rewards, step)
