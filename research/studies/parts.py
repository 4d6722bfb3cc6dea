"""`js_grad` without one of its parts: own baselines, which show what each part is worth.

for part in NoWeights NoMemory NoPrompts NoGroup; do forms="$forms research/studies/parts.py:$part"; done
openrlhf-js study --estimators js_grad $forms weighted_rloo rloo ...

The tables, and the whole commands, are in docs/results.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from openrlhf_js.estimators.baselines.grad import Memory, grad_baseline
from openrlhf_js.estimators.group_stats import sum_of_others

if TYPE_CHECKING:
    from torch import Tensor

    from openrlhf_js.estimators.batch import Batch


class NoPrompts:
    """`js_grad` that does not recognise prompts: earlier steps are known by their sums alone."""

    def __init__(self) -> None:
        self.memory = Memory()

    def baseline(self, batch: Batch) -> Tensor:
        """(n, m) predictions."""
        return grad_baseline(self._recalled(batch))

    def learn(self, batch: Batch) -> None:
        """Adds a batch."""
        self.memory.learn(self._recalled(batch))

    def _recalled(self, batch: Batch) -> Batch:
        """What the estimator sees of a batch, with what it remembers."""
        seen = self._seen(batch)
        return replace(seen, past=self.memory.recall(seen))

    def _seen(self, batch: Batch) -> Batch:
        return replace(batch, keys=None)


class NoWeights(NoPrompts):
    """`js_grad` with equal weights."""

    def _seen(self, batch: Batch) -> Batch:
        return replace(batch, squared_score_norms=None)


class NoMemory:
    """`js_grad` that forgets: each step is its first."""

    def baseline(self, batch: Batch) -> Tensor:
        """(n, m) predictions."""
        return grad_baseline(replace(batch, past=None))

    def learn(self, batch: Batch) -> None:
        """Nothing."""


class NoGroup(NoPrompts):
    """The weighted mean reward of the batch's other prompts and of earlier steps, for a prompt."""

    def baseline(self, batch: Batch) -> Tensor:
        """(n, m) means."""
        weight = sum_of_others(batch.weights.sum(1), 0)
        total = sum_of_others((batch.weights * batch.rewards).sum(1), 0)
        past = self._recalled(batch).past
        if past is not None:
            past_weight = past.moments.products[0, 0]
            weight = weight + past_weight
            total = total + past_weight * (past.origin + past.mean_reward)
        return (total / weight)[:, None].expand_as(batch.rewards)
