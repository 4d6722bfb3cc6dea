"""What to log about one batch: shrinkage, variances, odd groups, and what the baseline saves.

Derivation of the errors: docs/derivations.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from openrlhf_js.estimators.advantages import find_estimator, make_batch
from openrlhf_js.estimators.baselines import Batch, naive_coefficient
from openrlhf_js.estimators.coefficients import corrected_coefficient
from openrlhf_js.estimators.regression import Earlier, fit


class Moments(NamedTuple):
    """Estimated moments of the prompts' values and of the means that estimate them."""

    v: Tensor
    """Error of a prompt mean, sigma^2 / m."""
    v2: Tensor
    """Error of a leave-one-out prompt mean, sigma^2 / (m - 1)."""
    s2: Tensor
    """Variance of the values between prompts."""
    batch_error: Tensor
    """Error of the leave-one-out batch mean, s2 (1 + 1/p) + v/p with p other prompts."""
    n: Tensor
    """Prompts with a valid response."""
    coefficient: Tensor
    """(n',) the live estimator's shrinkage."""


# Mean of (b_i^j - mu_i)^2 in terms of the moments; of other estimators, a mixture by lambda.
_MSE: dict[str, Callable[[Moments, Batch], Tensor]] = {
    "reinforce": lambda of, batch: _mean_square(batch.stats.prompt_mean, of, batch),
    "rloo": lambda of, batch: of.v2,
    "bloo": lambda of, batch: of.batch_error,
    "grpo": lambda of, batch: of.v,
    "dr_grpo": lambda of, batch: of.v,
    "reinforce++": lambda of, batch: ((of.n - 1) * of.s2 + of.v) / of.n,
    "remax": lambda of, batch: _mean_square(
        batch.stats.prompt_mean - batch.greedy_rewards, of, batch
    ),
    "js1": lambda of, batch: _mixture(
        of.v, of.batch_error, naive_coefficient(batch) * (of.n - 1) / of.n
    ),
    "js_memory": lambda of, batch: _mixture(
        of.v2,
        fit(batch.stats, batch.covariates, batch.earlier).error[_present(batch)].mean(),
        of.coefficient,
    ),
}


def diagnostics(
    name: str,
    rewards: Tensor,
    *,
    mask: Tensor | None = None,
    shrinkage: float | None = None,
    greedy_rewards: Tensor | None = None,
    covariates: Tensor | None = None,
    earlier: Earlier | None = None,
) -> dict[str, float]:
    """Return what a training step logs about its batch, under `js/`; every value is finite.

    `shrinkage_*` are of the live estimator if it shrinks prompt by prompt, else the paper's
    coefficient as information. `baseline_mse_rloo` and `baseline_mse` are plug-in estimates, in
    squared reward units, of the mean squared distance to the value function of RLOO's baseline and
    of the live one. The noise of rewards shows only in groups with two valid responses or more:
    `all_equal_groups` is a share of those, and without any the noise is taken for 0.

    Of `js_memory`: `js/memory_share`, the share of prompts that have all covariates;
    `js/memory_slope`, the rewards that a standard deviation of the first one is worth;
    `js/memory_error`, the squared error of the prediction; and `js/baseline_mse_js_plus`, what
    js_plus's baseline would have.

    Arguments and errors: `baseline`.

    Examples:
        >>> found = diagnostics("rloo", torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]))
        >>> round(found["js/all_equal_groups"], 2), round(found["js/baseline_mse"], 2)
        (0.67, 0.17)
    """
    batch = make_batch(name, rewards, mask, greedy_rewards, shrinkage, covariates, earlier)
    stats, present = batch.stats, _present(batch)
    coefficient = (find_estimator(name).coefficient or (lambda batch: batch.stats.shrinkage))(batch)
    moments = _moments(batch, coefficient[present])
    error = _mixture(moments.v2, moments.batch_error, moments.coefficient)
    if name in _MSE:
        error = _MSE[name](moments, batch)
    paired = stats.valid_responses >= 2
    all_equal = paired & (stats.reward_variance == 0)
    values = {
        "js/shrinkage_mean": coefficient[present].mean(),
        "js/shrinkage_min": coefficient[present].min(),
        "js/shrinkage_max": coefficient[present].max(),
        "js/within_variance": stats.within_variance[present].mean(),
        "js/between_variance": stats.between_variance[present].mean(),
        "js/all_equal_groups": all_equal.sum() / paired.sum().clamp(min=1),
        "js/masked_responses": (~batch.mask).sum(),
        "js/baseline_mse_rloo": moments.v2,
        "js/baseline_mse": error.clamp(min=0).mean(),
    }
    if batch.covariates is not None:
        values |= _of_memory(batch, batch.covariates, moments)
    return {key: float(value) for key, value in values.items()}


def _of_memory(batch: Batch, covariates: Tensor, moments: Moments) -> dict[str, Tensor]:
    """What the covariates tell, and the error of js_plus's baseline, which has none."""
    present, found = _present(batch), fit(batch.stats, covariates, batch.earlier)
    without = corrected_coefficient(batch.stats)[present]
    return {
        "js/memory_share": covariates.isfinite().all(1)[present].double().mean(),
        "js/memory_slope": found.slopes[present, 0].mean(),
        "js/memory_error": found.error[present].mean(),
        "js/baseline_mse_js_plus": _mixture(moments.v2, moments.batch_error, without).mean(),
    }


def _present(batch: Batch) -> Tensor:
    """(n,) prompts with a valid response; all, if there is none."""
    present = batch.stats.valid_responses >= 1
    return present if present.any() else torch.ones_like(present)


def _moments(batch: Batch, coefficient: Tensor) -> Moments:
    """Return unbiased estimates of v and v2, and an s2 that is unbiased up to its clamp at 0."""
    stats = batch.stats
    present = stats.valid_responses >= 1
    paired = stats.valid_responses >= 2
    variance = stats.reward_variance[paired]
    valid = stats.valid_responses[paired]
    pairs = paired.sum().clamp(min=1)
    v, v2 = (variance / valid).sum() / pairs, (variance / (valid - 1)).sum() / pairs
    means = stats.prompt_mean[present]
    n = present.sum().clamp(min=1).to(v.dtype)
    dispersion = (means - means[:1]).var() if len(means) > 1 else torch.zeros_like(v)
    s2 = (dispersion - v).clamp(min=0)
    others = (n - 1).clamp(min=1)
    return Moments(v, v2, s2, s2 * (1 + 1 / others) + v / others, n, coefficient)


def _mixture(prompt_error: Tensor, batch_error: Tensor, coefficient: Tensor) -> Tensor:
    """Return (1 - lambda)^2 prompt_error + lambda^2 batch_error."""
    return (1 - coefficient).square() * prompt_error + coefficient.square() * batch_error


def _mean_square(distance: Tensor, of: Moments, batch: Batch) -> Tensor:
    """Return the mean squared distance of a fixed baseline, less the noise of the prompt means."""
    present = batch.stats.valid_responses >= 1
    return distance[present].square().mean() - of.v if present.any() else torch.zeros_like(of.v)
