"""Squared errors of every baseline for simulated prompts with known values, without a model.

A batch is n prompts with independent values and m rewards of 0 or 1 each. Every estimator sees the
same batches. Axes: B batches, n prompts, m responses, e estimators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from answer_graders.programs.console import progress
from baseline_research.lab.batches import measured_names
from baseline_research.lab.mse import Advance, KnownBatch, SquaredErrors, error_rows, over_batches
from baseline_research.lab.results import LabResult, LabRow, gradients_of, reduction
from baseline_research.lab.settings import SimulateSettings
from openrlhf_js.estimators import ESTIMATORS, find_estimator
from paired_eval.stats import clustered_mean
from paired_eval.stats.estimate import Floats

CHUNK_REWARDS = 100_000  # held at a time, for each estimator: 0.8 MB


@dataclass(frozen=True)
class Values:
    """A distribution of the prompts' values; a value is the probability of reward 1."""

    title: str
    draw: Callable[[np.random.Generator, tuple[int, ...]], Floats]
    mean: float
    s2: float
    """Variance of the values."""

    @property
    def sigma2(self) -> float:
        """Mean variance of a prompt's rewards."""
        return self.mean - self.mean**2 - self.s2


def beta(a: float, b: float) -> Values:
    """Values ~ Beta(a, b), a and b greater than 0."""
    return Values(
        title=f"values Beta({a:g}, {b:g})",
        draw=lambda generator, shape: generator.beta(a, b, shape),
        mean=a / (a + b),
        s2=a * b / ((a + b) ** 2 * (a + b + 1)),
    )


def two_point(low: float, high: float, share: float) -> Values:
    """Values that are `high` with probability `share`, else `low`."""
    points = np.array([high, low], dtype=np.float64)
    return Values(
        title=f"values {low:g} or {high:g} (share {share:g})",
        draw=lambda generator, shape: generator.choice(points, shape, p=(share, 1 - share)),
        mean=share * high + (1 - share) * low,
        s2=share * (1 - share) * (high - low) ** 2,
    )


DISTRIBUTIONS: dict[str, Callable[..., Values]] = {"beta": beta, "two_point": two_point}
FORMS = "beta:A,B two_point:LOW,HIGH,SHARE"


def parse(text: str) -> Values:
    """The distribution that a flag describes. Raises ValueError for a malformed one."""
    name, _, parameters = text.partition(":")
    try:
        values = DISTRIBUTIONS[name](*map(float, parameters.split(",")))
    except (KeyError, ValueError, TypeError, ZeroDivisionError):
        raise ValueError(f"no values {text!r}; give one of {FORMS}") from None
    if not (values.sigma2 > 0 and values.s2 >= 0):
        raise ValueError(f"{values.title}: give probabilities, not all of them 0 or 1")
    return values


def best_coefficient(values: Values, n: int, m: int) -> float:
    """The constant coefficient with the least mean squared error.

        E (b - mu)^2 = (1 - lambda)^2 v2 + lambda^2 T       lambda = v2 / (v2 + T)
        v2 = sigma^2 / (m - 1)       T = s2 (1 + 1/p) + sigma^2 / (m p)       p = n - 1

    T is the mean squared distance between a prompt's value and the mean reward of the p others.
    """
    others = n - 1
    v2 = values.sigma2 / (m - 1)
    return v2 / (v2 + values.s2 * (1 + 1 / others) + values.sigma2 / m / others)


def simulated(settings: SimulateSettings) -> LabResult:
    """`lab simulate`."""
    baselines: Sequence[str] = settings.baselines
    if settings.all:
        baselines = [
            name
            for name, record in ESTIMATORS.items()
            if not (record.needs_greedy or record.needs_lengths or record.needs_keys)
        ]
    names = measured_names(baselines, greedy=False, lengths=False)
    return simulate(
        parse(settings.values),
        settings.prompts_count,
        sorted(set(settings.m)),
        names,
        rounds=settings.rounds,
        seed=settings.seed,
    )


def simulate(
    values: Values, n: int, responses: Sequence[int], names: Sequence[str], rounds: int, seed: int
) -> LabResult:
    """Squared errors of the given baselines in `rounds` batches of n prompts, for every m."""
    measured = []
    rows: list[LabRow] = []
    with progress("simulating", rounds * len(responses), "batches") as bar:
        for m in responses:
            errors = measure(values, n, m, rounds, seed, names, bar.advance)
            measured.append(errors)
            rows += error_rows(names, m, errors, clustered_mean, reduction)
    arrays = {
        "m": np.array(responses),
        "estimators": np.array(names),
        "squared_errors": np.stack([of_m.errors for of_m in measured]),
        "shrinkage": np.stack([of_m.shrinkage for of_m in measured]),
    }
    notes = {
        "title": values.title,
        "gradients": gradients_of(names),
        "batch_prompts": n,
        "batches": rounds,
        "values": {"mean": values.mean, "s2": values.s2, "sigma2": values.sigma2},
    }
    caption = (
        f"{values.title}: {rounds} batches of {n} prompts; 95 % intervals over batches; "
        "reductions against rloo: below 0, farther off"
    )
    return LabResult(rows, caption, arrays, notes)


def measure(
    values: Values,
    n: int,
    m: int,
    rounds: int,
    seed: int,
    names: Sequence[str],
    advance: Advance = lambda batches: None,
) -> SquaredErrors:
    """Errors and coefficients of the estimators in each batch, as (e, B) arrays."""
    if m < 2:
        raise ValueError(f"m = {m}: give 2 or more")
    estimators = [find_estimator(name) for name in names]
    best = best_coefficient(values, n, m)
    generator = np.random.default_rng([seed, n, m])
    chunk = max(1, CHUNK_REWARDS // (n * m))
    chunks = []
    for start in range(0, rounds, chunk):
        size = min(chunk, rounds - start)
        chunks.append(over_batches(estimators, draw(values, generator, n, m, size), best))
        advance(size)
    return SquaredErrors._make(torch.cat(parts).numpy().T for parts in zip(*chunks, strict=True))


def draw(
    values: Values, generator: np.random.Generator, n: int, m: int, batches: int
) -> KnownBatch:
    """Draws values of prompts, and rewards with these means."""
    value = values.draw(generator, (batches, n))
    if value.min() < 0 or value.max() > 1:
        raise ValueError(f"{values.title}: a value is a probability from 0 to 1")
    rewards = torch.from_numpy((generator.random((batches, n, m)) < value[..., None]) * 1.0)
    zeros = torch.zeros(batches, n, dtype=torch.float64)
    return KnownBatch(
        rewards=rewards,
        values=torch.from_numpy(value),
        value_errors=zeros,
        greedy_rewards=zeros,
        lengths=torch.ones_like(rewards),
    )
