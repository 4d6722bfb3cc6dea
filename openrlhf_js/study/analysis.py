"""What the runs of a study show: means, paired differences by seed, and regret."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from openrlhf_js.estimators import ESTIMATORS
from openrlhf_js.stats import clustered_mean, holm, paired_difference
from openrlhf_js.study.design import TRACKER

Record = Mapping[str, Any]
Row = dict[str, Any]
SHARE_OF_RISE = 0.8  # of the reference's rise in reward: the target of `steps_to_target`
TESTED = {
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
SCALED = {name for name, estimator in ESTIMATORS.items() if estimator.scaling} | {TRACKER}
PAIRED = 2  # seeds at least for an interval


class Cell(NamedTuple):
    """What is the same for the runs that are compared."""

    task: str
    mix: str
    prompts: int
    responses: int
    vary: str

    @property
    def name(self) -> str:
        """In words."""
        words = f"{self.task}, {self.mix}, {self.prompts} x {self.responses} {self.vary}"
        return words.strip()


class Findings(NamedTuple):
    """Of all cells."""

    rows: list[Row]
    """A mean for each cell, estimator, learning rate and quantity."""
    differences: list[Row]
    """To the reference, each estimator at its own best learning rate."""
    at_each_rate: list[Row]
    """The same at equal learning rates."""
    regret: list[Row]
    """By estimator: how far below the best one of a cell it ends, mean and worst over cells."""
    best: dict[tuple[Cell, str], float]
    """The learning rate at which a cell's estimator ends highest."""


Seeds = dict[int, Record]
Rates = dict[float, Seeds]
Cells = dict[Cell, dict[str, Rates]]


def analyse(records: Iterable[Record], reference: str) -> Findings:
    """All tables of a study.

    p-values are Holm's, corrected for all comparisons of one quantity in the study. A run that
    never reaches the target counts with all its steps, so such means are lower bounds.
    """
    cells: Cells = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    for record in records:
        cell = Cell(*(record[name] for name in Cell._fields))
        cells[cell][record["estimator"]][record["learning_rate"]][record["seed"]] = record
    found = Findings([], [], [], [], {})
    for cell, estimators in cells.items():
        _add(found, cell, estimators, reference)
    for quantity in TESTED:
        family = [row for row in found.differences if row["quantity"] == quantity]
        for row, p in zip(family, holm([row["p"] for row in family]), strict=True):
            row["p_holm"] = p
    return found._replace(regret=regret(found.rows))


def _add(found: Findings, cell: Cell, estimators: dict[str, Rates], reference: str) -> None:
    """Adds what one cell shows."""
    best = {name: best_rate(rates) for name, rates in estimators.items()}
    found.best.update({(cell, name): rate for name, rate in best.items()})
    theirs = estimators[reference]
    quantities = _quantities(target(theirs[best[reference]].values()))
    for name, rates in estimators.items():
        own: Row = {"cell": cell, "estimator": name}
        for rate, seeds in rates.items():
            settings = {**own, "learning_rate": rate}
            found.rows.extend(_means({**settings, "best": rate == best[name]}, seeds, quantities))
            if name != reference and rate in theirs:
                found.at_each_rate.extend(_differences(settings, seeds, theirs[rate], quantities))
        if name != reference:
            own["learning_rate"] = best[name]
            pairs = rates[best[name]], theirs[best[reference]]
            found.differences.extend(_differences(own, *pairs, quantities))
            if len(rates) > 1:
                found.differences.extend(_any_rate(own, rates, theirs))


def best_rate(rates: Rates) -> float:
    """The learning rate with the highest pass@1."""
    return max(rates, key=lambda rate: _final(rates[rate].values()))


def _final(records: Iterable[Record]) -> float:
    """pass@1 where it was measured, else the training reward."""
    return fmean(each["reward"] if each["pass1"] is None else each["pass1"] for each in records)


def target(records: Iterable[Record]) -> float | None:
    """The reward at `SHARE_OF_RISE` of these runs' mean rise from first to last point, if any."""
    curves = [each["curve"] for each in records]
    first, last = (fmean(curve[place] for curve in curves) for place in (0, -1))
    return first + SHARE_OF_RISE * (last - first) if last > first else None


def steps_to(reward: float, curve: Sequence[float]) -> float:
    """The share of training until a curve, averaged over three points, reaches a reward."""
    smooth = [fmean(curve[max(0, i - 1) : i + 2]) for i in range(len(curve))]
    for i, value in enumerate(smooth):
        if value >= reward:
            before = smooth[i - 1] if i else value
            part = (reward - before) / (value - before) if value > before else 0.0
            return (max(i - 1, 0) + part + 0.5) / len(curve)
    return 1.0


Quantity = Callable[[Record], "float | None"]


def _quantities(reward: float | None) -> dict[str, Quantity]:
    def plain(name: str) -> Quantity:
        return lambda record: record[name]

    return {
        **{name: plain(name) for name in ("pass1", "reward", *CAUSES)},
        "gradient_variance": lambda record: (
            None if record["estimator"] in SCALED else record["gradient_variance"]
        ),
        "steps_to_target": lambda record: (
            None if reward is None else record["steps"] * steps_to(reward, record["curve"])
        ),
    }


def _means(settings: Row, seeds: Seeds, quantities: Mapping[str, Quantity]) -> list[Row]:
    found = []
    for name, quantity in quantities.items():
        values = [value for each in seeds.values() if (value := quantity(each)) is not None]
        if values:
            estimate = clustered_mean(values).plain()
            found.append({**settings, "quantity": name, **estimate, "seeds": len(values)})
    return found


def _differences(
    settings: Row, ours: Seeds, theirs: Seeds, quantities: Mapping[str, Quantity]
) -> list[Row]:
    found = []
    for name, quantity in quantities.items():
        pairs = [(quantity(ours[seed]), quantity(theirs[seed])) for seed in ours]
        found += _difference(settings, name, pairs)
    return found


def _any_rate(settings: Row, ours: Rates, theirs: Rates) -> list[Row]:
    """How an estimator tolerates the learning rate: pass@1 averaged over those of the study."""

    def average(rates: Rates, seed: int) -> float:
        return fmean(_final([each[seed]]) for each in rates.values())

    seeds = next(iter(ours.values()))
    pairs = [(average(ours, seed), average(theirs, seed)) for seed in seeds]
    return _difference({**settings, "learning_rate": None}, "any_rate", pairs)


def _difference(
    settings: Row, quantity: str, pairs: Sequence[tuple[float | None, float | None]]
) -> list[Row]:
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    if len(known) < PAIRED:
        return []
    of = paired_difference(*zip(*known, strict=True))
    test = {"p": of.p_value, "p_holm": None, "seeds": len(known)}
    return [{**settings, "quantity": quantity, **of.estimate.plain(), **test}]


def regret(rows: Sequence[Row]) -> list[Row]:
    """How far each estimator's pass@1 is below the best estimator's of the cell.

    Since the best is picked by the same noisy means, even equal estimators show some regret.
    """
    finals: dict[Cell, dict[str, float]] = defaultdict(dict)
    for row in rows:
        if row["best"] and row["quantity"] == "pass1":
            finals[row["cell"]][row["estimator"]] = row["value"]
    by_estimator: dict[str, dict[Cell, float]] = defaultdict(dict)
    for cell, values in finals.items():
        for name, value in values.items():
            by_estimator[name][cell] = max(values.values()) - value
    found = []
    for name, each in by_estimator.items():
        worst = max(each, key=lambda cell: each[cell])
        best = sum(value == 0 for value in each.values())
        found.append(
            {
                "estimator": name,
                "mean": fmean(each.values()),
                "worst": each[worst],
                "worst_cell": worst.name,
                "cells": len(each),
                "best_in": best,
                "by_cell": {cell.name: value for cell, value in each.items()},
            }
        )
    return sorted(found, key=lambda row: row["mean"])


def in_words(row: Row, reference: str) -> str:
    """A paired difference of pass@1, in points."""
    value, low, high = (100 * row[end] for end in ("value", "low", "high"))
    return (
        f"{row['cell'].name}: {row['estimator']} {value:+.1f} points of pass@1 over {reference} "
        f"({low:+.1f} to {high:+.1f}, paired over {row['seeds']} seeds)"
    )
