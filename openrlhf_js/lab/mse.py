"""Squared errors of baselines to the true value, from a pool of responses to each prompt.

A batch is n of the prompts with m of each one's responses, both drawn without replacement. The
value of a prompt is estimated from its k = M - m responses that are not in the batch, so that the
estimate is independent of the baseline, and the estimate's own squared error is taken off:

    E (b - value_hat)^2 = E (b - value)^2 + Var value_hat        Var value_hat ~ s^2 / k

with s^2 the unbiased variance of those k rewards. What is averaged is exactly the mean squared
error to the true value, however small the pool is. Axes: N prompts of the pool, M responses; n, m
of a batch; e estimators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from openrlhf_js.estimators import ESTIMATORS
from openrlhf_js.estimators.baselines import Batch
from openrlhf_js.estimators.group_stats import checked_statistics
from openrlhf_js.uncertainty.estimate import Floats

REFERENCE = "rloo"
ORACLE = "js_fixed"  # with the best constant coefficient of the pool
TOWARDS = "bloo"
CHUNK_REWARDS = 200_000  # held at a time
CROSS_BATCHES = 50  # in which every prompt is left out in its turn


class Errors(NamedTuple):
    """What was found for one number of responses.

    Attributes:
        names: of the e estimators.
        sums: (e, N) squared errors, averaged over a prompt's m responses and added up over the
            batches that it was in.
        counts: (N,) in how many it was.
        cross: (e, N) what a prompt in the batch adds to the sum of the others' squared errors, by
            moving the mean and the coefficient that they are shrunk with; a mean over batches.
        shrinkage: (e,) mean coefficient; NaN for estimators that have none.
        best: the oracle's coefficient.
    """

    names: tuple[str, ...]
    sums: Floats
    counts: NDArray[np.int64]
    cross: Floats
    shrinkage: Floats
    best: float


def left_out(n: int, greedy: bool) -> dict[str, str]:
    """The estimators that cannot be measured, and why.

    Args:
        n: prompts of a batch.
        greedy: whether the rewards of greedy responses are there.
    """
    found = {}
    for name, estimator in ESTIMATORS.items():
        if estimator.least_prompts > n:
            found[name] = f"needs {estimator.least_prompts} prompts in a batch"
        elif estimator.needs_greedy and not greedy:
            found[name] = "needs the reward of a greedy response"
    return found


def check(pool: Floats, n: int, m: int) -> None:
    """Raises ValueError unless batches of n prompts and m responses can be drawn from the pool."""
    prompts, responses = pool.shape
    if n > prompts:
        raise ValueError(f"batches of {n} prompts cannot be drawn from {prompts}: ask for fewer")
    if m < 2:
        raise ValueError(f"m = {m}: rloo averages a prompt's other responses; give 2 or more")
    if 2 * m > responses:
        raise ValueError(
            f"m = {m} is more than half of the {responses} responses of a prompt, and too few are "
            f"left to know its value: sample --responses {max(8 * m, 128)} or more, or lower m"
        )


def measure(
    pool: Floats,
    n: int,
    m: int,
    batches: int,
    seed: int,
    greedy: Floats | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Errors:
    """Draws batches and measures every baseline on them, and on some without each of its prompts.

    Args:
        pool: (N, M) rewards.
        n: prompts of a batch.
        m: responses to each.
        batches: how many.
        seed: of the draws.
        greedy: (N,) rewards of greedy responses, for remax.
        progress: called with how many of the `measurements` are done.

    Raises:
        ValueError: such batches cannot be drawn.
    """
    check(pool, n, m)
    names = tuple(name for name in ESTIMATORS if name not in left_out(n, greedy is not None))
    prompts = len(pool)
    generator = np.random.default_rng([seed, n, m])
    everyone = torch.ones(n, dtype=torch.bool)
    run = torch.vmap(lambda rewards, value, first: _squared(names, rewards, value, first, everyone))
    other = np.random.default_rng([seed, n, m, 1])
    cross, cross_parts = _cross(names, pool, n, m, batches, other, greedy, progress)
    before = measurements(n, batches) - batches
    sums = np.zeros((len(names), prompts))
    parts = np.zeros((3, prompts))  # rloo's squared, bloo's squared, their product: for the oracle
    counts = np.zeros(prompts, dtype=np.int64)
    coefficients = np.zeros(len(names))
    at_once = max(1, CHUNK_REWARDS // max(n * pool.shape[1], prompts))
    for start in range(0, batches, at_once):
        some = min(at_once, batches - start)
        chosen, rewards, value, noise = draw(pool, n, m, some, generator)
        first = np.zeros(chosen.shape) if greedy is None else greedy[chosen]
        errors, products, shrinkage = run(*map(torch.from_numpy, (rewards, value, first)))
        flat = chosen.ravel()
        for target, found in ((sums, errors), (parts, products)):
            corrected = found.numpy() - noise[:, None, :]
            for row, each in enumerate(corrected.swapaxes(0, 1)):
                target[row] += np.bincount(flat, each.ravel(), prompts)
        counts += np.bincount(flat, minlength=prompts)
        coefficients += shrinkage.numpy().sum(0)
        progress(before + start + some)
    best = 0.0
    if ORACLE in names:
        best = best_coefficient(*parts.sum(1))
        away = 1 - best
        weights = np.array([away**2, best**2, 2 * away * best])
        sums[names.index(ORACLE)] = weights @ parts
        cross[names.index(ORACLE)] = weights @ cross_parts
        coefficients[names.index(ORACLE)] = best * batches
    return Errors(names, sums, counts, cross, coefficients / batches, best)


def measurements(n: int, batches: int) -> int:
    """How many batches of n prompts `measure` measures, those without one of their prompts too."""
    return batches + _cross_batches(n, batches) * (n + 1)


def _cross_batches(n: int, batches: int) -> int:
    return min(batches, CROSS_BATCHES) if n > 2 else 0  # without others there is nothing to add to


def _cross(
    names: tuple[str, ...],
    pool: Floats,
    n: int,
    m: int,
    batches: int,
    generator: np.random.Generator,
    greedy: Floats | None,
    progress: Callable[[int], None],
) -> tuple[Floats, Floats]:
    """`Errors.cross` (e, N), and the same of rloo, bloo and their product (3, N)."""
    prompts, rows = len(pool), len(names) + 3
    total, counts = np.zeros((rows, prompts)), np.zeros(prompts)
    run = torch.vmap(lambda rewards, value, first: _left_out(names, rewards, value, first))
    at_once = max(1, CHUNK_REWARDS // max(n * n * m, n * pool.shape[1], prompts))
    batches = _cross_batches(n, batches)
    for start in range(0, batches, at_once):
        some = min(at_once, batches - start)
        chosen, rewards, value, _ = draw(pool, n, m, some, generator)
        first = np.zeros(chosen.shape) if greedy is None else greedy[chosen]
        found = run(*map(torch.from_numpy, (rewards, value, first))).numpy()
        for row in range(rows):
            total[row] += np.bincount(chosen.ravel(), found[:, row].ravel(), prompts)
        counts += np.bincount(chosen.ravel(), minlength=prompts)
        progress((start + some) * (n + 1))
    mean = total / np.maximum(counts, 1)
    return mean[: len(names)], mean[len(names) :]


def _left_out(names: tuple[str, ...], rewards: Tensor, value: Tensor, greedy: Tensor) -> Tensor:
    """(e + 3, n) the others' squared errors with a prompt, less those without it, added up."""
    everyone = torch.ones_like(value, dtype=torch.bool)

    def squared(present: Tensor) -> Tensor:
        errors, products, _ = _squared(names, rewards, value, greedy, present)
        return torch.cat([errors, products]) * present

    whole = squared(everyone)
    without = torch.vmap(lambda present: squared(present).sum(1))(
        ~torch.eye(len(value), dtype=torch.bool)
    )
    return whole.sum(1, keepdim=True) - whole - without.T


def draw(
    pool: Floats, n: int, m: int, batches: int, generator: np.random.Generator
) -> tuple[NDArray[np.int64], Floats, Floats, Floats]:
    """Batches from the pool, and what the responses outside of them say of the values.

    Returns:
        Numbers of the prompts (batches, n), rewards (batches, n, m), values (batches, n), and the
        squared standard errors of these (batches, n).
    """
    prompts, responses = pool.shape
    chosen = generator.random((batches, prompts)).argsort(1)[:, :n]
    order = generator.random((batches, n, responses)).argsort(2)
    drawn = np.take_along_axis(pool[chosen], order, 2)
    rest = drawn[..., m:]
    return chosen, drawn[..., :m].copy(), rest.mean(2), rest.var(2, ddof=1) / rest.shape[2]


def best_coefficient(rloo: float, bloo: float, product: float) -> float:
    """The lambda in [0, 1] with the least (1 - lambda)^2 A + lambda^2 B + 2 lambda (1 - lambda) C.

    A, B and C are the sums of rloo's squared error, of bloo's, and of their product; then

        lambda = (A - C) / (A + B - 2 C).
    """
    curvature = rloo + bloo - 2 * product  # the sum of (rloo - bloo)^2
    return float(np.clip((rloo - product) / curvature, 0, 1)) if curvature > 0 else 0.0


def _squared(
    names: tuple[str, ...], rewards: Tensor, value: Tensor, greedy: Tensor, present: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Squared errors (e, n); rloo's, bloo's and their product (3, n); coefficients (e,)."""
    mask = present[:, None].expand_as(rewards)
    rewards = rewards * mask
    batch = Batch(rewards, mask, checked_statistics(rewards, mask), greedy, 0.0)
    errors = {name: ESTIMATORS[name].function(batch) - value[:, None] for name in names}
    rloo, bloo = errors[REFERENCE], errors.get(TOWARDS, errors[REFERENCE])
    none = torch.full_like(value[0], torch.nan)
    shrinkage = [
        none if (each := ESTIMATORS[name].coefficient) is None else each(batch).mean()
        for name in names
    ]
    return (
        torch.stack([each.square().mean(1) for each in errors.values()]),
        torch.stack([rloo.square().mean(1), bloo.square().mean(1), (rloo * bloo).mean(1)]),
        torch.stack(shrinkage),
    )


def gradient_of(name: str) -> str:
    """Whether a baseline leaves the gradient unbiased; the oracle knows the pool's best lambda."""
    if name == ORACLE:
        return "oracle"
    return "unbiased" if ESTIMATORS[name].independent else "biased"


Found = Mapping[int, Errors]
"""By the number of responses m."""
