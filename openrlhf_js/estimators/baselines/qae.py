"""QAE (Wu et al., 2025): the 0.4-quantile of the group instead of its mean.

    b_i = inf {x: F_i(x) >= 0.4}        A_i^j = (r_i^j - b_i) / (std_i + 1e-6)

F_i is the distribution of the group's rewards. Of rewards 0 and 1, the baseline is 0 where at most
60 % are right, and 1 elsewhere: a hard prompt teaches by what is right, an easy one by what is
wrong. That is the paper's definition; the authors' code interpolates between rewards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openrlhf_js.estimators.record import Estimator
from openrlhf_js.estimators.scales import order_statistic

if TYPE_CHECKING:
    from torch import Tensor

    from openrlhf_js.estimators.batch import Batch

QUANTILE = 0.4
FLOOR = 1e-6


def quantile(batch: Batch) -> Tensor:
    """(n, 1) the quantile of each prompt's valid rewards."""
    return order_statistic(batch.rewards, batch.mask, QUANTILE)


QAE = Estimator(
    name="qae",
    summary="0.4-quantile of the prompt's rewards, over their standard deviation",
    equation=r"b_i^j = \inf\{x : \hat F_i(x) \ge 0.4\}",
    source="Wu et al. (2025), arXiv 2509.22611",
    unbiased=False,
    baseline=lambda batch: quantile(batch).expand_as(batch.rewards),
    scale=lambda batch: batch.statistics.reward_variance.sqrt()[:, None] + FLOOR,
    least_responses=2,
)
