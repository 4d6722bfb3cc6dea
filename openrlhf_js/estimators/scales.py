"""What several baselines are normalised by."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from openrlhf_js.estimators.batch import Batch

STD_FLOOR = 1e-8  # keeps batches of equal rewards at 0 and leaves every other scale alone


def centred(batch: Batch, values: Tensor) -> Tensor:
    """(n, m) values (n, 1) plus the mean of what they leave of the rewards."""
    rest = (batch.rewards - values) * batch.mask
    return values + rest.sum() / batch.mask.sum().clamp(min=1)


def batch_std_of(batch: Batch, values: Tensor) -> Tensor:
    """() standard deviation, of a sample, of what values (n, 1) leave of the rewards."""
    distance = (batch.rewards - centred(batch, values)) * batch.mask
    count = (batch.mask.sum() - 1).clamp(min=1)
    return (distance.square().sum() / count).sqrt() + STD_FLOOR


def order_statistic(values: Tensor, mask: Tensor, share: float) -> Tensor:
    """(n, 1) the smallest valid value of each row (n, m) that is not below `share` of them.

    0 where a row has no valid value.
    """
    count = mask.sum(1, keepdim=True).to(values.dtype)
    ordered = values.where(mask, float("inf")).sort(1).values
    place = (share * count - 1e-9).ceil().long() - 1  # less a rounding error, as 0.4 * 5 has
    return ordered.gather(1, place.clamp(min=0)).where(count > 0, 0.0)
