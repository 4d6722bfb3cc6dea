"""Weighted means of the prompt's own group, meant to reduce the variance of the gradient.

    b_i = E[w r] / E[w]        w = |grad log pi(y | x)|^2

is the constant with the least variance (Greensmith, Bartlett and Baxter, 2004, theorem 8).
`weighted_rloo` estimates it from the group without the response itself. `weighted_mean` includes
the response, as OTB (Li et al., 2026) does for whole responses, and is biased. OPO (Hao et al.,
2025) uses a response's number of tokens as w, since the variance grows with it; it is biased, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openrlhf_js.estimators.baselines.classic import loo_prompt_mean, prompt_mean
from openrlhf_js.estimators.batch import Batch
from openrlhf_js.estimators.group_stats import ratio, sum_of_others
from openrlhf_js.estimators.record import Estimator

if TYPE_CHECKING:
    from torch import Tensor


def weighted_loo_mean(batch: Batch) -> Tensor:
    """(n, m) sum_{l != j} w_il r_il / sum_{l != j} w_il; the plain mean if the others have no
    weight, the own reward if there are no others."""
    weight = sum_of_others(batch.weights, 1)
    origin = batch.statistics.prompt_mean[:, None]  # differences from it keep more digits
    total = sum_of_others(batch.weights * (batch.rewards - origin), 1)
    return (origin + ratio(total, weight)).where(weight > 0, loo_prompt_mean(batch))


def weighted_mean(batch: Batch) -> Tensor:
    """(n, m) sum_l w_il r_il / sum_l w_il; the plain mean where nothing has weight."""
    mean = prompt_mean(batch)
    distances = batch.weights * (batch.rewards - mean)
    return mean + ratio(distances.sum(1), batch.weights.sum(1))[:, None]


def length_weighted_mean(batch: Batch) -> Tensor:
    """(n, m) sum_l t_il r_il / sum_l t_il of t tokens; the plain mean if all are empty."""
    assert batch.lengths is not None  # checked by Estimator.check
    total = batch.lengths.sum(1)
    mean = ratio((batch.lengths * batch.rewards).sum(1), total)
    mean = mean.where(total > 0, batch.statistics.prompt_mean)
    return mean[:, None].expand_as(batch.rewards)


WEIGHTED_RLOO = Estimator(
    name="weighted_rloo",
    summary="mean of the prompt's other rewards, weighted by squared lengths of score gradients",
    source="Greensmith, Bartlett and Baxter (2004)",
    unbiased=True,
    baseline=weighted_loo_mean,
    least_responses=2,
    reads_score_norms=True,
)
WEIGHTED_MEAN = Estimator(
    name="weighted_mean",
    summary="mean of the prompt's rewards, weighted by squared lengths of score gradients",
    source="Li et al. (2026), The Optimal Token Baseline, of whole responses",
    unbiased=False,
    baseline=weighted_mean,
    least_responses=2,
    reads_score_norms=True,
)
OPO = Estimator(
    name="opo",
    summary="mean of the prompt's rewards, weighted by the lengths of the responses",
    source="Hao et al. (2025), arXiv 2505.23585",
    unbiased=False,
    baseline=length_weighted_mean,
    least_responses=2,
    needs_lengths=True,
)
ESTIMATORS = (OPO, WEIGHTED_RLOO, WEIGHTED_MEAN)
