"""JSPO++: the authors' smoothed form of their shrinkage baseline, as in their public code.

    b_ij = (1 - l) mu_i^{-j} + l M        l = v / (v + s)

v is the mean of sigma_i^2 / m, s the mean of (mu_i - mu)^2, and mu the mean of all rewards, each
over the whole batch. l and M are running averages of v / (v + s) and mu over the steps so far,
including today's. Their sums are multiplied by w^(1642.65 / t) from step t to the next, with w =
sqrt(0.95), so early steps are hardly smoothed. l and M contain the response's own reward, so the
gradient is biased.

The authors' code adds 1e-6 to v + s; here 0 / 0 is 0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from openrlhf_js.estimators.batch import Batch
from openrlhf_js.estimators.group_stats import ratio
from openrlhf_js.estimators.record import Estimator

if TYPE_CHECKING:
    from torch import Tensor

KEPT = math.sqrt(0.95)
STEPS = 1642.65  # axis width in the smoothing formula that this comes from


class Averages(NamedTuple):
    """Sums over the steps so far, () each."""

    steps: int
    weight: Tensor
    shrinkage: Tensor
    reward: Tensor


def today(batch: Batch) -> Averages:
    """The sums of this batch alone."""
    import torch

    statistics = batch.statistics
    present = batch.present.to(batch.rewards.dtype)
    prompts = present.sum()
    means = statistics.prompt_mean
    mean = (batch.rewards * batch.mask).sum() / batch.mask.sum().clamp(min=1)
    errors = statistics.reward_variance / statistics.valid_responses.clamp(min=1)
    v = (errors * present).sum() / prompts
    s = ((means - mean).square() * present).sum() / prompts
    return Averages(1, torch.ones_like(mean), ratio(v, v + s), mean)


class Memory:
    """The averages after the last step."""

    def __init__(self) -> None:
        self._past: Averages | None = None

    def recall(self, batch: Batch) -> Averages:
        """The sums including this batch."""
        new = today(batch)
        if self._past is None:
            return new
        kept = KEPT ** (STEPS / self._past.steps)
        return Averages(
            steps=self._past.steps + 1,
            weight=kept * self._past.weight + new.weight,
            shrinkage=kept * self._past.shrinkage + new.shrinkage,
            reward=kept * self._past.reward + new.reward,
        )

    def learn(self, batch: Batch) -> None:
        """Adds a batch."""
        if batch.mask.any():
            self._past = self.recall(batch)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        return {"averages": None if self._past is None else tuple(self._past)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the state from a checkpoint."""
        saved = state["averages"]
        self._past = None if saved is None else Averages._make(saved)


def smoothed_baseline(batch: Batch) -> Tensor:
    """(n, m) b_ij; the running mean for the only response of a group."""
    past = batch.past or today(batch)
    shrinkage = past.shrinkage / past.weight
    mean = past.reward / past.weight
    mixed = (1 - shrinkage) * batch.statistics.loo_prompt_mean + shrinkage * mean
    paired = (batch.statistics.valid_responses >= 2)[:, None]
    return mixed.where(paired, mean)


JSPO_PLUS_PLUS = Estimator(
    name="jspo++",
    summary="js with a coefficient and a mean that are smoothed over the steps",
    source="Zeng, Zhou, Arora and Zanette, code of guanning03/JSPO-Official",
    unbiased=False,
    baseline=smoothed_baseline,
    least_responses=2,
    memory=Memory,
)
