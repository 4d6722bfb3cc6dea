"""Which problems an inline run samples responses to: in a given order, or chosen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from openrlhf_js.estimators.selection import PromptSelector
from openrlhf_js.study.inline.run_estimator import keys_of
from openrlhf_js.tiny.tasks import Problem


class ProblemBatch(NamedTuple):
    """Problems of one step."""

    problems: Sequence[Problem]
    weights: Tensor  # (n,) of their advantages


class ProblemOrder:
    """One problem after the other; with `filters`, DAPO's dynamic sampling (Yu et al., 2025).

    As OpenRLHF does it, each group of equal rewards is replaced by one of the next problem.
    """

    def __init__(self, problems: Sequence[Problem], stream: Iterable[Problem], *, filters: bool):
        self.problems = problems  # all of them
        self.stream = iter(stream)
        self.filters = filters  # whether groups of equal rewards are dropped

    def batch(self, step: int, size: int) -> ProblemBatch:
        """So many more problems of a step."""
        return ProblemBatch(list(islice(self.stream, size)), torch.ones(size))

    def learn(self, step: int, problems: Sequence[Problem], rewards: Tensor) -> None:
        """Learns from rewards (n, m) of a step."""

    def figures(self) -> dict[str, Any]:
        """What was measured of the batches so far: fields of `Figures`."""
        return {}


class ChosenOrder(ProblemOrder):
    """Those whose rewards are predicted to vary are drawn more often."""

    def __init__(self, problems: Sequence[Problem], batch_size: int, *, seed: int, selection: str):
        super().__init__(problems, (), filters=False)
        self._selector = PromptSelector(
            keys_of(problems), batch_size, seed, rule="spo" if selection == "spo" else "variance"
        )
        self._weighted = selection == "weighted"
        self._logged: list[dict[str, float]] = []

    def batch(self, step: int, size: int) -> ProblemBatch:
        """The problems of a step; `size` is that of a whole batch, since none is dropped."""
        choice = self._selector.choice(step)
        self._logged.append(choice.logged)
        problems = [self.problems[row] for row in choice.rows]
        weights = choice.weights.float() if self._weighted else torch.ones(size)
        return ProblemBatch(problems, weights)

    def learn(self, step: int, problems: Sequence[Problem], rewards: Tensor) -> None:
        """Learns from the rewards of a step."""
        self._selector.learn(keys_of(problems), rewards, step)

    def figures(self) -> dict[str, Any]:
        """The mean effective number of prompts, and the longest wait of any."""
        return {
            "effective_prompts": fmean(logged["js/effective_prompts"] for logged in self._logged),
            "oldest": int(max(logged["js/oldest_prompt"] for logged in self._logged)),
        }
