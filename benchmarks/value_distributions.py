"""Value distributions of prompts that the baselines are compared on, and draws from them."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np

from openrlhf_js.lab.values import Draw, Values, beta, constant, logit_normal, two_point


def gaussian(title: str, s2: float, effect: Draw, noise: Draw) -> Values:
    """`effect` has mean 0 and variance 1; `noise` has mean square 1."""
    scale = s2**0.5
    return Values(
        title, lambda g, shape: scale * effect(g, shape), 0.0, s2, 1.0, noise, low=-inf, high=inf
    )


def sampled(values: Values) -> Values:
    """The same with the moments of a sample, which the tables of docs/js_plus_mse.md rest on."""
    value = values.draw(np.random.default_rng(0), (2000, 2000))
    return replace(values, mean=value.mean(), s2=value.var(), sigma2=(value * (1 - value)).mean())


def draw_groups(
    values: Values, shape: tuple[int, ...], m: int | np.ndarray, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Means and unbiased variances of the rewards of prompt groups, without drawing the rewards.

    Args:
        values: of the prompts.
        shape: of the groups.
        m: responses of each group, broadcastable to the shape.
        generator: of the draws.
    """
    mu = values.draw(generator, shape)
    if values.noise is None:
        mean = generator.binomial(m, mu) / m
        return mean, mean * (1 - mean) * m / (m - 1)
    std = values.noise(generator, shape)
    mean = mu + std * generator.standard_normal(shape) / m**0.5
    return mean, std**2 * generator.chisquare(m - 1, shape) / (m - 1)


def _normal(g: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return g.standard_normal(shape)


def _one(g: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.ones(shape)


BETAS = (beta(0.5, 0.5), beta(2, 2))
DISTRIBUTIONS = (
    *BETAS,
    beta(1, 1),
    beta(5, 2),
    sampled(logit_normal(-1, 1.5)),
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
