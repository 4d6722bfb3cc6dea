"""The picture of `lab mse`: the error of every baseline, and how much lower than rloo's it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, PercentFormatter

from openrlhf_js.report import style
from openrlhf_js.report.style import Label

SHRINKING = ("js", "js_plus", "js_fixed")
NAMES = {"js_fixed": "best constant"}

Rows = Sequence[Mapping[str, Any]]
Styles = Mapping[str, dict[str, Any]]


def draw(summary: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Figure:
    """Two axes over the number of responses: mean squared errors, and reductions against rloo.

    Args:
        summary: of `openrlhf-js lab mse`.
        arrays: not needed, since the rows hold what is drawn.
    """
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for row in summary["rows"]:
        by_name.setdefault(row["estimator"], []).append(row)
    styles = style.series_styles(list(by_name))
    figure = style.figure(1, 2, height=4.2)
    errors, reductions = figure.axes
    note = f"{summary['prompts']} prompts, {summary['batch_prompts']} to a batch"
    style.dress(
        errors,
        "Error of the baselines to the true value",
        "responses to a prompt, m",
        "mean squared error",
        f"{note}; with 95 % intervals over prompts",
    )
    style.dress(
        reductions,
        "What shrinkage takes off rloo's error",
        "responses to a prompt, m",
        "reduction, with its 95 % interval",
        note,
    )
    ticks = sorted({row["responses"] for row in summary["rows"]})
    for axes in figure.axes:
        axes.set_xscale("log", base=2)
        axes.margins(x=0.08)
    _errors(errors, by_name, styles)
    shrinking = {name: by_name[name] for name in SHRINKING if name in by_name}
    _reductions(reductions, shrinking, styles)
    for axes in figure.axes:
        axes.set_xticks(ticks, [str(m) for m in ticks])
        axes.xaxis.set_minor_locator(NullLocator())
    return figure


def _errors(axes: Axes, by_name: Mapping[str, Rows], styles: Styles) -> None:
    """A line for each baseline but the oracle; baselines that are the same share one."""
    same: dict[tuple[float, ...], list[str]] = {}
    for name, rows in by_name.items():
        if rows[0]["gradient"] != "oracle":
            same.setdefault(tuple(row["mse"] for row in rows), []).append(name)
    if min(min(values) for values in same) > 0:  # all rewards equal: nothing to put on such a scale
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    labels = []
    for values, names in same.items():
        rows = by_name[names[0]]
        x, look = [row["responses"] for row in rows], styles[names[0]]
        axes.plot(x, values, **look)
        known = [row for row in rows if row["mse_low"] is not None]
        axes.fill_between(
            [row["responses"] for row in known],
            [row["mse_low"] for row in known],
            [row["mse_high"] for row in known],
            color=look["color"],
            alpha=0.1,
            linewidth=0,
        )
        biased = " (biased)" if rows[0]["gradient"] == "biased" else ""
        labels.append(Label(x[-1], values[-1], ", ".join(names) + biased, look["color"]))
    style.label_ends(axes, labels)


def _reductions(axes: Axes, by_name: Mapping[str, Rows], styles: Styles) -> None:
    axes.axhline(0, color=style.RULE, linewidth=1)
    axes.yaxis.set_major_formatter(PercentFormatter(decimals=0))
    labels = []
    for number, (name, rows) in enumerate(by_name.items()):
        known = [row for row in rows if row["low"] is not None]
        if not known:
            continue
        aside = 1 + 0.03 * (number - 1)  # that bars at the same m stand beside each other
        x = [row["responses"] * aside for row in known]
        y = [row["reduction_percent"] for row in known]
        reach = np.array(
            [
                (row["reduction_percent"] - row["low"], row["high"] - row["reduction_percent"])
                for row in known
            ]
        )
        axes.errorbar(x, y, reach.T, capsize=3, **styles[name])
        labels.append(Label(x[-1], y[-1], NAMES.get(name, name), styles[name]["color"]))
    style.label_ends(axes, labels)
