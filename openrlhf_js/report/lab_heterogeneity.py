"""The picture of `lab heterogeneity`: shrinkage and what it saves, for each group and the mix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from openrlhf_js.report import style
from openrlhf_js.report.style import Label

SHIFT = 0.14


def draw(summary: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Figure:
    """Draws the result of `lab heterogeneity`.

    Args:
        summary: its JSON.
        arrays: the curves of every set, in percent, of (sets, points).
    """
    figure = style.figure(1, 2, 5.9, 4.4)
    coefficients, saved = figure.axes
    names = [str(name) for name in arrays["sets"]]
    _coefficients(coefficients, summary["rows"], names)
    style.dress(
        coefficients,
        "Shrinkage of every set",
        "",
        f"shrinkage λ at m = {summary['m']}",
        "v: error of a prompt's mean; s: variance of the values; 95 % intervals",
    )
    _curves(saved, summary["rows"], arrays, names)
    style.dress(
        saved,
        "What it saves",
        "shrinkage λ: 0 is rloo, 1 is bloo",
        "squared distance lower than rloo's by, %",
        "distance to the true gradient; lines: the same λ for all; markers: js",
    )
    return figure


def _coefficients(axes: Axes, rows: list[dict[str, Any]], names: list[str]) -> None:
    for place, (name, label, keys) in enumerate(
        (
            ("js", "js", ("shrinkage", "shrinkage_low", "shrinkage_high")),
            ("js_plus", "js_plus", ("shrinkage", "shrinkage_low", "shrinkage_high")),
            ("js", "least distance", ("best_shrinkage", "best_low", "best_high")),
        )
    ):
        own = [row for row in rows if row["estimator"] == name]
        look = style.series_style(label, 9)
        value, low, high = (np.array([row[key] for row in own], dtype=float) for key in keys)
        axes.errorbar(
            np.arange(len(own)) + SHIFT * (place - 1),
            value,
            np.nan_to_num(np.stack([value - low, high - value])),
            label=label,
            capsize=3,
            **{**look, "linestyle": "none", "markersize": 8},
        )
    first = {row["prompts"]: row for row in reversed(rows)}
    axes.set_xticks(
        range(len(names)),
        [
            f"{style.printable(name)}\nvalue {first[name]['value']:.2f}\n"
            f"v {first[name]['v']:.3f}\ns {first[name]['s']:.3f}"
            for name in names
        ],
        fontsize=8,
    )
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_ylim(0, 1.05)  # a marker at 1 is seen whole
    axes.legend(frameon=False, fontsize=8)


def _curves(
    axes: Axes, rows: list[dict[str, Any]], arrays: Mapping[str, np.ndarray], names: list[str]
) -> None:
    looks = style.series_styles([f"set {name}" for name in names])  # js is no set
    js = {row["prompts"]: row for row in rows if row["estimator"] == "js"}
    labels = []
    for place, name in enumerate(names):
        look = looks[f"set {name}"]
        values = arrays["reduction_percent"][place]
        axes.plot(
            arrays["shrinkage"],
            values,
            color=look["color"],
            linestyle=look["linestyle"],
            linewidth=1.8,
        )
        row = js[name]
        ends = row["reduction_low"], row["reduction_high"]
        value = row["reduction_percent"]
        reach = [[0.0], [0.0]] if None in ends else [[value - ends[0]], [ends[1] - value]]
        axes.errorbar(
            row["shrinkage"],
            value,
            reach,
            capsize=3,
            **{**look, "linestyle": "none", "markersize": 8},
        )
        labels.append(Label(1.0, float(values[-1]), name, look["color"]))
    axes.axhline(0, color=style.INK, linewidth=1)
    style.label_ends(axes, labels)
