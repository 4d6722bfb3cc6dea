"""Tables and pictures of the variance lab, from the files that its programs write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from openrlhf_js.common.console import cell
from openrlhf_js.report import style
from openrlhf_js.report.plot import Panel, plot

Summary = Mapping[str, Any]
Arrays = Mapping[str, np.ndarray]

NORMAL_95 = 1.96
BINS = 20
MAX_GROUPS = 6  # told apart in a picture
FAR = -100.0  # percent: a baseline below would leave no room for the others
CURVE = "#5f5e5b"
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
    with rc_context(style.HOUSE):
        if summary["lab"] == "value":
            return _values(summary, arrays)
        if summary["lab"] in ("sweep", "heterogeneity"):
            return _curves(summary, arrays)
        return _by_m(summary)


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
        ends = [row["low"], row["high"]]
        interval = "" if None in ends else " ({:.3g} to {:.3g})".format(*ends)
        text = "-" if row["value"] is None else f"{row['value']:.3g}"
        line[row["quantity"]] = text + interval
    columns = dict.fromkeys(name for line in lines.values() for name in line)
    return [{name: line.get(name, "-") for name in columns} for line in lines.values()]


def _by_m(summary: Summary) -> Figure:
    """Over m: the error of every baseline, and how much lower than rloo's it is."""
    rows, kinds = summary["rows"], summary["gradients"]
    quantity = next(row["quantity"] for row in rows if row["quantity"] in ERRORS)
    values: dict[str, list[float]] = {}
    for row in rows:
        if row["quantity"] == quantity:
            values.setdefault(row["estimator"], []).append(row["value"])
    reduced = [row for row in rows if row["quantity"] == "reduction_percent"]
    far = sorted({row["estimator"] for row in reduced if (row["value"] or 0) < FAR})
    hidden = {
        quantity: [n for n in kinds if kinds[n] == "oracle"],
        "reduction_percent": ["rloo", *far],
    }
    names, shown = {}, {}
    for name, own in values.items():  # baselines with the same errors share a line
        same = [each for each in values if values[each] == own]
        names[name] = ", ".join(same) + " (biased)" * (kinds[name] == "biased")
        names[name] = "best constant" if kinds[name] == "oracle" else names[name]
    for row in rows:
        name = row["estimator"]
        if name not in hidden.get(row["quantity"], [name]):
            shown[names[name], row["m"], row["quantity"]] = {**row, "estimator": names[name]}
    title, ylabel = ERRORS[quantity]
    note = f"{summary['batches']:,} batches of {summary['batch_prompts']} prompts, 95 % intervals"
    beyond = f"far higher: {', '.join(far)}" if far else "paired, with 95 % intervals"
    looks = style.series_styles(list(values))
    return plot(
        shown.values(),
        {
            quantity: Panel(title, ylabel, note, log=True),
            "reduction_percent": Panel(
                "Lower than rloo by", "reduction, %", beyond, reference=0, intervals="bars"
            ),
        },
        x="m",
        xlabel="responses to a prompt, m",
        scale="categories",
        size=(5.9, 4.4),
        title=summary.get("title", ""),
        looks={names[name]: look for name, look in looks.items()},
    )


def _curves(summary: Summary, arrays: Arrays) -> Figure:
    """For every set of prompts and m: what every shrinkage saves, and where the rules are."""
    points: dict[tuple[Any, int], dict[str, dict[str, list[float]]]] = {}
    for row in summary["rows"]:
        point = points.setdefault((row.get("prompts"), row["m"]), {}).setdefault(row["point"], {})
        sides = (row["value"] if row[end] is None else row[end] for end in ("low", "high"))
        point[row["quantity"]] = [row["value"], *sides]
    value, low, high = (
        arrays[f"reduction_{end}"].reshape(len(points), -1) for end in ("percent", "low", "high")
    )
    x, figure = arrays["shrinkage"], style.figure(1, len(points), 4.6, 4.2)
    for i, (axes, ((prompts, m), own)) in enumerate(zip(figure.axes, points.items(), strict=True)):
        bounded = np.isfinite(low[i]) & np.isfinite(high[i])
        shade: dict[str, Any] = {"color": CURVE, "alpha": 0.16, "linewidth": 0}
        axes.fill_between(x, low[i], high[i], bounded, **shade)
        axes.plot(x, value[i], color=CURVE, linewidth=1.8, label="the same λ for all")
        axes.axhline(0, color=style.INK, linewidth=1)
        moments = own.pop("all rewards", {})
        least, first, last = own.pop("least distance")["shrinkage"]
        axes.axvline(least, color=style.INK, linewidth=1, linestyle=style.DOTTED)
        strip: dict[str, Any] = {"edgecolor": style.RULE, "hatch": "///", "linewidth": 0}
        axes.axvspan(first, last, facecolor="none", label="least distance", **strip)
        looks = style.series_styles(list(own))
        for name, point in own.items():
            at, height = point["shrinkage"], point["reduction_percent"]
            across, up = ([[v - a], [b - v]] for v, a, b in (at, height))
            look = {**looks[name], "linestyle": "none", "markersize": 8, "label": name}
            axes.errorbar(at[0], height[0], up, across, capsize=3, elinewidth=1.2, **look)
        said = ", ".join(f"{name} {each[0]:.3g}" for name, each in moments.items())
        style.dress(
            axes,
            f"{prompts}, m = {m}" if prompts else f"m = {m}",
            "shrinkage λ: 0 is rloo, 1 is bloo",
            "" if i else "squared distance lower than rloo's by, %",
            said or "distance to the true gradient; 95 % intervals",
        )
    top = float(np.nanmax(value))
    bottom = max(float(np.nanmin(value)), -2 * top)  # bloo may be worse by any amount
    for axes in figure.axes:
        axes.set_ylim(bottom - 0.3 * (top - bottom), top + 0.3 * (top - bottom))
    handles, labels = figure.axes[0].get_legend_handles_labels()
    columns = len(labels) if len(figure.axes) > 1 else 2
    figure.legend(handles, labels, loc="outside upper left", ncols=columns, frameon=False)
    return figure


def _values(summary: Summary, arrays: Arrays) -> Figure:
    """The values in ascending order with their errors, and their distribution."""
    figure = style.figure(1, 2, height=4.2)
    ascending, distribution = figure.axes
    found = {row["quantity"]: row for row in summary["rows"] if row["group"] == "all"}
    order = np.argsort(arrays["values"], kind="stable")
    values, errors = arrays["values"][order], np.nan_to_num(arrays["standard_errors"][order])
    groups = arrays["groups"][order]
    names = sorted(set(groups.tolist()))
    shown = names if 1 < len(names) <= MAX_GROUPS else [""]
    least, greatest = arrays["rewards"].min(), arrays["rewards"].max()  # no value is beyond
    ends = [(values + side * NORMAL_95 * errors).clip(least, greatest) for side in (-1, 1)]
    reach, place = np.abs(np.stack(ends) - values), np.arange(1, len(values) + 1)
    looks = style.series_styles(list(style.LOOKS)[: len(shown)])
    for name, look in zip(shown, looks.values(), strict=True):
        own = (groups == name) | (name == "")
        bars = {"linestyle": "none", "markersize": 3.5, "elinewidth": 0.8, "linewidth": 0}
        axes_label = style.printable(name)
        ascending.errorbar(
            place[own], values[own], reach[:, own], label=axes_label, **{**look, **bars}
        )
    if len(shown) > 1:
        ascending.legend(frameon=False, loc="upper left")
    ascending.xaxis.set_major_locator(MaxNLocator(integer=True))
    distribution.hist(values, bins=BINS, color=style.LOOKS["js"][0], edgecolor="white")
    mean = found["mean_value"]
    if None not in (mean["low"], mean["high"]):
        distribution.axvspan(mean["low"], mean["high"], color=style.INK, alpha=0.15, linewidth=0)
    distribution.axvline(mean["value"], color=style.INK, linestyle="--")
    distribution.yaxis.set_major_locator(MaxNLocator(integer=True))
    equal = found["all_rewards_equal"]["value"]
    style.dress(
        ascending,
        "The value of each prompt",
        "prompts, by their value",
        "mean reward, with 1.96 standard errors",
        f"{summary['prompts']} prompts, {summary['responses']} responses to each; all rewards "
        f"equal for {equal:.0%}",
    )
    style.dress(
        distribution,
        "How the values are distributed",
        "mean reward",
        "prompts",
        "dashed: their mean, with its 95 % interval in grey",
    )
    return figure
