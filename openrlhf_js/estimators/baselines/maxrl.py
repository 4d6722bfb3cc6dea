"""MaxRL (Tajwar et al., 2026): the gradient of the logarithm of the success probability.

    A_i^j = (r_i^j - mu_i) / mu_i

It maximises another objective than J: each prompt's gradient is divided by its probability of
success, so hard prompts count more. A group without a success contributes no gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openrlhf_js.estimators.baselines.classic import prompt_mean
from openrlhf_js.estimators.batch import Batch
from openrlhf_js.estimators.record import Estimator

if TYPE_CHECKING:
    from torch import Tensor


def success_rate(batch: Batch) -> Tensor:
    """(n, 1) mu_i; 1 for a prompt whose rewards are all 0."""
    mean = batch.statistics.prompt_mean[:, None]
    return mean.where(mean > 0, 1.0)


MAXRL = Estimator(
    name="maxrl",
    summary="prompt mean; divided by the prompt mean",
    source="Tajwar et al. (2026), arXiv 2602.02710",
    unbiased=False,
    baseline=prompt_mean,
    scale=success_rate,
    least_responses=2,
    needs_unit_rewards=True,
)
