"""BNPO (Xiao et al., 2025): the prompt mean, over a Beta density fitted to all prompt means.

    A_i^j = (r_i^j - p_i) / f(p_i; alpha, beta)                 p_i = mu_i
    alpha = 1 + a/3        beta = 1 + b/3, both at least 1
    a = (M (1 - M) / V - 1) M        b = (M (1 - M) / V - 1) (1 - M)

M and V are mean and variance of the p_i of the batch. The weight 1/f is at most 1e6, as in the
authors' code, which divides by 0 where all p_i are equal; here f is then 1, as for one prompt.
Means that differ by rounding alone, as those of (1, 0, 0) and (0, 1, 0), are equal.
TRL's `loss_type="bnpo"` is something else, a mean of the loss over tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openrlhf_js.estimators.baselines.classic import prompt_mean
from openrlhf_js.estimators.batch import Batch
from openrlhf_js.estimators.record import Estimator

if TYPE_CHECKING:
    from torch import Tensor

LEAST_DENSITY = 1e-6
LEAST_VARIANCE = 1e-9  # of rates; below it, lgamma is too coarse for the density


def beta_density(batch: Batch) -> Tensor:
    """(n, 1) f(p_i; alpha, beta)."""
    import torch

    rate = batch.statistics.prompt_mean.clamp(0, 1)
    present = batch.present.to(rate.dtype)
    count = present.sum().clamp(min=1)
    mean = (rate * present).sum() / count
    squares = ((rate - mean).square() * present).sum()
    variance = squares / (count - 1).clamp(min=1)
    differs = variance > LEAST_VARIANCE
    a_plus_b = mean * (1 - mean) / variance.where(differs, 1.0) - 1
    a_plus_b = a_plus_b.where(differs, 0.0)  # f is then 1
    alpha = (1 + a_plus_b * mean / 3).clamp(min=1)
    beta = (1 + a_plus_b * (1 - mean) / 3).clamp(min=1)
    log_constant = torch.lgamma(alpha + beta) - torch.lgamma(alpha) - torch.lgamma(beta)
    # xlogy is 0 for a power of 0, also of the logarithm of 0
    log_power = torch.xlogy(alpha - 1, rate) + torch.xlogy(beta - 1, 1 - rate)
    density = (log_constant + log_power).exp().clamp(min=LEAST_DENSITY)
    return density[:, None]


BNPO = Estimator(
    name="bnpo",
    summary="prompt mean; divided by a Beta density fitted to the prompt means of the batch",
    equation=r"b_i^j = \hat\mu_i",
    source="Xiao et al. (2025), arXiv 2506.02864",
    unbiased=False,
    baseline=prompt_mean,
    scale=beta_density,
    error=lambda moments, batch: moments.v,
    least_responses=2,
    needs_unit_rewards=True,
)
