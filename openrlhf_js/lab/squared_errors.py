"""Squared errors of baselines on batches with known values, and what a prompt adds to others.

Axes: n prompts and m responses of a batch; b batches; e estimators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from openrlhf_js.estimators import Batch, estimate
from openrlhf_js.estimators.baselines.classic import loo_batch_mean, loo_prompt_mean
from openrlhf_js.estimators.own import parse_own
from openrlhf_js.estimators.record import Estimator, mean_of_responses

Array: TypeAlias = Any  # a tensor of one batch, or a NumPy array of sums over batches


class KnownBatch(NamedTuple):
    """A batch whose values are known; with a leading axis, many batches."""

    rewards: Tensor
    """(n, m)"""
    values: Tensor
    """(n,)"""
    value_errors: Tensor
    """(n,) squared standard errors of the values."""
    greedy_rewards: Tensor
    """(n,)"""
    lengths: Tensor
    """(n, m) tokens of the responses."""
    past: Tensor
    """(n, k) rewards in an earlier visit; k is 0 where there was none."""


class SquaredErrors(NamedTuple):
    """Mean squared errors by prompt of one batch. Of many batches, all have an axis b in front;
    their sums have the pool's N prompts."""

    baselines: Array
    """(e, n)"""
    oracle_terms: Array
    """(3, n) errors of rloo and of bloo, and the product of the two: see `constant_errors`."""
    shrinkage: Array
    """(e, n) coefficients; NaN for estimators that have none."""


def by_field(function: Callable[..., Array], *errors: SquaredErrors) -> SquaredErrors:
    """The function of each field of one or more errors."""
    return SquaredErrors._make(map(function, *errors))


def stacked(errors: Sequence[SquaredErrors]) -> SquaredErrors:
    """Errors with a new axis in front."""
    return by_field(lambda *fields: torch.stack(fields), *errors)


def squared_errors(
    estimators: Sequence[Estimator],
    known: KnownBatch,
    present: Tensor | None = None,
    shrinkage: float = 0.0,
) -> SquaredErrors:
    """What baselines are off by on one batch.

    `present` (n,) says which prompts are in it (None: all); `shrinkage` is the oracle's constant.
    """
    rewards = known.rewards
    mask = torch.ones_like(rewards, dtype=torch.bool)
    if present is not None:
        mask = present[:, None].expand_as(rewards)
        rewards = rewards * mask
    batch = Batch(
        rewards=rewards,
        mask=mask,
        greedy_rewards=known.greedy_rewards,
        lengths=known.lengths * mask,
        shrinkage=shrinkage,
        keys=torch.arange(len(rewards)),
        step=1,
    )

    def distance(baseline: Tensor) -> Tensor:
        """(n, m)"""
        return baseline - known.values[:, None]

    def error(products: Tensor) -> Tensor:
        """(n,) of products of two distances (n, m)."""
        return products.mean(1) - known.value_errors

    errors = []
    coefficients = []
    for record in estimators:
        result = estimate(record, with_past(record, batch, known.past))
        errors.append(error(distance(result.baseline).square()))
        coefficient = torch.full_like(known.values, torch.nan)
        if result.shrinkage is not None:
            coefficient = mean_of_responses(result.shrinkage.live(batch), batch)
        coefficients.append(coefficient)
    rloo = distance(loo_prompt_mean(batch))
    bloo = distance(loo_batch_mean(batch))
    oracle_terms = [error(rloo.square()), error(bloo.square()), error(rloo * bloo)]
    return SquaredErrors(
        baselines=torch.stack(errors),
        oracle_terms=torch.stack(oracle_terms),
        shrinkage=torch.stack(coefficients),
    )


def with_past(record: Estimator, batch: Batch, past: Tensor) -> Batch:
    """The batch as an estimator sees it that has learnt past rewards (n, k) of its prompts."""
    if record.memory is None or past.shape[-1] == 0:
        return batch
    memory = record.memory()
    known = past.isfinite()
    memory.start(Batch(rewards=past.where(known, 0.0), mask=known, keys=batch.keys))
    return replace(batch, past=memory.recall(batch))


def added_to_others(estimators: Sequence[Estimator], known: KnownBatch) -> SquaredErrors:
    """What each prompt adds to the errors of a batch's others: their sum with it, less without."""
    others = ~torch.eye(len(known.values), dtype=torch.bool)  # row k: all prompts but k

    def sums_without(present: Tensor) -> SquaredErrors:
        errors = squared_errors(estimators, known, present)
        return by_field(lambda field: (field * present).sum(-1), errors)

    whole = squared_errors(estimators, known)
    if any(_needs_its_own_batch(record, known) for record in estimators):
        without = stacked([sums_without(present) for present in others])
    else:
        without = torch.vmap(sums_without)(others)

    def added(errors: Tensor, others_alone: Tensor) -> Tensor:
        """(e, n) of errors (e, n) and sums (n, e), whose row k is without prompt k."""
        others_with_it = errors.sum(-1, keepdim=True) - errors
        return others_with_it - others_alone.T

    return by_field(added, whole, without)


Measure: TypeAlias = Callable[[Sequence[Estimator], KnownBatch], SquaredErrors]


def over_batches(
    function: Measure, estimators: Sequence[Estimator], known: KnownBatch
) -> SquaredErrors:
    """The function of every batch (b, ...), by `torch.vmap` where the estimators allow it.

    Code of the user's own, and memories that look prompts up, see one batch after the other.
    """
    at_once = [record for record in estimators if not _needs_its_own_batch(record, known)]
    one_by_one = [record for record in estimators if _needs_its_own_batch(record, known)]
    errors = torch.vmap(lambda batch: function(at_once, batch))(known)
    if not one_by_one:
        return errors
    batches = [KnownBatch._make(fields) for fields in zip(*known, strict=True)]
    slow_errors = stacked([function(one_by_one, batch) for batch in batches])
    measured = at_once + one_by_one
    order = [measured.index(record) for record in estimators]

    def joined(quick: Tensor, slow: Tensor) -> Tensor:
        """(b, e, n) in the order of the estimators."""
        return torch.cat([quick, slow], 1)[:, order]

    return errors._replace(
        baselines=joined(errors.baselines, slow_errors.baselines),
        shrinkage=joined(errors.shrinkage, slow_errors.shrinkage),
    )


def _needs_its_own_batch(record: Estimator, known: KnownBatch) -> bool:
    is_own = parse_own(record.name) is not None
    return is_own or (record.remembers and known.past.shape[-1] > 0)
