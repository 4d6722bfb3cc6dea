"""Tables and pictures of the variance lab, from the files that its programs write."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from openrlhf_js.common.console import cell
from openrlhf_js.report import figures, plot, style
from openrlhf_js.report.plot import Axis, Panel, Row

Summary = Mapping[str, Any]
Arrays = Mapping[str, np.ndarray]

NORMAL_95 = 1.96
FAR = -100.0  # percent: a baseline below would leave no room for the others
ERRORS = {  # the quantity of the left panel, and how it is drawn
    "mse": Panel("Error of the baseline to the true value", "mean squared error", log=True),
    "distance": Panel("Distance to the true gradient", "squared distance ‖g - ∇J‖²", log=True),
}
REDUCTION = "reduction_percent"
SAME = "the same λ for all"  # the curve of a sweep
FIGURE = ("quantity", "value", "low", "high")  # columns of a row that are no settings


def picture(path: Path) -> Path:
    """Draws NAME.json, with NAME.npz beside it, as NAME.png and NAME-dark.png.

    Returns the path of the first.
    """
    summary = json.loads(path.read_text(encoding="utf-8"))
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
        figure = draw(summary, dict(arrays))
    return style.save_both(figure, path.with_suffix(".png"))


def draw(summary: Summary, arrays: Arrays) -> alt.ConcatChart:
    """The picture of a result."""
    if summary["lab"] == "value":
        return _values(summary, arrays)
    if summary["lab"] in ("sweep", "heterogeneity"):
        return _curves(summary, arrays)
    return _errors(summary)


def table(summary: Summary) -> list[dict[str, str]]:
    """The rows side by side: one line for each setting, one column for each quantity."""
    gradients = summary.get("gradients", {})
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    columns: dict[str, str] = {}  # with what stands where a line lacks them
    for row in summary["rows"]:
        settings = {name: cell(value) for name, value in row.items() if name not in FIGURE}
        key = tuple(settings.values())
        line = lines.setdefault(key, settings)
        estimator = row.get("estimator")
        if estimator in gradients:
            line["gradient"] = gradients[estimator]
        quantity = row["quantity"]
        line[quantity] = style.interval(row["value"], row["low"], row["high"])
        for name in line:
            columns[name] = "-"
    return [columns | line for line in lines.values()]


def _errors(summary: Summary) -> alt.ConcatChart:
    """The error of every baseline, and how much lower than rloo's it is: over m, or over the
    checkpoints of a training in panels for every m."""
    gradients: Mapping[str, str] = summary["gradients"]
    labels = {name: _label(name, kind) for name, kind in gradients.items()}
    looks = {labels[name]: look for name, look in style.series_looks(list(gradients)).items()}
    quantities = {row["quantity"] for row in summary["rows"]}
    (error,) = quantities & ERRORS.keys()
    far = _far_estimators(summary)
    panels = _error_panels(summary, error, far)
    hidden = {  # in the panel of a quantity, these estimators
        error: [name for name, kind in gradients.items() if kind == "oracle"],
        REDUCTION: ["rloo", *far],
    }
    shown = []
    for row in summary["rows"]:
        quantity = row["quantity"]
        estimator = row["estimator"]
        if quantity in panels and estimator not in hidden[quantity]:
            shown.append({**row, "line": labels[estimator]})

    checkpoints = summary.get("checkpoints")
    if checkpoints:
        drawings = _draw_by_step(shown, panels, looks)
        return figures.picture(drawings, title=", ".join(checkpoints))
    axis = Axis("m", "responses to a prompt, m", "log2")
    drawings = plot.draw(shown, panels, axis, line="line", looks=looks)
    return figures.picture(drawings, title=summary.get("title", ""))


def _far_estimators(summary: Summary) -> list[str]:
    """The estimators whose error is so much higher than rloo's that only a note names them."""
    far = set()
    for row in summary["rows"]:
        if row["quantity"] == REDUCTION and row["value"] is not None and row["value"] < FAR:
            far.add(row["estimator"])
    return sorted(far)


def _error_panels(summary: Summary, error: str, far: Sequence[str]) -> dict[str, Panel]:
    """The panel of an error of ERRORS, and that of its reduction."""
    size = f"{summary['batches']:,} batches of {summary['batch_prompts']} prompts"
    error_panel = replace(
        ERRORS[error],
        note=f"{size}, 95 % intervals",
        intervals="bars" if summary.get("checkpoints") else "band",
    )
    reduction = Panel(
        title="Lower than rloo by",
        ylabel="reduction, %",
        note=f"far higher: {', '.join(far)}" if far else "paired, with 95 % intervals",
        reference=0,
        intervals="bars",
    )
    return {error: error_panel, REDUCTION: reduction}


def _draw_by_step(
    rows: Sequence[Row], panels: Mapping[str, Panel], looks: Mapping[str, style.Look]
) -> list[plot.Drawing]:
    """Each panel over the training steps, once for every m."""
    counts = dict.fromkeys(row["m"] for row in rows if row["quantity"] == REDUCTION)
    panels_by_m = {}
    for name, panel in panels.items():
        for m in counts:
            panels_by_m[f"{name}, m = {m}"] = replace(panel, title=f"{panel.title}, m = {m}")
    return plot.draw(
        [{**row, "panel": f"{row['quantity']}, m = {row['m']}"} for row in rows],
        panels_by_m,
        Axis("step", "training step"),
        line="line",
        panel="panel",
        looks=looks,
    )


def _label(estimator: str, kind: str) -> str:
    """What a legend calls an estimator; `kind` is that of its gradient (`gradients_of`)."""
    if kind == "oracle":
        return "best constant"
    return f"{estimator} (biased)" if kind == "biased" else estimator


def _curves(summary: Summary, arrays: Arrays) -> alt.ConcatChart:
    """For every set of prompts and m: what every shrinkage saves, and where the rules are."""
    rows_by_panel: dict[str, list[Row]] = {}
    for row in summary["rows"]:
        title = f"m = {row['m']}"
        if row.get("prompts"):
            title = f"{row['prompts']}, {title}"
        rows_by_panel.setdefault(title, []).append(row)

    points = _curve_points(list(rows_by_panel), arrays)
    panels = {}
    for title, rows in rows_by_panel.items():
        points += [{**rule, "panel": title} for rule in _rules(rows)]
        panels[title] = Panel(
            title=title,
            ylabel="lower than rloo by, %",
            note=_note(rows),
            limits=_limits(arrays["reduction_percent"]),
            reference=0,
        )
    looks = style.series_looks(list(dict.fromkeys(point["line"] for point in points)))
    looks[SAME] = looks[SAME]._replace(marker="", stroke=style.SOLID)
    axis = Axis("shrinkage", "shrinkage λ: 0 is rloo, 1 is bloo")
    drawings = plot.draw(points, panels, axis, line="line", panel="panel", looks=looks)
    return figures.picture(drawings, title="Squared distance to the true gradient, 95 % intervals")


def _curve_points(panels: Sequence[str], arrays: Arrays) -> list[Row]:
    """The reduction at every shrinkage, from arrays whose axes are panels and shrinkages."""
    shrinkage = arrays["shrinkage"]
    curves = pd.DataFrame(
        {
            "panel": np.repeat(list(panels), len(shrinkage)),
            "line": SAME,
            "shrinkage": np.tile(shrinkage, len(panels)),
            "value": arrays["reduction_percent"].ravel(),
            "low": arrays["reduction_low"].ravel(),
            "high": arrays["reduction_high"].ravel(),
        }
    )
    rows: list[Row] = curves.to_dict("records")
    return rows


def _rules(rows: Sequence[Row]) -> list[Row]:
    """A point for each rule: its mean shrinkage, and how much lower its error is than rloo's."""
    shrinkages = {row["point"]: row["value"] for row in rows if row["quantity"] == "shrinkage"}
    rules: list[Row] = []
    for row in rows:
        if row["quantity"] == REDUCTION:
            point = row["point"]
            rule = {
                "line": point,
                "shrinkage": shrinkages[point],
                "value": row["value"],
                "low": row["low"],
                "high": row["high"],
            }
            rules.append(rule)
    return rules


def _note(rows: Sequence[Row]) -> str:
    """Where the error is least, and what the rewards are like."""
    notes = []
    for row in rows:
        if row["point"] == "all rewards":
            notes.append(f"{row['quantity']} {row['value']:.3g}")
        elif row["point"] == "least distance" and row["quantity"] == "shrinkage":
            least = style.interval(row["value"], row["low"], row["high"], ".2f")
            notes.append(f"least at {least}")
    return ", ".join(notes)


def _limits(reductions: np.ndarray) -> tuple[float, float]:
    """Limits of the vertical axis, since bloo may be worse than rloo by any amount."""
    top = float(np.nanmax(reductions))
    bottom = max(float(np.nanmin(reductions)), -2 * top)
    margin = 0.3 * (top - bottom)
    return bottom - margin, top + margin


def _values(summary: Summary, arrays: Arrays) -> alt.ConcatChart:
    """The value of each prompt, in ascending order, a line for each group of prompts."""
    prompts = _prompt_values(arrays)
    prompts["share"] = prompts.groupby("group").value.rank(method="first", pct=True)
    rows = prompts.assign(quantity="value").to_dict("records")
    panel = Panel(
        title="The value of each prompt",
        ylabel="mean reward, 1.96 standard errors",
        note=_value_note(summary["rows"]),
    )
    axis = Axis("share", "share of the prompts whose value is no greater")
    drawings = plot.draw(rows, {"value": panel}, axis, line="group")
    return figures.picture(drawings, widths=(640,))


def _prompt_values(arrays: Arrays) -> pd.DataFrame:
    """Each prompt's value with its interval, which ends where the rewards do."""
    values = arrays["values"]
    reach = NORMAL_95 * np.nan_to_num(arrays["standard_errors"])
    least = arrays["rewards"].min()
    greatest = arrays["rewards"].max()
    return pd.DataFrame(
        {
            "group": arrays["groups"].tolist(),
            "value": values,
            "low": (values - reach).clip(least, greatest),
            "high": (values + reach).clip(least, greatest),
        }
    )


def _value_note(rows: Sequence[Row]) -> str:
    """The mean value of all prompts, and the share of them whose rewards are all equal."""
    figures = {row["quantity"]: row for row in rows if row["group"] == "all"}
    mean = figures["mean_value"]
    mean_text = style.interval(mean["value"], mean["low"], mean["high"])
    equal = figures["all_rewards_equal"]["value"]
    return f"mean {mean_text}; all rewards equal for {equal:.0%}"
