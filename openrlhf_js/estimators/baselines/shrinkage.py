"""The shrinkage baselines: rloo shrunk to the mean of the other prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openrlhf_js.estimators.group_stats import GroupStatistics, ratio
from openrlhf_js.estimators.record import Estimator, Look, Moments, Shrinkage

if TYPE_CHECKING:
    from torch import Tensor

    from openrlhf_js.estimators.batch import Batch

PAPER = "Zeng, Zhou, Arora and Zanette, Shrinking the Variance"


def paper_shrinkage(batch: Batch) -> Shrinkage:
    """lambda_i = (n-1)/n v_{-i} / (v_{-i} + s_{-i})   (eq. lambda-est)."""
    return Shrinkage(batch.statistics.shrinkage[:, None], batch.statistics.loo_batch_mean)


def given_shrinkage(batch: Batch) -> Shrinkage:
    """The coefficient that the user gives."""
    assert batch.shrinkage is not None  # Estimator.check has seen to it
    target = batch.statistics.loo_batch_mean
    return Shrinkage(target.new_full((len(target), 1), batch.shrinkage), target)


def corrected_shrinkage(batch: Batch) -> Shrinkage:
    """The mean of the other prompts, and how far to shrink each response's baseline to it.

        lambda_ij = v2 / (v2 + T + d^2 / kappa)       (`limited_coefficient`)
        T = s2 (1 + 1/p) + v/p                        s2 = s_net + guard
        s_net = max(0, p/(p-1) s_{-i} - v_{-i})       v2 = sigma^2 / (m - 1)

    p is the number of other prompts, and T the mean squared distance of a new prompt's value to
    their mean. s_net is the dispersion of the values, without the noise of the means. All of it but
    d is of the other prompts, and d of the prompt's other responses. See docs/derivations.md.
    """
    statistics = batch.statistics
    prompts = statistics.other_prompts.clamp(min=1)
    v = statistics.within_variance
    sigma2 = statistics.other_reward_variance
    dispersion = statistics.between_variance * prompts / (prompts - 1).clamp(min=1)
    s2 = (dispersion - v).clamp(min=0) + guard(sigma2, v, prompts - 1)
    coefficient = limited_coefficient(
        statistics,
        sigma2=sigma2,
        target=statistics.loo_batch_mean,
        target_error=s2 * (1 + 1 / prompts) + v / prompts,
        prompts=prompts,
    )
    return Shrinkage(coefficient, statistics.loo_batch_mean)


def guard(sigma2: Tensor, v: Tensor, degrees: Tensor) -> Tensor:
    """(n,) what few prompts may hide of the variance of values.

        sigma^2 / (1 + (m - 1) sqrt(p - 1))         degrees: p - 1

    One other prompt shows no dispersion, and values may then vary as much as rewards do; with many
    it is v2 / sqrt(p - 1), about the standard error of the dispersion. sigma^2 / v stands for m.
    """
    return sigma2 * ratio(v, v + degrees.sqrt() * (sigma2 - v))


def limited_coefficient(
    statistics: GroupStatistics,
    *,
    sigma2: Tensor,
    target: Tensor,
    target_error: Tensor,
    prompts: Tensor,
) -> Tensor:
    """(n, m) lambda_ij = v2 / (v2 + T + d^2 / kappa), in [0, 1).

        d = mu_i^{-j} - t_i         kappa = (p + 1) m / (m - 1)

    v2 + T is what d^2 should be on average, as the other prompts tell. The prompt's own d^2 is one
    more observation of it, among p + 1: a prompt whose other responses contradict the others is of
    a kind that they do not show, and is hardly shrunk.

    Args:
        statistics: of the batch.
        sigma2: (n,) variance of a reward about its prompt's value.
        target: (n,) t_i.
        target_error: (n,) T, the squared error of the target.
        prompts: (n,) p, the prompts that T is known from.
    """
    responses = statistics.valid_responses
    v2 = sigma2 / (responses - 1).clamp(min=1)
    distance = statistics.loo_prompt_mean - target[:, None]
    weight = (1 - 1 / responses.clamp(min=1)) / (prompts + 1)
    expected = (v2 + target_error)[:, None]
    return ratio(v2[:, None], expected + weight[:, None] * distance.square())


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
    origin = means[exists.argmax()].detach()  # far from 0, distances have more digits
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
    equation=r"b_i^j = (1-\lambda_i)\,\hat\mu_i^{-j} + \lambda_i\,\bar\mu_{-i}",
    source=f"{PAPER}, eq. js-final-baseline",
    unbiased=True,
    look=Look("#0072b2", "-", "o"),
    shrink=paper_shrinkage,
    least_rewards=2,
)
JS_PLUS = Estimator(
    name="js_plus",
    summary="js by a coefficient corrected for noise, small where a prompt contradicts the batch",
    equation=r"\lambda_i^j = \hat v_2 / "
    r"(\hat v_2 + \hat T_i + (\hat\mu_i^{-j} - \bar\mu_{-i})^2 / \kappa)",
    source="docs/derivations.md",
    unbiased=True,
    look=Look("#c25200", (0, (6, 2, 1, 2)), "^"),
    shrink=corrected_shrinkage,
    least_rewards=2,
)
JS_FIXED = Estimator(
    name="js_fixed",
    summary="js by the coefficient that the user gives (--js.shrinkage)",
    equation=r"\lambda_i = \lambda",
    source=f"{PAPER}, eq. js-final-baseline",
    unbiased=True,
    look=Look("#9a5f00", (0, (10, 3)), "h"),
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
