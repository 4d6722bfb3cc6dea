"""Squared errors of every baseline where the prompts' values are known: no model is needed.

A batch is n prompts with independent values and m rewards each. Every estimator sees the same
batches. Axes: b batches, n prompts, m responses, e estimators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite

import numpy as np
import torch
from torch import Tensor

from openrlhf_js.common.console import progress
from openrlhf_js.estimators import ESTIMATORS
from openrlhf_js.lab import results
from openrlhf_js.lab.mse import Advance, error_finding, left_out, squared
from openrlhf_js.lab.results import REFERENCE, LabResult
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
    s2: float  # variance of the values
    sigma2: float  # mean variance of a prompt's rewards
    noise: Draw | None = None  # of standard deviations of prompts' rewards

    @property
    def title(self) -> str:
        """The rewards, and the values around which they spread."""
        return f"{'Bernoulli' if self.noise is None else 'Gaussian'}, {self.description}"


def _values(description: str, draw: Draw, mean: float, s2: float) -> Values:
    return Values(description, draw, mean, s2, mean - mean**2 - s2)


def beta(a: float, b: float) -> Values:
    """Values ~ Beta(a, b), a and b greater than 0."""
    mean, s2 = a / (a + b), a * b / ((a + b) ** 2 * (a + b + 1))
    return _values(f"values Beta({a:g}, {b:g})", lambda g, shape: g.beta(a, b, shape), mean, s2)


def two_point(low: float, high: float, share: float) -> Values:
    """Values that are `high` with probability `share`, else `low`."""
    points, shares = np.array([high, low], dtype=np.float64), (share, 1 - share)
    mean, s2 = share * high + (1 - share) * low, share * (1 - share) * (high - low) ** 2
    words = f"values {low:g} or {high:g} (share {share:g})"
    return _values(words, lambda g, shape: g.choice(points, shape, p=shares), mean, s2)


def normal(mean: float, std: float) -> Values:
    """Values ~ N(mean, std^2), for Gaussian rewards."""
    draw: Draw = lambda g, shape: mean + std * g.standard_normal(shape)  # noqa: E731
    return _values(f"values N({mean:g}, {std:g}^2)", draw, mean, std**2)


def gaussian_rewards(values: Values, noise: float) -> Values:
    """The same values with Gaussian rewards of this standard deviation around them."""
    words = f"{values.description}, noise {noise:g}"
    draw: Draw = lambda g, shape: np.full(shape, noise)  # noqa: E731
    return replace(values, description=words, sigma2=noise**2, noise=draw)


KINDS: dict[str, Callable[..., Values]] = {
    "beta:A,B": beta,
    "two_point:LOW,HIGH,SHARE": two_point,
    "normal:MEAN,STD": normal,
}


def parse(text: str) -> Values:
    """The distribution that a flag names, with Bernoulli rewards."""
    kind, _, rest = text.partition(":")
    try:
        numbers = [float(number) for number in rest.split(",") if rest]
        found = {form.partition(":")[0]: make for form, make in KINDS.items()}[kind](*numbers)
    except (KeyError, ValueError, TypeError, ZeroDivisionError):
        raise ValueError(f"no values {text!r}; give one of {' '.join(KINDS)}") from None
    if not (isfinite(found.mean) and 0 <= found.s2 < inf):
        raise ValueError(f"{found.title} have no mean or variance; give other numbers")
    return found


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
    lacking = left_out(2, visits > 0, greedy=False)
    return tuple(name for name in ESTIMATORS if name not in lacking)


def simulate(
    values: Values, n: int, responses: Sequence[int], rounds: int, seed: int, visits: int = 0
) -> LabResult:
    """Squared errors of every baseline in `rounds` batches of n prompts, for every m.

    js_memory knows the mean reward of `visits` earlier ones with m responses each.
    """
    found, rows, names = [], [], names_of(visits)
    with progress("simulating", rounds * len(responses), "batches") as bar:
        for m in responses:
            errors, shrinkage = measure(values, n, m, rounds, seed, bar.advance, visits)
            found.append((errors, shrinkage))
            reference = errors[names.index(REFERENCE)]
            for name, own, coefficient in zip(names, errors, shrinkage, strict=True):
                quantities = {
                    "mse": clustered_mean(own),
                    "reduction_percent": results.reduction(own, reference),
                    "shrinkage": coefficient.mean(),
                }
                rows += results.rows_of(quantities, m=m, estimator=name)
    arrays = {
        "m": np.array(responses),
        "estimators": np.array(names),
        "squared_errors": np.stack([errors for errors, _ in found]),
        "shrinkage": np.stack([shrinkage for _, shrinkage in found]),
    }
    notes = {
        "title": values.title,
        "gradients": {name: results.gradient_of(name) for name in names},
        "left_out": left_out(2, visits > 0, greedy=False),
        **{"batch_prompts": n, "batches": rounds},
        "values": {"mean": values.mean, "s2": values.s2, "sigma2": values.sigma2},
    }
    finding = f"{values.title}, {n} prompts: {error_finding(rows, 'batches')}"
    return LabResult(rows, finding, arrays, notes)


def measure(
    values: Values,
    n: int,
    m: int,
    rounds: int,
    seed: int,
    advance: Advance = lambda more: None,
    visits: int = 0,
) -> tuple[Floats, Floats]:
    """Mean squared errors (e, b) of `names_of` in each batch, and mean coefficients (e, b)."""
    names = names_of(visits)
    if m < 2:
        raise ValueError(f"m = {m}: give 2 or more")
    if values.sigma2 <= 0:
        raise ValueError(f"with {values.title} every reward equals its value: there is no error")
    generator = np.random.default_rng([seed, n, m])
    best, nothing = best_coefficient(values, n, m), torch.zeros(n, dtype=torch.float64)

    def run(rewards: Tensor, value: Tensor) -> Tensor:
        now, past = rewards[:, :m], rewards[:, m:].mean(1) if visits else None
        return squared(names, now, value, nothing, nothing, shrinkage=best, past=past).mean(1)

    at_once, found = max(1, CHUNK_REWARDS // (n * m)), []
    for start in range(0, rounds, at_once):
        each = m * (1 + visits), min(at_once, rounds - start)
        value, rewards = draw(values, generator, n, *each)
        found.append(torch.vmap(run)(torch.from_numpy(rewards), torch.from_numpy(value)).numpy())
        advance(len(value))
    every = np.concatenate(found).T
    return every[: len(names)], every[-len(names) :]


def draw(
    values: Values, generator: np.random.Generator, n: int, m: int, batches: int
) -> tuple[Floats, Floats]:
    """Values (batches, n) of as many prompts, and rewards (batches, n, m) around them."""
    value = values.draw(generator, (batches, n))
    shape = (batches, n, m)
    if values.noise is None:
        if value.min() < 0 or value.max() > 1:
            raise ValueError(f"{values.title}: a value is a probability from 0 to 1; give --noise")
        return value, (generator.random(shape) < value[..., None]).astype(np.float64)
    std = values.noise(generator, (batches, n))
    return value, value[..., None] + std[..., None] * generator.standard_normal(shape)
