"""Tables and pictures of the variance lab, from the files that its programs write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from openrlhf_js.common.console import cell
from openrlhf_js.report import style
from openrlhf_js.report.plot import Panel, plot

Summary = Mapping[str, Any]
Arrays = Mapping[str, np.ndarray]

NORMAL_95 = 1.96
FAR = -100.0  # percent: a baseline below would leave no room for the others
ERRORS = {  # the quantity of the left panel, and what it is
    "mse": ("Error of the baseline to the true value", "mean squared error"),
    "distance": ("Distance to the true gradient", "squared distance ‖g - ∇J‖²"),
}


def picture(path: Path) -> Path:
    """Draws NAME.json, with NAME.npz beside it, as NAME.png, and returns the PNG's path."""
    summary = json.loads(path.read_text(encoding="utf-8"))
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
        figure = draw(summary, dict(arrays))
    return style.save_png(figure, path.with_suffix(".png"))


def draw(summary: Summary, arrays: Arrays) -> Figure:
    """The picture of a result."""
    drawn = {"value": _values, "sweep": _curves, "heterogeneity": _curves}
    return drawn.get(summary["lab"], _by_m)(summary, arrays)


def table(summary: Summary) -> list[dict[str, str]]:
    """The rows side by side: one line for each setting, one column for each quantity."""
    lines: dict[tuple[Any, ...], dict[str, str]] = {}
    kinds = summary.get("gradients", {})
    for row in summary["rows"]:
        names = [name for name in row if name not in ("quantity", "value", "low", "high")]
        line = lines.setdefault(tuple(row[name] for name in names), {})
        line.update({name: cell(row[name]) for name in names})
        if row.get("estimator") in kinds:
            line["gradient"] = kinds[row["estimator"]]
        line[row["quantity"]] = style.interval(row["value"], row["low"], row["high"])
    columns = dict.fromkeys(name for line in lines.values() for name in line)
    return [{name: line.get(name, "-") for name in columns} for line in lines.values()]


def _by_m(summary: Summary, arrays: Arrays) -> Figure:
    """The error of every baseline, and how much lower than rloo's it is: over m, or over the
    checkpoints of a training in panels for every m."""
    rows, kinds, training = summary["rows"], summary["gradients"], summary.get("checkpoints")
    quantity = next(row["quantity"] for row in rows if row["quantity"] in ERRORS)
    reduced = [row for row in rows if row["quantity"] == "reduction_percent"]
    far = sorted({row["estimator"] for row in reduced if (row["value"] or 0) < FAR})
    oracle = [name for name, kind in kinds.items() if kind == "oracle"]
    names = {name: name + " (biased)" * (kind == "biased") for name, kind in kinds.items()}
    names |= dict.fromkeys(oracle, "best constant")
    title, ylabel = ERRORS[quantity]
    note = f"{summary['batches']:,} batches of {summary['batch_prompts']} prompts, 95 % intervals"
    beyond = f"far higher: {', '.join(far)}" if far else "paired, with 95 % intervals"
    ends = {row["m"]: f", m = {row['m']}" * bool(training) for row in reduced}
    error = Panel(title, ylabel, note, log=True, intervals="bars" if training else "band")
    lower = Panel("Lower than rloo by", "reduction, %", beyond, reference=0, intervals="bars")
    panels = {
        f"{name}{end}": replace(panel, title=f"{panel.title}{end}")
        for name, panel in ((quantity, error), ("reduction_percent", lower))
        for end in dict.fromkeys(ends.values())
    }
    hidden = {quantity: oracle, "reduction_percent": ["rloo", *far]}
    shown = [
        row | {"estimator": names[row["estimator"]], "panel": row["quantity"] + ends[row["m"]]}
        for row in rows
        if row["estimator"] not in hidden.get(row["quantity"], ())
    ]
    return plot(
        shown,
        panels,
        x="step" if training else "m",
        xlabel="training step" if training else "responses to a prompt, m",
        panel="panel",
        scale="linear" if training else "categories",
        columns=max(2, len(panels) // 2),
        size=(5.9, 4.4),
        title=", ".join(training) if training else summary.get("title", ""),
        looks={names[name]: look for name, look in style.series_styles(list(kinds)).items()},
    )


def _curves(summary: Summary, arrays: Arrays) -> Figure:
    """For every set of prompts and m: what every shrinkage saves, and where the rules are."""
    notes: dict[str, list[str]] = {}
    points: dict[tuple[str, str], dict[str, Any]] = {}
    for row in summary["rows"]:
        where = ", ".join([*filter(None, [row.get("prompts")]), f"m = {row['m']}"])
        note = notes.setdefault(where, [])
        value, quantity, point = row["value"], row["quantity"], row["point"]
        if point == "all rewards":
            note.append(f"{quantity} {value:.3g}")
        elif quantity == "shrinkage":
            points[where, point] = {"panel": where, "line": point, "shrinkage": value}
            if point == "least distance":
                note.append(f"least at {style.interval(value, row['low'], row['high'], '.2f')}")
        elif quantity == "reduction_percent":
            points[where, point] |= {end: row[end] for end in ("value", "low", "high")}
    ends = [f"reduction_{end}" for end in ("percent", "low", "high")]
    value, low, high = (arrays[end].reshape(len(notes), -1) for end in ends)
    top = float(np.nanmax(value))
    bottom = max(float(np.nanmin(value)), -2 * top)  # bloo may be worse by any amount
    limits = bottom - 0.3 * (top - bottom), top + 0.3 * (top - bottom)
    same = "the same λ for all"
    curves = [
        {"panel": where, "line": same, "shrinkage": x, "value": a, "low": b, "high": c}
        for where, *numbers in zip(notes, value, low, high, strict=True)
        for x, a, b, c in zip(arrays["shrinkage"], *numbers, strict=True)
    ]
    looks = style.series_styles([same, *dict.fromkeys(line for _, line in points)])
    return plot(
        [*curves, *points.values()],
        {
            where: Panel(where, "lower than rloo by, %", ", ".join(note), limits, reference=0)
            for where, note in notes.items()
        },
        x="shrinkage",
        xlabel="shrinkage λ: 0 is rloo, 1 is bloo",
        line="line",
        panel="panel",
        columns=4,
        title="Squared distance to the true gradient, 95 % intervals",
        looks=looks | {same: {**looks[same], "marker": "", "linestyle": "-"}},
    )


def _values(summary: Summary, arrays: Arrays) -> Figure:
    found = {row["quantity"]: row for row in summary["rows"] if row["group"] == "all"}
    values, errors = arrays["values"], NORMAL_95 * np.nan_to_num(arrays["standard_errors"])
    least, greatest = arrays["rewards"].min(), arrays["rewards"].max()  # no value is beyond
    low, high = ((values + side * errors).clip(least, greatest) for side in (-1, 1))
    rows = []
    for group in dict.fromkeys(arrays["groups"].tolist()):
        own = np.flatnonzero(arrays["groups"] == group)
        for place, i in enumerate(own[np.argsort(values[own], kind="stable")], 1):
            row = {"group": group, "quantity": "value", "place": place / len(own)}
            rows.append({**row, "value": values[i], "low": low[i], "high": high[i]})
    mean = style.interval(*(found["mean_value"][end] for end in ("value", "low", "high")))
    note = f"mean {mean}; all rewards equal for {found['all_rewards_equal']['value']:.0%}"
    return plot(
        rows,
        {"value": Panel("The value of each prompt", "mean reward, 1.96 standard errors", note)},
        x="place",
        xlabel="share of the prompts whose value is no greater",
        line="group",
        size=(8, 4.2),
    )
