"""Centring and standard deviation over the batch, as several baselines use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openrlhf_js.estimators.batch import Batch

if TYPE_CHECKING:
    from torch import Tensor

STD_FLOOR = 1e-8  # makes advantages 0 if all rewards are equal; negligible otherwise


def centred(batch: Batch, values: Tensor) -> Tensor:
    """(n, m) values (n, 1) plus the mean residual, rewards - values."""
    rest = (batch.rewards - values) * batch.mask
    return values + rest.sum() / batch.mask.sum().clamp(min=1)


def batch_std_of(batch: Batch, values: Tensor) -> Tensor:
    """() sample standard deviation of the residuals, rewards - values (n, 1)."""
    distance = (batch.rewards - centred(batch, values)) * batch.mask
    count = (batch.mask.sum() - 1).clamp(min=1)
    return (distance.square().sum() / count).sqrt() + STD_FLOOR
