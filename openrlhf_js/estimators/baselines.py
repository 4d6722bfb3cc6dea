"""One function per baseline: what is subtracted from each reward.

A response whose baseline cannot exist, because every reward that it would need is masked, gets its
own reward as baseline and so the advantage 0. It drops out as if masked itself: any other number
would either depend on where the zero of the rewards lies or on the held-out reward.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from openrlhf_js.estimators.group_stats import GroupStatistics, ratio
from openrlhf_js.estimators.regression import Earlier


class Batch(NamedTuple):
    """What a baseline may look at: checked rewards, 0 where masked, and what goes with them."""

    rewards: Tensor
    mask: Tensor
    stats: GroupStatistics
    greedy_rewards: Tensor
    """(n,); 0 for an estimator that does not need them."""
    shrinkage: float
    """0 for an estimator that does not need it."""
    covariates: Tensor | None = None
    """(n, k), NaN where a prompt has none; read by `js_memory` only."""
    earlier: Earlier | None = None
    """What the covariates of earlier steps were worth; read by `js_memory` only."""


def zero(batch: Batch) -> Tensor:
    """b = 0: plain REINFORCE."""
    return torch.zeros_like(batch.rewards)


def prompt_mean(batch: Batch) -> Tensor:
    """b = mu_i, the mean of the prompt's rewards, the held-out one too (eq. prompt_mean)."""
    return batch.stats.prompt_mean[:, None].expand_as(batch.rewards)


def batch_mean(batch: Batch) -> Tensor:
    """b = the mean of all valid rewards of the batch (eq. global_mean)."""
    stats = batch.stats
    # Taken from one of the means, so that equal rewards give exactly their value.
    origin = stats.prompt_mean[stats.valid_responses.argmax()].detach()
    total = ((stats.prompt_mean - origin) * stats.valid_responses).sum()
    return (origin + total / stats.valid_responses.sum().clamp(min=1)).expand_as(batch.rewards)


def loo_prompt_mean(batch: Batch) -> Tensor:
    """b = mu_i^{-j}, the mean of the prompt's other rewards: RLOO."""
    exists = (batch.stats.valid_responses >= 2)[:, None]
    return torch.where(exists, batch.stats.loo_prompt_mean, batch.rewards)


def loo_batch_mean(batch: Batch) -> Tensor:
    """b = the mean of the other prompts' means: BLOO."""
    exists = (batch.stats.other_prompts >= 1)[:, None]
    return torch.where(exists, batch.stats.loo_batch_mean[:, None], batch.rewards)


def greedy_reward(batch: Batch) -> Tensor:
    """b = the reward of the prompt's greedy response: ReMax."""
    return batch.greedy_rewards[:, None].expand_as(batch.rewards)


def naive_shrinkage(batch: Batch) -> Tensor:
    """b = (1 - lambda) mu_i + lambda mu_bar, nothing left out: biased gradients (eq. JSnaive)."""
    mean, _ = _mean_and_variance_of_prompts(batch)
    weight = naive_coefficient(batch)
    return ((1 - weight) * batch.stats.prompt_mean + weight * mean)[:, None].expand_as(
        batch.rewards
    )


def naive_coefficient(batch: Batch) -> Tensor:
    """() lambda = v / (s + v) of `js1` (Proposition 2), both estimated from all prompts."""
    stats = batch.stats
    prompts = (stats.valid_responses >= 2).sum().clamp(min=1)
    v = (stats.reward_variance / stats.valid_responses.clamp(min=1)).sum() / prompts
    _, s = _mean_and_variance_of_prompts(batch)
    return ratio(v, s + v)


def _mean_and_variance_of_prompts(batch: Batch) -> tuple[Tensor, Tensor]:
    """Return mean and unbiased variance of the prompt means that exist."""
    present = (batch.stats.valid_responses >= 1).to(batch.rewards.dtype)
    prompts = present.sum()
    origin = batch.stats.prompt_mean[present.argmax()].detach()
    position = (batch.stats.prompt_mean - origin) * present
    mean = position.sum() / prompts.clamp(min=1)
    variance = ((position - mean) * present).square().sum() / (prompts - 1).clamp(min=1)
    return origin + mean, variance


def live_coefficient(stats: GroupStatistics, coefficient: Tensor) -> Tensor:
    """(n,) the coefficient; 1 where only the batch mean exists, 0 where only the prompt's does."""
    coefficient = torch.where(stats.other_prompts >= 1, coefficient, 0.0)
    return torch.where(stats.valid_responses >= 2, coefficient, 1.0)


def shrink(batch: Batch, coefficient: Tensor, target: Tensor) -> Tensor:
    """b = (1 - lambda_i) mu_i^{-j} + lambda_i t_i, lambda live; with the other prompts' mean as
    target (n,) it is eq. js-final-baseline."""
    stats = batch.stats
    weight = coefficient[:, None]
    mixed = (1 - weight) * stats.loo_prompt_mean + weight * target[:, None]
    exists = (stats.valid_responses >= 2) | (stats.other_prompts >= 1)
    return torch.where(exists[:, None], mixed, batch.rewards)


def prompt_std(batch: Batch) -> Tensor:
    """(n, 1) standard deviation of each prompt's rewards, divided by their number: GRPO's scale."""
    stats = batch.stats
    spared = (stats.valid_responses - 1).clamp(min=0) / stats.valid_responses.clamp(min=1)
    return (stats.reward_variance * spared).sqrt()[:, None]


def batch_std(batch: Batch) -> Tensor:
    """() standard deviation of all valid rewards, divided by their number: REINFORCE++'s scale."""
    residual = (batch.rewards - batch_mean(batch)) * batch.mask
    return (residual.square().sum() / batch.mask.sum().clamp(min=1)).sqrt()
