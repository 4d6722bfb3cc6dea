"""The shrinkage baselines: rloo shrunk to the mean of the other prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openrlhf_js.estimators.group_stats import GroupStatistics, ratio
from openrlhf_js.estimators.record import Estimator, Look, Moments, Shrinkage

if TYPE_CHECKING:
    from torch import Tensor

    from openrlhf_js.estimators.batch import Batch

PAPER = "Zeng, Zhou, Arora and Zanette, Shrinking the Variance"
# c in `corrected_coefficient`: about the largest that from 64 prompts on costs less than 5 % of
# what the best coefficient saves (docs/js_plus_mse.md).
GUARD = 1.2


def paper_shrinkage(batch: Batch) -> Shrinkage:
    """lambda_i = (n-1)/n v_{-i} / (v_{-i} + s_{-i})   (eq. lambda-est)."""
    return Shrinkage(batch.statistics.shrinkage, batch.statistics.loo_batch_mean)


def given_shrinkage(batch: Batch) -> Shrinkage:
    """The coefficient that the user gives."""
    assert batch.shrinkage is not None  # Estimator.check has seen to it
    target = batch.statistics.loo_batch_mean
    return Shrinkage(target.new_full(target.shape, batch.shrinkage), target)


def corrected_shrinkage(batch: Batch) -> Shrinkage:
    """The coefficient of `corrected_coefficient`."""
    statistics = batch.statistics
    return Shrinkage(corrected_coefficient(statistics), statistics.loo_batch_mean)


def corrected_coefficient(statistics: GroupStatistics) -> Tensor:
    """(n,) lambda of `js_plus`: the best coefficient by corrected estimates from other prompts.

        lambda_i = v2 / (v2 + T)         T = s2 (1 + 1/p) + v / p         v2 = sigma^2 / (m - 1)
        s2 = s_net + w sigma^2       w = c / (c + sqrt(p - 1))
        s_net = max(0, p/(p-1) s_{-i} - v_{-i})

    p is the number of other prompts, and T the mean squared distance of a new prompt's value to
    their mean. s_net is the dispersion of the values, without the noise of the means. Few prompts
    show too small an s_net when a rare kind of prompt is not among them, and then the coefficient
    is largest where it hurts most. So s2 leans on the variance of all other rewards, the largest
    that values can have, as if c sqrt(p - 1) more prompts had shown it. See docs/js_plus.md.
    """
    others = statistics.other_prompts.clamp(min=1)
    v = statistics.within_variance
    sigma2 = statistics.other_reward_variance
    dispersion = statistics.between_variance * others / (others - 1).clamp(min=1)
    guard = GUARD / (GUARD + (others - 1).sqrt())
    s2 = (dispersion - v).clamp(min=0) + sigma2 * guard
    v2 = sigma2 / (statistics.valid_responses - 1).clamp(min=1)
    return ratio(v2, v2 + s2 * (1 + 1 / others) + v / others)


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
    """Return mean and unbiased variance of the prompt means that exist."""
    statistics = batch.statistics
    present = (statistics.valid_responses >= 1).to(batch.rewards.dtype)
    prompts = present.sum()
    origin = statistics.prompt_mean[present.argmax()].detach()
    position = (statistics.prompt_mean - origin) * present
    mean = position.sum() / prompts.clamp(min=1)
    variance = ((position - mean) * present).square().sum() / (prompts - 1).clamp(min=1)
    return origin + mean, variance


def _naive_error(moments: Moments, batch: Batch) -> Tensor:
    weight = naive_coefficient(batch) * (moments.n - 1) / moments.n
    return (1 - weight).square() * moments.v + weight.square() * moments.batch_error


JS = Estimator(
    name="js",
    summary="the shrinkage baseline: rloo shrunk to the mean of the other prompts by the paper's "
    "coefficient",
    equation=r"b_i^j = (1-\lambda_i)\,\hat\mu_i^{-j} + \lambda_i\,\bar\mu_{-i}",
    source=f"{PAPER}, eq. js-final-baseline",
    unbiased=True,
    look=Look("#0072b2", "-", "o"),
    shrink=paper_shrinkage,
    least_rewards=2,
)
JS_PLUS = Estimator(
    name="js_plus",
    summary="js by a coefficient corrected for noise, and guarded where a batch has few prompts",
    equation=r"\lambda_i = \hat v_2 / (\hat v_2 + \hat T_i)",
    source="docs/js_plus.md",
    unbiased=True,
    look=Look("#d55e00", (0, (6, 2, 1, 2)), "^"),
    shrink=corrected_shrinkage,
    least_rewards=2,
)
JS_FIXED = Estimator(
    name="js_fixed",
    summary="js by the coefficient that the user gives (--js.shrinkage)",
    equation=r"\lambda_i = \lambda",
    source=f"{PAPER}, eq. js-final-baseline",
    unbiased=True,
    look=Look("#e69f00", (0, (10, 3)), "h"),
    shrink=given_shrinkage,
    least_prompts=2,
    least_responses=2,
    needs_shrinkage=True,
)
JS1 = Estimator(
    name="js1",
    summary="the naive form of js: prompt mean shrunk to the batch mean, nothing left out (biased)",
    equation=r"b_i^j = (1-\lambda)\,\hat\mu_i + \lambda\,\bar\mu",
    source=f"{PAPER}, eq. JSnaive",
    unbiased=False,
    look=Look("#b0508a", (0, (10, 3)), "v"),
    baseline=naive_baseline,
    error=_naive_error,
    least_prompts=2,
    least_responses=2,
)
ESTIMATORS = (JS1, JS, JS_FIXED, JS_PLUS)
