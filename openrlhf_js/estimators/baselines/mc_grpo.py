"""MC-GRPO (Kim, 2026): the median of the group, which leaves it.

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

from openrlhf_js.estimators.record import Estimator
from openrlhf_js.estimators.scales import order_statistic

if TYPE_CHECKING:
    from torch import Tensor

    from openrlhf_js.estimators.batch import Batch

FLOOR = 1e-3


def median(batch: Batch) -> Tensor:
    """(n, 1) the median of each prompt's valid rewards, the lower one of an even number."""
    return order_statistic(batch.rewards, batch.mask, 0.5)


def median_deviation(batch: Batch) -> Tensor:
    """(n, 1) MAD, and what keeps it from 0."""
    distance = (batch.rewards - median(batch)).abs()
    return order_statistic(distance, batch.mask, 0.5) + FLOOR


MC_GRPO = Estimator(
    name="mc_grpo",
    summary="median of the prompt's rewards, over the median distance to it",
    equation=r"b_i^j = \mathrm{median}_k\, r_i^k",
    source="Kim (2026), arXiv 2601.22582",
    unbiased=False,
    baseline=lambda batch: median(batch).expand_as(batch.rewards),
    scale=median_deviation,
    least_responses=2,
)
