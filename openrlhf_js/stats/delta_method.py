"""Standard errors of smooth functions of sums over clusters."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from openrlhf_js.stats.clusters import Labels, codes
from openrlhf_js.stats.estimate import Floats

STEP = 1e-5  # of a sum's size: the cube root of the precision, best for central differences


def standard_error(
    counts: Floats,
    totals: Floats,
    sums: Floats,
    statistic: Callable[[Floats], Floats],
    strata: Labels | None = None,
) -> Floats:
    """Return the standard error of the statistic of each resample, (rounds,).

    With g the gradient at the totals and s_c the sums of cluster c, drawn m_c times,

        Var = sum_strata S / (S - 1) sum_c m_c (g (s_c - mean s))^2        S clusters in a stratum

    which needs no more than the second moments of the sums: one matrix product for all rounds. The
    gradient is taken by central differences.

    Args:
        counts: (rounds, C) how often each cluster was drawn.
        totals: (rounds, k) counts @ sums.
        sums: (C, k).
        statistic: takes sums over rows (..., k) and returns (...).
        strata: a label a cluster. A stratum of one cluster adds nothing.
    """
    k = sums.shape[1]
    size = np.abs(sums).sum(0)
    shifts = np.diag(STEP * np.where(size > 0, size, 1))
    gradient = np.stack(
        [
            (statistic(totals + shift) - statistic(totals - shift)) / (2 * shift[number])
            for number, shift in enumerate(shifts)
        ],
        axis=-1,
    )
    stratum, number = codes([0] * len(sums) if strata is None else strata, len(sums), "strata")
    variance = np.zeros(len(counts))
    for own in (stratum == each for each in range(number)):
        width = int(own.sum())
        if width < 2:
            continue
        centred = sums[own] - sums[own].mean(0)
        products = (centred[:, :, None] * centred[:, None, :]).reshape(width, k * k)
        mean = counts[:, own] @ centred / width
        second = (counts[:, own] @ products).reshape(-1, k, k)
        second -= width * mean[:, :, None] * mean[:, None, :]
        along = np.einsum("ri,rij,rj->r", gradient, second, gradient)
        # What rounding leaves of a variance of 0 is no variance.
        floor = 1e-12 * np.einsum("ri,ij,rj->r", gradient, centred.T @ centred, gradient)
        variance += width / (width - 1) * np.where(along > floor, along, 0)
    return np.sqrt(variance)
