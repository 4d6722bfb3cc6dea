"""Value distributions of prompts that the baselines are compared on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


@dataclass(frozen=True)
class Values:
    """A distribution of prompts: rewards are Bernoulli, or Gaussian where `noise` is given."""

    title: str
    draw: Draw
    mean: float
    s2: float
    """Variance of the values."""
    sigma2: float
    """Mean variance of the rewards of a prompt."""
    noise: Draw | None = None
    """Standard deviation of each prompt's rewards."""


def bernoulli(title: str, draw: Draw) -> Values:
    value = draw(np.random.default_rng(0), (2000, 2000))
    return Values(title, draw, value.mean(), value.var(), (value * (1 - value)).mean())


def beta(a: float, b: float) -> Values:
    mean, s2 = a / (a + b), a * b / ((a + b) ** 2 * (a + b + 1))
    title = f"Bernoulli, values Beta({a:g}, {b:g})"
    return Values(title, lambda g, shape: g.beta(a, b, shape), mean, s2, mean - mean**2 - s2)


def two_point(low: float, high: float, share: float) -> Values:
    mean, s2 = low + share * (high - low), share * (1 - share) * (high - low) ** 2
    return Values(
        f"Bernoulli, values {low:g} or {high:g} (share {share:g})",
        lambda g, shape: np.where(g.random(shape) < share, high, low),
        mean,
        s2,
        mean - mean**2 - s2,
    )


def constant(value: float) -> Values:
    title = f"Bernoulli, every value {value:g}"
    return Values(title, lambda g, shape: np.full(shape, value), value, 0.0, value * (1 - value))


def gaussian(title: str, s2: float, effect: Draw, noise: Draw) -> Values:
    """`effect` has mean 0 and variance 1; `noise` has mean square 1."""
    scale = s2**0.5
    return Values(
        f"Gaussian, {title}", lambda g, shape: scale * effect(g, shape), 0.0, s2, 1.0, noise
    )


def _normal(g: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return g.standard_normal(shape)


def _one(g: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return np.ones(shape)


BETAS = (beta(0.5, 0.5), beta(2, 2))
DISTRIBUTIONS = (
    *BETAS,
    beta(1, 1),
    beta(5, 2),
    bernoulli(
        "Bernoulli, logits N(-1, 1.5^2)",
        lambda g, shape: 1 / (1 + np.exp(1 - 1.5 * _normal(g, shape))),
    ),
    two_point(0.1, 0.9, 0.3),
    two_point(0.05, 0.95, 0.1),
    constant(0.1),
    constant(0.5),
    gaussian("s2 = sigma^2", 1.0, _normal, _one),
    gaussian("s2 = 4 sigma^2", 4.0, _normal, _one),
    gaussian(
        "s2 = sigma^2, values Student t(3)", 1.0, lambda g, s: g.standard_t(3, s) / 3**0.5, _one
    ),
    gaussian(
        "s2 = sigma^2 / 4, noise std lognormal (0.8)",
        0.25,
        _normal,
        lambda g, s: np.exp(0.8 * _normal(g, s) - 0.64),
    ),
)
