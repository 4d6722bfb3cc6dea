"""Analyses a study's runs: means, and paired differences by seed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from baseline_research.study.runs import OWN, Cell
from baseline_research.study.values import (
    OUTCOMES,
    SHARES,
    RunRecord,
    Value,
    chosen_runs,
    grouped,
    measured_values,
    rewards_in_unit,
    setting_of,
)
from paired_eval.stats import (
    Difference,
    Estimate,
    clustered_mean,
    detectable_effect,
    holm,
    mean_of_means,
    paired_difference,
)

SPREAD = 1e-9  # relative to the values: seeds that differ by less are equal up to rounding


class StudyRow(NamedTuple):
    """One figure with its interval over seeds: a row of rows.csv.

    A single seed, or seeds with equal values, give no interval: its ends are infinite, and a
    difference has no test.
    """

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
    split: str = ""
    """Of a budget, such as "16 x 8"."""


class Average(NamedTuple):
    """The difference of results to the reference, averaged over cells.

    In points of pass@1, or in the units of the user's own reward. No interval if seeds are equal.
    """

    mix: str  # of the cells
    estimator: str
    value: float
    low: float
    high: float
    cells: int
    detectable: float
    """The smallest true difference that the study would find with a probability of 80 %."""
    p_holm: float
    """Corrected for all averages of the study."""


class CurvePoint(NamedTuple):
    """The mean training reward of an estimator at its chosen learning rates."""

    cell: str  # title
    estimator: str
    step: float
    value: float
    low: float
    high: float


class Samples(NamedTuple):
    """How soon an estimator reaches the reward at which the reference ends."""

    cell: str  # title
    estimator: str
    share: float | None
    """Of the samples of the training, from 0 to 1; None if it never does."""


class Findings(NamedTuple):
    """All results of a study."""

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
    samples: list[Samples]
    rewards_in_unit: bool
    """Whether rewards lie in [0, 1], so that no interval of theirs leaves it."""

    @property
    def is_own(self) -> bool:
        """Whether the study trained on the user's own data."""
        return any(row.task == OWN for row in self.means)

    @property
    def result(self) -> str:
        """What to call the quantity `pass1`: a user's own rewards need not be 0 or 1."""
        return "mean reward" if self.is_own else "pass@1"

    @property
    def unit(self) -> str:
        """The unit of a difference of results: points for a share."""
        return "" if self.is_own else "points"

    @property
    def cells(self) -> list[str]:
        """The titles of the cells, in the order of the study."""
        return list(dict.fromkeys(row.cell for row in self.means))


class Pair(NamedTuple):
    """A value, and the reference's value with the same seed."""

    value: Value
    reference: float

    @property
    def difference(self) -> float:
        """The difference to the reference."""
        return self.value.value - self.reference


def analyse(records: Iterable[RunRecord], reference: str) -> Findings:
    """Analyses the records of a study's runs.

    p-values are Holm-corrected for all comparisons of one quantity in the study.
    """
    runs = [run for group in grouped(records, setting_of).values() for run in group]
    in_unit = all(map(rewards_in_unit, runs))
    shares = (*SHARES, *OUTCOMES) if in_unit else SHARES
    chosen = chosen_runs(runs)
    values = measured_values(chosen)
    means = _means("mean", grouped(values, _setting_of).values(), shares)
    by_rate = grouped(
        measured_values(runs), lambda value: (*_setting_of(value), value.learning_rate)
    )
    pairs = _paired(values, reference)
    estimators = _from_the_highest(chosen)
    return Findings(
        reference=reference,
        estimators=estimators,
        means=means,
        means_at_each_rate=_means("mean at that rate", by_rate.values(), shares),
        differences=_differences(pairs, shares),
        averages_by_mix=_averages_by_mix(pairs, estimators, shares),
        curves=_curves(chosen, shares),
        samples=_samples(chosen, reference),
        rewards_in_unit=in_unit,
    )


def _cut(estimate: Estimate, low: float, high: float) -> Estimate:
    """The estimate with its interval cut to the range of the quantity."""
    if not math.isfinite(estimate.high):
        return estimate
    return Estimate(estimate.value, max(estimate.low, low), min(estimate.high, high))


def _without_spread(estimate: Estimate, values: Iterable[float]) -> bool:
    """Whether the interval's width is only the rounding of these values."""
    greatest = max(map(abs, values))
    return estimate.high - estimate.low <= SPREAD * greatest


def _setting_of(value: Value) -> tuple[str, Cell, str]:
    return value.estimator, value.cell, value.quantity


def _means(kind: str, groups: Iterable[Sequence[Value]], shares: Sequence[str]) -> list[StudyRow]:
    """The mean over seeds of each group."""
    rows = []
    for group in groups:
        numbers = [value.value for value in group]
        estimate = clustered_mean(numbers)
        if _without_spread(estimate, numbers):
            estimate = Estimate(estimate.value, -math.inf, math.inf)
        elif group[0].quantity in shares:
            estimate = _cut(estimate, 0, 1)
        rows.append(_row(kind, group, estimate))
    return rows


def _from_the_highest(chosen: Sequence[RunRecord]) -> list[str]:
    """The estimators in descending order of their mean result."""
    by_estimator = grouped(chosen, lambda run: run["estimator"])
    finals = {name: fmean(run["pass1"] for run in runs) for name, runs in by_estimator.items()}
    return sorted(finals, key=lambda name: -finals[name])


def _paired(values: Sequence[Value], reference: str) -> list[list[Pair]]:
    """The pairs of each estimator, cell and quantity, by seed; a single pair has no interval."""
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


def _differences(groups: Sequence[Sequence[Pair]], shares: Sequence[str]) -> list[StudyRow]:
    """The paired differences to the reference, with p-values corrected for each quantity."""
    rows = []
    for family in grouped(groups, lambda pairs: pairs[0].value.quantity).values():
        tested = [_difference(pairs) for pairs in family]
        corrected = holm([difference.p_value for difference in tested])
        for pairs, difference, p_holm in zip(family, tested, corrected, strict=True):
            rows.append(_difference_row(pairs, difference, p_holm, shares))
    return rows


def _difference(pairs: Sequence[Pair]) -> Difference:
    return paired_difference(
        [pair.value.value for pair in pairs],
        [pair.reference for pair in pairs],
    )


def _difference_row(
    pairs: Sequence[Pair], difference: Difference, p_holm: float, shares: Sequence[str]
) -> StudyRow:
    """A difference with its test, or without one if it is the same in all seeds."""
    values = [pair.value for pair in pairs]
    estimate = difference.estimate
    if _without_spread(estimate, _numbers(pairs)):
        return _row("difference", values, Estimate(estimate.value, -math.inf, math.inf))
    if values[0].quantity in shares:
        estimate = _cut(estimate, -1, 1)
    return _row("difference", values, estimate)._replace(
        p=difference.p_value,
        p_holm=p_holm,
        detectable=detectable_effect(difference.standard_error, difference.degrees_of_freedom),
    )


def _numbers(pairs: Iterable[Pair]) -> list[float]:
    """All values that the differences are computed from."""
    numbers = []
    for pair in pairs:
        numbers += [pair.value.value, pair.reference]
    return numbers


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
        split=" ".join(sorted({value.split for value in group})),
    )


def _averages_by_mix(
    groups: Sequence[Sequence[Pair]], estimators: Sequence[str], shares: Sequence[str]
) -> list[Average]:
    """The differences of results by mix, with intervals over seeds."""
    results = [pairs for pairs in groups if pairs[0].value.quantity == "pass1"]
    averages = []
    for mix, of_mix in grouped(results, lambda pairs: pairs[0].value.cell.mix).items():
        by_estimator = grouped(of_mix, lambda pairs: pairs[0].value.estimator)
        for estimator in [name for name in estimators if name in by_estimator]:
            averages.append(_average(mix, estimator, by_estimator[estimator], shares))
    corrected = holm([average.p_holm for average in averages])
    return [
        average._replace(p_holm=p_holm) for average, p_holm in zip(averages, corrected, strict=True)
    ]


def _average(
    mix: str, estimator: str, cells: Sequence[Sequence[Pair]], shares: Sequence[str]
) -> Average:
    """The mean over these cells of differences by seed; its p is not corrected yet."""
    difference = mean_of_means([[pair.difference for pair in pairs] for pairs in cells])
    estimate = difference.estimate
    if _without_spread(estimate, [number for pairs in cells for number in _numbers(pairs)]):
        estimate = Estimate(estimate.value, -math.inf, math.inf)
    elif "pass1" in shares:
        estimate = _cut(estimate, -1, 1)
    detectable = detectable_effect(difference.standard_error, difference.degrees_of_freedom)
    scale = 1 if cells[0][0].value.cell.task == OWN else 100
    return Average(
        mix=mix,
        estimator=estimator,
        value=scale * estimate.value,
        low=scale * estimate.low,
        high=scale * estimate.high,
        cells=len(cells),
        detectable=scale * detectable,
        p_holm=difference.p_value,
    )


def _curves(chosen: Iterable[RunRecord], shares: Sequence[str]) -> list[CurvePoint]:
    """Means over seeds along the training; if seeds are equal, the band has no width."""
    points = []
    for (cell, estimator), runs in grouped(chosen, setting_of).items():
        count = len(runs[0]["curve"])
        for place in range(count):
            estimate = clustered_mean([run["curve"][place] for run in runs])
            if "reward" in shares:
                estimate = _cut(estimate, 0, 1)
            point = CurvePoint(
                cell.title,
                estimator,
                runs[0]["steps"] * (place + 0.5) / count,
                *estimate,
            )
            points.append(point)
    return points


def _samples(chosen: Sequence[RunRecord], reference: str) -> list[Samples]:
    """From the mean curves over seeds, each at its chosen learning rates."""
    curves = {
        (cell, estimator): [
            fmean(points) for points in zip(*(run["curve"] for run in runs), strict=True)
        ]
        for (cell, estimator), runs in grouped(chosen, setting_of).items()
    }
    return [
        Samples(cell.title, estimator, share_to_reach(curve, end=curves[cell, reference]))
        for (cell, estimator), curve in curves.items()
        if (cell, reference) in curves
    ]


def share_to_reach(curve: Sequence[float], end: Sequence[float]) -> float | None:
    """The share of the training after which a curve reaches the end of another one.

    Both are averaged over a fifth of the training, to which noise matters less. So the other curve
    may reach its own end early. None if this one never does.
    """
    smooth, smooth_end = _smoothed(curve), _smoothed(end)
    reached = [place for place, value in enumerate(smooth) if value >= smooth_end[-1]]
    if not reached:
        return None
    return (reached[0] + len(curve) - len(smooth) + 1) / len(curve)


def _smoothed(curve: Sequence[float]) -> list[float]:
    """Moving averages over a fifth of a curve."""
    size = max(1, len(curve) // 5)
    return [fmean(curve[place : place + size]) for place in range(len(curve) - size + 1)]
