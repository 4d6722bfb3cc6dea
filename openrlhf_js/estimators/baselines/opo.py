"""OPO (Hao et al., 2025): the mean reward weighted by the lengths of the responses.

    b_i = sum_j l_i^j r_i^j / sum_j l_i^j

The variance of a response's gradient grows with its number of tokens l, so that the baseline of
least variance leans on long responses. The own reward is in it: the gradient is biased.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openrlhf_js.estimators.group_stats import ratio
from openrlhf_js.estimators.record import Estimator

if TYPE_CHECKING:
    from torch import Tensor

    from openrlhf_js.estimators.batch import Batch


def length_weighted_mean(batch: Batch) -> Tensor:
    """(n, m) b_i; the plain mean of responses that are all empty."""
    assert batch.lengths is not None  # Estimator.check has seen to it
    total = batch.lengths.sum(1)
    mean = ratio((batch.lengths * batch.rewards).sum(1), total)
    mean = mean.where(total > 0, batch.statistics.prompt_mean)
    return mean[:, None].expand_as(batch.rewards)


OPO = Estimator(
    name="opo",
    summary="mean of the prompt's rewards, weighted by the lengths of the responses",
    equation=r"b_i^j = \sum_k l_i^k r_i^k / \sum_k l_i^k",
    source="Hao et al. (2025), arXiv 2505.23585",
    unbiased=False,
    baseline=length_weighted_mean,
    least_responses=2,
    needs_lengths=True,
)
