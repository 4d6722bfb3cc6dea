"""What was measured of each run, and at which learning rate each estimator is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

from openrlhf_js.estimators import ESTIMATORS
from openrlhf_js.study.design import Cell, cell_of

SHARE_OF_RISE = 0.8  # of the reference's rise in reward: the target of `steps_to_target`
OUTCOMES = {  # beside the result itself
    "reward": "training reward",
    "steps_to_target": "steps",
    "any_rate": "any rate",
}
CAUSES = {
    "baseline_error": "error of the baseline / rloo's",
    "gradient_variance": "gradient variance",
    "gradient_snr": "gradient signal / noise",
    "dead": "groups with equal rewards",
    "spread": "spread of values, late",
    "length": "tokens of a response, late",
    "entropy": "nats a token, late",
}
# Their advantages and gradients are divided by a standard deviation, so in other units.
SCALED = {name for name, estimator in ESTIMATORS.items() if estimator.scale}

T = TypeVar("T")
Key = TypeVar("Key")
RunRecord = Mapping[str, Any]


class Value(NamedTuple):
    """One quantity of one run."""

    cell: Cell
    estimator: str
    learning_rate: float | None  # None: averaged over all
    chosen: bool  # whether the estimator is shown at this rate
    quantity: str
    seed: int
    value: float


def grouped(items: Iterable[T], key: Callable[[T], Key]) -> dict[Key, list[T]]:
    """The items by key, both in the order in which they come."""
    groups: dict[Key, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def setting_of(run: RunRecord) -> tuple[Cell, str]:
    """The cell and the estimator of a run."""
    return cell_of(run), run["estimator"]


def chosen_runs(runs: Iterable[RunRecord]) -> list[RunRecord]:
    """One run for each cell, estimator and seed: at the learning rate that is shown.

    That is the rate which is best on the other seeds, so that no run has a say in its own choice:
    the highest of several noisy means is too high. One seed alone chooses for itself.
    """
    chosen = []
    for group in grouped(runs, setting_of).values():
        for seed_runs in grouped(group, lambda run: run["seed"]).values():
            finals = [_final_of_others(run, group) for run in seed_runs]
            chosen.append(seed_runs[finals.index(max(finals))])
    return chosen


def _final_of_others(run: RunRecord, group: Sequence[RunRecord]) -> float:
    """The mean at the run's learning rate over the seeds of the group but its own."""
    others = [
        final_of(other)
        for other in group
        if other["learning_rate"] == run["learning_rate"] and other["seed"] != run["seed"]
    ]
    return fmean(others) if others else final_of(run)


def final_of(run: RunRecord) -> float:
    """pass@1 after training, or where nothing was evaluated the reward."""
    return float(run["reward"] if run["pass1"] is None else run["pass1"])


def target(curves: Sequence[Sequence[float]]) -> float | None:
    """The reward at `SHARE_OF_RISE` of the mean rise from first to last point, if any."""
    first = fmean(curve[0] for curve in curves)
    last = fmean(curve[-1] for curve in curves)
    if last <= first:
        return None
    return first + SHARE_OF_RISE * (last - first)


def share_until(reward: float, curve: Sequence[float]) -> float:
    """The share of training until a curve, averaged over three points, reaches a reward."""
    points = len(curve)
    smooth = [fmean(curve[max(0, point - 1) : point + 2]) for point in range(points)]
    if smooth[0] >= reward:
        return 0.5 / points
    for point in range(1, points):
        rise = smooth[point] - smooth[point - 1]
        if smooth[point] >= reward:
            crossing = point - 1 + (reward - smooth[point - 1]) / rise
            return (crossing + 0.5) / points
    return 1.0


def measured_values(
    runs: Sequence[RunRecord], chosen: Sequence[RunRecord], reference: str
) -> list[Value]:
    """Everything that was measured, quantity by quantity."""
    chosen_rates = {(*setting_of(run), run["seed"]): run["learning_rate"] for run in chosen}
    targets = _targets(chosen, reference)
    values = []
    for quantity in ("pass1", "reward", "steps_to_target", *CAUSES):
        for run in runs:
            cell, estimator = setting_of(run)
            number = _measured(run, quantity, targets.get(cell))
            if number is None:
                continue
            value = Value(
                cell=cell,
                estimator=estimator,
                learning_rate=run["learning_rate"],
                chosen=run["learning_rate"] == chosen_rates[cell, estimator, run["seed"]],
                quantity=quantity,
                seed=run["seed"],
                value=number,
            )
            values.append(value)
    return values


def _targets(chosen: Iterable[RunRecord], reference: str) -> dict[Cell, float | None]:
    """The reward that `steps_to_target` counts the steps to, by cell."""
    reference_runs = [run for run in chosen if run["estimator"] == reference]
    return {
        cell: target([run["curve"] for run in cell_runs])
        for cell, cell_runs in grouped(reference_runs, cell_of).items()
    }


def _measured(run: RunRecord, quantity: str, target_reward: float | None) -> float | None:
    """A quantity of a run; the target is that of its cell."""
    if quantity == "steps_to_target":
        if target_reward is None:
            return None
        return float(run["steps"] * share_until(target_reward, run["curve"]))
    if quantity == "gradient_variance" and run["estimator"] in SCALED:
        return None
    number: float | None = run.get(quantity)  # some are newer than some records
    return number


def values_over_rates(runs: Iterable[RunRecord]) -> list[Value]:
    """pass@1 of each seed, averaged over the learning rates where there are several."""
    values = []
    for (cell, estimator), group in grouped(runs, setting_of).items():
        if len({run["learning_rate"] for run in group}) == 1:
            continue
        for seed, seed_runs in grouped(group, lambda run: run["seed"]).items():
            value = Value(
                cell=cell,
                estimator=estimator,
                learning_rate=None,
                chosen=True,
                quantity="any_rate",
                seed=seed,
                value=fmean(map(final_of, seed_runs)),
            )
            values.append(value)
    return values
