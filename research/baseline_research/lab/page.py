"""Tables and pictures of the variance lab, from the files that its programs write."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from answer_graders.programs.console import cell
from baseline_research import plot
from baseline_research.plot import Axis, Panel, Row
from paired_eval.pages import figures, style
from paired_eval.pages.text import with_interval

Summary = Mapping[str, Any]
Arrays = Mapping[str, np.ndarray]

NORMAL_95 = 1.96
FAR = -100.0  # percent: a baseline below this would leave no room for the others
ERRORS = {  # the quantity of the left panel, and how it is drawn
    "mse": Panel("Error of the baseline to the true value", "mean squared error", log=True),
    "distance": Panel("Distance to the true gradient", "squared distance ‖g - ∇J‖²", log=True),
}
REDUCTION = "reduction_percent"
SAME = "the same λ for all"  # the curve of a sweep
FIGURE = ("quantity", "value", "low", "high")  # a row's columns that are not settings


def picture(path: Path) -> Path:
    """Draws NAME.json, with NAME.npz beside it, as NAME.png, and returns its path."""
    summary = json.loads(path.read_text(encoding="utf-8"))
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
        figure = draw(summary, dict(arrays))
    return style.save_png(figure, path.with_suffix(".png"))


def draw(summary: Summary, arrays: Arrays) -> alt.ConcatChart:
    """The picture of a result."""
    if summary["lab"] == "value":
        return _values(arrays)
    if summary["lab"] == "heterogeneity":
        return _curves(summary, arrays)
    return _errors(summary)


def table(summary: Summary) -> list[dict[str, str]]:
    """Pivots the rows: one line for each setting, one column for each quantity."""
    gradients = summary.get("gradients", {})
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    columns: dict[str, str] = {}  # each with the text shown where a line lacks it
    for row in summary["rows"]:
        settings = {name: cell(value) for name, value in row.items() if name not in FIGURE}
        key = tuple(settings.values())
        line = lines.setdefault(key, settings)
        estimator = row.get("estimator")
        if estimator in gradients:
            line["gradient"] = gradients[estimator]
        quantity = row["quantity"]
        line[quantity] = with_interval(row["value"], row["low"], row["high"])
        for name in line:
            columns[name] = "-"
    return [columns | line for line in lines.values()]


def _errors(summary: Summary) -> alt.ConcatChart:
    """The error of every baseline, and how far it is below rloo's: over m, or for checkpoints over
    the training steps, with panels for every m."""
    kinds: Mapping[str, str] = summary["gradients"]
    (error,) = {row["quantity"] for row in summary["rows"]} & ERRORS.keys()
    far = _far_above(summary)
    panels = _error_panels(summary, error, far)
    labels = {name: _label(name, kind) for name, kind in kinds.items()}
    series = list(labels.values())
    rows = []
    for row in _error_rows(summary, error, far):
        rows.append({**row, "line": labels[row["estimator"]]})
    checkpoints = summary.get("checkpoints")
    if checkpoints:
        return figures.picture(_by_step(rows, panels, series), title=", ".join(checkpoints))
    axis = Axis("m", "responses to a prompt, m", "log2")
    drawings = plot.draw(rows, panels, axis, line="line", series=series)
    return figures.picture(drawings, title=summary.get("title", ""))


def _far_above(summary: Summary) -> list[str]:
    """The estimators so far above rloo that they would leave no room for the others."""
    reductions = _of_quantity(summary, REDUCTION)
    return sorted({row["estimator"] for row in reductions if row["value"] < FAR})


def _error_rows(summary: Summary, error: str, far: Sequence[str]) -> list[Row]:
    """Errors of all but the oracle; reductions of all but rloo and the estimators in `far`."""
    kinds = summary["gradients"]
    errors = [row for row in _of_quantity(summary, error) if kinds[row["estimator"]] != "oracle"]
    hidden = ("rloo", *far)
    reductions = [row for row in _of_quantity(summary, REDUCTION) if row["estimator"] not in hidden]
    return errors + reductions


def _of_quantity(summary: Summary, quantity: str) -> list[Row]:
    """The rows of a quantity that have a value."""
    rows = summary["rows"]
    return [row for row in rows if row["quantity"] == quantity and row["value"] is not None]


def _error_panels(summary: Summary, error: str, far: Sequence[str]) -> dict[str, Panel]:
    """The panels of errors and of reductions; a note in the latter names those far above rloo."""
    size = f"{summary['batches']:,} batches of {summary['batch_prompts']} prompts"
    return {
        error: replace(
            ERRORS[error],
            note=f"{size}, 95 % intervals",
            intervals="bars" if summary.get("checkpoints") else "band",
        ),
        REDUCTION: Panel(
            title="Lower than rloo by",
            ylabel="reduction, %",
            note=f"95 % intervals; far higher: {', '.join(far)}" if far else "95 % intervals",
            reference=0,
            intervals="bars",
        ),
    }


def _by_step(
    rows: Sequence[Row], panels: Mapping[str, Panel], series: Sequence[str]
) -> list[plot.Drawing]:
    """Each panel over the training steps, once for every m."""
    drawings = []
    axis = Axis("step", "training step")
    for name, panel in panels.items():
        for m in dict.fromkeys(row["m"] for row in rows):
            of_m = {name: replace(panel, title=f"{panel.title}, m = {m}")}
            at_m = [row for row in rows if row["m"] == m]
            drawings += plot.draw(at_m, of_m, axis, line="line", series=series)
    return drawings


def _label(estimator: str, kind: str) -> str:
    """What a legend calls an estimator; `kind` is that of its gradient (`gradients_of`)."""
    if kind == "oracle":
        return "best constant"
    return f"{estimator} (biased)" if kind == "biased" else estimator


def _curves(summary: Summary, arrays: Arrays) -> alt.ConcatChart:
    """For every set of prompts and m: the reduction at each shrinkage, and where the rules are."""
    rows_by_panel: dict[str, list[Row]] = {}
    for row in summary["rows"]:
        title = f"{row['prompts']}, m = {row['m']}"
        rows_by_panel.setdefault(title, []).append(row)
    shrinkage = arrays["shrinkage"]
    names = ("reduction_percent", "reduction_low", "reduction_high")
    curves = np.stack([arrays[name].reshape(-1, len(shrinkage)) for name in names], -1)
    limits = _limits(curves[..., 0])
    points: list[Row] = []
    panels = {}
    for (title, rows), curve in zip(rows_by_panel.items(), curves, strict=True):
        for point in _curve(shrinkage, curve) + _rules(rows):
            points.append({"panel": title, **point})
        panels[title] = Panel(
            title=title,
            ylabel="lower than rloo by, %",
            note=_note(rows),
            limits=limits,
            reference=0,
        )
    return _drawn_curves(points, panels)


def _drawn_curves(points: Sequence[Row], panels: Mapping[str, Panel]) -> alt.ConcatChart:
    """The panels of curves, with rules as points."""
    axis = Axis("shrinkage", "shrinkage λ: 0 is rloo, 1 is bloo")
    drawings = plot.draw(points, panels, axis, line="line", panel="panel")
    return figures.picture(drawings, title="Squared distance to the true gradient, 95 % intervals")


def _curve(shrinkage: np.ndarray, curve: np.ndarray) -> list[Row]:
    """The points of a curve (K, 3) of reductions with their intervals."""
    points: list[Row] = []
    for x, (value, low, high) in zip(shrinkage, curve, strict=True):
        points.append({"line": SAME, "shrinkage": x, "value": value, "low": low, "high": high})
    return points


def _rules(rows: Sequence[Row]) -> list[Row]:
    """A point for each rule: its mean shrinkage, and how far its distance is below rloo's."""
    shrinkages = {row["point"]: row["value"] for row in rows if row["quantity"] == "shrinkage"}
    return [
        {**row, "line": row["point"], "shrinkage": shrinkages[row["point"]]}
        for row in rows
        if row["quantity"] == REDUCTION
    ]


def _note(rows: Sequence[Row]) -> str:
    """A note: where the distance is least, and what the rewards are like."""
    notes = []
    for row in rows:
        if row["point"] == "all rewards":
            notes.append(f"{row['quantity']} {row['value']:.3g}")
        elif row["point"] == "least distance" and row["quantity"] == "shrinkage":
            least = with_interval(row["value"], row["low"], row["high"], ".2f")
            notes.append(f"least at {least}")
    return ", ".join(notes)


def _limits(reductions: np.ndarray) -> tuple[float, float]:
    """Limits of the vertical axis; bloo may be worse than rloo by any amount."""
    top = float(np.nanmax(reductions))
    bottom = max(float(np.nanmin(reductions)), -2 * top)
    margin = 0.3 * (top - bottom)
    return bottom - margin, top + margin


def _values(arrays: Arrays) -> alt.ConcatChart:
    """The values of the prompts in ascending order, one line for each group of prompts."""
    rewards = arrays["rewards"]
    reach = NORMAL_95 * np.nan_to_num(arrays["standard_errors"])
    rows: list[Row] = []
    for group in np.unique(arrays["groups"]):
        (places,) = np.nonzero(arrays["groups"] == group)
        places = places[arrays["values"][places].argsort(kind="stable")]
        for rank, place in enumerate(places, start=1):
            value = arrays["values"][place]
            row = {
                "group": str(group),
                "quantity": "value",
                "share": rank / len(places),
                "value": value,
                "low": max(value - reach[place], rewards.min()),
                "high": min(value + reach[place], rewards.max()),
            }
            rows.append(row)
    panel = Panel("The value of each prompt", "mean reward", note="95 % intervals")
    axis = Axis("share", "share of the prompts whose value is no greater")
    drawings = plot.draw(rows, {"value": panel}, axis, line="group")
    return figures.picture(drawings, widths=(640,))
