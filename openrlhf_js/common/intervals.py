"""95 % intervals of means of clustered rows, with Student's t.

A cluster is what was drawn independently, such as a prompt with all its pairs.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

CONFIDENCE = 0.95
ROUNDING = 1e-12  # a smaller standard error is that of equal shares


class Interval(NamedTuple):
    """A mean with the ends of its interval, which are None for a single cluster."""

    value: float
    low: float | None
    high: float | None


def mean_interval(values: ArrayLike, clusters: NDArray[Any] | None = None) -> Interval:
    """The mean of all rows, y +- t s, with the jackknife error s by cluster.

    With C clusters and the mean y_(-c) of the rows outside cluster c,

        s^2 = (C - 1) / C sum_c (y - y_(-c))^2

    and t is the quantile for C - 1 degrees of freedom. With one row a cluster this is the textbook
    interval.

    Args:
        values: (rows,) finite.
        clusters: (rows,) labels; None: each row is its own cluster.
    """
    value, error, count = _jackknife(values, clusters)
    if count < 2:
        return Interval(value, None, None)
    half = _t_quantile(count - 1) * error
    return Interval(value, value - half, value + half)


def share_interval(values: ArrayLike, clusters: NDArray[Any] | None = None) -> Interval:
    """The mean of values in [0, 1], with an interval that stays there.

    Wilson's interval (JASA 22, 1927). The number of trials is y (1 - y) / s^2: so many independent
    trials would have the variance of `mean_interval`, whose t quantile is used, too. If all
    clusters have the same share, it is their number, with the normal distribution's quantile.
    """
    value, error, count = _jackknife(values, clusters)
    share = min(max(value, 0.0), 1.0)
    if count < 2:
        return Interval(share, 0.0, 1.0)
    spread = share * (1 - share)
    differ = error > ROUNDING
    trials = spread / error**2 if differ else count
    z = _t_quantile(count - 1 if differ else math.inf)
    shrink = z**2 / trials
    centre = (share + shrink / 2) / (1 + shrink)
    half = math.sqrt(shrink * (spread + shrink / 4)) / (1 + shrink)
    low = 0.0 if share == 0 else max(centre - half, 0.0)
    high = 1.0 if share == 1 else min(centre + half, 1.0)
    return Interval(share, low, high)


def _jackknife(values: ArrayLike, clusters: NDArray[Any] | None) -> tuple[float, float, int]:
    """The mean of the rows, its standard error, and the number of clusters."""
    rows = np.asarray(values, dtype=np.float64)
    labels = np.arange(len(rows)) if clusters is None else clusters
    names, numbers = np.unique(labels, return_inverse=True)
    count = len(names)
    origin = rows[0]  # equal values then differ by exactly 0
    sizes = np.bincount(numbers, minlength=count)
    sums = np.bincount(numbers, weights=rows - origin, minlength=count)
    mean = sums.sum() / sizes.sum()
    if count < 2:
        return float(origin + mean), math.inf, count
    left_out = (sums - mean * sizes) / (sizes.sum() - sizes)  # y - y_(-c)
    error = math.sqrt((count - 1) / count * float(np.square(left_out).sum()))
    return float(origin + mean), error, count


def _t_quantile(degrees: float) -> float:
    from scipy import special  # slow to load

    return float(special.stdtrit(degrees, (1 + CONFIDENCE) / 2))
