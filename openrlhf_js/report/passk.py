"""Results of pass@k as tables, sentences and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from openrlhf_js.evaluation.passk.compare import values_of
from openrlhf_js.evaluation.passk.summary import Results, items_with
from openrlhf_js.report import figures, plot, style
from openrlhf_js.report.forest import Forest, ForestRow
from openrlhf_js.report.plot import Axis, Panel
from openrlhf_js.stats import paired_difference

TRUNCATED_WARNING = 5.0  # per cent
STATUSES = ("correct", "wrong", "no_answer", "malformed", "timeout", "error", "truncated")
TaskResults = Mapping[str, Any]  # of one benchmark: items, samples, settings and rows
Table = list[dict[str, Any]]


class PasskRun(NamedTuple):
    """The results of one model, and the folder that holds its samples."""

    label: str  # "A", "B", ... of several, "" of one
    folder: Path
    results: Results

    def samples_file(self, task: str) -> Path:
        """The store of the samples of a task."""
        return self.folder / "samples" / f"{task}.jsonl"

    @property
    def name(self) -> str:
        """The label with the last two folders of the model, or what a server calls it."""
        model = self.results["model"].rpartition("#")[2]
        return f"{self.label}: {'/'.join(Path(model).parts[-2:])}"


def scores(results: Mapping[str, Any]) -> Table:
    """One row for each benchmark: its main figures."""
    return [
        {
            "benchmark": name,
            "items": f"{task['items']:,}",
            "k": str(task["samples"]),
            "mean@k %": _share(task, "mean_at_k"),
            "pass@k %": _pass(task, task["samples"]),
            "majority@k %": _share(task, "majority_at_k"),
            "tokens": _number(task, "tokens"),
        }
        for name, task in results["tasks"].items()
    ]


def passes(results: Mapping[str, Any]) -> Table:
    """pass@j of each benchmark, a column for each j."""
    tasks = results["tasks"]
    counts = {row["j"] for task in tasks.values() for row in task["rows"] if row["j"]}
    table = []
    for name, task in tasks.items():
        row = {"pass@j %, j =": name}
        for j in sorted(counts):
            row[str(j)] = _pass(task, j)
        table.append(row)
    return table


def details(results: Mapping[str, Any]) -> Table:
    """Statuses, truncation, refusals if any, and lengths of correct and other responses."""
    statuses = list(STATUSES)
    if any(_refused(task) for task in results["tasks"].values()):
        statuses.append("refused")
    table = []
    for name, task in results["tasks"].items():
        row = {"responses %": name}
        for status in statuses:
            row[status] = _number(task, status, scale=100)
        row["tokens if correct"] = _number(task, "tokens_correct")
        table.append(row)
    return table


def differences(comparison: Mapping[str, Any], label: str) -> Table:
    """One row for each benchmark of a comparison of another model with A, and their mean."""
    return [
        {
            "benchmark": row["task"],
            "items": f"{row['items']:,}",
            "model": label,
            "A %": f"{100 * row['a']:.1f}",
            "its %": f"{100 * row['b']:.1f}",
            "its - A, points": _interval(row),
            "p": f"{row['p_value']:.2g}",
            "detectable, points": _plain(row["detectable"], scale=100),
        }
        for row in comparison["rows"]
    ]


def forests(runs: Sequence[PasskRun]) -> list[Forest]:
    """For each benchmark, pass@j of all models, and their paired differences from the first's."""
    looks = style.series_looks([run.name for run in runs])
    plots = []
    for benchmark in runs[0].results["tasks"]:
        levels = Forest(
            title=benchmark,
            note="95 % intervals, by item",
            xlabel="per cent",
            rows=[row for run in runs for row in _levels(benchmark, run)],
            looks=looks,
            form=".1f",
        )
        differences = Forest(
            title=f"{benchmark}: difference from {runs[0].label}",
            note="paired by item, 95 % intervals",
            xlabel="points",
            rows=[row for run in runs[1:] for row in _differences(benchmark, runs[0], run)],
            looks=looks,
            form="+.1f",
            reference=0,
        )
        plots += [levels, differences]
    return plots


def _levels(benchmark: str, run: PasskRun) -> list[ForestRow]:
    """A row for each pass@j."""
    task = run.results["tasks"][benchmark]
    rows = []
    for row in task["rows"]:
        if row["quantity"] == "pass_at":
            heading = _measure(row["j"], items_with(task, row["j"]), task["items"])
            rows.append(_dot(heading, run, row))
    return rows


def _differences(benchmark: str, first: PasskRun, other: PasskRun) -> list[ForestRow]:
    """A row for each pass@j, of the items that have enough samples of both."""
    task = other.results["tasks"][benchmark]
    first_task = first.results["tasks"][benchmark]
    rows = []
    for j in [row["j"] for row in task["rows"] if row["quantity"] == "pass_at"]:
        values = values_of(task, f"pass@{j}")
        first_values = values_of(first_task, f"pass@{j}")
        both = np.isfinite(values) & np.isfinite(first_values)
        if both.any():
            difference = paired_difference(values[both], first_values[both])
            heading = _measure(j, int(both.sum()), task["items"])
            rows.append(_dot(heading, other, difference.estimate.plain()))
    return rows


def _measure(j: int, items: int, all_items: int) -> str:
    """What is measured, and of how many items where that is not of all."""
    return f"pass@{j}" if items == all_items else f"pass@{j} of {items:,} items"


def _dot(heading: str, run: PasskRun, row: Mapping[str, Any]) -> ForestRow:
    """A figure in per cent."""
    low, high = (None if row[end] is None else 100 * row[end] for end in ("low", "high"))
    return ForestRow(heading, run.name, 100 * row["value"], low, high)


def notes(results: Mapping[str, Any]) -> list[str]:
    """What a reader should know of the figures."""
    lines = ["Intervals are 95 %, by item."]
    for name, task in results["tasks"].items():
        for line in (
            _refused(task),
            _fewer_items(task),
            _truncated(task),
            _ungraded(task),
        ):
            if line:
                lines.append(f"{name}: {line}")
    return lines


def _refused(task: TaskResults) -> str:
    """How many responses were refused, and what the score is if they count as not correct."""
    answered = task["per_item"]["answered"]
    samples = task["items"] * task["samples"]
    refused = samples - sum(answered)
    if not refused:
        return ""
    score = 100 * sum(task["per_item"]["correct"]) / samples
    return (
        f"{refused:,} of {samples:,} responses were refused and are in no figure "
        f"({answered.count(0)} items have no other); if they count as not correct, mean@k is "
        f"{score:.1f} %. --retry_failed asks them again."
    )


def _of_fewer_items(task: TaskResults) -> list[str]:
    """The pass@j of fewer items than pass@1, since some items have fewer than j responses."""
    fewer = []
    for row in task["rows"]:
        count = items_with(task, row["j"] or 1)
        if count < items_with(task, 1):
            fewer.append(f"pass@{row['j']} of {count:,}")
    return fewer


def _fewer_items(task: TaskResults) -> str:
    fewer = _of_fewer_items(task)
    if not fewer:
        return ""
    return (
        f"some items have too few responses: {', '.join(fewer)} items, the others of "
        f"{items_with(task, 1):,}. Do not compare these figures with each other."
    )


def _truncated(task: TaskResults) -> str:
    truncated = _per_cent(task, "truncated")
    if truncated < TRUNCATED_WARNING:
        return ""
    return (
        f"{truncated:.1f} % were cut off at {task['settings']['max_new_tokens']:,} tokens; a "
        "larger --max_new_tokens may raise the score."
    )


def _ungraded(task: TaskResults) -> str:
    ungraded = _per_cent(task, "timeout") + _per_cent(task, "error")
    if not ungraded:
        return ""
    return f"{ungraded:.2f} % could not be graded and count as not correct; run it again to retry."


def draw(results: Mapping[str, Any], path: Path) -> Path:
    """Draws pass@j over j, a panel for each benchmark, as a PNG."""
    model = results["model"].rpartition("#")[2]
    line = Path(model).name or model
    rows = []
    panels = {}
    for name, task in results["tasks"].items():
        panels[name] = Panel(
            title=name,
            ylabel="pass@j",
            note=", ".join([f"{task['items']:,} items", *_of_fewer_items(task)]),
            limits=(0, 1),
        )
        for row in task["rows"]:
            if row["quantity"] == "pass_at":
                rows.append({**row, "benchmark": name, "model": line})
    axis = Axis("j", "samples j (bands: 95 %, by item)", "log2")
    drawings = plot.draw(
        rows,
        panels,
        axis,
        line="model",
        panel="benchmark",
    )
    return style.save_png(figures.picture(drawings), path)


def value_of(task: TaskResults, quantity: str, j: int | None = None) -> Mapping[str, Any]:
    """One figure of a benchmark with its interval; None where there is none."""
    for row in task["rows"]:
        if row["quantity"] == quantity and row["j"] == j:
            return row
    return {"value": None, "low": None, "high": None}


def _per_cent(task: TaskResults, quantity: str) -> float:
    return 100 * (value_of(task, quantity)["value"] or 0)


def _pass(task: TaskResults, j: int) -> str:
    """pass@j, with its number of items where that is not the benchmark's."""
    count = items_with(task, j)
    cell = _share(task, "pass_at", j)
    return cell if count in (0, items_with(task, 1)) else f"{cell} of {count:,} items"


def _share(task: TaskResults, quantity: str, j: int | None = None) -> str:
    return _interval(value_of(task, quantity, j))


def _interval(row: Mapping[str, Any]) -> str:
    return style.interval(row["value"], row["low"], row["high"], ".1f", 100)


def _number(task: TaskResults, quantity: str, scale: float = 1) -> str:
    return _plain(value_of(task, quantity)["value"], scale)


def _plain(value: float | None, scale: float) -> str:
    return "-" if value is None else f"{scale * value:.1f}"
