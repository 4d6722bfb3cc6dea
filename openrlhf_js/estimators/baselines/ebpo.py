"""EBPO (Han et al., 2026): the prompt mean shrunk to the mean of all rewards since the start.

    V_i = (1 - S_i) mu_i + S_i mu_global        S_i = (sigma^2 / m) / (sigma^2 / m + tau^2)

sigma^2 is the variance of all rewards since the start, and tau^2 that of all prompt means, both
including today's (Welford's running moments, as in the paper's algorithm 1). The advantages are
then normalised over the batch. V contains today's rewards, so the gradient is biased.

The paper does not say which variance it means, nor what S is if both are 0. Here they are sample
variances, and S is then 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from openrlhf_js.estimators.batch import Batch
from openrlhf_js.estimators.group_stats import ratio
from openrlhf_js.estimators.record import Estimator
from openrlhf_js.estimators.scales import batch_std_of, centred

if TYPE_CHECKING:
    from torch import Tensor


class RunningMoments(NamedTuple):
    """Running moments of numbers; all tensors are ()."""

    number: Tensor
    mean: Tensor
    squares: Tensor
    """Sum of squared deviations from the mean."""

    @classmethod
    def of(cls, values: Tensor, mask: Tensor) -> RunningMoments:
        """The moments of the values where the mask is True."""
        weight = mask.to(values.dtype)
        number = weight.sum()
        mean = (values * weight).sum() / number.clamp(min=1)
        return cls(number, mean, ((values - mean).square() * weight).sum())

    def merged(self, other: RunningMoments) -> RunningMoments:
        """The moments of both sets of numbers (Chan, Golub and LeVeque, 1983)."""
        number = self.number + other.number
        gap = other.mean - self.mean
        share = other.number / number.clamp(min=1)
        squares = self.squares + other.squares + gap.square() * self.number * share
        return RunningMoments(number, self.mean + gap * share, squares)

    @property
    def variance(self) -> Tensor:
        """The sample variance; 0 for fewer than two numbers."""
        return self.squares / (self.number - 1).clamp(min=1)


class RunningPast(NamedTuple):
    """Moments since the start, including today's batch."""

    rewards: RunningMoments
    means: RunningMoments
    """Of the prompt means."""


class Memory:
    """The moments of all earlier batches."""

    def __init__(self) -> None:
        self._past: RunningPast | None = None

    def recall(self, batch: Batch) -> RunningPast:
        """The moments including this batch."""
        present = batch.statistics.valid_responses >= 1
        today = RunningPast(
            rewards=RunningMoments.of(batch.rewards, batch.mask),
            means=RunningMoments.of(batch.statistics.prompt_mean, present),
        )
        if self._past is None:
            return today
        return RunningPast(
            rewards=self._past.rewards.merged(today.rewards),
            means=self._past.means.merged(today.means),
        )

    def learn(self, batch: Batch) -> None:
        """Adds a batch."""
        self._past = self.recall(batch)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        if self._past is None:
            return {"rewards": None, "means": None}
        return {name: tuple(moments) for name, moments in self._past._asdict().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the state from a checkpoint."""
        self._past = None
        if state["rewards"] is not None:
            self._past = RunningPast(
                rewards=RunningMoments._make(state["rewards"]),
                means=RunningMoments._make(state["means"]),
            )


def shrunk_mean(batch: Batch) -> Tensor:
    """(n, 1) V_i."""
    past = batch.past or Memory().recall(batch)
    noise = past.rewards.variance / batch.statistics.valid_responses.clamp(min=1)
    weight = ratio(noise, noise + past.means.variance)
    return ((1 - weight) * batch.statistics.prompt_mean + weight * past.rewards.mean)[:, None]


EBPO = Estimator(
    name="ebpo",
    summary="prompt mean shrunk to the mean of all rewards since the start, normalised over the "
    "batch",
    source="Han et al. (2026), arXiv 2602.05165, eqs. 2 to 4",
    unbiased=False,
    baseline=lambda batch: centred(batch, shrunk_mean(batch)),
    scale=lambda batch: batch_std_of(batch, shrunk_mean(batch)),
    least_rewards=2,
    memory=Memory,
)
