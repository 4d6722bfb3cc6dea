"""Baselines without shrinkage: means of rewards, and the reward of a greedy response.

A response whose baseline cannot exist, because every reward that it would need is masked, gets its
own reward as baseline and so the advantage 0. It drops out as if it were masked: any other value
would depend on the zero of the rewards or on the held-out reward.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openrlhf_js.estimators.batch import Batch
from openrlhf_js.estimators.record import Estimator, Moments
from openrlhf_js.estimators.scales import STD_FLOOR

if TYPE_CHECKING:
    from torch import Tensor


def zero(batch: Batch) -> Tensor:
    """b = 0."""
    return batch.rewards.new_zeros(batch.rewards.shape)


def prompt_mean(batch: Batch) -> Tensor:
    """b = mu_i, the mean of the prompt's rewards, also the response's own (eq. prompt_mean)."""
    return batch.statistics.prompt_mean[:, None].expand_as(batch.rewards)


def batch_mean(batch: Batch) -> Tensor:
    """b = the mean of all valid rewards of the batch (eq. global_mean)."""
    statistics = batch.statistics
    # Measured from one of the means, so that equal rewards give exactly that value.
    origin = statistics.prompt_mean[statistics.valid_responses.argmax()].detach()
    total = ((statistics.prompt_mean - origin) * statistics.valid_responses).sum()
    count = statistics.valid_responses.sum().clamp(min=1)
    return (origin + total / count).expand_as(batch.rewards)


def loo_prompt_mean(batch: Batch) -> Tensor:
    """b = mu_i^{-j}, the mean of the prompt's other rewards."""
    exists = (batch.statistics.valid_responses >= 2)[:, None]
    return batch.statistics.loo_prompt_mean.where(exists, batch.rewards)


def loo_batch_mean(batch: Batch) -> Tensor:
    """b = the mean of the other prompts' means."""
    exists = (batch.statistics.other_prompts >= 1)[:, None]
    return batch.statistics.loo_batch_mean[:, None].where(exists, batch.rewards)


def greedy_reward(batch: Batch) -> Tensor:
    """b = the reward of the prompt's greedy response."""
    return _greedy(batch)[:, None].expand_as(batch.rewards)


def _greedy(batch: Batch) -> Tensor:
    assert batch.greedy_rewards is not None  # checked by Estimator.check
    return batch.greedy_rewards


def prompt_std(batch: Batch) -> Tensor:
    """(n, 1) population standard deviation of each prompt's rewards: GRPO's scale."""
    valid = batch.statistics.valid_responses
    population = (valid - 1).clamp(min=0) / valid.clamp(min=1)
    return (batch.statistics.reward_variance * population).sqrt()[:, None] + STD_FLOOR


def batch_std(batch: Batch) -> Tensor:
    """() population standard deviation of all valid rewards: REINFORCE++'s scale."""
    return _root_mean_square(batch, batch.rewards - batch_mean(batch))


def within_std(batch: Batch) -> Tensor:
    """() the same for rewards minus their prompt means: the scale of REINFORCE++-baseline."""
    return _root_mean_square(batch, batch.rewards - prompt_mean(batch))


def _root_mean_square(batch: Batch, residual: Tensor) -> Tensor:
    squares = (residual * batch.mask).square().sum()
    return (squares / batch.mask.sum().clamp(min=1)).sqrt() + STD_FLOOR


def _distance_error(distance: Tensor, moments: Moments, batch: Batch) -> Tensor:
    """() mean square of the distances (n,) from prompt means to a fixed baseline, minus their
    noise."""
    present = batch.statistics.valid_responses >= 1
    count = present.sum().clamp(min=1)
    square = (distance.square() * present).sum() / count
    return (square - moments.v) * present.any()


def _batch_mean_error(moments: Moments, batch: Batch) -> Tensor:
    return ((moments.n - 1) * moments.s2 + moments.v) / moments.n


NO_BASELINE = Estimator(
    name="no_baseline",
    summary="no baseline: the reward itself",
    source="Williams (1992)",
    unbiased=True,
    baseline=zero,
    error=lambda moments, batch: _distance_error(batch.statistics.prompt_mean, moments, batch),
)
RLOO = Estimator(
    name="rloo",
    summary="mean of the prompt's other rewards",
    source="Kool, van Hoof and Welling (2019); Ahmadian et al. (2024)",
    unbiased=True,
    baseline=loo_prompt_mean,
    error=lambda moments, batch: moments.v2,
    least_responses=2,
    upstream=("rloo",),
)
BLOO = Estimator(
    name="bloo",
    summary="mean of the other prompts' means",
    source="eq. local_loo of the paper; REINFORCE with a leave-one-out batch mean",
    unbiased=True,
    baseline=loo_batch_mean,
    error=lambda moments, batch: moments.batch_error,
    least_prompts=2,
)
GRPO = Estimator(
    name="grpo",
    summary="prompt mean; divided by the prompt's standard deviation",
    source="Shao et al. (2024)",
    unbiased=False,
    baseline=prompt_mean,
    error=lambda moments, batch: moments.v,
    scale=prompt_std,
    least_responses=2,
    upstream=("group_norm",),
)
DR_GRPO = Estimator(
    name="dr_grpo",
    summary="prompt mean",
    source="Liu et al. (2025)",
    unbiased=False,
    baseline=prompt_mean,
    error=lambda moments, batch: moments.v,
    least_responses=2,
    upstream=("dr_grpo",),
)
REINFORCE_BASELINE = Estimator(
    name="reinforce_baseline",
    summary="prompt mean; divided by the batch's standard deviation",
    source="Hu (2025), REINFORCE++-baseline",
    unbiased=False,
    baseline=prompt_mean,
    error=lambda moments, batch: moments.v,
    scale=within_std,
    least_responses=2,
    upstream=("reinforce_baseline",),
)
FLASH_REINFORCE = Estimator(
    name="flash_reinforce",
    summary="batch mean",
    source="OpenRLHF 0.11.2",
    unbiased=False,
    baseline=batch_mean,
    error=_batch_mean_error,
    least_rewards=2,
    upstream=("flash_reinforce",),
)
REINFORCE_PLUS_PLUS = Estimator(
    name="reinforce++",
    summary="batch mean; divided by the batch's standard deviation",
    source="Hu (2025)",
    unbiased=False,
    baseline=batch_mean,
    error=_batch_mean_error,
    scale=batch_std,
    least_rewards=2,
    upstream=("reinforce",),  # whose whitening subtracts the batch mean
)
REMAX = Estimator(
    name="remax",
    summary="reward of the greedy response",
    source="Li et al. (2024)",
    unbiased=True,
    baseline=greedy_reward,
    error=lambda moments, batch: _distance_error(
        batch.statistics.prompt_mean - _greedy(batch), moments, batch
    ),
    needs_greedy=True,
)
ESTIMATORS = (
    NO_BASELINE,
    RLOO,
    BLOO,
    GRPO,
    DR_GRPO,
    REINFORCE_PLUS_PLUS,
    REINFORCE_BASELINE,
    FLASH_REINFORCE,
    REMAX,
)
