"""Value distributions that baselines are compared on, and their prompt groups, many at a time."""

from __future__ import annotations

import numpy as np
import torch
from scipy import special
from torch import Tensor

from openrlhf_js.estimators import GroupStatistics
from openrlhf_js.estimators.group_stats import ratio
from openrlhf_js.lab.simulate import Draw, Values, beta, two_point


def gaussian(title: str, s2: float, effect: Draw, noise: Draw) -> Values:
    """`effect` has mean 0 and variance 1; `noise` has mean square 1."""
    scale = s2**0.5
    return Values(title, lambda g, s: scale * effect(g, s), 0.0, s2, 1.0, noise)


def constant(value: float) -> Values:
    """The same value for every prompt."""
    draw: Draw = lambda g, shape: g.choice(np.array([value]), shape)  # noqa: E731
    return Values(f"every value {value:g}", draw, value, 0.0, value * (1 - value))


def logit_normal(mean: float, std: float) -> Values:
    """Values 1 / (1 + exp(-z)) with z ~ N(mean, std^2), and the moments of a sample of them."""
    draw: Draw = lambda g, shape: special.expit(mean + std * g.standard_normal(shape))  # noqa: E731
    value = draw(np.random.default_rng(0), (2000, 2000))
    moments = value.mean(), value.var(), (value * (1 - value)).mean()
    return Values(f"logits N({mean:g}, {std:g}^2)", draw, *moments)


NORMAL: Draw = lambda g, shape: g.standard_normal(shape)  # noqa: E731
STUDENT: Draw = lambda g, shape: g.standard_t(3, shape) / 3**0.5  # noqa: E731
SAME: Draw = lambda g, shape: np.ones(shape)  # noqa: E731
LOGNORMAL: Draw = lambda g, shape: np.exp(0.8 * g.standard_normal(shape) - 0.64)  # noqa: E731
DISTRIBUTIONS = (
    *(beta(a, b) for a, b in ((0.5, 0.5), (2, 2), (1, 1), (5, 2))),
    logit_normal(-1, 1.5),
    two_point(0.1, 0.9, 0.3),
    two_point(0.05, 0.95, 0.1),
    constant(0.1),
    constant(0.5),
    gaussian("s2 = sigma^2", 1.0, NORMAL, SAME),
    gaussian("s2 = 4 sigma^2", 4.0, NORMAL, SAME),
    gaussian("s2 = sigma^2, values Student t(3)", 1.0, STUDENT, SAME),
    gaussian("s2 = sigma^2 / 4, noise std lognormal (0.8)", 0.25, NORMAL, LOGNORMAL),
)


def draw_groups(
    values: Values, shape: tuple[int, ...], m: int | np.ndarray, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Means and unbiased variances of prompt groups of m responses, without drawing the rewards."""
    mu = values.draw(generator, shape)
    if values.noise is None:
        mean = generator.binomial(m, mu) / m
        return mean, mean * (1 - mean) * m / (m - 1)
    std = values.noise(generator, shape)
    mean = mu + std * generator.standard_normal(shape) / m**0.5
    return mean, std**2 * generator.chisquare(m - 1, shape) / (m - 1)


def statistics_of(mean: Tensor, variance: Tensor, m: Tensor) -> GroupStatistics:
    """`group_statistics` of many batches, from the prompts' means and variances (batches, n)."""
    p = mean.shape[1] - 1
    center = mean.mean(1, keepdim=True)
    deviation = mean - center
    squares = deviation.square()
    between = (squares.sum(1, keepdim=True) - squares) / p - (deviation / p).square()
    sigma2 = (variance.sum(1, keepdim=True) - variance).clamp(min=0) / p
    v = sigma2 / m
    return GroupStatistics(
        prompt_mean=mean,
        loo_prompt_mean=torch.empty(0),  # of single responses, which are not drawn
        loo_batch_mean=center - deviation / p,
        within_variance=v,
        between_variance=between.clamp(min=0),
        shrinkage=p / (p + 1) * ratio(v, v + between.clamp(min=0)),
        reward_variance=variance,
        other_reward_variance=sigma2,
        valid_responses=m,
        other_prompts=torch.full_like(m, p),
    )
