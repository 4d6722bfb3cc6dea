"""SPO (Xu and Ding, 2025): Single-stream Policy Optimization, one value tracker per prompt.

    b_i = v_i                   before today's responses; then normalised over the batch
    v_i = (rho N v_i + sum of today's rewards) / (rho N + m)        N = rho N + m        rho = 0.875

The forgetting factor rho is fixed, the method's simple form. The other form forgets less where the
policy has moved little since the prompt's last visit, and costs one more forward pass per step. The
constants are those of the authors' code (verl's recipe), which has one response per prompt; several
are all added at one visit. A new prompt has v = 1/2 and N = 1.

v_i contains no reward of today's, but the normalisation does, so the gradient is biased.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from openrlhf_js.estimators.batch import Batch
from openrlhf_js.estimators.record import Estimator, TableMemory
from openrlhf_js.estimators.scales import batch_std_of, centred

if TYPE_CHECKING:
    from torch import Tensor

KEPT = 0.875
NEW_VALUE, NEW_WEIGHT = 0.5, 1.0


class Memory(TableMemory):
    """Value and weight of each prompt. If a batch has it twice, its last group with a response
    counts."""

    columns: ClassVar = {"value": (), "weight": ()}

    def recall(self, batch: Batch) -> Tensor:
        """(n,) values of a batch's prompts before today."""
        return self.table.get("value", batch, NEW_VALUE)

    def learn(self, batch: Batch) -> None:
        """Adds today's responses."""
        kept = self.table.get("weight", batch, NEW_WEIGHT) * KEPT
        weight = kept + batch.statistics.valid_responses
        value = (kept * self.recall(batch) + batch.rewards.sum(1)) / weight
        self.table.put(batch, value=value, weight=weight)


def tracked_value(batch: Batch) -> Tensor:
    """(n, 1) v_i."""
    value = batch.past
    if value is None:
        value = batch.rewards.new_full((len(batch.rewards),), NEW_VALUE)
    return value[:, None]


SPO = Estimator(
    name="spo",
    summary="value tracked over the prompt's earlier visits alone, normalised over the batch",
    source="Xu and Ding (2025), arXiv 2509.13232, section 4, with a fixed forgetting",
    unbiased=False,
    baseline=lambda batch: centred(batch, tracked_value(batch)),
    scale=lambda batch: batch_std_of(batch, tracked_value(batch)),
    least_rewards=2,
    remembers_prompts=True,
    needs_keys=True,
    memory=Memory,
)
