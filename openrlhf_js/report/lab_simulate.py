"""The picture of `lab simulate`: the error of every baseline, and what shrinkage takes off it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, PercentFormatter

from openrlhf_js.report import style
from openrlhf_js.report.style import Label

REFERENCE = "rloo"
SHRINKING = ("js", "js_plus", "js_fixed")
ORACLE = "oracle"
ORACLE_LABELS = {"js_fixed": "best constant"}

Rows = Sequence[Mapping[str, Any]]


def draw(summary: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Figure:
    """Two axes over the number of responses: errors in units of RLOO's, and reductions.

    Args:
        summary: of `openrlhf-js lab simulate`.
        arrays: not needed, since the rows hold what is drawn.
    """
    rows: dict[str, Rows] = {}
    for row in summary["rows"]:
        rows[row["estimator"]] = [*rows.get(row["estimator"], ()), row]
    figure = style.figure(1, 2, height=4.2)
    errors, reductions = figure.axes
    styles = style.series_styles(list(rows))
    note = f"{summary['title']}; {summary['prompts_count']} prompts"
    style.dress(
        errors,
        "Squared error of the baselines",
        "responses to a prompt, m",
        "mean squared error, RLOO = 1",
        note,
    )
    style.dress(
        reductions,
        "What shrinkage takes off RLOO's error",
        "responses to a prompt, m",
        "reduction, with its 95 % interval",
        note,
    )
    ticks = [row["m"] for row in rows[REFERENCE]]
    _errors(errors, rows, styles)
    _reductions(reductions, {name: rows[name] for name in SHRINKING}, styles)
    for axes in (errors, reductions):
        axes.set_xticks(ticks, [str(m) for m in ticks])
        axes.xaxis.set_minor_locator(NullLocator())
    return figure


def _errors(axes: Axes, rows: Mapping[str, Rows], styles: Mapping[str, dict[str, Any]]) -> None:
    """A line for each baseline that can be had; baselines that are the same share one."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    same: dict[tuple[float, ...], list[str]] = {}
    for name, each in rows.items():
        if each[0]["gradient"] == ORACLE:
            continue
        pairs = zip(each, rows[REFERENCE], strict=True)
        ratios = tuple(row["mse"] / reference["mse"] for row, reference in pairs)
        same.setdefault(ratios, []).append(name)
    labels = []
    for ratios, names in same.items():
        x = [row["m"] for row in rows[names[0]]]
        style.line(axes, x, ratios, styles[names[0]])
        biased = " (biased)" if rows[names[0]][0]["gradient"] == "biased" else ""
        text = ", ".join(names) + biased
        labels.append(Label(x[-1], ratios[-1], text, styles[names[0]]["color"]))
    style.label_ends(axes, labels)


def _reductions(axes: Axes, rows: Mapping[str, Rows], styles: Mapping[str, dict[str, Any]]) -> None:
    axes.set_xscale("log", base=2)
    axes.axhline(0, color=style.RULE, linewidth=1)
    axes.yaxis.set_major_formatter(PercentFormatter(decimals=0, symbol=" %"))
    labels = []
    for name, each in rows.items():
        x = [row["m"] for row in each]
        y = np.array([row["reduction_percent"] for row in each])
        ends = np.array([[row["reduction_low"], row["reduction_high"]] for row in each])
        axes.errorbar(x, y, np.abs(ends.T - y), capsize=3, **styles[name])
        text = ORACLE_LABELS.get(name, name)
        labels.append(Label(x[-1], y[-1], text, styles[name]["color"]))
    style.label_ends(axes, labels)
