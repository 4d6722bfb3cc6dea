"""Models that were evaluated: curves over training, and dots with paired differences.

A model whose name says its training step is a point of a curve. As soon as one has none, all of
them, with a step or without, are also rows of forest plots.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from openrlhf_js.evaluation.passk.compare import compare
from openrlhf_js.evaluation.passk.summary import FILE, Results, items_with, read_results
from openrlhf_js.report import lab, plot, style
from openrlhf_js.report.forest import Forest, ForestRow

STEP = re.compile(r"[-_]*(?:global[-_])?(?:step|checkpoint)[-_]?(\d+).*")  # in a name
STEPS = plot.Axis("step", "training step")


class BenchmarkScore(NamedTuple):
    """A figure with the ends of its interval, in per cent."""

    benchmark: str
    measure: str  # such as pass@4; "" of Arena's
    value: float
    low: float | None
    high: float | None
    items: int | None = None  # where they are fewer than the benchmark's other figures have

    @property
    def label(self) -> str:
        """The measure, and of how many items it is where they are fewer than others'."""
        return self.measure if self.items is None else f"{self.measure} of {self.items:,} items"


class Model(NamedTuple):
    """An evaluated model."""

    name: str
    run: str
    step: int | None
    scores: list[BenchmarkScore]
    results: Results | None  # of `eval passk`


class Forests(NamedTuple):
    """Forest plots of models, and which differences are missing."""

    plots: list[Forest]
    not_compared: list[str]
    """Why two models have no difference, a sentence each."""


def read(paths: Sequence[Path], tasks: Sequence[str] = ()) -> list[Model]:
    """The models of these results of `eval passk` and scores of `eval arena score --json`.

    js-global_step40_hf is step 40 of the run js; a name without a step has none. Models of one
    name are told apart by their paths. Of pass@k these tasks, or all. ValueError for other files.
    """
    results: dict[Path, Results] = {}
    arena: dict[str, list[BenchmarkScore]] = {}
    for path in paths:
        file = path / FILE if path.is_dir() else path
        try:
            content = json.loads(file.read_bytes())
        except ValueError:
            content = None
        if isinstance(content, dict):
            results[path] = read_results(file, tasks)
        else:
            for name, scores in _arena_scores(file, content).items():
                arena.setdefault(name, []).extend(scores)
    models = sampled_models(results, arena)
    sampled = [_name_of(result["model"]) for result in results.values()]
    for name, scores in arena.items():
        if name not in sampled:
            models.append(_model(name, scores, None))
    return models


def sampled_models(
    results: Mapping[Path, Results], arena: Mapping[str, list[BenchmarkScore]]
) -> list[Model]:
    """The models of `eval passk`, with their Arena scores."""
    names = Counter(_name_of(result["model"]) for result in results.values())
    models = []
    for path, result in results.items():
        name = _name_of(result["model"])
        scores = _passk_scores(result) + arena.get(name, [])
        model = _model(name, scores, result)
        if names[name] > 1:
            model = model._replace(name=f"{name} ({path})")
        models.append(model)
    return models


def _model(name: str, scores: list[BenchmarkScore], results: Results | None) -> Model:
    """A model of which the name says the run, and the step if it has one."""
    match = STEP.search(name)
    return Model(
        name=name,
        run=STEP.sub("", name) or "run",
        step=int(match[1]) if match else None,
        scores=scores,
        results=results,
    )


def _name_of(model: str) -> str:
    """The last two folders of a path or repository, or what a server calls it, behind its #."""
    return "-".join(Path(model.rpartition("#")[2]).parts[-2:])


def _arena_scores(file: Path, rows: Any) -> dict[str, list[BenchmarkScore]]:
    """The scores by model, without the baselines'."""
    scores: dict[str, list[BenchmarkScore]] = {}
    try:
        for row in rows:
            if row["model"] == row["baseline"]:
                continue
            benchmark = f"{row['category']}, judged by {row['judge']}"
            if row["style_control"] != "none":
                benchmark += f", style: {row['style_control']}"
            score = BenchmarkScore(benchmark, "", row["score"], row["ci_low"], row["ci_high"])
            scores.setdefault(row["model"], []).append(score)
    except (LookupError, TypeError):
        raise ValueError(
            f"{file} holds neither results of eval passk nor scores of eval arena score --json"
        ) from None
    return scores


def _passk_scores(results: Results) -> list[BenchmarkScore]:
    """pass@1 to pass@k of each benchmark."""
    scores = []
    for name, task in results["tasks"].items():
        for row in task["rows"]:
            if row["quantity"] != "pass_at":
                continue
            items = items_with(task, row["j"])
            score = BenchmarkScore(
                benchmark=name,
                measure=f"pass@{row['j']}",
                items=items if items < items_with(task, 1) else None,
                value=100 * row["value"],
                low=_per_cent(row["low"]),
                high=_per_cent(row["high"]),
            )
            scores.append(score)
    return scores


def _per_cent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def table(models: Sequence[Model]) -> list[dict[str, str]]:
    """A row for each model with a step, a column for each of its figures."""
    return lab.table({"rows": _rows_of_steps(models)})


def _rows_of_steps(models: Sequence[Model]) -> list[plot.Row]:
    """A row for each figure of the models with a step, run by run."""
    with_step = [model for model in models if model.step is not None]
    rows: list[plot.Row] = []
    for model in sorted(with_step, key=lambda model: (model.run, model.step)):
        for score in model.scores:
            row = {
                "run": model.run,
                "step": model.step,
                "quantity": ", ".join(filter(None, [score.benchmark, score.label])),
                "value": score.value,
                "low": score.low,
                "high": score.high,
            }
            rows.append(row)
    return rows


def curves(models: Sequence[Model]) -> list[plot.Drawing]:
    """The scores of the models with a step over training."""
    rows = _rows_of_steps(models)
    titles = [row["quantity"] for row in rows]
    panels = {title: plot.Panel(title, "per cent", intervals="bars") for title in titles}
    return plot.draw(rows, panels, STEPS, line="run")


def forests(models: Sequence[Model]) -> Forests:
    """For each benchmark, the scores of all models, and differences from the first one's."""
    looks = style.series_looks([model.name for model in models])
    plots = []
    not_compared = []
    for benchmark in dict.fromkeys(score.benchmark for model in models for score in model.scores):
        levels = Forest(
            title=benchmark,
            note="95 % intervals",
            xlabel="per cent",
            rows=_levels(benchmark, models),
            looks=looks,
            form=".1f",
        )
        plots.append(levels)
        first, *others = models
        rows = []
        for model in others:
            try:
                rows += _differences(benchmark, first, model)
            except ValueError as error:
                reason = " ".join(str(error).split())
                not_compared.append(f"{model.name} and {first.name}: {reason}")
        if rows:
            differences = Forest(
                title=f"{benchmark}: difference from {first.name}",
                note="paired by item, 95 % intervals",
                xlabel="points",
                rows=rows,
                looks=looks,
                form="+.1f",
                reference=0,
            )
            plots.append(differences)
    return Forests(plots, not_compared)


def _levels(benchmark: str, models: Sequence[Model]) -> list[ForestRow]:
    """A row for each model and measure."""
    rows = []
    for model in models:
        for score in model.scores:
            if score.benchmark == benchmark:
                row = ForestRow(score.label, model.name, score.value, score.low, score.high)
                rows.append(row)
    return rows


def _differences(benchmark: str, first: Model, other: Model) -> list[ForestRow]:
    """The differences of pass@j, item by item; none where a model has no samples of a benchmark.

    ValueError where the two were not measured alike.
    """
    a = _samples_of(benchmark, first)
    b = _samples_of(benchmark, other)
    if not a or not b:
        return []
    rows = []
    for measure in [score.measure for score in first.scores if score.benchmark == benchmark]:
        (difference,) = compare(a, b, measure)["rows"]
        row = ForestRow(
            heading=measure,
            name=other.name,
            value=100 * difference["value"],
            low=_per_cent(difference["low"]),
            high=_per_cent(difference["high"]),
        )
        rows.append(row)
    return rows


def _samples_of(benchmark: str, model: Model) -> Results | None:
    """The results on one benchmark of `eval passk`."""
    if model.results is None or benchmark not in model.results["tasks"]:
        return None
    return {**model.results, "tasks": {benchmark: model.results["tasks"][benchmark]}}
