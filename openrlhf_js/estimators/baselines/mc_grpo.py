"""MC-GRPO (Kim, 2026): the median of the prompt's group, including the response's own reward.

    b_i = median_j r_i^j        A_i^j = (r_i^j - b_i) / (MAD_i + 0.001)
    MAD_i = median_j |r_i^j - b_i|

The paper samples one response more than it trains on: the one at the median has the advantage 0.
Use an odd number of responses; with an even number the lower of the two middle rewards is taken, as
in the authors' code. That code also leaves the middle response out of the loss; here it stays, with
the advantage 0. Where more than half of a group's rewards are equal, as always with an odd number
of two-valued rewards, MAD is 0 and the other advantages are 1,000 times their distance to the
median.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openrlhf_js.estimators.batch import Batch
from openrlhf_js.estimators.record import Estimator

if TYPE_CHECKING:
    from torch import Tensor

FLOOR = 1e-3  # added to the scale


def row_median(values: Tensor, mask: Tensor) -> Tensor:
    """(n, 1) the median of the valid values of each row (n, m); 0 where a row has none.

    With an even number it is the lower of the two middle values.
    """
    count = mask.sum(1, keepdim=True)
    ordered = values.where(mask, float("inf")).sort(1).values
    middle = (count - 1) // 2
    return ordered.gather(1, middle.clamp(min=0)).where(count > 0, 0.0)


def group_median(batch: Batch) -> Tensor:
    """(n, m) the median of each prompt's valid rewards."""
    return row_median(batch.rewards, batch.mask).expand_as(batch.rewards)


def median_deviation(batch: Batch) -> Tensor:
    """(n, 1) the median distance to the median, plus the floor that keeps it from 0."""
    distance = (batch.rewards - group_median(batch)).abs()
    return row_median(distance, batch.mask) + FLOOR


MC_GRPO = Estimator(
    name="mc_grpo",
    summary="median of the prompt's rewards, over the median distance to it",
    source="Kim (2026), arXiv 2601.22582",
    unbiased=False,
    baseline=group_median,
    scale=median_deviation,
    least_responses=2,
)
