"""Squared errors of every baseline where the values of the prompts are known: no model is needed.

A batch is n prompts with independent values and m rewards each. Every estimator sees the same
batches, and its own function is run on them. Axes: b batches, n prompts, m responses, e estimators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from openrlhf_js.estimators import ESTIMATORS
from openrlhf_js.estimators.baselines import Batch
from openrlhf_js.estimators.group_stats import checked_statistics
from openrlhf_js.lab.values import Values
from openrlhf_js.uncertainty.estimate import Floats

REFERENCE = "rloo"
ORACLE = "js_fixed"  # with the best constant coefficient of the distribution
BATCH_ORACLE = "batch_best"  # with the best coefficient of each batch
LEFT_OUT = {
    name: "needs the reward of a greedy response, which only a model has"
    for name, estimator in ESTIMATORS.items()
    if estimator.needs_greedy
}
NAMES = (*(name for name in ESTIMATORS if name not in LEFT_OUT), BATCH_ORACLE)
CHUNK_REWARDS = 100_000  # held at a time, for each estimator: 0.8 MB


class Simulated(NamedTuple):
    """What was found for one number of responses."""

    squared_errors: Floats
    """(e, b) mean over a batch of (baseline - value)^2, in NAMES' order."""
    shrinkage: Floats
    """(e, b) mean coefficient of a batch; NaN for estimators that have none."""


def best_coefficient(values: Values, n: int, m: int) -> float:
    """The constant coefficient with the least mean squared error.

        E (b - mu)^2 = (1 - lambda)^2 v2 + lambda^2 T       lambda = v2 / (v2 + T)
        v2 = sigma^2 / (m - 1)       T = s2 (1 + 1/p) + sigma^2 / (m p)       p = n - 1

    T is the mean squared distance of a prompt's value to the mean reward of the p other prompts.
    """
    others = n - 1
    v2 = values.sigma2 / (m - 1)
    distance = values.s2 * (1 + 1 / others) + values.sigma2 / m / others
    return v2 / (v2 + distance)


def simulate(
    values: Values,
    n: int,
    m: int,
    rounds: int,
    seed: int,
    progress: Callable[[int], None] = lambda done: None,
) -> Simulated:
    """Draws batches and measures every baseline on them.

    Args:
        values: distribution of the prompts.
        n: prompts of a batch, 2 or more.
        m: responses to a prompt, 2 or more.
        rounds: number of batches.
        seed: of the draws, which differ between numbers of prompts and of responses.
        progress: called with the number of batches done.

    Raises:
        ValueError: n, m or rounds is too small, or rewards never differ from their values.
    """
    for count, least, what in (
        (n, 2, "prompts in a batch, since a batch mean without the prompt is shrunk to"),
        (m, 2, "responses to a prompt, since RLOO averages the others"),
        (rounds, 2, "rounds, since an interval needs several"),
    ):
        if count < least:
            raise ValueError(f"simulating needs at least {least} {what}; got {count}")
    if values.sigma2 <= 0:
        raise ValueError(
            f"with {values.title} every reward equals its value: no baseline has an error to reduce"
        )
    generator = np.random.default_rng([seed, n, m])
    best = best_coefficient(values, n, m)
    measure = torch.vmap(lambda rewards, value: _measure(rewards, value, best))
    at_once = max(1, CHUNK_REWARDS // (n * m))
    errors, shrinkage = [], []
    for start in range(0, rounds, at_once):
        size = min(at_once, rounds - start)
        value, rewards = draw(values, generator, n, m, size)
        found = measure(torch.from_numpy(rewards), torch.from_numpy(value))
        errors.append(found[0].T.numpy())
        shrinkage.append(found[1].T.numpy())
        progress(start + size)
    return Simulated(np.concatenate(errors, 1), np.concatenate(shrinkage, 1))


def draw(
    values: Values, generator: np.random.Generator, n: int, m: int, batches: int
) -> tuple[Floats, Floats]:
    """Values (batches, n) of as many prompts, and rewards (batches, n, m) around them."""
    value = values.draw(generator, (batches, n))
    shape = (batches, n, m)
    if values.noise is None:
        return value, (generator.random(shape) < value[..., None]).astype(np.float64)
    std = values.noise(generator, (batches, n))
    return value, value[..., None] + std[..., None] * generator.standard_normal(shape)


def _measure(rewards: Tensor, value: Tensor, best: float) -> tuple[Tensor, Tensor]:
    """Mean squared error (e,) and mean coefficient (e,) of every baseline on one batch (n, m)."""
    mask = torch.ones_like(rewards, dtype=torch.bool)
    batch = Batch(
        rewards, mask, checked_statistics(rewards, mask), torch.zeros_like(rewards[:, 0]), best
    )
    baselines, shrinkage = {}, []
    for name in NAMES[:-1]:
        estimator = ESTIMATORS[name]
        baselines[name] = estimator.function(batch)
        shrinkage.append(
            estimator.coefficient(batch).mean()
            if estimator.coefficient
            else torch.full_like(rewards[0, 0], torch.nan)
        )
    rloo, bloo = baselines["rloo"], baselines["bloo"]
    weight = _best_of_batch(rloo - value[:, None], bloo - rloo)
    baselines[BATCH_ORACLE] = rloo + weight * (bloo - rloo)
    distance = torch.stack(list(baselines.values())) - value[:, None]
    return distance.square().mean((1, 2)), torch.stack([*shrinkage, weight])


def _best_of_batch(error: Tensor, step: Tensor) -> Tensor:
    """The lambda in [0, 1] with the least sum of (error + lambda step)^2; 0 where step is 0."""
    squares = step.square().sum()
    return (-(error * step).sum() / torch.where(squares > 0, squares, 1.0)).clamp(0, 1)
