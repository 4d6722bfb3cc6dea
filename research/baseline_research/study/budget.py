"""The same number of responses for every estimator, each at its own best split and learning rate.

A split is a number of responses to each prompt: 128 responses are 16 prompts x 8, or 128 x 1. On
the choice seeds, each estimator tries every split at the given learning rates. Then it tries
the neighbours of its best setting, half and twice the rate and the next splits, until none of them
is better. The other seeds train at that setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any, NamedTuple

from baseline_research.study.design import Study
from baseline_research.study.runs import Cell, Run

FACTOR = 2.0  # between learning rates


class Setting(NamedTuple):
    """What an estimator chooses."""

    prompts: int
    responses: int
    learning_rate: float


Records = Mapping[Any, Mapping[str, Any]]  # of finished runs, by run


def all_runs(settings: Study, records: Records) -> list[Run]:
    """The runs of a study, as far as these records tell what it has to train."""
    if not settings.budget:
        return settings.runs()
    runs: list[Run] = []
    final_runs: list[Run] = []
    for cell in budget_cells(settings):
        for estimator in settings.estimator_names:
            tried, best = search(cell, estimator, settings, records)
            runs += _runs(cell, estimator, tried, settings.choice)
            if best:
                final_runs += _runs(cell, estimator, [best], settings.seed_range)
    return sorted(runs, key=lambda run: run.seed) + sorted(final_runs, key=lambda run: run.seed)


def budget_cells(settings: Study) -> list[Cell]:
    """A cell for each task and mix, whatever the split."""
    kinds = dict.fromkeys((cell.task, cell.mix) for cell in settings.cells())
    return [Cell(task, mix, prompts=0, responses=settings.budget) for task, mix in kinds]


def search(
    cell: Cell, estimator: str, settings: Study, records: Records
) -> tuple[list[Setting], Setting | None]:
    """The settings to try on the choice seeds; the best one, or None until all are tried."""
    sizes = _sizes(estimator, settings)
    tried = [
        Setting(prompts, responses, rate)
        for prompts, responses in sizes
        for rate in settings.learning_rates
    ]
    while True:
        results = {}
        for setting in tried:
            runs = _runs(cell, estimator, [setting], settings.choice)
            if any(run not in records for run in runs):
                return tried, None
            results[setting] = fmean(records[run]["pass1"] for run in runs)
        best = max(results, key=lambda setting: results[setting])
        new = [setting for setting in _neighbours(best, sizes) if setting not in results]
        if not new:
            return tried, best
        tried += new


class Tried(NamedTuple):
    """A split at its best learning rate, on the choice seeds."""

    cell: str  # title
    estimator: str
    split: str
    responses: int
    learning_rate: float
    pass1: float


def tried_splits(settings: Study, records: Records) -> list[Tried]:
    """Every split that an estimator has tried."""
    rows: list[Tried] = []
    for cell in budget_cells(settings):
        for estimator in settings.estimator_names:
            tried, _ = search(cell, estimator, settings, records)
            best: dict[int, Tried] = {}
            for setting in tried:
                runs = _runs(cell, estimator, [setting], settings.choice)
                if any(run not in records for run in runs):
                    continue
                row = Tried(
                    cell=cell.title,
                    estimator=estimator,
                    split=f"{setting.prompts} x {setting.responses}",
                    responses=setting.responses,
                    learning_rate=setting.learning_rate,
                    pass1=fmean(records[run]["pass1"] for run in runs),
                )
                if row.responses not in best or best[row.responses].pass1 < row.pass1:
                    best[row.responses] = row
            rows += best.values()
    return rows


def final_records(settings: Study, records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The records of the final seeds, in the cells of the budget, each with its split."""
    return [
        {
            **record,
            "split": f"{record['prompts']} x {record['responses']}",
            "prompts": 0,
            "responses": settings.budget,
        }
        for record in records
        if record["seed"] in settings.seed_range
    ]


def _sizes(estimator: str, settings: Study) -> list[tuple[int, int]]:
    """The splits that an estimator can use, by number of responses."""
    record = settings.record_of(settings.estimator_name(estimator))
    sizes = sorted(settings.sizes(), key=lambda size: size[1])
    return [size for size in sizes if record is None or not record.lacks(*size)]


def _neighbours(setting: Setting, sizes: list[tuple[int, int]]) -> list[Setting]:
    """Half and twice the learning rate, and the splits beside this one."""
    place = sizes.index((setting.prompts, setting.responses))
    rates = (setting.learning_rate / FACTOR, setting.learning_rate * FACTOR)
    neighbours = [setting._replace(learning_rate=rate) for rate in rates if rate < 1]
    for prompts, responses in sizes[max(0, place - 1) : place] + sizes[place + 1 : place + 2]:
        neighbours.append(Setting(prompts, responses, setting.learning_rate))
    return neighbours


def _runs(
    cell: Cell, estimator: str, settings_tried: Iterable[Setting], seeds: Iterable[int]
) -> list[Run]:
    return [
        Run(
            cell.task,
            cell.mix,
            setting.prompts,
            setting.responses,
            estimator=estimator,
            learning_rate=setting.learning_rate,
            seed=seed,
        )
        for seed in seeds
        for setting in settings_tried
    ]
