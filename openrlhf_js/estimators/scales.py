"""What several baselines are normalised by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openrlhf_js.estimators.batch import Batch

if TYPE_CHECKING:
    from torch import Tensor

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
