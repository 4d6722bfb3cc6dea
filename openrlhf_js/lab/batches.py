"""The small batches whose gradients are compared, drawn from a pool of responses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from openrlhf_js.estimators import Estimate, baseline, estimate, find_estimator, make_batch
from openrlhf_js.estimators.record import Estimator, check_range
from openrlhf_js.lab import policy_gradient as pg
from openrlhf_js.lab.mse import check_batch_size, pool_left_out
from openrlhf_js.lab.pool import Samples
from openrlhf_js.lab.results import Ints
from openrlhf_js.lab.squared_errors import with_past
from openrlhf_js.stats.estimate import Floats

MIDDLE = "js_fixed 0.5"  # halfway between rloo and bloo: the third point of a sweep's parabolas


@dataclass(frozen=True)
class BatchPlan:
    """What small batches to compare: how many, prompts in each, every m, and the seed."""

    batches: int = 20
    prompts: int = 64
    """n, of a batch."""
    responses: tuple[int, ...] = (2, 4, 8)
    """Every m to be compared."""
    seed: int = 0


class SmallBatches:
    """Which of a pool's responses make the precise gradient, and which the small batches.

    Every batch has prompts of its own draw, as a step of training has. No response is in two of
    them, so batches are independent draws for these N prompts.

    Attributes:
        half: responses a prompt in each half of the precise gradient: columns 0 to half - 1 of the
            pool are the first, half to 2 half - 1 the second.
        prompts: (B, n) the prompts of each batch, all different.
        columns: (B, n, m) their responses, for the largest m; a smaller one takes the first.

    Raises:
        ValueError: the pool is too small.
    """

    def __init__(self, pool: Samples, plan: BatchPlan):
        self.pool = pool
        self.plan = plan
        prompts, responses = pool.rewards.shape
        for m in plan.responses:
            check_batch_size(pool.rewards, plan.prompts, m)
        self.prompts = _drawn_prompts(prompts, plan)
        earlier_uses = _earlier_uses(self.prompts, prompts)
        most_uses = int(earlier_uses.max()) + 1
        largest = max(plan.responses)
        reserve = most_uses * largest
        needed = max(reserve + 4, math.ceil(1.5 * reserve))  # a third for the precise gradient
        if needed > responses:
            raise ValueError(
                f"{plan.batches} batches of {plan.prompts} of {prompts} prompts, m = {largest}, "
                f"need {needed} responses to a prompt, and there are {responses}: sample more, or "
                "lower --batches"
            )
        self.half = (responses - reserve) // 2
        first = 2 * self.half + earlier_uses * largest  # each use takes the next responses
        self._estimators: dict[str, Estimator] = {}
        self.columns = first[:, :, None] + np.arange(largest)

    @cached_property
    def lengths(self) -> Ints:
        """(N, M) tokens of the pool's responses."""
        return self.pool.lengths

    def rewards(self, batch: int, m: int) -> Floats:
        """(n, m) rewards of a batch."""
        return self._of_batch(self.pool.rewards, batch, m)

    def _of_batch(self, values: Any, batch: int, m: int) -> Any:
        """(n, m) a batch's part of the pool's values (N, M)."""
        rows = self.prompts[batch][:, None]
        columns = self.columns[batch, :, :m]
        return values[rows, columns]

    def baseline(self, batch: int, m: int, name: str) -> Floats:
        """(n, m) baselines of a batch, by an estimator or MIDDLE."""
        return self._estimate(batch, m, name).baseline.numpy()

    def shrinkage(self, m: int, name: str) -> Floats:
        """(B,) mean coefficient of each batch; NaN for an estimator that has none."""
        coefficients = []
        for batch in range(self.plan.batches):
            coefficient = np.nan
            shrinkage = self._estimate(batch, m, name).shrinkage
            if shrinkage is not None:
                coefficient = float(shrinkage.coefficient.mean())
            coefficients.append(coefficient)
        return np.array(coefficients)

    def _estimator(self, name: str) -> Estimator:
        """The same record for all batches, also of a user's file that changes meanwhile."""
        if name not in self._estimators:
            record_name = "js_fixed" if name == MIDDLE else name
            self._estimators[name] = find_estimator(record_name)
        return self._estimators[name]

    def _estimate(self, batch: int, m: int, name: str) -> Estimate:
        """What an estimator makes of a batch; of the past, it sees m rewards of each prompt."""
        chosen = self.prompts[batch]
        rollout = make_batch(
            torch.from_numpy(self.rewards(batch, m)),
            greedy_rewards=torch.from_numpy(self.pool.greedy_rewards[chosen]),
            lengths=self._of_batch(self.lengths, batch, m),
            shrinkage=0.5,  # of MIDDLE
            keys=torch.from_numpy(chosen),
            step=1,
        )
        estimator = self._estimator(name)
        check_range(estimator, rollout)
        if self.pool.past is not None:
            past = torch.from_numpy(self.pool.past[chosen, :m])
            rollout = with_past(estimator, rollout, past)
        return estimate(estimator, rollout)

    def terms(self, batch: int, m: int, name: str) -> pg.ScoreTerms:
        """The sum that is the batch's gradient: each response counts (r - b) / (n m)."""
        advantages = self.rewards(batch, m) - self.baseline(batch, m, name)
        weights = advantages / advantages.size
        columns = self.columns[batch, :, :m]
        return _pool_terms(self.pool, self.prompts[batch], columns, weights)

    def halves(self) -> tuple[pg.ScoreTerms, pg.ScoreTerms]:
        """The two halves of the precise gradient, each with rloo, whose gradient is unbiased."""
        return self._half(0), self._half(self.half)

    def _half(self, first_column: int) -> pg.ScoreTerms:
        """The gradient of rloo on all prompts, with `half` responses from this column on."""
        columns = np.arange(first_column, first_column + self.half)
        rewards = torch.from_numpy(self.pool.rewards[:, columns])
        advantages = rewards - baseline("rloo", rewards)
        weights = advantages.numpy() / rewards.numel()
        return _pool_terms(
            self.pool,
            prompts=np.arange(len(rewards)),
            columns=np.broadcast_to(columns, weights.shape),
            weights=weights,
        )


def _drawn_prompts(prompts: int, plan: BatchPlan) -> Ints:
    """(B, n) prompts of each batch, all different."""
    rng = np.random.default_rng(plan.seed)
    batches = []
    for _ in range(plan.batches):
        batches.append(rng.choice(prompts, plan.prompts, replace=False))
    return np.stack(batches)


def _earlier_uses(chosen: Ints, prompts: int) -> Ints:
    """(B, n) in how many earlier batches each prompt was."""
    uses = np.zeros((len(chosen), prompts), dtype=np.int64)
    np.put_along_axis(uses, chosen, 1, axis=1)
    earlier = uses.cumsum(0) - uses
    return np.take_along_axis(earlier, chosen, axis=1)


def _pool_terms(pool: Samples, prompts: Ints, columns: Ints, weights: Floats) -> pg.ScoreTerms:
    """Responses by prompt (n,) and column (n, m) of the pool, with their weights (n, m)."""
    responses = []
    for prompt, prompt_columns in zip(prompts.tolist(), columns.tolist(), strict=True):
        tokens = pool.prompts[prompt].tokens
        prompt_responses = pool.response_tokens[prompt]
        for column in prompt_columns:
            responses.append(pg.TokenSequence(tokens, prompt_responses[column]))
    return pg.terms(responses, weights.ravel())


def check_names(names: Sequence[str], pool: Samples) -> None:
    """Raises ValueError for baselines that cannot be compared on this pool."""
    reasons = pool_left_out(pool, 2)
    reasons["grpo"] = "has another true gradient; take dr_grpo, which is grpo without its division"
    reasons["js_fixed"] = "has a coefficient to choose: lab sweep shows them all"
    for name in names:
        find_estimator(name)
        if name in reasons:
            raise ValueError(f"{name} {reasons[name]}")
