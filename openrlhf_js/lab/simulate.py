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
from openrlhf_js.lab.mse import Advance, error_rows, left_out
from openrlhf_js.lab.results import LabResult, gradients_of
from openrlhf_js.lab.squared_errors import Array, KnownBatch, squared_errors
from openrlhf_js.stats.estimate import Floats

Draw = Callable[[np.random.Generator, tuple[int, ...]], Floats]

SHOWN = ("rloo", "js", "js_grad", "js_fixed")  # unless all are asked for
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
    noise: float | None = None
    """The standard deviation of a prompt's rewards."""

    @property
    def title(self) -> str:
        """The rewards, and the values around which they spread."""
        rewards = "Bernoulli" if self.noise is None else "Gaussian"
        return f"{rewards}, {self.description}"


def _bernoulli(description: str, draw: Draw, mean: float, s2: float) -> Values:
    """Values with rewards 0 and 1, of which they are the probability of 1."""
    return Values(description, draw, mean, s2, sigma2=mean - mean**2 - s2)


def beta(a: float, b: float) -> Values:
    """Values ~ Beta(a, b), a and b greater than 0."""
    return _bernoulli(
        f"values Beta({a:g}, {b:g})",
        draw=lambda generator, shape: generator.beta(a, b, shape),
        mean=a / (a + b),
        s2=a * b / ((a + b) ** 2 * (a + b + 1)),
    )


def two_point(low: float, high: float, share: float) -> Values:
    """Values that are `high` with probability `share`, else `low`."""
    points = np.array([high, low], dtype=np.float64)
    return _bernoulli(
        f"values {low:g} or {high:g} (share {share:g})",
        draw=lambda generator, shape: generator.choice(points, shape, p=(share, 1 - share)),
        mean=share * high + (1 - share) * low,
        s2=share * (1 - share) * (high - low) ** 2,
    )


def normal(mean: float, std: float) -> Values:
    """Values ~ N(mean, std^2), for Gaussian rewards."""
    return _bernoulli(
        f"values N({mean:g}, {std:g}^2)",
        draw=lambda generator, shape: mean + std * generator.standard_normal(shape),
        mean=mean,
        s2=std**2,
    )


def gaussian_rewards(values: Values, noise: float) -> Values:
    """The same values with Gaussian rewards of this standard deviation around them."""
    return replace(
        values,
        description=f"{values.description}, noise {noise:g}",
        sigma2=noise**2,
        noise=noise,
    )


DISTRIBUTIONS: dict[str, Callable[..., Values]] = {
    "beta": beta,
    "two_point": two_point,
    "normal": normal,
}
FORMS = "beta:A,B two_point:LOW,HIGH,SHARE normal:MEAN,STD"


def parse(text: str) -> Values:
    """The distribution that a flag names, with Bernoulli rewards."""
    name, _, parameters = text.partition(":")
    numbers = parameters.split(",")
    try:
        values = DISTRIBUTIONS[name](*map(float, numbers))
    except (KeyError, ValueError, TypeError, ZeroDivisionError):
        raise ValueError(f"no values {text!r}; give one of {FORMS}") from None
    if not (isfinite(values.mean) and 0 <= values.s2 < inf):
        raise ValueError(f"{values.title} have no mean or variance; give other numbers")
    return values


def best_coefficient(values: Values, n: int, m: int) -> float:
    """The constant coefficient with the least mean squared error.

        E (b - mu)^2 = (1 - lambda)^2 v2 + lambda^2 T       lambda = v2 / (v2 + T)
        v2 = sigma^2 / (m - 1)       T = s2 (1 + 1/p) + sigma^2 / (m p)       p = n - 1

    T is the mean squared distance of a prompt's value to the mean reward of the p other prompts.
    """
    others = n - 1
    v2 = values.sigma2 / (m - 1)
    return v2 / (v2 + values.s2 * (1 + 1 / others) + values.sigma2 / m / others)


def estimators_left_out() -> dict[str, str]:
    """The estimators that cannot be simulated, and why."""
    missing = left_out(2, past=False, greedy=False, lengths=False, unit=False)
    for name, record in ESTIMATORS.items():
        if record.needs_keys:
            missing[name] = "remembers single prompts, which are new here in every batch"
    return missing


def simulated_names() -> tuple[str, ...]:
    """The estimators that can be simulated."""
    missing = estimators_left_out()
    return tuple(name for name in ESTIMATORS if name not in missing)


class Simulated(NamedTuple):
    """What was found for one m, by estimator and batch."""

    errors: Array
    """(e, b) mean squared errors."""
    shrinkage: Array
    """(e, b) mean coefficients; NaN for estimators that have none."""


def simulate(
    values: Values,
    n: int,
    responses: Sequence[int],
    rounds: int,
    seed: int,
    everything: bool = True,
) -> LabResult:
    """Squared errors of every baseline, or of `SHOWN`, in `rounds` batches of n prompts, for every
    m."""
    names = simulated_names() if everything else SHOWN
    simulated = []
    rows = []
    with progress("simulating", rounds * len(responses), "batches") as bar:
        for m in responses:
            result = measure(values, n, m, rounds, seed, names=names, advance=bar.advance)
            simulated.append(result)
            rows += error_rows(
                names,
                m,
                sums=result.errors,
                counts=np.ones(rounds),
                shrinkage=np.array([coefficients.mean() for coefficients in result.shrinkage]),
            )
    arrays = {
        "m": np.array(responses),
        "estimators": np.array(names),
        "squared_errors": np.stack([result.errors for result in simulated]),
        "shrinkage": np.stack([result.shrinkage for result in simulated]),
    }
    notes = {
        "title": values.title,
        "gradients": gradients_of(names),
        "left_out": estimators_left_out() if everything else {},
        "batch_prompts": n,
        "batches": rounds,
        "values": {"mean": values.mean, "s2": values.s2, "sigma2": values.sigma2},
    }
    caption = (
        f"{values.title}: {rounds} batches of {n} prompts; 95 % intervals over batches; "
        "reductions against rloo"
    )
    return LabResult(rows, caption, arrays, notes)


def measure(
    values: Values,
    n: int,
    m: int,
    rounds: int,
    seed: int,
    *,
    names: Sequence[str] | None = None,
    advance: Advance = lambda batches: None,
) -> Simulated:
    """Errors and coefficients of the estimators, by default of all, in each batch."""
    if m < 2:
        raise ValueError(f"m = {m}: give 2 or more")
    if values.sigma2 <= 0:
        raise ValueError(f"with {values.title} every reward equals its value: there is no error")
    estimators = [ESTIMATORS[name] for name in names or simulated_names()]
    best = best_coefficient(values, n, m)
    zeros = torch.zeros(n, dtype=torch.float64)

    def means(rewards: Tensor, value: Tensor) -> Simulated:
        known = KnownBatch(
            rewards=rewards,
            values=value,
            value_errors=zeros,
            greedy_rewards=zeros,
            lengths=torch.ones_like(rewards),
            past=rewards[:, :0],
        )
        errors = squared_errors(estimators, known, shrinkage=best)
        return Simulated(errors.baselines.mean(1), errors.shrinkage.mean(1))

    generator = np.random.default_rng([seed, n, m])
    chunk = max(1, CHUNK_REWARDS // (n * m))
    chunks = []
    for start in range(0, rounds, chunk):
        size = min(chunk, rounds - start)
        value, rewards = draw(values, generator, n, m, size)
        chunks.append(torch.vmap(means)(torch.from_numpy(rewards), torch.from_numpy(value)))
        advance(size)
    return Simulated(
        errors=np.concatenate([one.errors for one in chunks]).T,
        shrinkage=np.concatenate([one.shrinkage for one in chunks]).T,
    )


def draw(
    values: Values, generator: np.random.Generator, n: int, m: int, batches: int
) -> tuple[Floats, Floats]:
    """Values (batches, n) of as many prompts, and rewards (batches, n, m) around them."""
    value = values.draw(generator, (batches, n))
    mean = value[..., None]
    shape = (batches, n, m)
    if values.noise is not None:
        return value, mean + values.noise * generator.standard_normal(shape)
    if value.min() < 0 or value.max() > 1:
        raise ValueError(f"{values.title}: a value is a probability from 0 to 1; give --noise")
    correct = generator.random(shape) < mean
    return value, correct.astype(np.float64)
