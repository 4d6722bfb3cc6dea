"""Distributions of prompts that baselines are compared on: their values, and rewards about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Array = NDArray[np.float64]
Generator = np.random.Generator
Draw = Callable[[Generator, tuple[int, ...]], Array]
Rewards = Callable[[Generator, Array, int], Array]

NORMAL: Draw = lambda g, shape: g.standard_normal(shape)  # noqa: E731
STUDENT: Draw = lambda g, shape: g.standard_t(3, shape) / 3**0.5  # noqa: E731
SAME: Draw = lambda g, shape: np.ones(shape)  # noqa: E731
LOGNORMAL: Draw = lambda g, shape: np.exp(0.8 * g.standard_normal(shape) - 0.64)  # noqa: E731


class Prompts(NamedTuple):
    """A distribution of prompts."""

    title: str
    values: Draw
    rewards: Rewards
    """(..., m) rewards of prompts with the values (...)."""


def binary(g: Generator, values: Array, m: int) -> Array:
    """Rewards 0 and 1."""
    return (g.random((*values.shape, m)) < values[..., None]).astype(float)


def noisy(noise: Draw, std: Draw = SAME) -> Rewards:
    """Rewards that are the value and noise of variance 1, or of a standard deviation by prompt."""
    return lambda g, values, m: (
        values[..., None] + std(g, (*values.shape, 1)) * noise(g, (*values.shape, m))
    )


def constant(value: float) -> Draw:
    return lambda g, shape: np.full(shape, value)


def beta(a: float, b: float) -> Draw:
    return lambda g, shape: g.beta(a, b, shape)


def normal(variance: float, draw: Draw = NORMAL) -> Draw:
    return lambda g, shape: variance**0.5 * draw(g, shape)


def mixture(usual: Draw, rare: Draw, share: float) -> Draw:
    """The rare kind with this probability."""
    return lambda g, shape: np.where(g.random(shape) < share, rare(g, shape), usual(g, shape))


def two_point(usual: float, rare: float, share: float) -> Draw:
    return mixture(constant(usual), constant(rare), share)


BINARY: dict[str, Draw] = {
    "every value 0.5": constant(0.5),
    "every value 0.1": constant(0.1),
    "Beta(20, 20)": beta(20, 20),
    "Beta(5, 2)": beta(5, 2),
    "Beta(2, 2)": beta(2, 2),
    "Beta(1, 1)": beta(1, 1),
    "Beta(0.5, 0.5)": beta(0.5, 0.5),
    "logits N(-1, 1.5^2)": lambda g, shape: expit(-1 + 1.5 * g.standard_normal(shape)),
    "0.1, and 30 % 0.9": two_point(0.1, 0.9, 0.3),
    "0.05, and 10 % 0.95": two_point(0.05, 0.95, 0.1),
    "0.02, and 5 % 0.9": two_point(0.02, 0.9, 0.05),
    "0, and 20 % Beta(1, 3)": mixture(constant(0), beta(1, 3), 0.2),
}
DISTRIBUTIONS = (
    *(Prompts(title, values, binary) for title, values in BINARY.items()),
    Prompts("Gaussian, s2 = sigma^2", normal(1.0), noisy(NORMAL)),
    Prompts("Gaussian, s2 = 4 sigma^2", normal(4.0), noisy(NORMAL)),
    Prompts("values Student t(3), s2 = sigma^2", normal(1.0, STUDENT), noisy(NORMAL)),
    Prompts("noise std lognormal, s2 = sigma^2 / 4", normal(0.25), noisy(NORMAL, LOGNORMAL)),
)
SHARES = (0.02, 0.05, 0.1, 0.2, 0.4)
KINDS = (
    *((0.02, 0.9), (0.02, 0.5), (0.02, 0.2), (0.1, 0.9), (0.1, 0.5)),
    *((0.3, 0.7), (0.5, 0.95), (0.5, 0.8)),
)
DISTANCES = (1.0, 2.0, 4.0, 8.0)  # in standard deviations of a reward
ADVERSARIES = (
    *(
        Prompts(f"{usual}, and {share:.0%} {rare}", two_point(usual, rare, share), binary)
        for usual, rare in KINDS
        for share in SHARES
    ),
    *(
        Prompts(f"N(0, 1), and {share:.0%} N({rare}, 1)", two_point(0, rare, share), noisy(NORMAL))
        for rare in DISTANCES
        for share in SHARES
    ),
    Prompts("values and noise Student t(3)", normal(1.0, STUDENT), noisy(STUDENT)),
)
# Most prompts have no noise at all, and where the others show none, no rule knows of any.
SILENT = tuple(
    Prompts(f"0, and {share:.0%} {rare}", two_point(0, rare, share), binary)
    for rare in (0.2, 0.5, 0.9)
    for share in SHARES
)
