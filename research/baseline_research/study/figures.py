"""The figures that either engine measures for a run."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

MAX_CURVE_POINTS = 20
ROUNDING = 1e-5  # rounding of the log's float32 numbers


class Figures(NamedTuple):
    """The figures of one run; None if not measured."""

    pass1: float
    """After training, on the held-out prompts."""
    reward: float
    """Mean over the steps."""
    curve: list[float]
    """Rewards over equal stretches of the steps."""
    steps: int
    dead: float | None
    """Share of the groups with equal rewards."""
    baseline_error: float | None
    """Mean squared error of the baseline, over that of rloo's."""
    gradient_variance: float | None
    gradient_snr: float | None
    """Squared norm of the mean gradient over the variance."""
    pass4: float | None = None
    pass16: float | None = None
    """As pass1; None with fewer samples, or where a response may earn a part of the reward."""
    greedy: float | None = None
    """Mean reward of the greedy responses to the held-out prompts, after training."""
    length: float | None = None
    """Mean tokens of a response, late in training."""
    entropy: float | None = None
    """Of the policy at the sampled tokens, in nats per token, late in training."""
    rewards_in_unit: bool = True
    """Whether every reward may lie in [0, 1]."""


def may_be_in_unit(mean: float, deviation: float, count: int) -> bool:
    """Whether `count` rewards with this mean and standard deviation may all lie in [0, 1].

    In [0, 1], r^2 <= r, so the variance is at most mean (1 - mean) count / (count - 1).
    """
    if not 0 <= mean <= 1:
        return False
    greatest_variance = mean * (1 - mean) * count / max(count - 1, 1)
    return deviation**2 <= greatest_variance + ROUNDING


def learning_curve(rewards: Sequence[float]) -> list[float]:
    """Means over equal stretches of the steps."""
    points = min(MAX_CURVE_POINTS, len(rewards))
    curve = []
    for point in range(points):
        begin = round(point * len(rewards) / points)
        end = round((point + 1) * len(rewards) / points)
        curve.append(round(fmean(rewards[begin:end]), 4))
    return curve
