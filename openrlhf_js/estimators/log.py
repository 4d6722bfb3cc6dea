"""What to log about one batch: shrinkage, variances, odd groups, and what the baseline saves.

Derivation of the errors: docs/derivations.md.
"""

from __future__ import annotations

import torch
from torch import Tensor

from openrlhf_js.estimators.baselines.shrinkage import corrected_shrinkage, paper_shrinkage
from openrlhf_js.estimators.batch import Batch
from openrlhf_js.estimators.record import Estimator, Moments, Shrinkage, mean_of_responses


def describe(estimator: Estimator, batch: Batch, shrinkage: Shrinkage | None) -> dict[str, float]:
    """Return what a training step logs about its batch, under `js/`; every value is finite.

    `shrinkage_*` are of the live estimator if it shrinks, else the paper's
    coefficient as information. `baseline_mse_rloo` and `baseline_mse` are plug-in estimates, in
    squared reward units, of the mean squared distance to the value function of RLOO's baseline and
    of the live one. The noise of rewards shows only in groups with two valid responses or more:
    `all_equal_groups` is a share of those, and without any the noise is taken for 0.

    Of `js_memory`: `js/memory_share`, the share of prompts that have a past; `js/memory_error`, the
    squared error of the prediction; and `js/baseline_mse_js_plus`, what js_plus's baseline would
    have.

    Args:
        estimator: the live one.
        batch: a checked batch that fits it.
        shrinkage: of its estimate; None where it does not shrink.
    """
    statistics = batch.statistics
    present = batch.present
    moments = _moments(batch)
    if shrinkage is None:
        shrinkage = paper_shrinkage(batch)
    coefficient = shrinkage.live(batch).expand_as(batch.rewards)
    counted = coefficient[batch.mask | ~batch.mask.any()]
    if estimator.error is not None:
        error = estimator.error(moments, batch)
    else:
        error = _mixture(shrinkage, moments, batch)
    paired = statistics.valid_responses >= 2
    all_equal = paired & (statistics.reward_variance == 0)
    values = {
        "js/shrinkage_mean": mean_of_responses(coefficient, batch)[present].mean(),
        "js/shrinkage_min": counted.min(),
        "js/shrinkage_max": counted.max(),
        "js/within_variance": statistics.within_variance[present].mean(),
        "js/between_variance": statistics.between_variance[present].mean(),
        "js/all_equal_groups": all_equal.sum() / paired.sum().clamp(min=1),
        "js/masked_responses": (~batch.mask).sum(),
        "js/baseline_mse_rloo": moments.v2,
        "js/baseline_mse": error.clamp(min=0),
    }
    if batch.past is not None and shrinkage.target_error is not None:
        without_past = _mixture(corrected_shrinkage(batch), moments, batch)
        values["js/memory_share"] = batch.past.means.isfinite()[present].double().mean()
        values["js/memory_error"] = shrinkage.target_error[present].mean()
        values["js/baseline_mse_js_plus"] = without_past
    return {key: float(value) for key, value in values.items()}


def _moments(batch: Batch) -> Moments:
    """Return unbiased estimates of v and v2, and an s2 that is unbiased up to its clamp at 0."""
    statistics = batch.statistics
    present = statistics.valid_responses >= 1
    paired = statistics.valid_responses >= 2
    variance = statistics.reward_variance[paired]
    valid = statistics.valid_responses[paired]
    pairs = paired.sum().clamp(min=1)
    v = (variance / valid).sum() / pairs
    v2 = (variance / (valid - 1)).sum() / pairs
    means = statistics.prompt_mean[present]
    n = present.sum().clamp(min=1).to(v.dtype)
    dispersion = (means - means[:1]).var() if len(means) > 1 else torch.zeros_like(v)
    s2 = (dispersion - v).clamp(min=0)
    others = (n - 1).clamp(min=1)
    return Moments(v, v2, s2, s2 * (1 + 1 / others) + v / others, n)


def _mixture(shrinkage: Shrinkage, moments: Moments, batch: Batch) -> Tensor:
    """() mean of (1 - lambda)^2 v2 + lambda^2 (error of the target) over the prompts.

    As if lambda were a constant. That of `js_plus` is smaller where the prompt's other responses
    are far from the target, by which this is off by a few percent (docs/js_plus.md).
    """
    coefficient = shrinkage.live(batch)
    target_error = moments.batch_error
    if shrinkage.target_error is not None:
        target_error = shrinkage.target_error[batch.present].mean()
    errors = (1 - coefficient).square() * moments.v2 + coefficient.square() * target_error
    return mean_of_responses(errors, batch)[batch.present].mean()
