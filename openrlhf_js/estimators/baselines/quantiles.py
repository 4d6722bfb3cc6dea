"""Order statistics of the prompt's own group: QAE and MC-GRPO. The own reward is in both.

QAE (Wu et al., 2025): the 0.4-quantile of the group instead of its mean.

    b_i = inf {x: F_i(x) >= 0.4}        A_i^j = (r_i^j - b_i) / (std_i + 1e-6)

F_i is the distribution of the group's rewards. Of rewards 0 and 1, the baseline is 0 where at most
60 % are right, and 1 elsewhere: a hard prompt teaches by what is right, an easy one by what is
wrong. That is the paper's definition; the authors' code interpolates between rewards.

MC-GRPO (Kim, 2026): the median of the group, which leaves it.

    b_i = median_j r_i^j        A_i^j = (r_i^j - b_i) / (MAD_i + 0.001)
    MAD_i = median_j |r_i^j - b_i|

The paper draws one response more than it trains on: the one at the median has the advantage 0. Give
an odd number of responses; of an even number the lower of the two middle ones is taken, as the
authors' code does. That code also leaves the middle response out of the loss, which here keeps its
advantage of 0. Where more than half of a group's rewards are equal, as always with an odd number of
rewards of two values, MAD is 0 and the others' advantages are 1,000 times their distance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openrlhf_js.estimators.batch import Batch
from openrlhf_js.estimators.record import Estimator

if TYPE_CHECKING:
    from torch import Tensor

QUANTILE = 0.4
QUANTILE_FLOOR = 1e-6
MEDIAN_FLOOR = 1e-3


def order_statistic(values: Tensor, mask: Tensor, share: float) -> Tensor:
    """(n, 1) the smallest valid value of each row (n, m) that is not below `share` of them.

    0 where a row has no valid value.
    """
    count = mask.sum(1, keepdim=True).to(values.dtype)
    ordered = values.where(mask, float("inf")).sort(1).values
    place = (share * count - 1e-9).ceil().long() - 1  # less a rounding error, as 0.4 * 5 has
    return ordered.gather(1, place.clamp(min=0)).where(count > 0, 0.0)


def quantile(batch: Batch, share: float) -> Tensor:
    """(n, m) the quantile of each prompt's valid rewards; of 0.5 the lower of two middle ones."""
    return order_statistic(batch.rewards, batch.mask, share).expand_as(batch.rewards)


def median_deviation(batch: Batch) -> Tensor:
    """(n, 1) MAD, and what keeps it from 0."""
    distance = (batch.rewards - quantile(batch, 0.5)).abs()
    return order_statistic(distance, batch.mask, 0.5) + MEDIAN_FLOOR


QAE = Estimator(
    name="qae",
    summary="0.4-quantile of the prompt's rewards; divided by their standard deviation",
    equation=r"b_i^j = \inf\{x : \hat F_i(x) \ge 0.4\}",
    source="Wu et al. (2025), arXiv 2509.22611",
    unbiased=False,
    baseline=lambda batch: quantile(batch, QUANTILE),
    scale=lambda batch: batch.statistics.reward_variance.sqrt()[:, None] + QUANTILE_FLOOR,
    least_responses=2,
)
MC_GRPO = Estimator(
    name="mc_grpo",
    summary="median of the prompt's rewards; divided by the median distance to it",
    equation=r"b_i^j = \mathrm{median}_k\, r_i^k",
    source="Kim (2026), arXiv 2601.22582",
    unbiased=False,
    baseline=lambda batch: quantile(batch, 0.5),
    scale=median_deviation,
    least_responses=2,
)
