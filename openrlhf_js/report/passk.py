"""Results of pass@k as tables, sentences and a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openrlhf_js.report import style
from openrlhf_js.report.plot import Panel, plot

TRUNCATED_WARNING = 5.0  # per cent
Table = list[dict[str, Any]]


def scores(found: Mapping[str, Any]) -> Table:
    """One row for each benchmark: its main figures."""
    return [
        {
            "benchmark": name,
            "items": f"{task['items']:,}",
            "k": str(task["samples"]),
            "mean@k %": _share(task, "mean_at_k"),
            "pass@k %": _share(task, "pass_at", task["samples"]),
            "majority@k %": _share(task, "majority_at_k"),
            "tokens": _number(task, "tokens"),
        }
        for name, task in found["tasks"].items()
    ]


def passes(found: Mapping[str, Any]) -> Table:
    """pass@j of each benchmark, a column for each j."""
    every = sorted({row["j"] for task in found["tasks"].values() for row in task["rows"]} - {None})
    return [
        {"pass@j %, j =": name, **{str(j): _share(task, "pass_at", j) for j in every}}
        for name, task in found["tasks"].items()
    ]


def details(found: Mapping[str, Any]) -> Table:
    """Statuses, truncation, refusals if any, and lengths of correct and other responses."""
    statuses = ["correct", "wrong", "no_answer", "malformed", "timeout", "error", "truncated"]
    if any(_refused(task) for task in found["tasks"].values()):
        statuses.append("refused")
    return [
        {
            "responses %": name,
            **{status: _number(task, status, 100) for status in statuses},
            "tokens if correct": _number(task, "tokens_correct"),
        }
        for name, task in found["tasks"].items()
    ]


def differences(found: Mapping[str, Any]) -> Table:
    """One row for each benchmark of a comparison, and their mean."""
    return [
        {
            "benchmark": row["task"],
            "items": f"{row['items']:,}",
            "A %": f"{100 * row['a']:.1f}",
            "B %": f"{100 * row['b']:.1f}",
            "B - A, points": _interval(row),
            "p": f"{row['p_value']:.2g}",
            "detectable, points": style.interval(row["detectable"], None, None, ".1f", 100),
        }
        for row in found["rows"]
    ]


def notes(found: Mapping[str, Any]) -> list[str]:
    """What a reader should know of the figures."""
    lines = ["Intervals are 95 %, by item."]
    for name, task in found["tasks"].items():
        for line in (_refused(task), _truncated(task), _ungraded(task)):
            if line:
                lines.append(f"{name}: {line}")
    return lines


def _refused(task: Mapping[str, Any]) -> str:
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


def _truncated(task: Mapping[str, Any]) -> str:
    truncated = _percent(task, "truncated")
    if truncated < TRUNCATED_WARNING:
        return ""
    return (
        f"{truncated:.1f} % were cut off at {task['settings']['max_new_tokens']:,} tokens; a "
        "larger --max_new_tokens may raise the score."
    )


def _ungraded(task: Mapping[str, Any]) -> str:
    ungraded = _percent(task, "timeout") + _percent(task, "error")
    if not ungraded:
        return ""
    return f"{ungraded:.2f} % could not be graded and count as not correct; run it again to retry."


def _percent(task: Mapping[str, Any], quantity: str) -> float:
    return 100 * float(value_of(task, quantity)["value"] or 0)


def draw(found: Mapping[str, Any], path: Path) -> Path:
    """Draws pass@j over j, a panel for each benchmark, as a PNG."""
    model = found["model"].rpartition("#")[2]
    rows = [
        {**row, "benchmark": name, "model": Path(model).name or model}
        for name, task in found["tasks"].items()
        for row in task["rows"]
        if row["quantity"] == "pass_at"
    ]
    panels = {
        name: Panel(name, "pass@j", f"{task['items']:,} items", limits=(0, 1))
        for name, task in found["tasks"].items()
    }
    over: dict[str, Any] = {"x": "j", "xlabel": "samples j (bands: 95 %, by item)", "line": "model"}
    figure = plot(rows, panels, panel="benchmark", scale="log2", columns=3, **over)
    return style.save_png(figure, path)


def value_of(task: Mapping[str, Any], quantity: str, j: int | None = None) -> Mapping[str, Any]:
    """One figure of a benchmark with its interval; None where there is none."""
    found = (row for row in task["rows"] if row["quantity"] == quantity and row["j"] == j)
    return next(found, {"value": None, "low": None, "high": None})


def _share(task: Mapping[str, Any], quantity: str, j: int | None = None) -> str:
    return _interval(value_of(task, quantity, j))


def _interval(row: Mapping[str, Any]) -> str:
    return style.interval(row["value"], row["low"], row["high"], ".1f", 100)


def _number(task: Mapping[str, Any], quantity: str, scale: float = 1) -> str:
    return style.interval(value_of(task, quantity)["value"], None, None, ".1f", scale)
