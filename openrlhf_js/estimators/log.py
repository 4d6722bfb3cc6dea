"""What to log about one batch: equal groups, what the baseline saves, and the gradient's noise.

How to read each curve: docs/train.md. Derivation of the errors: docs/report.md.
"""

from __future__ import annotations

import torch
from torch import Tensor

from openrlhf_js.estimators.batch import Batch
from openrlhf_js.estimators.record import Estimate, Estimator, Moments, mean_of_responses


def describe(estimator: Estimator, batch: Batch, result: Estimate) -> dict[str, float]:
    """Return what a training step logs about its batch, under `js/`; every value is finite.

    `value_error_rloo` and `value_error` estimate the mean squared distance from RLOO's baseline and
    from the live one to the value function, in squared reward units; a biased baseline without a
    formula for it has no `value_error`. The noise of rewards shows only in groups with two valid
    responses or more: `share_of_equal_groups` is a share of those, and without any the noise counts
    as 0. `shrinkage` is the mean coefficient of an estimator that shrinks.

    Squared score norms w add two values. `gradient_noise_vs_rloo`, for unbiased estimators, is sum
    w (r - b)^2 divided by the same sum with RLOO's baseline; it estimates the ratio of the
    variances of their gradients up to terms in |grad J_i|^2. `weight_right_over_wrong`, in batches
    whose rewards have two values, is the mean weight of responses with the higher reward divided by
    that of the others. An estimator may add its own values (`Estimator.describe`).

    Args:
        estimator: the live one.
        batch: a checked batch that fits it.
        result: its estimate.
    """
    statistics = batch.statistics
    moments = _moments(batch)
    error = None
    if estimator.error is not None:
        error = estimator.error(moments, batch)
    elif estimator.unbiased:
        error = _error(result.baseline, batch)
    paired = statistics.valid_responses >= 2
    all_equal = paired & (statistics.reward_variance == 0)
    values = {
        "js/share_of_equal_groups": all_equal.sum() / paired.sum().clamp(min=1),
        "js/masked_responses": (~batch.mask).sum(),
        "js/value_error_rloo": moments.v2,
    }
    if error is not None:
        values["js/value_error"] = error.clamp(min=0)
    if result.shrinkage is not None:
        coefficient = result.shrinkage.live(batch).expand_as(batch.rewards)
        values["js/shrinkage"] = mean_of_responses(coefficient, batch)[batch.present].mean()
    if batch.squared_score_norms is not None:
        values |= _gradient_noise(estimator, batch, result)
    if estimator.describe is not None:
        values |= estimator.describe(batch)
    return {key: float(value) for key, value in values.items()}


def _gradient_noise(estimator: Estimator, batch: Batch, result: Estimate) -> dict[str, Tensor]:
    """The values that need squared score norms, except those whose divisor is 0."""
    paired = batch.mask & (batch.statistics.valid_responses >= 2)[:, None]

    def noise(baseline: Tensor) -> Tensor:
        squares = batch.weights * (batch.rewards - baseline).square()
        return squares[paired].sum()

    values = {}
    of_rloo = noise(batch.statistics.loo_prompt_mean)
    if of_rloo > 0 and estimator.unbiased:
        values["js/gradient_noise_vs_rloo"] = noise(result.baseline) / of_rloo
    return values | _weights_of_right_and_wrong(batch)


def _weights_of_right_and_wrong(batch: Batch) -> dict[str, Tensor]:
    """Mean squared score norm of right responses divided by that of wrong ones.

    Only for batches whose rewards have two values, of which the higher is right: graded rewards do
    not say which responses are right.
    """
    rewards = batch.rewards[batch.mask]
    weights = batch.weights[batch.mask]
    values = rewards.unique()
    if len(values) != 2:
        return {}
    right = rewards == values.max()
    if weights[~right].sum() <= 0:
        return {}
    return {"js/weight_right_over_wrong": weights[right].mean() / weights[~right].mean()}


def _moments(batch: Batch) -> Moments:
    """Return unbiased estimates of v and v2, and an s2 that is unbiased up to its clamp at 0."""
    statistics = batch.statistics
    paired = statistics.valid_responses >= 2
    pairs = paired.sum().clamp(min=1)
    variance = statistics.reward_variance[paired]
    valid = statistics.valid_responses[paired]
    v = (variance / valid).sum() / pairs
    v2 = (variance / (valid - 1)).sum() / pairs
    means = statistics.prompt_mean[statistics.valid_responses >= 1]
    dispersion = torch.zeros_like(v)
    if len(means) > 1:
        dispersion = (means - means[:1]).var()
    s2 = (dispersion - v).clamp(min=0)
    n = torch.full_like(v, max(1, len(means)))
    others = (n - 1).clamp(min=1)
    batch_error = s2 * (1 + 1 / others) + v / others
    return Moments(v, v2, s2, batch_error, n)


def _error(baseline: Tensor, batch: Batch) -> Tensor:
    """() mean squared advantage minus the variance of rewards: E (b - mu)^2, unbiased.

    Where b_ij does not depend on r_ij, E (r_ij - b_ij)^2 = sigma_i^2 + E (b_ij - mu_i)^2.
    """
    statistics = batch.statistics
    squares = mean_of_responses((batch.rewards - baseline).square(), batch)
    paired = statistics.valid_responses >= 2
    usual = statistics.reward_variance[paired].sum() / paired.sum().clamp(min=1)
    noise = statistics.reward_variance.where(paired, usual)
    return (squares - noise)[batch.present].mean()
