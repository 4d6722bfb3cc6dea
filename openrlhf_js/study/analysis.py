"""What the runs of a study show: means, paired differences by seed, and regret."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from openrlhf_js.stats import Estimate, clustered_mean, holm, paired_difference
from openrlhf_js.study.design import Cell, cell_of
from openrlhf_js.study.values import (
    RunRecord,
    Value,
    best_runs,
    grouped,
    measured_values,
    setting_of,
    values_over_rates,
)


class Row(NamedTuple):
    """One figure with its interval over seeds: a row of rows.csv."""

    kind: str  # mean, difference, difference at that rate
    task: str
    mix: str
    prompts: int
    responses: int
    vary: str
    cell: str  # title
    estimator: str
    learning_rate: float | None  # None: averaged over all
    best: bool | None  # whether the rate is the estimator's best; None of differences
    quantity: str
    value: float
    low: float
    high: float
    seeds: int
    p: float | None = None
    p_holm: float | None = None


class Regret(NamedTuple):
    """How far an estimator's mean pass@1 is below that of each cell's best one, in points.

    Since the best is picked by the same noisy means, even equal estimators show some.
    """

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

    @property
    def cells_won(self) -> int:
        """In how many cells it is the best."""
        return sum(points == 0 for points in self.points.values())


class CurvePoint(NamedTuple):
    """The mean training reward of an estimator at its best learning rate."""

    cell: str  # title
    estimator: str
    step: float
    value: float
    low: float
    high: float


class Findings(NamedTuple):
    """All that a study shows."""

    reference: str
    """The estimator that the others are compared with."""
    means: list[Row]
    """For each cell, estimator, learning rate and quantity. The best rate has the highest pass@1,
    and `any_rate` is pass@1 averaged over the rates."""
    differences: list[Row]
    """To the reference, each estimator at its own best learning rate."""
    at_each_rate: list[Row]
    """The same at equal learning rates; without p_holm."""
    regret: list[Regret]
    """The lowest mean first."""
    curves: list[CurvePoint]

    @property
    def cells(self) -> list[str]:
        """The titles of the cells, in the order of the study."""
        return list(dict.fromkeys(row.cell for row in self.means))


def analyse(records: Iterable[RunRecord], reference: str) -> Findings:
    """All that the records of a study's runs show.

    p-values are Holm's, corrected for all comparisons of one quantity in the study. A run that
    never reaches the target counts with all its steps, so such means are lower bounds.
    """
    runs = [run for group in grouped(records, setting_of).values() for run in group]
    best = best_runs(runs)
    values = measured_values(runs, best, reference)
    all_values = values + values_over_rates(runs)
    best_values = [value for value in all_values if value.best]
    means = _means(all_values)
    return Findings(
        reference=reference,
        means=means,
        differences=_corrected(_differences(best_values, reference)),
        at_each_rate=_differences(values, reference, at_each_rate=True),
        regret=_regret(means),
        curves=_curves(best),
    )


def _over_seeds(values: Iterable[Value]) -> list[list[Value]]:
    """The values that differ in their seeds alone."""
    groups = grouped(values, lambda value: value._replace(seed=0, value=0.0))
    return list(groups.values())


def _means(values: Iterable[Value]) -> list[Row]:
    rows = []
    for group in _over_seeds(values):
        estimate = clustered_mean([value.value for value in group])
        row = _row("mean", group[0], estimate, seeds=len(group))
        rows.append(row._replace(best=group[0].best))
    return rows


def _differences(
    values: Sequence[Value], reference: str, *, at_each_rate: bool = False
) -> list[Row]:
    """Differences to the reference's values of the same cell and seed, and perhaps rate."""

    def pair_of(value: Value) -> tuple[Any, ...]:
        rate = value.learning_rate if at_each_rate else None
        return value.cell, value.quantity, value.seed, rate

    kind = "difference at that rate" if at_each_rate else "difference"
    references = {pair_of(value): value.value for value in values if value.estimator == reference}
    compared = [
        value for value in values if value.estimator != reference and pair_of(value) in references
    ]
    rows = []
    for group in _over_seeds(compared):
        if len(group) == 1:  # one pair has no interval
            continue
        difference = paired_difference(
            [value.value for value in group], [references[pair_of(value)] for value in group]
        )
        row = _row(kind, group[0], difference.estimate, seeds=len(group))
        rows.append(row._replace(p=difference.p_value))
    return rows


def _row(kind: str, value: Value, estimate: Estimate, seeds: int) -> Row:
    return Row(
        kind,
        *value.cell,
        cell=value.cell.title,
        estimator=value.estimator,
        learning_rate=value.learning_rate,
        best=None,
        quantity=value.quantity,
        value=estimate.value,
        low=estimate.low,
        high=estimate.high,
        seeds=seeds,
    )


def _corrected(rows: Sequence[Row]) -> list[Row]:
    """The rows with Holm's p-values, corrected for all comparisons of one quantity."""
    corrected: dict[Row, float] = {}
    for family in grouped(rows, lambda row: row.quantity).values():
        p_values = holm([row.p for row in family if row.p is not None])
        corrected |= zip(family, p_values, strict=True)
    return [row._replace(p_holm=corrected[row]) for row in rows]


def _regret(means: Iterable[Row]) -> list[Regret]:
    finals = [row for row in means if row.best and row.quantity == "pass1"]
    regrets: dict[str, Regret] = {}
    for cell, rows in grouped(finals, lambda row: cell_of(row._asdict())).items():
        highest = max(row.value for row in rows)
        for row in rows:
            regret = regrets.setdefault(row.estimator, Regret(row.estimator, points={}))
            regret.points[cell] = 100 * (highest - row.value)
    return sorted(regrets.values(), key=lambda regret: (regret.mean, regret.estimator))


def _curves(best: Iterable[RunRecord]) -> list[CurvePoint]:
    points = []
    for (cell, estimator), runs in grouped(best, setting_of).items():
        count = len(runs[0]["curve"])
        for place in range(count):
            estimate = clustered_mean([run["curve"][place] for run in runs])
            point = CurvePoint(
                cell=cell.title,
                estimator=estimator,
                step=runs[0]["steps"] * (place + 0.5) / count,
                value=estimate.value,
                low=estimate.low,
                high=estimate.high,
            )
            points.append(point)
    return points
