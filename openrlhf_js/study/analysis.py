"""What the runs of a study show: means, and paired differences by seed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from openrlhf_js.stats import (
    Estimate,
    clustered_mean,
    detectable_effect,
    holm,
    mean_of_means,
    paired_difference,
)
from openrlhf_js.study.design import OWN, Cell
from openrlhf_js.study.values import (
    RunRecord,
    Value,
    chosen_runs,
    grouped,
    measured_values,
    setting_of,
)


class StudyRow(NamedTuple):
    """One figure with its interval over seeds: a row of rows.csv."""

    kind: str  # mean or difference at the chosen rates, or mean at that rate
    task: str
    mix: str
    prompts: int
    responses: int
    cell: str  # title
    estimator: str
    learning_rate: str  # several where the seeds choose several
    quantity: str
    value: float
    low: float
    high: float
    seeds: int
    p: float | None = None
    p_holm: float | None = None
    detectable: float | None = None
    """The smallest true difference that the test would find with a probability of 80 %."""


class Average(NamedTuple):
    """The difference of results to the reference, averaged over cells, in points."""

    mix: str  # of the cells
    estimator: str
    value: float
    low: float
    high: float
    cells: int
    detectable: float
    """The smallest true difference that the study would find with a probability of 80 %."""


class CurvePoint(NamedTuple):
    """The mean training reward of an estimator at its chosen learning rates."""

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
    estimators: list[str]
    """The one that ends highest comes first, on average over the cells."""
    means: list[StudyRow]
    """For each cell, estimator and quantity, each seed at the learning rate that the others
    chose."""
    means_at_each_rate: list[StudyRow]
    differences: list[StudyRow]
    """To the reference, each estimator at its own learning rates."""
    averages_by_mix: list[Average]
    """Over the cells of each mix; of one cell alone, its own."""
    curves: list[CurvePoint]

    @property
    def is_own(self) -> bool:
        """Whether the user's own data was trained on."""
        return any(row.task == OWN for row in self.means)

    @property
    def result(self) -> str:
        """What the quantity `pass1` is: scores of a user's own grader need not be 0 or 1."""
        return "mean reward" if self.is_own else "pass@1"

    @property
    def cells(self) -> list[str]:
        """The titles of the cells, in the order of the study."""
        return list(dict.fromkeys(row.cell for row in self.means))


class Pair(NamedTuple):
    """A value, and the reference's of the same seed."""

    value: Value
    reference: float

    @property
    def difference(self) -> float:
        """To the reference."""
        return self.value.value - self.reference


def analyse(records: Iterable[RunRecord], reference: str) -> Findings:
    """All that the records of a study's runs show.

    p-values are Holm's, corrected for all comparisons of one quantity in the study.
    """
    runs = [run for group in grouped(records, setting_of).values() for run in group]
    chosen = chosen_runs(runs)
    values = measured_values(chosen)
    means = _means("mean", grouped(values, _setting_of).values())
    by_rate = grouped(
        measured_values(runs), lambda value: (*_setting_of(value), value.learning_rate)
    )
    pairs = _paired(values, reference)
    estimators = _from_the_highest(chosen)
    return Findings(
        reference=reference,
        estimators=estimators,
        means=means,
        means_at_each_rate=_means("mean at that rate", by_rate.values()),
        differences=_differences(pairs),
        averages_by_mix=_averages_by_mix(pairs, estimators),
        curves=_curves(chosen),
    )


def _setting_of(value: Value) -> tuple[str, Cell, str]:
    return value.estimator, value.cell, value.quantity


def _means(kind: str, groups: Iterable[Sequence[Value]]) -> list[StudyRow]:
    """The mean over seeds of each group."""
    return [_row(kind, group, clustered_mean([value.value for value in group])) for group in groups]


def _from_the_highest(chosen: Sequence[RunRecord]) -> list[str]:
    """The estimators by the mean of their results."""
    by_estimator = grouped(chosen, lambda run: run["estimator"])
    finals = {name: fmean(run["pass1"] for run in runs) for name, runs in by_estimator.items()}
    return sorted(finals, key=lambda name: -finals[name])


def _paired(values: Sequence[Value], reference: str) -> list[list[Pair]]:
    """The pairs of each estimator, cell and quantity, by seed; one pair has no interval."""
    references = {
        (value.cell, value.quantity, value.seed): value.value
        for value in values
        if value.estimator == reference
    }
    pairs = []
    for value in values:
        key = value.cell, value.quantity, value.seed
        if value.estimator != reference and key in references:
            pairs.append(Pair(value, references[key]))
    groups = grouped(pairs, lambda pair: _setting_of(pair.value))
    return [group for group in groups.values() if len(group) > 1]


def _differences(groups: Sequence[Sequence[Pair]]) -> list[StudyRow]:
    """The paired differences to the reference, with p-values corrected for each quantity."""
    rows = []
    for pairs in groups:
        difference = paired_difference(
            [pair.value.value for pair in pairs],
            [pair.reference for pair in pairs],
        )
        row = _row("difference", [pair.value for pair in pairs], difference.estimate)
        detectable = detectable_effect(difference.standard_error, difference.degrees_of_freedom)
        rows.append(row._replace(p=difference.p_value, detectable=detectable))
    corrected: dict[StudyRow, float] = {}
    for family in grouped(rows, lambda row: row.quantity).values():
        p_values = holm([row.p for row in family if row.p is not None])
        corrected |= zip(family, p_values, strict=True)
    return [row._replace(p_holm=corrected[row]) for row in rows]


def _row(kind: str, group: Sequence[Value], estimate: Estimate) -> StudyRow:
    first = group[0]
    rates = sorted({value.learning_rate for value in group})
    return StudyRow(
        kind,
        *first.cell,
        cell=first.cell.title,
        estimator=first.estimator,
        learning_rate=" ".join(f"{rate:g}" for rate in rates),
        quantity=first.quantity,
        value=estimate.value,
        low=estimate.low,
        high=estimate.high,
        seeds=len(group),
    )


def _averages_by_mix(groups: Sequence[Sequence[Pair]], estimators: Sequence[str]) -> list[Average]:
    """The differences of pass@1 by mix, with intervals over seeds."""
    by_mix: dict[str, dict[str, list[list[float]]]] = {}
    for pairs in groups:
        first = pairs[0].value
        if first.quantity == "pass1":
            by_estimator = by_mix.setdefault(first.cell.mix, {})
            points = [100 * pair.difference for pair in pairs]
            by_estimator.setdefault(first.estimator, []).append(points)
    averages = []
    for mix, by_estimator in by_mix.items():
        for estimator in [name for name in estimators if name in by_estimator]:
            averages.append(_average(mix, estimator, by_estimator[estimator]))
    return averages


def _average(mix: str, estimator: str, cells: Sequence[Sequence[float]]) -> Average:
    """The mean over these cells of differences by seed."""
    difference = mean_of_means(cells)
    detectable = detectable_effect(difference.standard_error, difference.degrees_of_freedom)
    return Average(mix, estimator, *difference.estimate, cells=len(cells), detectable=detectable)


def _curves(chosen: Iterable[RunRecord]) -> list[CurvePoint]:
    points = []
    for (cell, estimator), runs in grouped(chosen, setting_of).items():
        count = len(runs[0]["curve"])
        for place in range(count):
            estimate = clustered_mean([run["curve"][place] for run in runs])
            point = CurvePoint(
                cell.title,
                estimator,
                runs[0]["steps"] * (place + 0.5) / count,
                *estimate,
            )
            points.append(point)
    return points
