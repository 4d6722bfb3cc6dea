"""Squared errors of every baseline where the prompts' values are known: no model is needed.

A batch is n prompts with independent values and m rewards each. Every estimator sees the same
batches. Axes: b batches, n prompts, m responses, e estimators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from openrlhf_js.common.console import progress
from openrlhf_js.estimators import ESTIMATORS
from openrlhf_js.lab.mse import Advance, KnownBatch, left_out, squared_errors
from openrlhf_js.lab.results import REFERENCE, LabResult, Row, gradients_of, reduction, rows_of
from openrlhf_js.stats import clustered_mean
from openrlhf_js.stats.estimate import Floats

Draw = Callable[[np.random.Generator, tuple[int, ...]], Floats]

CHUNK_REWARDS = 100_000  # held at a time, for each estimator: 0.8 MB


@dataclass(frozen=True)
class Values:
    """A distribution of prompts: rewards are Bernoulli, or Gaussian where `noise` is given."""

    description: str
    draw: Draw
    mean: float
    s2: float
    """Variance of the values."""
    sigma2: float
    """Mean variance of a prompt's rewards."""
    noise: Draw | None = None
    """Of standard deviations of prompts' rewards."""

    @property
    def title(self) -> str:
        """The rewards, and the values around which they spread."""
        rewards = "Bernoulli" if self.noise is None else "Gaussian"
        return f"{rewards}, {self.description}"


def _bernoulli(description: str, draw: Draw, mean: float, s2: float) -> Values:
    return Values(description, draw, mean, s2, sigma2=mean - mean**2 - s2)


def beta(a: float, b: float) -> Values:
    """Values ~ Beta(a, b), a and b greater than 0."""

    def draw(generator: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        return generator.beta(a, b, shape)

    s2 = a * b / ((a + b) ** 2 * (a + b + 1))
    return _bernoulli(f"values Beta({a:g}, {b:g})", draw, mean=a / (a + b), s2=s2)


def two_point(low: float, high: float, share: float) -> Values:
    """Values that are `high` with probability `share`, else `low`."""
    points = np.array([high, low], dtype=np.float64)

    def draw(generator: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        return generator.choice(points, shape, p=(share, 1 - share))

    return _bernoulli(
        f"values {low:g} or {high:g} (share {share:g})",
        draw,
        mean=share * high + (1 - share) * low,
        s2=share * (1 - share) * (high - low) ** 2,
    )


def normal(mean: float, std: float) -> Values:
    """Values ~ N(mean, std^2), for Gaussian rewards."""

    def draw(generator: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        return mean + std * generator.standard_normal(shape)

    return _bernoulli(f"values N({mean:g}, {std:g}^2)", draw, mean, s2=std**2)


def gaussian_rewards(values: Values, noise: float) -> Values:
    """The same values with Gaussian rewards of this standard deviation around them."""
    return replace(
        values,
        description=f"{values.description}, noise {noise:g}",
        sigma2=noise**2,
        noise=lambda generator, shape: np.full(shape, noise),
    )


DISTRIBUTIONS: dict[str, tuple[Callable[..., Values], str]] = {
    "beta": (beta, "A,B"),
    "two_point": (two_point, "LOW,HIGH,SHARE"),
    "normal": (normal, "MEAN,STD"),
}


def parse(text: str) -> Values:
    """The distribution that a flag names, with Bernoulli rewards."""
    name, _, parameters = text.partition(":")
    try:
        distribution, _ = DISTRIBUTIONS[name]
        values = distribution(*map(float, parameters.split(",")))
    except (KeyError, ValueError, TypeError, ZeroDivisionError):
        forms = " ".join(f"{name}:{form}" for name, (_, form) in DISTRIBUTIONS.items())
        raise ValueError(f"no values {text!r}; give one of {forms}") from None
    if not (isfinite(values.mean) and 0 <= values.s2 < inf):
        raise ValueError(f"{values.title} have no mean or variance; give other numbers")
    return values


def best_coefficient(values: Values, n: int, m: int) -> float:
    """The constant coefficient with the least mean squared error.

        E (b - mu)^2 = (1 - lambda)^2 v2 + lambda^2 T       lambda = v2 / (v2 + T)
        v2 = sigma^2 / (m - 1)       T = s2 (1 + 1/p) + sigma^2 / (m p)       p = n - 1

    T is the mean squared distance of a prompt's value to the mean reward of the p other prompts.
    """
    v2 = values.sigma2 / (m - 1)
    return v2 / (v2 + values.s2 * (1 + 1 / (n - 1)) + values.sigma2 / m / (n - 1))


def names_of(visits: int) -> tuple[str, ...]:
    """The estimators that can be simulated."""
    missing = left_out(2, past=visits > 0, greedy=False)
    return tuple(name for name in ESTIMATORS if name not in missing)


class Simulated(NamedTuple):
    """What was found for one m, by estimator of `names_of` and batch."""

    errors: Floats
    """(e, b) mean squared errors."""
    shrinkage: Floats
    """(e, b) mean coefficients; NaN for estimators that have none."""


def simulate(
    values: Values, n: int, responses: Sequence[int], rounds: int, seed: int, visits: int = 0
) -> LabResult:
    """Squared errors of every baseline in `rounds` batches of n prompts, for every m.

    js_memory knows the mean reward of `visits` earlier ones with m responses each.
    """
    names = names_of(visits)
    simulated = []
    rows = []
    with progress("simulating", rounds * len(responses), "batches") as bar:
        for m in responses:
            found = measure(values, n, m, rounds, seed, visits=visits, advance=bar.advance)
            simulated.append(found)
            rows += _rows(names, found, m)
    arrays = {
        "m": np.array(responses),
        "estimators": np.array(names),
        "squared_errors": np.stack([one.errors for one in simulated]),
        "shrinkage": np.stack([one.shrinkage for one in simulated]),
    }
    notes = {
        "title": values.title,
        "gradients": gradients_of(names),
        "left_out": left_out(2, past=visits > 0, greedy=False),
        "batch_prompts": n,
        "batches": rounds,
        "values": {"mean": values.mean, "s2": values.s2, "sigma2": values.sigma2},
    }
    caption = (
        f"{values.title}: {rounds} batches of {n} prompts; 95 % intervals over batches; "
        "reductions against rloo"
    )
    return LabResult(rows, caption, arrays, notes)


def _rows(names: Sequence[str], simulated: Simulated, m: int) -> list[Row]:
    reference = simulated.errors[names.index(REFERENCE)]
    rows = []
    for name, errors, shrinkage in zip(names, *simulated, strict=True):
        quantities = {
            "mse": clustered_mean(errors),
            "reduction_percent": reduction(errors, reference),
            "shrinkage": shrinkage.mean(),
        }
        rows += rows_of(quantities, m=m, estimator=name)
    return rows


def measure(
    values: Values,
    n: int,
    m: int,
    rounds: int,
    seed: int,
    *,
    visits: int = 0,
    advance: Advance = lambda batches: None,
) -> Simulated:
    """Errors and coefficients of every estimator in each batch."""
    if m < 2:
        raise ValueError(f"m = {m}: give 2 or more")
    if values.sigma2 <= 0:
        raise ValueError(f"with {values.title} every reward equals its value: there is no error")
    names = names_of(visits)
    best = best_coefficient(values, n, m)
    zeros = torch.zeros(n, dtype=torch.float64)

    def means(rewards: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        known = KnownBatch(
            rewards=rewards[:, :m],
            values=value,
            value_errors=zeros,
            greedy_rewards=zeros,
            past=rewards[:, m:].mean(1) if visits else zeros,
        )
        found = squared_errors(names, known, shrinkage=best)
        return found.baselines.mean(1), found.shrinkage.mean(1)

    generator = np.random.default_rng([seed, n, m])
    chunk = max(1, CHUNK_REWARDS // (n * m))
    errors = []
    shrinkage = []
    for start in range(0, rounds, chunk):
        size = min(chunk, rounds - start)
        value, rewards = draw(values, generator, n, m * (1 + visits), size)
        chunk_errors, chunk_shrinkage = torch.vmap(means)(
            torch.from_numpy(rewards), torch.from_numpy(value)
        )
        errors.append(chunk_errors.numpy())
        shrinkage.append(chunk_shrinkage.numpy())
        advance(size)
    return Simulated(np.concatenate(errors).T, np.concatenate(shrinkage).T)


def draw(
    values: Values, generator: np.random.Generator, n: int, m: int, batches: int
) -> tuple[Floats, Floats]:
    """Values (batches, n) of as many prompts, and rewards (batches, n, m) around them."""
    value = values.draw(generator, (batches, n))
    shape = (batches, n, m)
    if values.noise is not None:
        std = values.noise(generator, (batches, n))
        return value, value[..., None] + std[..., None] * generator.standard_normal(shape)
    if value.min() < 0 or value.max() > 1:
        raise ValueError(f"{values.title}: a value is a probability from 0 to 1; give --noise")
    return value, (generator.random(shape) < value[..., None]).astype(np.float64)
