"""`js_grad` with more regressors and a longer memory: tried, and not taken (docs/results.md).

openrlhf-js study --estimators rloo js_grad research/studies/wider_regression.py:Wider ...

Beside x, the weighted mean of the prompt's other responses, a reward is regressed on v, the log of
their mean weight, on v^2 and on v x. Earlier steps count as 256 prompts at most. As in `js_grad`,
nothing of a response enters its own baseline, and 1.5 imaginary prompts pull towards RLOO.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from openrlhf_js.estimators.group_stats import ratio, sum_of_others

if TYPE_CHECKING:
    from torch import Tensor

    from openrlhf_js.estimators.batch import Batch

PRIOR = 0.25
RLOO_PROMPTS = 1.5
RIDGE = 1e-9  # of the trace, where a regressor does not vary


class Wider:
    """A regression on x, v, v^2 and v x, with a memory of 256 prompts."""

    past_prompts = 256.0
    regressors = 4

    def __init__(self) -> None:
        size = self.regressors + 2  # with 1 in front and the reward behind
        self.moments = torch.zeros(size, size, dtype=torch.float64)
        self.squares = torch.zeros((), dtype=torch.float64)
        self.responses = 0.0

    def baseline(self, batch: Batch) -> Tensor:
        """(n, m) predictions; RLOO's in the first batch."""
        if not self.responses:
            return batch.statistics.loo_prompt_mean
        features, rest = self._features(batch)
        products, squares = self._sums(batch, features)
        known = sum_of_others(products, 0) + self.moments  # (n, f, f)
        known = known * (known[:, 0, 0] / (sum_of_others(squares, 0) + self.squares))[:, None, None]
        mean = known[:, 0] / known[:, 0, :1]
        sums = known - known[:, :1, :1] * mean[:, :, None] * mean[:, None, :]
        distance = features[..., 1:-1] - mean[:, None, 1:-1]  # (n, m, regressors)
        pull = RLOO_PROMPTS * ratio(rest, torch.full_like(rest, self._mean_weight))
        outer = distance[..., :, None] * distance[..., None, :]
        left = sums[:, None, 1:-1, 1:-1] + pull[..., None, None] * outer
        trace = left.diagonal(dim1=-2, dim2=-1).sum(-1)
        left = left + (RIDGE * trace + 1e-30)[..., None, None] * torch.eye(self.regressors)
        right = sums[:, None, 1:-1, -1] + (pull * distance[..., 0])[..., None] * distance
        slopes = torch.linalg.solve(left, right)
        return mean[:, None, -1] + (slopes * distance).sum(-1)

    def learn(self, batch: Batch) -> None:
        """Adds a batch."""
        if not self.responses:  # x needs earlier steps, so the first batch gives none
            self._mean_reward = float((batch.weights * batch.rewards).sum() / batch.weights.sum())
            self._mean_weight = float(batch.weights.mean())
        features, _ = self._features(batch)
        products, squares = self._sums(batch, features)
        self.moments = self.moments + products.sum(0)
        self.squares = self.squares + squares.sum()
        self.responses += batch.mask.sum().item()
        prompts = float(self.moments[0, 0] ** 2 / self.squares)
        kept = min(1.0, self.past_prompts / prompts)
        self.moments = kept * self.moments
        self.squares = kept * self.squares
        self.responses *= kept
        self._mean_weight = float(self.moments[0, 0]) / self.responses
        self._mean_reward = float(self.moments[0, -1] / self.moments[0, 0])

    def _features(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(n, m, f) of 1, the regressors and the reward; (n, m) mean weight of the others."""
        weight = sum_of_others(batch.weights, 1)
        total = sum_of_others(batch.weights * batch.rewards, 1)
        count = sum_of_others(batch.mask.double(), 1)
        kappa = PRIOR * self._mean_weight
        x = (total + kappa * self._mean_reward) / (weight + kappa)
        rest = ratio(weight, count)
        v = ((weight + kappa) / (count + PRIOR) / self._mean_weight).log()
        columns = [x, v, v * v, v * x][: self.regressors]
        return torch.stack([torch.ones_like(x), *columns, batch.rewards], -1), rest

    def _sums(self, batch: Batch, features: Tensor) -> tuple[Tensor, Tensor]:
        """(n, f, f) weighted products, and (n,) squared weights, of each prompt."""
        weighted = batch.weights[..., None] * features
        return weighted.transpose(1, 2) @ features, batch.weights.sum(1).square()


class LongMemory(Wider):
    """A regression on x alone, with a memory of 256 prompts."""

    regressors = 1
