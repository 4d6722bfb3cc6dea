"""KRPO (Wang et al., 2025): a Kalman filter over the group, one reward after the other.

    P = P + 1e-5        K = P / (P + 0.01)        x = x + K (r_i^j - x)        P = (1 - K) P
    b_i^j = x           A_i^j = (r_i^j - x) / (sqrt(P) + 1e-8)

At first x = 0 and P = 1. Constants and the order, that of the responses, are those of the authors'
code. x and P are those after r_i^j: the own reward is in the baseline, and the gradient is biased.
The first response of a group is the one with K = 0.99, so that its advantage is near 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openrlhf_js.estimators.batch import Batch
from openrlhf_js.estimators.record import Estimator

if TYPE_CHECKING:
    from torch import Tensor

PROCESS_NOISE = 1e-5
MEASUREMENT_NOISE = 1e-2
FLOOR = 1e-8


def filtered(batch: Batch) -> tuple[Tensor, Tensor]:
    """(n, m) each: x and P after each reward; masked responses change neither."""
    import torch

    value = batch.rewards.new_zeros(len(batch.rewards))
    uncertainty = torch.ones_like(value)
    values = []
    uncertainties = []
    for reward, valid in zip(batch.rewards.unbind(1), batch.mask.unbind(1), strict=True):
        predicted = uncertainty + PROCESS_NOISE
        gain = predicted / (predicted + MEASUREMENT_NOISE)
        value = (value + gain * (reward - value)).where(valid, value)
        uncertainty = ((1 - gain) * predicted).where(valid, uncertainty)
        values.append(value)
        uncertainties.append(uncertainty)
    return torch.stack(values, 1), torch.stack(uncertainties, 1)


KRPO = Estimator(
    name="krpo",
    summary="Kalman filter over the prompt's rewards, in their order",
    equation=r"b_i^j = x_{j-1} + K_j (r_i^j - x_{j-1})",
    source="Wang et al. (2025), arXiv 2505.07527",
    unbiased=False,
    baseline=lambda batch: filtered(batch)[0],
    scale=lambda batch: filtered(batch)[1].sqrt() + FLOOR,
)
