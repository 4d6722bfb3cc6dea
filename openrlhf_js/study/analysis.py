"""What the runs of a study show: means, paired differences by seed, and regret."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

from openrlhf_js.estimators import ESTIMATORS
from openrlhf_js.stats import Estimate, clustered_mean, holm, paired_difference
from openrlhf_js.study.design import TRACKER, Cell, cell_of

SHARE_OF_RISE = 0.8  # of the reference's rise in reward: the target of `steps_to_target`
OUTCOMES = {
    "pass1": "pass@1",
    "reward": "reward",
    "steps_to_target": "steps",
    "any_rate": "any rate",
}
CAUSES = {
    "baseline_error": "error of the baseline / rloo's",
    "gradient_variance": "gradient variance",
    "gradient_snr": "gradient signal / noise",
    "dead": "groups with equal rewards",
    "spread": "spread of values, late",
}
# Their advantages and gradients are divided by a standard deviation, so in other units.
SCALED = {name for name, estimator in ESTIMATORS.items() if estimator.scale} | {TRACKER}

T = TypeVar("T")
Key = TypeVar("Key")
RunRecord = Mapping[str, Any]


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


class Value(NamedTuple):
    """One quantity of one run."""

    cell: Cell
    estimator: str
    learning_rate: float | None  # None: averaged over all
    best: bool
    quantity: str
    seed: int
    value: float


def analyse(records: Iterable[RunRecord], reference: str) -> Findings:
    """All tables of a study.

    p-values are Holm's, corrected for all comparisons of one quantity in the study. A run that
    never reaches the target counts with all its steps, so such means are lower bounds.
    """
    runs = [run for group in _grouped(records, _setting).values() for run in group]
    best_runs = _best_runs(runs)
    values = _values(runs, best_runs, _targets(best_runs, reference))
    at_each_rate = _differences(
        values, reference, kind="difference at that rate", same_learning_rate=True
    )
    values += _values_over_rates(runs)
    best_values = [value for value in values if value.best]
    means = _means(values)
    return Findings(
        means=means,
        differences=_corrected(_differences(best_values, reference, kind="difference")),
        at_each_rate=at_each_rate,
        regret=_regret(means),
        curves=_curves(best_runs),
    )


def _setting(run: RunRecord) -> tuple[Cell, str]:
    return cell_of(run), run["estimator"]


def _grouped(items: Iterable[T], key: Callable[[T], Key]) -> dict[Key, list[T]]:
    """The items by key, both in the order in which they come."""
    groups: dict[Key, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def _final(run: RunRecord) -> float:
    """pass@1 after training, or where nothing was evaluated the reward."""
    return float(run["reward"] if run["pass1"] is None else run["pass1"])


def _best_runs(runs: Iterable[RunRecord]) -> list[RunRecord]:
    """Each estimator's runs at its best learning rate in each cell."""
    best: list[RunRecord] = []
    for group in _grouped(runs, _setting).values():
        by_rate = _grouped(group, lambda run: run["learning_rate"])
        best += max(by_rate.values(), key=lambda rate_runs: fmean(map(_final, rate_runs)))
    return best


def _targets(best_runs: Iterable[RunRecord], reference: str) -> dict[Cell, float | None]:
    """The reward that `steps_to_target` counts the steps to, by cell."""
    reference_runs = [run for run in best_runs if run["estimator"] == reference]
    return {
        cell: target([run["curve"] for run in group])
        for cell, group in _grouped(reference_runs, cell_of).items()
    }


def target(curves: Sequence[Sequence[float]]) -> float | None:
    """The reward at `SHARE_OF_RISE` of the mean rise from first to last point, if any."""
    first = fmean(curve[0] for curve in curves)
    last = fmean(curve[-1] for curve in curves)
    if last <= first:
        return None
    return first + SHARE_OF_RISE * (last - first)


def share_until(reward: float, curve: Sequence[float]) -> float:
    """The share of training until a curve, averaged over three points, reaches a reward."""
    smooth = [fmean(curve[max(0, point - 1) : point + 2]) for point in range(len(curve))]
    if smooth[0] >= reward:
        return 0.5 / len(curve)
    for point in range(1, len(curve)):
        if smooth[point] >= reward:
            rise = smooth[point] - smooth[point - 1]
            crossing = point - 1 + (reward - smooth[point - 1]) / rise
            return (crossing + 0.5) / len(curve)
    return 1.0


def _values(
    runs: Sequence[RunRecord],
    best_runs: Sequence[RunRecord],
    targets: Mapping[Cell, float | None],
) -> list[Value]:
    """Everything that was measured, quantity by quantity."""
    best_rates = {_setting(run): run["learning_rate"] for run in best_runs}
    values = []
    for quantity in ("pass1", "reward", "steps_to_target", *CAUSES):
        for run in runs:
            cell, estimator = _setting(run)
            number = _measured(run, quantity, targets.get(cell))
            if number is None:
                continue
            value = Value(
                cell=cell,
                estimator=estimator,
                learning_rate=run["learning_rate"],
                best=run["learning_rate"] == best_rates[cell, estimator],
                quantity=quantity,
                seed=run["seed"],
                value=number,
            )
            values.append(value)
    return values


def _measured(run: RunRecord, quantity: str, reward: float | None) -> float | None:
    """A quantity of a run; `reward` is the target of its cell."""
    if quantity == "steps_to_target":
        if reward is None:
            return None
        return float(run["steps"] * share_until(reward, run["curve"]))
    if quantity == "gradient_variance" and run["estimator"] in SCALED:
        return None
    number: float | None = run[quantity]
    return number


def _values_over_rates(runs: Iterable[RunRecord]) -> list[Value]:
    """pass@1 of each seed, averaged over the learning rates where there are several."""
    values = []
    for (cell, estimator), group in _grouped(runs, _setting).items():
        if len({run["learning_rate"] for run in group}) == 1:
            continue
        for seed, seed_runs in _grouped(group, lambda run: run["seed"]).items():
            values.append(
                Value(
                    cell=cell,
                    estimator=estimator,
                    learning_rate=None,
                    best=True,
                    quantity="any_rate",
                    seed=seed,
                    value=fmean(map(_final, seed_runs)),
                )
            )
    return values


def _over_seeds(values: Iterable[Value]) -> list[list[Value]]:
    """The values that differ in their seeds alone."""
    groups = _grouped(values, lambda value: value._replace(seed=0, value=0.0))
    return list(groups.values())


def _means(values: Iterable[Value]) -> list[Row]:
    rows = []
    for group in _over_seeds(values):
        estimate = clustered_mean([value.value for value in group])
        rows.append(_row("mean", group[0], estimate, len(group), best=group[0].best))
    return rows


def _differences(
    values: Sequence[Value], reference: str, *, kind: str, same_learning_rate: bool = False
) -> list[Row]:
    """Differences to the reference's values of the same cell and seed."""

    def pair(value: Value) -> tuple[Any, ...]:
        rate = value.learning_rate if same_learning_rate else None
        return value.cell, value.quantity, value.seed, rate

    references = {pair(value): value.value for value in values if value.estimator == reference}
    compared = [
        value for value in values if value.estimator != reference and pair(value) in references
    ]
    rows = []
    for group in _over_seeds(compared):
        if len(group) > 1:  # one pair has no interval
            difference = paired_difference(
                [value.value for value in group], [references[pair(value)] for value in group]
            )
            row = _row(kind, group[0], difference.estimate, len(group), p=difference.p_value)
            rows.append(row)
    return rows


def _row(
    kind: str,
    value: Value,
    estimate: Estimate,
    seeds: int,
    *,
    best: bool | None = None,
    p: float | None = None,
) -> Row:
    return Row(
        kind,
        *value.cell,
        cell=value.cell.title,
        estimator=value.estimator,
        learning_rate=value.learning_rate,
        best=best,
        quantity=value.quantity,
        value=estimate.value,
        low=estimate.low,
        high=estimate.high,
        seeds=seeds,
        p=p,
    )


def _corrected(rows: Sequence[Row]) -> list[Row]:
    """The rows with Holm's p-values, corrected for all comparisons of one quantity."""
    corrected: dict[Row, float] = {}
    for family in _grouped(rows, lambda row: row.quantity).values():
        p_values = holm([row.p for row in family if row.p is not None])
        corrected |= zip(family, p_values, strict=True)
    return [row._replace(p_holm=corrected[row]) for row in rows]


def _regret(means: Iterable[Row]) -> list[Regret]:
    finals = [row for row in means if row.best and row.quantity == "pass1"]
    regrets: dict[str, Regret] = {}
    for cell, rows in _grouped(finals, lambda row: cell_of(row._asdict())).items():
        highest = max(row.value for row in rows)
        for row in rows:
            regret = regrets.setdefault(row.estimator, Regret(row.estimator, {}))
            regret.points[cell] = 100 * (highest - row.value)
    return sorted(regrets.values(), key=lambda regret: (regret.mean, regret.estimator))


def _curves(best_runs: Iterable[RunRecord]) -> list[CurvePoint]:
    points = []
    for (cell, estimator), runs in _grouped(best_runs, _setting).items():
        count = len(runs[0]["curve"])
        for place in range(count):
            estimate = clustered_mean([run["curve"][place] for run in runs])
            points.append(
                CurvePoint(
                    cell=cell.title,
                    estimator=estimator,
                    step=runs[0]["steps"] * (place + 0.5) / count,
                    value=estimate.value,
                    low=estimate.low,
                    high=estimate.high,
                )
            )
    return points
