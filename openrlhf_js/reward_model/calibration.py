"""Do the margins of a reward model mean the probabilities that Bradley and Terry give them?

A margin is the reward of the chosen response less that of the rejected one. The model says that the
response with the larger reward is preferred with confidence sigmoid(|margin|), from 1/2 to 1, and
it is right where the margin is positive.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

Floats = NDArray[np.float64]
BINS = 15
LEAST_PER_BIN = 20  # pairs; fewer bins where there are not so many


class Bin(NamedTuple):
    """Pairs of similar confidence.

    Attributes:
        confidence: mean of sigmoid(|margin|), in [1/2, 1].
        accuracy: share of the pairs whose chosen response has the larger reward; a tie is a half.
        pairs: how many they are.
    """

    confidence: float
    accuracy: float
    pairs: int


def hits(margins: Floats) -> Floats:
    """1 where the chosen response has the larger reward, 1/2 where both have the same, else 0."""
    return np.heaviside(margins, 0.5)


def reliability(margins: Floats, bins: int = BINS) -> list[Bin]:
    """Confidence and accuracy in bins of as many pairs each, the least confident first.

    Args:
        margins: (pairs,) at least one.
        bins: at most so many, each of at least `LEAST_PER_BIN` pairs.
    """
    confidence = expit(np.abs(margins))
    right = hits(margins)
    order = np.argsort(confidence, kind="stable")
    count = max(1, min(bins, len(margins) // LEAST_PER_BIN))
    return [
        Bin(float(confidence[part].mean()), float(right[part].mean()), len(part))
        for part in np.array_split(order, count)
    ]


def calibration_error(bins: list[Bin]) -> float:
    """ECE, the mean distance of confidence and accuracy over bins, weighted by pairs; in [0, 1].

    Adaptive bins are those of Nguyen and O'Connor (2015), "Posterior calibration and exploratory
    analysis for natural language processing models".
    """
    total = sum(each.pairs for each in bins)
    return sum(each.pairs * abs(each.confidence - each.accuracy) for each in bins) / total


def error_by_chance(margins: Floats, bins: int = BINS) -> float:
    """The mean ECE of a model whose confidences are exact, on as many independent pairs.

    A bin's accuracy is then normal about its confidence, and the mean distance of a normal variable
    from its mean is sqrt(2/pi) standard deviations.
    """
    confidence = np.sort(expit(np.abs(margins)))
    count = max(1, min(bins, len(margins) // LEAST_PER_BIN))
    noise = [float((part * (1 - part)).sum()) for part in np.array_split(confidence, count)]
    return float(np.sqrt(2 / np.pi * np.array(noise)).sum()) / len(margins)


def log_loss(margins: Floats) -> float:
    """Mean of -log sigmoid(margin), in nats: what reward training makes small; log 2 by chance."""
    return float(np.logaddexp(0, -margins).mean())


def temperature(margins: Floats) -> float | None:
    """The T with the least log loss of margin / T: above 1, the model is too sure of itself.

    Guo et al. (2017), "On calibration of modern neural networks".

    Returns:
        T, or None where there is no best one: no margin is negative, so that ever smaller T are
        better, or the mean margin is not positive, so that ever larger ones are.
    """
    scale = float(np.abs(margins).max())
    if scale == 0 or margins.min() >= 0 or margins.mean() <= 0:
        return None
    unit = margins / scale

    def slope(sharpness: float) -> float:
        """Of the mean log likelihood, which is concave in 1 / T."""
        return float((unit * expit(-sharpness * unit)).mean())

    above = 1.0
    while slope(above) > 0:
        above *= 2
    return scale / float(brentq(slope, 0.0, above, xtol=1e-12 * above))
