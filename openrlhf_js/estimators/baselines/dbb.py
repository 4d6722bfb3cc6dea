"""DBB (Kim et al., 2026): a discounted Beta-Bernoulli history of each prompt.

    alpha = 0.5 alpha + (right)        beta = 0.5 beta + (wrong)        at first alpha = beta = 1
    b_i = p_i = alpha / (alpha + beta)         A_i^j = (r_i^j - p_i) / sqrt(p_i (1 - p_i))

Today's responses are counted before the advantage is computed (algorithm 1), so the gradient is
biased. The paper uses a discount of 0.5 for the smaller of its models and 0.75 for the larger. Its
answers are right or wrong; here a reward r between 0 and 1 counts as r right and 1 - r wrong. After
some fifty visits with right answers only, p rounds to 1 and its deviation to 0. The deviation is
therefore at least 1e-8, and such a prompt has the advantage 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from openrlhf_js.estimators.batch import Batch
from openrlhf_js.estimators.record import Estimator, TableMemory
from openrlhf_js.estimators.scales import STD_FLOOR

if TYPE_CHECKING:
    from torch import Tensor

DISCOUNT = 0.5


def updated(before: Tensor, batch: Batch) -> Tensor:
    """(n, 2) alpha and beta after today's responses; unchanged for a prompt without a valid one."""
    import torch

    right = batch.rewards.sum(1)
    wrong = batch.statistics.valid_responses - right
    after = DISCOUNT * before + torch.stack([right, wrong], 1)
    return after.where(batch.mask.any(1, keepdim=True), before)


class Memory(TableMemory):
    """alpha and beta of each prompt. If a batch has it twice, its last group with a response
    counts."""

    columns: ClassVar = {"counts": (2,)}

    def recall(self, batch: Batch) -> Tensor:
        """(n, 2) alpha and beta of a batch's prompts, including today's responses."""
        before = self.table.get("counts", batch, 1.0)
        return updated(before, batch)

    def learn(self, batch: Batch) -> None:
        """Adds a batch."""
        self.table.put(batch, counts=self.recall(batch))


def success_rate(batch: Batch) -> Tensor:
    """(n, 1) p_i."""
    counts = batch.past
    if counts is None:  # the first visit of every prompt
        counts = updated(batch.rewards.new_ones(len(batch.rewards), 2), batch)
    return counts[:, :1] / counts.sum(1, keepdim=True)


def deviation(batch: Batch) -> Tensor:
    """(n, 1) standard deviation of a reward that is 1 with probability p_i."""
    rate = success_rate(batch)
    return (rate * (1 - rate)).sqrt().clamp(min=STD_FLOOR)


DBB = Estimator(
    name="dbb",
    summary="success rate of the prompt's discounted history, today's responses among it; divided "
    "by its standard deviation",
    source="Kim et al. (2026), arXiv 2603.18444, eqs. 11 to 13",
    unbiased=False,
    baseline=lambda batch: success_rate(batch).expand_as(batch.rewards),
    scale=deviation,
    remembers_prompts=True,
    needs_keys=True,
    needs_unit_rewards=True,
    memory=Memory,
)
