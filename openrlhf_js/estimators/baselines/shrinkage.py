"""The shrinkage baselines: rloo shrunk to the mean of the other prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openrlhf_js.estimators.batch import Batch
from openrlhf_js.estimators.group_stats import ratio
from openrlhf_js.estimators.record import Estimator, Moments, Shrinkage

if TYPE_CHECKING:
    from torch import Tensor

PAPER = "Zeng, Zhou, Arora and Zanette, Shrinking the Variance"


def paper_shrinkage(batch: Batch) -> Shrinkage:
    """lambda_i = (n-1)/n v_{-i} / (v_{-i} + s_{-i})   (eq. lambda-est)."""
    return Shrinkage(batch.statistics.shrinkage[:, None], batch.statistics.loo_batch_mean)


def given_shrinkage(batch: Batch) -> Shrinkage:
    """The coefficient that the user gives."""
    assert batch.shrinkage is not None  # checked by Estimator.check
    target = batch.statistics.loo_batch_mean
    return Shrinkage(target.new_full((len(target), 1), batch.shrinkage), target)


def naive_baseline(batch: Batch) -> Tensor:
    """b = (1 - lambda) mu_i + lambda mu_bar, nothing left out: biased gradients (eq. JSnaive)."""
    mean, _ = _mean_and_variance_of_prompts(batch)
    weight = naive_coefficient(batch)
    shrunk = (1 - weight) * batch.statistics.prompt_mean + weight * mean
    return shrunk[:, None].expand_as(batch.rewards)


def naive_coefficient(batch: Batch) -> Tensor:
    """() lambda = v / (s + v) of `js1` (Proposition 2), both estimated from all prompts."""
    statistics = batch.statistics
    prompts = (statistics.valid_responses >= 2).sum().clamp(min=1)
    v = (statistics.reward_variance / statistics.valid_responses.clamp(min=1)).sum() / prompts
    _, s = _mean_and_variance_of_prompts(batch)
    return ratio(v, s + v)


def _mean_and_variance_of_prompts(batch: Batch) -> tuple[Tensor, Tensor]:
    """() each: mean and unbiased variance of the prompt means that exist."""
    means = batch.statistics.prompt_mean
    exists = (batch.statistics.valid_responses >= 1).to(batch.rewards.dtype)
    prompts = exists.sum()
    origin = means[exists.argmax()].detach()  # differences from it keep more digits
    from_origin = (means - origin) * exists
    mean = from_origin.sum() / prompts.clamp(min=1)
    deviation = (from_origin - mean) * exists
    variance = deviation.square().sum() / (prompts - 1).clamp(min=1)
    return origin + mean, variance


def _naive_error(moments: Moments, batch: Batch) -> Tensor:
    weight = naive_coefficient(batch) * (moments.n - 1) / moments.n
    return (1 - weight).square() * moments.v + weight.square() * moments.batch_error


JS = Estimator(
    name="js",
    summary="the shrinkage baseline: rloo shrunk to the mean of the other prompts by the paper's "
    "coefficient",
    source=f"{PAPER}, eq. js-final-baseline",
    unbiased=True,
    shrink=paper_shrinkage,
    least_rewards=2,
)
JS_FIXED = Estimator(
    name="js_fixed",
    summary="js with the coefficient that the user gives (--js.shrinkage)",
    source=f"{PAPER}, eq. js-final-baseline",
    unbiased=True,
    shrink=given_shrinkage,
    least_prompts=2,
    least_responses=2,
    needs_shrinkage=True,
)
JS1 = Estimator(
    name="js1",
    summary="the naive form of js: prompt mean shrunk to the batch mean, nothing left out (biased)",
    source=f"{PAPER}, eq. JSnaive",
    unbiased=False,
    baseline=naive_baseline,
    error=_naive_error,
    least_prompts=2,
    least_responses=2,
)
ESTIMATORS = (JS1, JS, JS_FIXED)
