"""What is measured of a run, by either engine."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

MAX_CURVE_POINTS = 20


class Figures(NamedTuple):
    """Of one run; None where it was not measured."""

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
    """As pass1, with `--samples 0`: from the probability of each prompt's right response."""
    length: float | None = None
    """Mean tokens of a response, late in training."""
    entropy: float | None = None
    """Of the policy at the sampled tokens, in nats a token, late in training."""


def learning_curve(rewards: Sequence[float]) -> list[float]:
    """Means over equal stretches of the steps."""
    points = min(MAX_CURVE_POINTS, len(rewards))
    curve = []
    for point in range(points):
        begin = round(point * len(rewards) / points)
        end = round((point + 1) * len(rewards) / points)
        curve.append(round(fmean(rewards[begin:end]), 4))
    return curve
