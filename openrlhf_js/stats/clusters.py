"""Sums by cluster, and what each cluster adds to the error of a ratio of two sums.

A cluster is what was drawn independently: a question, an item, a prompt. Its rows (samples, games,
pairs) are not independent of each other. Axes: C clusters, the last one; whatever stands before it
is a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openrlhf_js.stats.estimate import Floats

Labels = Sequence[Any] | NDArray[Any]


def checked(values: ArrayLike, name: str = "values") -> Floats:
    """The values as an array of finite floats with one axis.

    Raises:
        ValueError: not one axis, empty, or a value that is not finite.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must be one row of numbers, not empty; got shape {array.shape}")
    finite = np.isfinite(array)
    if not finite.all():
        row = int((~finite).argmax())
        raise ValueError(f"{name} must be finite; number {row} is {array[row]}: leave its row out")
    return array


def checked_weights(weights: ArrayLike | None, count: int, name: str = "weights") -> Floats:
    """The weights as an array; ones where there are none.

    Raises:
        ValueError: not one weight a row, a negative one, or nothing but zeros.
    """
    if weights is None:
        return np.ones(count)
    array = checked(weights, name)
    if len(array) != count:
        raise ValueError(f"{name} must be one a row: got {len(array)} for {count} rows")
    if array.min() < 0 or array.max() == 0:
        raise ValueError(f"{name} must be 0 or more, and not all 0; the least is {array.min()}")
    return array


def codes(labels: Labels | None, count: int, name: str = "clusters") -> tuple[NDArray[Any], int]:
    """Number the labels: (rows,) from 0 on, and how many there are. None: each row its own.

    Raises:
        ValueError: not one label a row.
    """
    if labels is None:
        return np.arange(count), count
    array = np.asarray(labels)
    if array.shape != (count,):
        raise ValueError(f"{name} must be one label a row: got {array.shape} for {count} rows")
    names, numbers = np.unique(array, return_inverse=True)
    return numbers, len(names)


def add_up(values: Floats, numbers: NDArray[Any], count: int) -> Floats:
    """Sum the values of each cluster, (C,)."""
    return np.bincount(numbers, weights=values, minlength=count).astype(np.float64)


def influences(sums: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return the ratio of two totals, and what each cluster adds to its error.

    With cluster totals S_c and W_c, W = sum W_c and the leverage h_c = W_c / W:

        y = sum S_c / W        y - y_(-c) = (S_c - y W_c) / (W (1 - h_c))        without cluster c
        u_c = sqrt((C - 1) / C) (y - y_(-c))        Var y = sum u_c^2

    This is the jackknife by cluster; for equal clusters it is the textbook variance of a mean. It
    does not lose what large clusters add, as the residuals S_c - y W_c do, towards which they pull
    y. In simulations with unequal clusters it covers best of all the usual corrections: MacKinnon,
    Nielsen and Webb, "Fast and reliable jackknife and bootstrap methods for cluster-robust
    inference" (Journal of Applied Econometrics 38, 2023).

    Args:
        sums: (..., C) totals S_c.
        weights: (..., C) totals W_c, 0 or more. A cluster of weight 0 does not count.

    Returns:
        The ratio (...), and u (..., C). u is 0 where one cluster holds all the weight.
    """
    total = weights.sum(-1, keepdims=True)
    count = (weights > 0).sum(-1, keepdims=True)
    value = sums.sum(-1, keepdims=True) / total
    others = 1 - weights / total
    left_out = (sums - value * weights) / (total * np.where(others > 0, others, 1))
    influence = np.where(others > 0, np.sqrt((count - 1) / count) * left_out, 0.0)
    return value[..., 0], influence


def degrees_of_freedom(weights: Floats) -> Floats:
    """Return the degrees of freedom of the variance of `influences`; 0 for a single cluster.

    A variance estimate is a quadratic form S' K S in the cluster totals. Satterthwaite's
    approximation takes the chi-square with the same first two moments, which has
    (tr K D)^2 / tr (K D K D) degrees of freedom for totals with covariance D. As Bell and McCaffrey
    do ("Bias reduction in standard errors for linear regression with multi-stage samples", Survey
    Methodology 28, 2002), K is that of residuals divided by sqrt(1 - h_c), and D that of rows which
    are independent and alike: diag W_c. For C equal clusters the answer is C - 1, and less the more
    unequal they are.

    Args:
        weights: (..., C) totals W_c, 0 or more.
    """
    total = weights.sum(-1, keepdims=True)
    h = weights / total
    present = (weights > 0).sum(-1)
    inverse = 1 / np.where(h < 1, 1 - h, 1)  # K = diag(inverse) - a 1' - 1 a' + k 11'
    a = inverse * h
    k = (a * h).sum(-1, keepdims=True)
    trace = (h * (inverse - 2 * a + k)).sum(-1)
    off_diagonal = k[..., 0] ** 2 + 2 * (h * a * a).sum(-1) + 2 * (h * a).sum(-1) ** 2
    off_diagonal -= 4 * k[..., 0] * (h * a).sum(-1)
    diagonal = (h * h * ((inverse - 2 * a + k) ** 2 - (k - 2 * a) ** 2)).sum(-1)
    single = present < 2
    degrees = trace**2 / np.where(single, 1, off_diagonal + diagonal)
    return np.where(single, 0.0, np.maximum(degrees, 1))
