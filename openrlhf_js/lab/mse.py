"""Squared errors of baselines to the values of prompts, by Monte Carlo: the program `lab mse`.

A batch is n of the prompts with m of each one's responses, both drawn without replacement. The
value of a prompt is estimated from its k = M - m responses that are not in the batch, so that the
estimate is independent of the baseline, and the estimate's own squared error is subtracted:

    E (b - value_hat)^2 = E (b - value)^2 + Var value_hat        Var value_hat ~ s^2 / k

with s^2 the unbiased variance of those k rewards: the mean is that of the squared error to the true
value, however small the pool is. Axes: N prompts of the pool, M responses; n, m of a batch; b
batches; e estimators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from openrlhf_js.common.console import progress
from openrlhf_js.estimators import ESTIMATORS, find_estimator
from openrlhf_js.estimators.record import Estimator
from openrlhf_js.lab.pool import Samples
from openrlhf_js.lab.results import (
    ORACLE,
    REFERENCE,
    Ints,
    LabResult,
    LabRow,
    gradients_of,
    reduction,
    rows_of,
)
from openrlhf_js.lab.squared_errors import (
    KnownBatch,
    Measure,
    SquaredErrors,
    added_to_others,
    by_field,
    over_batches,
    squared_errors,
)
from openrlhf_js.stats import Estimate, clustered_mean
from openrlhf_js.stats.estimate import Floats

CHUNK_REWARDS = 200_000  # held at a time
CROSS_BATCHES = 50  # in which every prompt is left out in turn

Advance = Callable[[float], None]  # called with how many more batches are done


class Errors(NamedTuple):
    """What was measured for one m."""

    names: tuple[str, ...]
    """Of the e estimators."""
    sums: Floats
    """(e, N) squared errors, means over a prompt's responses summed over batches."""
    counts: Ints
    """(N,) batches that a prompt was in."""
    cross: Floats
    """(e, N) what a prompt adds to the others' summed errors, by moving their targets."""
    shrinkage: Floats
    """(e,) mean coefficient; NaN for estimators that have none."""

    def influences(self) -> Floats:
        """(e, N) sums, each prompt's with what it adds to others; the same in total.

        The Hajek projection of a mean over subsets: to first order the mean over batches moves by
        that much where a prompt is drawn. With a prompt's own errors alone, 95 % intervals of js
        covered 57 % of simulated pools.
        """
        mean = self.cross @ self.counts / self.counts.sum()
        return self.sums + self.counts * (self.cross - mean[:, None])


def mse(
    pool: Samples,
    n: int,
    responses: Sequence[int],
    batches: int,
    seed: int,
    chosen: Sequence[str] = (),
) -> LabResult:
    """Squared errors of baselines, for batches of n prompts and every m of `responses`.

    Of rloo and those that are chosen, or of all (`names_of`).
    """
    for m in responses:
        check_batch_size(pool.rewards, n, m)
    measured = []
    rows = []
    batches_for_each_m = batches + _cross_batches(n, batches) * (n + 1)
    with progress("measuring", len(responses) * batches_for_each_m, "batches") as bar:
        for m in responses:
            errors = measure(pool, n, m, batches, seed, bar.advance, chosen)
            measured.append(errors)
            drawn = errors.counts > 0
            rows += error_rows(
                errors.names,
                m,
                sums=errors.influences()[:, drawn],
                counts=errors.counts[drawn].astype(np.float64),
                shrinkage=errors.shrinkage,
            )
    names = measured[0].names
    arrays = {
        "m": np.array(responses),
        "estimators": np.array(names),
        "squared_error_sums": np.stack([errors.sums for errors in measured]),
        "counts": np.stack([errors.counts for errors in measured]),
        "cross": np.stack([errors.cross for errors in measured]),
    }
    prompts = len(pool.rewards)
    notes = {
        "gradients": gradients_of(names),
        "left_out": {} if chosen else pool_left_out(pool, n),
        "prompts": prompts,
        "batch_prompts": n,
        "batches": batches,
        "samples": pool.settings,
    }
    caption = (
        f"{batches} batches of {n} of {prompts} prompts; 95 % intervals over prompts; "
        "reductions against rloo"
    )
    return LabResult(rows, caption, arrays, notes)


def error_rows(
    names: Sequence[str], m: int, sums: Floats, counts: Floats, shrinkage: Floats
) -> list[LabRow]:
    """Mean errors and reductions of e estimators.

    `sums` (e, k) are the summed errors of k independent units, `counts` (k,) how many each sums.
    """
    reference = sums[names.index(REFERENCE)]
    rows = []
    for name, unit_sums, coefficient in zip(names, sums, shrinkage, strict=True):
        quantities: dict[str, Estimate | float] = {
            "mse": clustered_mean(unit_sums / counts, weights=counts),
            "reduction_percent": reduction(unit_sums, reference),
            "shrinkage": coefficient,
        }
        rows += rows_of(quantities, m=m, estimator=name)
    return rows


def check_batch_size(rewards: Floats, n: int, m: int) -> None:
    """Raises ValueError unless batches of n prompts and m responses can be drawn from (N, M)."""
    prompts, responses = rewards.shape
    if n > prompts:
        raise ValueError(f"batches of {n} prompts cannot be drawn from {prompts}: ask for fewer")
    if m < 2:
        raise ValueError(f"m = {m}: rloo averages a prompt's other responses; give 2 or more")
    if 2 * m > responses:
        raise ValueError(f"m = {m} is more than half of the {responses} responses: sample more")


def left_out(
    n: int, past: bool, *, greedy: bool = True, lengths: bool = True, unit: bool = True
) -> dict[str, str]:
    """The estimators that cannot be measured on batches of n prompts, and why.

    `greedy` and `lengths` say whether these are known, and `unit` whether rewards lie in [0, 1].
    """
    reasons = {}
    for name, estimator in ESTIMATORS.items():
        if estimator.least_prompts > n:
            reasons[name] = f"needs {estimator.least_prompts} prompts in a batch"
        elif estimator.needs_greedy and not greedy:
            reasons[name] = "needs the reward of a greedy response"
        elif estimator.needs_lengths and not lengths:
            reasons[name] = "needs the lengths of the responses"
        elif estimator.needs_unit_rewards and not unit:
            reasons[name] = "takes rewards between 0 and 1"
        elif estimator.needs_keys and not past:
            reasons[name] = "needs an earlier visit to each prompt (--past)"
    return reasons


def names_of(pool: Samples, n: int, chosen: Sequence[str] = ()) -> tuple[str, ...]:
    """The estimators to measure on a pool: all that can be, or these and what they are compared to.

    Raises ValueError for one that cannot be measured.
    """
    missing = pool_left_out(pool, n)
    if not chosen:
        return tuple(name for name in ESTIMATORS if name not in missing)
    for name in chosen:
        find_estimator(name)
        if name in missing:
            raise ValueError(f"{name} {missing[name]}")
    return tuple(dict.fromkeys([REFERENCE, *chosen]))


def pool_left_out(pool: Samples, n: int) -> dict[str, str]:
    """`left_out` of batches of n prompts of a pool."""
    unit = pool.rewards.min() >= 0 and pool.rewards.max() <= 1
    return left_out(n, past=pool.past is not None, unit=bool(unit))


def draw(
    pool: Samples, n: int, m: int, batches: int, generator: np.random.Generator
) -> tuple[Ints, KnownBatch]:
    """Batches of n prompts and m responses, both without replacement: the prompts' places (b, n)
    in the pool, and the batches with values from the prompts' other responses."""
    prompts, responses = pool.rewards.shape
    chosen = generator.random((batches, prompts)).argsort(1)[:, :n]
    order = generator.random((batches, n, responses)).argsort(2)  # of the responses, m come first
    rewards = np.take_along_axis(pool.rewards[chosen], order[..., :m], 2)
    other_rewards = np.take_along_axis(pool.rewards[chosen], order[..., m:], 2)
    lengths = np.take_along_axis(pool.lengths[chosen], order[..., :m], 2)
    past = np.zeros((prompts, 0))
    if pool.past is not None:
        past = pool.past[:, :m]
    known = KnownBatch(
        rewards=torch.from_numpy(rewards),
        values=torch.from_numpy(other_rewards.mean(2)),
        value_errors=torch.from_numpy(other_rewards.var(2, ddof=1) / (responses - m)),
        greedy_rewards=torch.from_numpy(pool.greedy_rewards[chosen]),
        lengths=torch.from_numpy(lengths),
        past=torch.from_numpy(past[chosen]),
    )
    return chosen, known


def _draws(
    pool: Samples, n: int, m: int, batches: int, batch_rewards: int, seed: Sequence[int]
) -> Iterator[tuple[Ints, KnownBatch]]:
    """`draw`, so many batches at a time that CHUNK_REWARDS are held, `batch_rewards` for each."""
    generator = np.random.default_rng(seed)
    chunk = max(1, CHUNK_REWARDS // batch_rewards)
    for start in range(0, batches, chunk):
        yield draw(pool, n, m, min(chunk, batches - start), generator)


def _totals(
    function: Measure,
    estimators: Sequence[Estimator],
    draws: Iterable[tuple[Ints, KnownBatch]],
    prompts: int,
    advance: Advance,
) -> tuple[SquaredErrors, Ints]:
    """Sums over all batches by prompt of the pool, and (N,) how often each was drawn."""
    counts = np.zeros(prompts, dtype=np.int64)
    chunks = []
    for chosen, known in draws:
        drawn = chosen.ravel()
        errors = over_batches(function, estimators, known)
        chunks.append([_by_prompt(field.numpy(), drawn, prompts) for field in errors])
        counts += np.bincount(drawn, minlength=prompts)
        advance(len(chosen))
    return SquaredErrors._make(map(sum, zip(*chunks, strict=True))), counts


def _by_prompt(errors: Floats, drawn: Ints, prompts: int) -> Floats:
    """(e, N) sums of errors (b, e, n) by the prompts (b n,) that were drawn."""
    rows = errors.swapaxes(0, 1)
    return np.stack([np.bincount(drawn, row.ravel(), prompts) for row in rows])


def measure(
    pool: Samples,
    n: int,
    m: int,
    batches: int,
    seed: int,
    advance: Advance = lambda batches: None,
    chosen: Sequence[str] = (),
) -> Errors:
    """Measures baselines (`names_of`) on batches of a pool, and on some without each prompt."""
    names = names_of(pool, n, chosen)
    estimators = [find_estimator(name) for name in names]  # once: a user's file may change
    prompts, responses = pool.rewards.shape
    batch_rewards = max(n * responses, prompts)
    draws = _draws(pool, n, m, batches, batch_rewards, seed=(seed, n, m))
    totals, counts = _totals(squared_errors, estimators, draws, prompts, advance)
    added = by_field(np.zeros_like, totals)
    cross_batches = _cross_batches(n, batches)
    if cross_batches:
        batch_rewards = max(n * n * m, batch_rewards)
        draws = _draws(pool, n, m, cross_batches, batch_rewards, seed=(seed, n, m, 1))
        sums, drawn = _totals(
            added_to_others,
            estimators,
            draws,
            prompts,
            advance=lambda batches: advance(batches * (n + 1)),
        )
        added = by_field(lambda field: field / np.maximum(drawn, 1), sums)
    shrinkage = totals.shrinkage.sum(1) / counts.sum()
    if ORACLE in names:
        oracle = names.index(ORACLE)
        rloo, bloo, product = totals.oracle_terms.sum(1)
        shrinkage[oracle] = best_coefficient(rloo, bloo, product)
        totals.baselines[oracle] = constant_errors(totals, shrinkage[oracle])
        added.baselines[oracle] = constant_errors(added, shrinkage[oracle])
    return Errors(
        names=names,
        sums=totals.baselines,
        counts=counts,
        cross=added.baselines,
        shrinkage=shrinkage,
    )


def constant_errors(errors: SquaredErrors, shrinkage: float) -> Floats:
    """(N,) squared errors of (1 - lambda) rloo + lambda bloo."""
    other = 1 - shrinkage
    weights = np.array([other**2, shrinkage**2, 2 * other * shrinkage])
    return weights @ errors.oracle_terms


def _cross_batches(n: int, batches: int) -> int:
    """In how many batches every prompt is left out in turn."""
    return min(batches, CROSS_BATCHES) if n > 2 else 0  # two prompts have no others to add to


def best_coefficient(rloo: float, bloo: float, product: float) -> float:
    """The lambda in [0, 1] with the least (1 - lambda)^2 A + lambda^2 B + 2 lambda (1 - lambda) C.

    A, B and C are the sums of rloo's squared error, of bloo's, and of their product; then

        lambda = (A - C) / (A + B - 2 C).
    """
    curvature = rloo + bloo - 2 * product  # the sum of (rloo - bloo)^2
    return float(np.clip((rloo - product) / curvature, 0, 1)) if curvature > 0 else 0.0
