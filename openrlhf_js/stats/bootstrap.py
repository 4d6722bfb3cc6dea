"""The bootstrap by cluster, for statistics that have no formula.

A resample draws C clusters of C with replacement, all rows of a cluster together. A statistic of
sums over rows needs only how often each cluster was drawn: `counts @ sums`, one matrix product for
all rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from openrlhf_js.stats.estimate import CONFIDENCE, Estimate, Floats

Seed: TypeAlias = int | np.random.Generator
Statistic: TypeAlias = Callable[[Floats], Floats]

CHUNK_NUMBERS = 2_000_000  # counts held at a time: 16 MB
STEP = 1e-5  # of a sum's size: the cube root of the precision, best for central differences


def counts(clusters: int, rounds: int, seed: Seed) -> Iterator[Floats]:
    """Yields how often each cluster is drawn in each round, in pieces (some rounds, C).

    The draws do not depend on the size of the pieces.
    """
    generator, equal = np.random.default_rng(seed), np.full(clusters, 1 / clusters)
    at_once = max(1, CHUNK_NUMBERS // clusters)
    for start in range(0, rounds, at_once):
        size = min(at_once, rounds - start)
        yield generator.multinomial(clusters, equal, size).astype(np.float64)


def bootstrap_interval(
    sums: Floats, statistic: Statistic, *, seed: Seed, rounds: int = 2000
) -> Estimate:
    """The statistic of all rows, with its studentized 95 % bootstrap interval by cluster.

    Quantiles of (statistic - value) / error over resamples, each with an error of its own by the
    delta method. Coverage with 10 and with 40 clusters, for means of values that are
    exponential, t with 3 degrees of freedom and log-normal: 94, 92, 91 % and 94, 93, 93 %.

    Args:
        sums: (C, k) by cluster. One cluster alone bounds nothing.
        statistic: smooth; takes sums over rows (..., k) and returns (...), such as
            `lambda total: total[..., 0] / total[..., 1]`.
        seed: a number or a generator.
        rounds: number of resamples.

    Raises:
        ValueError: the statistic is not finite, in all rows or in a resample.
    """
    value = float(statistic(sums.sum(0)))
    if len(sums) < 2:
        return Estimate(value, -math.inf, math.inf)
    values, errors = [], []
    for drawn in counts(len(sums), rounds, seed):
        totals = drawn @ sums
        values.append(statistic(totals))
        errors.append(_standard_error(drawn, totals, sums, statistic))
    found = np.concatenate(values)
    if not math.isfinite(value) or not np.isfinite(found).all():
        raise ValueError("the statistic is not finite in all resamples; does it divide by 0?")
    once = np.ones((1, len(sums)))
    error = float(_standard_error(once, sums.sum(0, keepdims=True), sums, statistic)[0])
    if error == 0:
        return Estimate(value, value, value)
    distance = found - value
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(distance == 0, 0.0, distance / np.concatenate(errors))
    # Not interpolated: between an infinite draw and its neighbour there is no number.
    levels = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
    low, high = np.quantile(ratios, levels, method="inverted_cdf")
    return Estimate(value, float(value - high * error), float(value - low * error))


def _standard_error(counts: Floats, totals: Floats, sums: Floats, statistic: Statistic) -> Floats:
    """(rounds,) C / (C - 1) sum_c m_c (g (s_c - mean s))^2, g the gradient at the totals."""
    clusters, k = sums.shape
    size = np.abs(sums).sum(0)
    shifts = np.diag(STEP * np.where(size > 0, size, 1))
    gradient = np.stack(
        [
            (statistic(totals + shift) - statistic(totals - shift)) / (2 * shift[number])
            for number, shift in enumerate(shifts)
        ],
        axis=-1,
    )
    centred = sums - sums.mean(0)
    products = (centred[:, :, None] * centred[:, None, :]).reshape(clusters, k * k)
    mean = counts @ centred / clusters
    second = (counts @ products).reshape(-1, k, k) - clusters * mean[:, :, None] * mean[:, None, :]
    along = np.einsum("ri,rij,rj->r", gradient, second, gradient)
    # What rounding leaves of a variance of 0 is no variance.
    floor = 1e-12 * np.einsum("ri,ij,rj->r", gradient, centred.T @ centred, gradient)
    return np.sqrt(clusters / (clusters - 1) * np.where(along > floor, along, 0))
