"""The measured values of each run, and the learning rate at which each estimator is shown."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

from answer_graders.programs.store import read_store
from baseline_research.study.runs import OWN, Cell, Run
from openrlhf_js.estimators import ESTIMATORS

OUTCOMES = ("pass1", "reward")
CAUSES = {
    "pass4": "pass@4 after training",
    "pass16": "pass@16 after training",
    "greedy": "greedy responses, after training",
    "baseline_error": "error of the baseline / rloo's",
    "gradient_variance": "gradient variance",
    "gradient_snr": "gradient signal / noise",
    "dead": "groups with equal rewards",
    "length": "tokens of a response, late",
    "entropy": "nats per token, late",
}
SHARES = ("pass4", "pass16", "dead")  # which lie in [0, 1] whatever the rewards are
# Their advantages and gradients are divided by a standard deviation, so in other units.
SCALED = {name for name, estimator in ESTIMATORS.items() if estimator.scale}

T = TypeVar("T")
Key = TypeVar("Key")
RunRecord = Mapping[str, Any]


class Value(NamedTuple):
    """One quantity of one run."""

    cell: Cell
    estimator: str
    learning_rate: float
    quantity: str
    seed: int
    value: float
    split: str = ""  # of a budget, such as "16 x 8"


def read_runs(path: Path) -> list[RunRecord]:
    """The runs of a study's store, or of compressed records, whose first line has the settings."""
    if path.suffix == ".xz":
        lines = lzma.decompress(path.read_bytes()).splitlines()
        return [json.loads(line) for line in lines[1:]]
    _, records = read_store(path)
    return list({Run.of(record): record for record in records}.values())


def grouped(items: Iterable[T], key: Callable[[T], Key]) -> dict[Key, list[T]]:
    """The items by key; keys and items stay in order."""
    groups: dict[Key, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def setting_of(run: RunRecord) -> tuple[Cell, str]:
    """The cell and the estimator of a run."""
    return Run.of(run).cell, run["estimator"]


def rewards_in_unit(run: RunRecord) -> bool:
    """Whether a run's rewards lie in [0, 1], as far as its record tells."""
    if run["task"] != OWN:
        return True
    means = [run["pass1"], run["reward"], *run["curve"]]
    return bool(run.get("rewards_in_unit", True)) and min(means) >= 0 and max(means) <= 1


def chosen_runs(runs: Iterable[RunRecord]) -> list[RunRecord]:
    """One run for each cell, estimator and seed, at the learning rate that is shown.

    That is the best rate on the other seeds. No run takes part in its own choice, since the highest
    of several noisy means is too high. A single seed chooses for itself.
    """
    chosen = []
    for group in grouped(runs, setting_of).values():
        for seed_runs in grouped(group, lambda run: run["seed"]).values():
            finals = [_final_of_others(run, group) for run in seed_runs]
            chosen.append(seed_runs[finals.index(max(finals))])
    return chosen


def _final_of_others(run: RunRecord, group: Sequence[RunRecord]) -> float:
    """The mean at the run's learning rate over the group's other seeds."""
    others = [
        other["pass1"]
        for other in group
        if other["learning_rate"] == run["learning_rate"] and other["seed"] != run["seed"]
    ]
    return fmean(others) if others else float(run["pass1"])


def measured_values(runs: Iterable[RunRecord]) -> list[Value]:
    """All measured values, quantity by quantity."""
    runs = list(runs)
    values = []
    for quantity in (*OUTCOMES, *CAUSES):
        for run in runs:
            number = run.get(quantity)  # older records lack newer quantities
            estimator = run["estimator"]
            if number is None or (quantity == "gradient_variance" and estimator in SCALED):
                continue
            values.append(
                Value(
                    cell=Run.of(run).cell,
                    estimator=estimator,
                    learning_rate=run["learning_rate"],
                    quantity=quantity,
                    seed=run["seed"],
                    value=number,
                    split=run.get("split", ""),
                )
            )
    return values
