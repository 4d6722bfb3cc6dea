"""Correlations with intervals by cluster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openrlhf_js.stats import clusters as by_cluster
from openrlhf_js.stats.bootstrap import Seed, counts
from openrlhf_js.stats.clusters import Labels
from openrlhf_js.stats.estimate import CONFIDENCE, Estimate, Floats, t_quantile

Kind: TypeAlias = Literal["pearson", "spearman"]

FEWEST_CLUSTERS = 5
CHUNK_NUMBERS = 500_000  # weights of rows held at a time


def correlation(
    x: ArrayLike,
    y: ArrayLike,
    clusters: Labels | None = None,
    *,
    kind: Kind = "spearman",
    seed: Seed,
    rounds: int = 1000,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """The correlation of two columns, with an interval by cluster that stays in [-1, 1].

    On Fisher's scale z = atanh r the estimate is nearly normal; its standard error there is that of
    the bootstrap by cluster, since 1 / sqrt(n - 3) holds only for independent normal rows:

        tanh(z +- t_(C-1) sd(z of the resamples)).

    Spearman's is Pearson's of the ranks (mean ranks for ties), and every resample ranks anew.

    95 % intervals cover 93 to 97 % from 20 clusters on; with 10, Spearman's cover more, since a
    resample has ties that the data do not have. Pearson's fail for heavy tails: 90 to 92 % for t
    with 3 degrees of freedom, at 40 clusters and at 100. Take Spearman's there.

    Args:
        x: (n,) one a row.
        y: (n,) one a row.
        clusters: a label a row; None: each row is its own cluster. Fewer than 5 bound nothing: the
            interval is [-1, 1].
        kind: "pearson" or "spearman".
        seed: a number or a generator.
        rounds: number of resamples. One in which a column is constant is left out.
        confidence: of the interval.

    Raises:
        ValueError: as `clustered_mean`, different lengths, an unknown kind, or a constant column,
            which has no correlation with anything.
    """
    first, second = by_cluster.checked(x, "x"), by_cluster.checked(y, "y")
    if len(first) != len(second):
        raise ValueError(f"x has {len(first)} rows and y {len(second)}")
    if kind not in ("pearson", "spearman"):
        raise ValueError(f"kind must be pearson or spearman, got {kind!r}")
    for name, column in (("x", first), ("y", second)):
        if column.min() == column.max():
            raise ValueError(f"{name} is constant, {column[0]:g}: it has no correlation")
    numbers, count = by_cluster.codes(clusters, len(first))
    columns = [
        _Ranks(column) if kind == "spearman" else _Values(column) for column in (first, second)
    ]
    value = float(_weighted(columns, np.ones((1, len(first))))[0])
    if count < FEWEST_CLUSTERS:
        t_quantile(1, confidence)
        return Estimate(value, -1.0, 1.0)
    drawn = []
    for piece in counts(count, rounds, seed):
        for part in np.array_split(piece, max(1, piece.shape[0] * len(first) // CHUNK_NUMBERS)):
            drawn.append(_weighted(columns, part[:, numbers]))
    all_drawn = np.concatenate(drawn)
    centre = _fisher(np.array(value))
    error = float(_fisher(all_drawn[np.isfinite(all_drawn)]).std(ddof=1))
    half = float(t_quantile(count - 1, confidence)) * error
    low, high = math.tanh(centre - half), math.tanh(centre + half)
    return Estimate(value, min(low, value), max(high, value))


class _Values:
    """A column as it is, standardised so that no digits are lost."""

    def __init__(self, column: Floats) -> None:
        self.column = (column - column.mean()) / column.std()

    def under(self, weights: Floats) -> Floats:
        return np.broadcast_to(self.column, weights.shape)


class _Ranks:
    """A column as its mean ranks under weights, each row being there `weight` times."""

    def __init__(self, column: Floats) -> None:
        distinct, self.place = np.unique(column, return_inverse=True)
        self.order: NDArray[np.int64] = np.argsort(self.place, kind="stable")
        self.starts = np.searchsorted(self.place[self.order], np.arange(len(distinct)))

    def under(self, weights: Floats) -> Floats:
        """(rounds, n): rows below, and half of those that are equal, as a share of all."""
        of_value = np.add.reduceat(weights[:, self.order], self.starts, axis=1)
        up_to = np.cumsum(of_value, axis=1)
        middle = (up_to - of_value / 2) / up_to[:, -1:] - 0.5
        return middle[:, self.place]


def _weighted(columns: Sequence[_Values | _Ranks], weights: Floats) -> Floats:
    """Pearson's correlation under each row of weights, (rounds,); nan for a constant column."""
    total = weights.sum(1, keepdims=True)
    centred = []
    for column in columns:
        values = column.under(weights)
        centred.append(values - (weights * values).sum(1, keepdims=True) / total)
    x, y = centred
    xx, yy = (weights * x * x).sum(1), (weights * y * y).sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        r = (weights * x * y).sum(1) / np.sqrt(xx * yy)
    return np.where(np.minimum(xx, yy) > 1e-12, np.clip(r, -1, 1), np.nan)


def _fisher(r: Floats) -> Floats:
    """atanh r, finite at +-1."""
    return np.arctanh(np.clip(r, -1 + 1e-12, 1 - 1e-12))
