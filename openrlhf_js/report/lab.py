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
from openrlhf_js.report import plot, style
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
    """Draws NAME.json, with NAME.npz beside it, as NAME.png, and returns the PNG's path."""
    summary = json.loads(path.read_text(encoding="utf-8"))
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
        figure = draw(summary, dict(arrays))
    return style.save_png(figure, path.with_suffix(".png"))


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
    lines: dict[tuple[Any, ...], dict[str, str]] = {}
    for row in summary["rows"]:
        settings = {name: row[name] for name in row if name not in FIGURE}
        line = lines.setdefault(tuple(settings.values()), {})
        for name, value in settings.items():
            line[name] = cell(value)
        if row.get("estimator") in gradients:
            line["gradient"] = gradients[row["estimator"]]
        line[row["quantity"]] = style.interval(row["value"], row["low"], row["high"])
    columns = dict.fromkeys(name for line in lines.values() for name in line)
    return [{name: line.get(name, "-") for name in columns} for line in lines.values()]


def _errors(summary: Summary) -> alt.ConcatChart:
    """The error of every baseline, and how much lower than rloo's it is: over m, or over the
    checkpoints of a training in panels for every m."""
    training = summary.get("checkpoints")
    quantity = next(row["quantity"] for row in summary["rows"] if row["quantity"] in ERRORS)
    reductions = [row for row in summary["rows"] if row["quantity"] == REDUCTION]
    far = sorted({row["estimator"] for row in reductions if (row["value"] or 0) < FAR})
    panels = {
        quantity: replace(
            ERRORS[quantity],
            note=f"{summary['batches']:,} batches of {summary['batch_prompts']} prompts, "
            "95 % intervals",
            intervals="bars" if training else "band",
        ),
        REDUCTION: Panel(
            title="Lower than rloo by",
            ylabel="reduction, %",
            note=f"far higher: {', '.join(far)}" if far else "paired, with 95 % intervals",
            reference=0,
            intervals="bars",
        ),
    }
    oracles = [name for name, kind in summary["gradients"].items() if kind == "oracle"]
    hidden = {quantity: oracles, REDUCTION: ["rloo", *far]}
    shown = [
        {**row, "line": _label(row["estimator"], summary["gradients"])}
        for row in summary["rows"]
        if row["quantity"] in panels and row["estimator"] not in hidden[row["quantity"]]
    ]
    looks = {
        _label(name, summary["gradients"]): look
        for name, look in style.series_looks(list(summary["gradients"])).items()
    }
    if not training:
        axis = Axis("m", "responses to a prompt, m", "categories")
        drawings = plot.draw(shown, panels, axis, line="line", looks=looks)
        return plot.picture(drawings, title=summary.get("title", ""))
    counts = dict.fromkeys(row["m"] for row in reductions)
    drawings = plot.draw(
        [{**row, "panel": f"{row['quantity']}, m = {row['m']}"} for row in shown],
        {
            f"{name}, m = {m}": replace(panel, title=f"{panel.title}, m = {m}")
            for name, panel in panels.items()
            for m in counts
        },
        Axis("step", "training step"),
        line="line",
        panel="panel",
        looks=looks,
    )
    return plot.picture(drawings, title=", ".join(training))


def _label(estimator: str, gradients: Mapping[str, str]) -> str:
    """What a legend calls an estimator."""
    kind = gradients[estimator]
    if kind == "oracle":
        return "best constant"
    return f"{estimator} (biased)" if kind == "biased" else estimator


def _curves(summary: Summary, arrays: Arrays) -> alt.ConcatChart:
    """For every set of prompts and m: what every shrinkage saves, and where the rules are."""
    places: dict[str, list[dict[str, Any]]] = {}  # the rows of each panel
    for row in summary["rows"]:
        place = f"m = {row['m']}"
        if row.get("prompts"):
            place = f"{row['prompts']}, {place}"
        places.setdefault(place, []).append(row)
    shrinkage = arrays["shrinkage"]
    curves = pd.DataFrame(
        {
            "panel": np.repeat(list(places), len(shrinkage)),
            "line": SAME,
            "shrinkage": np.tile(shrinkage, len(places)),
            "value": arrays["reduction_percent"].ravel(),
            "low": arrays["reduction_low"].ravel(),
            "high": arrays["reduction_high"].ravel(),
        }
    )
    rows: list[Row] = curves.to_dict("records")
    for place, place_rows in places.items():
        rows += [{**rule, "panel": place} for rule in _rules(place_rows)]
    limits = _limits(arrays["reduction_percent"])
    panels = {
        place: Panel(place, "lower than rloo by, %", _note(place_rows), limits, reference=0)
        for place, place_rows in places.items()
    }
    looks = style.series_looks(list(dict.fromkeys(row["line"] for row in rows)))
    looks[SAME] = looks[SAME]._replace(marker="", dashes=style.SOLID)
    axis = Axis("shrinkage", "shrinkage λ: 0 is rloo, 1 is bloo")
    drawings = plot.draw(rows, panels, axis, line="line", panel="panel", looks=looks)
    return plot.picture(drawings, title="Squared distance to the true gradient, 95 % intervals")


def _rules(rows: Sequence[Row]) -> list[Row]:
    """A point for each rule: its mean shrinkage, and how much lower its error is than rloo's."""
    rules: dict[str, dict[str, Any]] = {}
    for row in rows:
        rule = rules.setdefault(row["point"], {"line": row["point"]})
        if row["quantity"] == "shrinkage":
            rule["shrinkage"] = row["value"]
        elif row["quantity"] == REDUCTION:
            for end in ("value", "low", "high"):
                rule[end] = row[end]
    return [rule for rule in rules.values() if "value" in rule]


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
    values = arrays["values"]
    reach = NORMAL_95 * np.nan_to_num(arrays["standard_errors"])
    least = arrays["rewards"].min()
    greatest = arrays["rewards"].max()
    low = (values - reach).clip(least, greatest)  # no value is beyond
    high = (values + reach).clip(least, greatest)
    groups = arrays["groups"].tolist()
    prompts = pd.DataFrame({"group": groups, "value": values, "low": low, "high": high})
    prompts["share"] = prompts.groupby("group").value.rank(method="first", pct=True)
    rows = prompts.assign(quantity="value").to_dict("records")
    figures = {row["quantity"]: row for row in summary["rows"] if row["group"] == "all"}
    mean = figures["mean_value"]
    mean_text = style.interval(mean["value"], mean["low"], mean["high"])
    equal = figures["all_rewards_equal"]["value"]
    note = f"mean {mean_text}; all rewards equal for {equal:.0%}"
    panel = Panel("The value of each prompt", "mean reward, 1.96 standard errors", note)
    axis = Axis("share", "share of the prompts whose value is no greater")
    drawings = plot.draw(rows, {"value": panel}, axis, line="group")
    return plot.picture(drawings, size=(640, 300))
