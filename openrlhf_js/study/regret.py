"""Regret: how far below the winner of its cell an estimator ends, without the winner's luck.

The highest of several noisy means is too high, so a winner that is picked by the results it is
read from leaves regret to estimators that are equal to it. Here one half of a cell's seeds picks
the learning rates and the winner, and the other half says how they end. That is averaged over many
halvings. The winner is itself a noisy pick, the noisier the fewer seeds: differences of regret
are those of the estimators, but even the best one is below 0 where others are picked for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import comb
from statistics import fmean
from typing import NamedTuple

import numpy as np
import pandas as pd

from openrlhf_js.stats.estimate import Floats
from openrlhf_js.study.design import Cell, cell_of
from openrlhf_js.study.values import RunRecord, final_of, grouped

MOST_HALVES = 1000  # of a cell: all there are, or else so many random ones


class Regret(NamedTuple):
    """How far an estimator ends below the winner of each cell, in points."""

    estimator: str
    points: dict[Cell, float]

    @property
    def mean(self) -> float:
        """Over the cells."""
        return fmean(self.points.values())

    @property
    def worst_cell(self) -> Cell:
        """The cell in which it is furthest behind."""
        return max(self.points, key=lambda cell: self.points[cell])

    @property
    def worst(self) -> float:
        """In that cell."""
        return self.points[self.worst_cell]


def regrets(runs: Iterable[RunRecord]) -> list[Regret]:
    """The regret of each estimator, the lowest mean first.

    Over the cells that have all estimators, with two seeds or more that have all their runs; where
    there is no such cell, nothing.
    """
    runs = list(runs)
    everybody = {run["estimator"] for run in runs}
    points: dict[str, dict[Cell, float]] = {}
    for cell, cell_runs in grouped(runs, cell_of).items():
        finals = _finals(cell_runs)
        if {run["estimator"] for run in cell_runs} == everybody and finals.shape[1] > 1:
            for estimator, regret in _cell_regrets(finals).items():
                points.setdefault(estimator, {})[cell] = regret
    found = [Regret(estimator, by_cell) for estimator, by_cell in points.items()]
    return sorted(found, key=lambda regret: (regret.mean, regret.estimator))


def _finals(runs: Sequence[RunRecord]) -> pd.DataFrame:
    """Results of a cell: a row for each estimator and rate, a column for each complete seed."""
    records = [(run["estimator"], run["learning_rate"], run["seed"], final_of(run)) for run in runs]
    table = pd.DataFrame(records, columns=["estimator", "learning_rate", "seed", "final"])
    return table.pivot(index=["estimator", "learning_rate"], columns="seed", values="final").dropna(
        axis="columns"
    )


def _cell_regrets(finals: pd.DataFrame) -> dict[str, float]:
    """The regret of each estimator in one cell, in points."""
    picking = _halves(finals.shape[1])  # (H, seeds)
    halvings = np.arange(len(picking))
    picked = []  # by estimator: (H,) its mean on the picking half, at the rate that is best there
    read = []  # (H,) its mean on the other half at that rate
    estimators = list(dict.fromkeys(finals.index.get_level_values("estimator")))
    for estimator in estimators:
        values = finals.loc[estimator].to_numpy()  # (rates, seeds)
        on_picking = _means(values, picking)
        on_reading = _means(values, 1 - picking)
        best_rate = on_picking.argmax(axis=0)
        picked.append(on_picking[best_rate, halvings])
        read.append(on_reading[best_rate, halvings])
    winner = np.argmax(picked, axis=0)
    of_winner = np.array(read)[winner, halvings]
    return {
        estimator: float(100 * (of_winner - own).mean())
        for estimator, own in zip(estimators, read, strict=True)
    }


def _means(values: Floats, halves: Floats) -> Floats:
    """(rates, H) means of values (rates, seeds) over the seeds of each half (H, seeds)."""
    means: Floats = values @ halves.T / halves.sum(axis=1)
    return means


def _halves(seeds: int) -> Floats:
    """(H, seeds) the picking seeds of each halving, in both directions: 1 for them, else 0."""
    size = seeds // 2
    if comb(seeds, size) <= MOST_HALVES:
        chosen = [list(places) for places in combinations(range(seeds), size)]
    else:
        rng = np.random.default_rng(0)
        chosen = [rng.permutation(seeds)[:size].tolist() for _ in range(MOST_HALVES)]
    halves = np.zeros((len(chosen), seeds))
    for half, places in zip(halves, chosen, strict=True):
        half[places] = 1
    return np.concatenate([halves, 1 - halves])
