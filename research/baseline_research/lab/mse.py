"""Squared errors of baselines to the values of prompts, by Monte Carlo: the program `lab mse`.

A batch is n of the prompts with m responses each, both drawn without replacement. A prompt's value
is estimated from its k = M - m responses outside the batch, so the estimate is independent of the
baseline; its own squared error is subtracted:

    E (b - value_hat)^2 = E (b - value)^2 + Var value_hat        Var value_hat ~ s^2 / k

with s^2 the unbiased variance of those k rewards. The result is unbiased for the squared error to
the true value, however small the pool is. Axes: N prompts of the pool, M responses; n, m of a
batch; B batches; e estimators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from answer_graders.programs.console import progress
from baseline_research.lab.batches import BatchMeans, BatchPlan, at, best, measured_names, parabolas
from baseline_research.lab.pool import Samples
from baseline_research.lab.results import REFERENCE, Ints, LabResult, LabRow, gradients_of, rows_of
from baseline_research.lab.sampling import sampled
from baseline_research.lab.settings import ORACLE, MseSettings
from openrlhf_js.estimators import Batch, estimate, find_estimator
from openrlhf_js.estimators.own import parse_own
from openrlhf_js.estimators.record import Estimator, mean_of_responses
from paired_eval.stats import Estimate
from paired_eval.stats.estimate import Floats

Array: TypeAlias = Any  # a tensor of one batch, or a NumPy array of many
Advance = Callable[[float], None]  # called with the number of batches just finished

CHUNK_REWARDS = 200_000  # in memory at a time
OTHER_END = "bloo"  # lambda 1, the other end of the oracle's line


class KnownBatch(NamedTuple):
    """A batch with known values; with a leading axis, many batches."""

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


class SquaredErrors(NamedTuple):
    """The baselines' squared errors in a batch; for many batches, with a leading axis B."""

    errors: Array
    """(e,) mean squared errors."""
    shrinkage: Array
    """(e,) mean coefficients; NaN for estimators that have none."""


def squared_errors(
    estimators: Sequence[Estimator], known: KnownBatch, shrinkage: float
) -> SquaredErrors:
    """The errors in one batch; `shrinkage` is the constant of `js_fixed`."""
    batch = Batch(
        rewards=known.rewards,
        mask=torch.ones_like(known.rewards, dtype=torch.bool),
        greedy_rewards=known.greedy_rewards,
        lengths=known.lengths,
        shrinkage=shrinkage,
        keys=torch.arange(len(known.rewards)),
        step=1,
    )
    errors = []
    coefficients = []
    for record in estimators:
        result = estimate(record, batch)
        squares = (result.baseline - known.values[:, None]).square()
        errors.append((squares.mean(1) - known.value_errors).mean())
        coefficient = torch.full_like(known.values, torch.nan)
        if result.shrinkage is not None:
            coefficient = mean_of_responses(result.shrinkage.live(batch), batch)
        coefficients.append(coefficient.mean())
    return SquaredErrors(torch.stack(errors), torch.stack(coefficients))


def over_batches(
    estimators: Sequence[Estimator], known: KnownBatch, shrinkage: float
) -> SquaredErrors:
    """The errors in every batch, (B, e); by `torch.vmap` unless one is the user's own code."""
    if all(parse_own(record.name) is None for record in estimators):
        return torch.vmap(lambda batch: squared_errors(estimators, batch, shrinkage))(known)
    batches = [KnownBatch._make(fields) for fields in zip(*known, strict=True)]
    errors = [squared_errors(estimators, batch, shrinkage) for batch in batches]
    return SquaredErrors._make(map(torch.stack, zip(*errors, strict=True)))


def draw(
    pool: Samples, n: int, m: int, batches: int, generator: np.random.Generator
) -> tuple[Ints, KnownBatch]:
    """Draws batches of n prompts and m responses, both without replacement. Returns the prompts'
    indices (B, n) in the pool, and the batches with values from the prompts' other responses."""
    prompts, responses = pool.rewards.shape
    chosen = generator.random((batches, prompts)).argsort(1)[:, :n]
    order = generator.random((batches, n, responses)).argsort(2)  # the first m responses are drawn
    rewards = np.take_along_axis(pool.rewards[chosen], order[..., :m], 2)
    other_rewards = np.take_along_axis(pool.rewards[chosen], order[..., m:], 2)
    lengths = np.take_along_axis(pool.lengths[chosen], order[..., :m], 2)
    known = KnownBatch(
        rewards=torch.from_numpy(rewards),
        values=torch.from_numpy(other_rewards.mean(2)),
        value_errors=torch.from_numpy(other_rewards.var(2, ddof=1) / (responses - m)),
        greedy_rewards=torch.from_numpy(pool.greedy_rewards[chosen]),
        lengths=torch.from_numpy(lengths),
    )
    return chosen, known


def _draws(pool: Samples, plan: BatchPlan, m: int) -> Iterator[tuple[Ints, KnownBatch]]:
    """`draw` in chunks of at most CHUNK_REWARDS rewards."""
    prompts, responses = pool.rewards.shape
    generator = np.random.default_rng((plan.seed, plan.prompts, m))
    chunk = max(1, CHUNK_REWARDS // max(plan.prompts * responses, prompts))
    for start in range(0, plan.batches, chunk):
        yield draw(pool, plan.prompts, m, min(chunk, plan.batches - start), generator)


def measure(
    pool: Samples,
    plan: BatchPlan,
    m: int,
    names: Sequence[str],
    advance: Advance = lambda batches: None,
) -> tuple[BatchMeans, SquaredErrors]:
    """(e, B) errors of baselines in batches with m responses; `js_fixed` has the best constant."""
    measured_names = list(names)
    if ORACLE in names and OTHER_END not in names:
        measured_names.append(OTHER_END)
    estimators = [find_estimator(name) for name in measured_names]  # a user's file may change
    chosen = []
    chunks = []
    for of_chunk, known in _draws(pool, plan, m):
        chosen.append(of_chunk)
        chunks.append(over_batches(estimators, known, shrinkage=0.5))
        advance(len(of_chunk))
    errors, shrinkage = (torch.cat(parts).numpy().T for parts in zip(*chunks, strict=True))
    if ORACLE in names:
        by_name = dict(zip(measured_names, errors, strict=True))
        curves = parabolas(by_name[REFERENCE], by_name[ORACLE], by_name[OTHER_END])
        oracle = measured_names.index(ORACLE)
        shrinkage[oracle] = best(curves)
        errors[oracle] = at(curves, best(curves))
    over = BatchMeans(np.concatenate(chosen), len(pool.rewards))
    return over, SquaredErrors(errors[: len(names)], shrinkage[: len(names)])


def errors(settings: MseSettings) -> LabResult:
    """`lab mse`."""
    measured_names(settings.baselines)  # before any work
    pool = sampled(settings)
    names = measured_names(settings.baselines, unit=pool.in_unit)
    return mse(pool, BatchPlan.of(settings, pool.rewards), names)


def mse(pool: Samples, plan: BatchPlan, names: Sequence[str]) -> LabResult:
    """The errors of these baselines, of which rloo is one."""
    measured = []
    chosen_prompts = []
    rows: list[LabRow] = []
    with progress("measuring", len(plan.responses) * plan.batches, "batches") as bar:
        for m in plan.responses:
            over, of_m = measure(pool, plan, m, names, bar.advance)
            measured.append(of_m)
            chosen_prompts.append(over.chosen)
            rows += error_rows(names, m, of_m, over.mean, over.reduction)
    arrays = {
        "m": np.array(plan.responses),
        "estimators": np.array(names),
        "squared_errors": np.stack([of_m.errors for of_m in measured]),
        "prompts": np.stack(chosen_prompts),
    }
    notes = {
        "gradients": gradients_of(names),
        "prompts": len(pool.rewards),
        "batch_prompts": plan.prompts,
        "batches": plan.batches,
        "samples": pool.settings,
    }
    return LabResult(rows, plan.caption(len(pool.rewards)), arrays, notes)


def error_rows(
    names: Sequence[str],
    m: int,
    measured: SquaredErrors,
    mean: Callable[[Floats], Estimate],
    reduction: Callable[[Floats, Floats], Estimate],
) -> list[LabRow]:
    """The rows for (e, B) errors, computed with these functions of batches (B,)."""
    reference = measured.errors[names.index(REFERENCE)]
    rows = []
    for name, errors, shrinkage in zip(names, *measured, strict=True):
        quantities: dict[str, Estimate | float] = {
            "mse": mean(errors),
            "reduction_percent": reduction(errors, reference),
            "shrinkage": shrinkage.mean(),
        }
        rows += rows_of(quantities, m=m, estimator=name)
    return rows
