"""What the runs of a study show: means, paired differences by seed, and regret."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from openrlhf_js.stats import (
    Estimate,
    clustered_mean,
    detectable_effect,
    holm,
    mean_of_means,
    paired_difference,
)
from openrlhf_js.study.design import OWN
from openrlhf_js.study.regret import Regret, regrets
from openrlhf_js.study.values import (
    RunRecord,
    Value,
    chosen_runs,
    grouped,
    measured_values,
    setting_of,
    values_over_rates,
)


class StudyRow(NamedTuple):
    """One figure with its interval over seeds: a row of rows.csv."""

    kind: str  # mean or difference, each at the chosen rates or at that rate
    task: str
    mix: str
    prompts: int
    responses: int
    vary: str
    cell: str  # title
    estimator: str
    learning_rate: str  # several where the seeds choose several; "" averaged over all
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

    mix: str  # of the cells; "" of all mixes
    estimator: str
    value: float
    low: float
    high: float
    cells: int


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
    means: list[StudyRow]
    """For each cell, estimator and quantity, each seed at the learning rate that the others chose;
    `any_rate` is pass@1 averaged over the rates."""
    means_at_each_rate: list[StudyRow]
    differences: list[StudyRow]
    """To the reference, each estimator at its own learning rates."""
    differences_at_each_rate: list[StudyRow]
    """To the reference at the same rate; without p_holm."""
    averages: list[Average]
    """Over the cells; none of one cell alone."""
    averages_by_mix: list[Average]
    """Over the cells of each mix, in the order of regret; of one cell alone, its own."""
    regret: list[Regret]
    """The lowest mean first; nothing without a cell that has all estimators and two seeds."""
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


def analyse(records: Iterable[RunRecord], reference: str) -> Findings:
    """All that the records of a study's runs show.

    p-values are Holm's, corrected for all comparisons of one quantity in the study. A run that
    never reaches the target counts with all its steps, so such means are lower bounds.
    """
    runs = [run for group in grouped(records, setting_of).values() for run in group]
    chosen = chosen_runs(runs)
    values = measured_values(runs, chosen, reference)
    shown_values = [value for value in values if value.chosen] + values_over_rates(runs)
    shown = Comparisons(shown_values, reference, by_rate=False)
    at_each_rate = Comparisons(values, reference, by_rate=True)
    means = shown.means()
    regret = regrets(runs)
    by_regret = [row.estimator for row in regret]
    in_order = by_regret or list(dict.fromkeys(row.estimator for row in means))
    return Findings(
        reference=reference,
        means=means,
        means_at_each_rate=at_each_rate.means(),
        differences=_corrected(shown.differences()),
        differences_at_each_rate=at_each_rate.differences(),
        averages=averages(shown),
        averages_by_mix=averages_by_mix(shown, in_order),
        regret=regret,
        curves=_curves(chosen),
    )


class PairedValue(NamedTuple):
    """A value, and the reference's of the same seed."""

    value: Value
    reference: float


@dataclass(frozen=True)
class Comparisons:
    """Values of several estimators on the same cells and seeds."""

    values: Sequence[Value]
    reference: str
    by_rate: bool
    """Whether those of each learning rate are apart."""

    def _setting(self, value: Value) -> tuple[Any, ...]:
        """What a value shares with those of other estimators and seeds that it is compared to."""
        rate = value.learning_rate if self.by_rate else None
        return value.cell, value.quantity, rate

    @cached_property
    def paired(self) -> list[list[PairedValue]]:
        """The pairs of each setting and estimator, by seed; one pair has no interval."""
        references = {}
        for value in self.values:
            if value.estimator == self.reference:
                references[self._setting(value), value.seed] = value.value
        pairs = []
        for value in self.values:
            key = self._setting(value), value.seed
            if value.estimator != self.reference and key in references:
                pairs.append(PairedValue(value, references[key]))
        groups = grouped(pairs, lambda pair: (pair.value.estimator, self._setting(pair.value)))
        return [group for group in groups.values() if len(group) > 1]

    def means(self) -> list[StudyRow]:
        """The means over seeds."""
        kind = "mean at that rate" if self.by_rate else "mean"
        groups = grouped(self.values, lambda value: (value.estimator, self._setting(value)))
        rows = []
        for group in groups.values():
            estimate = clustered_mean([value.value for value in group])
            rows.append(_row(kind, group, estimate))
        return rows

    def differences(self) -> list[StudyRow]:
        """The paired differences to the reference."""
        kind = "difference at that rate" if self.by_rate else "difference"
        rows = []
        for pairs in self.paired:
            values = [pair.value for pair in pairs]
            difference = paired_difference(
                [value.value for value in values],
                [pair.reference for pair in pairs],
            )
            row = _row(kind, values, difference.estimate)
            detectable = detectable_effect(difference.standard_error, difference.degrees_of_freedom)
            rows.append(row._replace(p=difference.p_value, detectable=detectable))
        return rows


def _row(kind: str, group: Sequence[Value], estimate: Estimate) -> StudyRow:
    first = group[0]
    rates = sorted({value.learning_rate for value in group if value.learning_rate is not None})
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


def _corrected(rows: Sequence[StudyRow]) -> list[StudyRow]:
    """The rows with Holm's p-values, corrected for all comparisons of one quantity."""
    corrected: dict[StudyRow, float] = {}
    for family in grouped(rows, lambda row: row.quantity).values():
        p_values = holm([row.p for row in family if row.p is not None])
        corrected |= zip(family, p_values, strict=True)
    return [row._replace(p_holm=corrected[row]) for row in rows]


def averages(comparisons: Comparisons) -> list[Average]:
    """The differences of pass@1 averaged over cells, with intervals over cells and seeds."""
    averaged = []
    for estimator, groups in grouped(_result_pairs(comparisons), _estimator_of).items():
        if len(groups) > 1:
            averaged.append(_average("", estimator, groups))
    return averaged


def averages_by_mix(comparisons: Comparisons, estimators: Sequence[str]) -> list[Average]:
    """The differences of pass@1 by mix, with intervals over seeds, and over cells if several."""
    averaged = []
    for mix, mix_groups in grouped(_result_pairs(comparisons), _mix_of).items():
        by_estimator = grouped(mix_groups, _estimator_of)
        for estimator in estimators:
            if estimator in by_estimator:
                averaged.append(_average(mix, estimator, by_estimator[estimator]))
    return averaged


def _result_pairs(comparisons: Comparisons) -> list[list[PairedValue]]:
    """The pairs of pass@1, by cell and estimator."""
    return [pairs for pairs in comparisons.paired if pairs[0].value.quantity == "pass1"]


def _estimator_of(pairs: Sequence[PairedValue]) -> str:
    return pairs[0].value.estimator


def _mix_of(pairs: Sequence[PairedValue]) -> str:
    return pairs[0].value.cell.mix


def _average(mix: str, estimator: str, groups: Sequence[Sequence[PairedValue]]) -> Average:
    """The average over groups, each of one cell."""
    cells = []
    for pairs in groups:
        cells.append([100 * (pair.value.value - pair.reference) for pair in pairs])
    estimate = mean_of_means(cells) if len(cells) > 1 else clustered_mean(cells[0])
    return Average(mix, estimator, *estimate, cells=len(cells))


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
