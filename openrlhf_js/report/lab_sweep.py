"""The picture of `lab sweep`: what every shrinkage saves, and where js and js_plus stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from openrlhf_js.report import style

CURVE = "#5f5e5b"
LEAST = "minimum"


def draw(summary: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Figure:
    """Draws the result of `lab sweep`, side by side for every m.

    Args:
        summary: its JSON.
        arrays: its curves, in percent, of (numbers of responses, points).
    """
    figure = style.figure(1, len(arrays["m"]), 4.6, 4.2)
    shared = _limits(summary, arrays)
    for place, (axes, m) in enumerate(zip(figure.axes, arrays["m"].tolist(), strict=True)):
        _curve(axes, arrays, place)
        own = {row["point"]: row for row in summary["rows"] if row["m"] == m}
        _least(axes, own.pop(LEAST))
        for name, row in own.items():
            _point(axes, name, row)
        axes.axhline(0, color=style.INK, linewidth=1)
        axes.set_ylim(*shared)
        style.dress(
            axes,
            f"m = {m}",
            "shrinkage λ: 0 is rloo, 1 is bloo",
            "squared distance lower than rloo's by, %" if place == 0 else "",
            "distance to the true gradient; 95 % intervals",
        )
    handles, labels = figure.axes[0].get_legend_handles_labels()
    columns = len(labels) if len(figure.axes) > 1 else 2
    figure.legend(handles, labels, loc="outside upper left", ncols=columns, frameon=False)
    return figure


def _curve(axes: Axes, arrays: Mapping[str, np.ndarray], place: int) -> None:
    low, high = (arrays[f"reduction_{end}"][place] for end in ("low", "high"))
    bounded = np.isfinite(low) & np.isfinite(high)
    axes.fill_between(
        arrays["shrinkage"], low, high, where=bounded, color=CURVE, alpha=0.16, linewidth=0
    )
    axes.plot(
        arrays["shrinkage"],
        arrays["reduction_percent"][place],
        color=CURVE,
        linewidth=1.8,
        label="the same λ for all",
    )


def _least(axes: Axes, row: Mapping[str, Any]) -> None:
    """The minimiser, with its interval as a hatched strip."""
    axes.axvline(row["shrinkage"], color=style.INK, linewidth=1, linestyle=style.DOTTED)
    axes.axvspan(
        row["shrinkage_low"],
        row["shrinkage_high"],
        facecolor="none",
        edgecolor=style.RULE,
        hatch="///",
        linewidth=0,
        label="least distance",
    )


def _point(axes: Axes, name: str, row: Mapping[str, Any]) -> None:
    look = {**style.series_style(name, 5), "linestyle": "none", "markersize": 8}
    ends = row["reduction_low"], row["reduction_high"]
    value = row["reduction_percent"]
    reach = [[0.0], [0.0]] if None in ends else [[value - ends[0]], [ends[1] - value]]
    label = {"least mse": "least error of the baseline"}.get(name, name)
    axes.errorbar(row["shrinkage"], value, reach, capsize=3, elinewidth=1.2, label=label, **look)


def _limits(summary: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> tuple[float, float]:
    """The same heights for every m, from the least to the greatest that is of interest.

    bloo may be worse than rloo by any amount: below twice the greatest gain it is cut off.
    """
    top = max(
        float(np.nanmax(arrays["reduction_percent"])),
        *(row["reduction_high"] or 0.0 for row in summary["rows"]),
    )
    points = [row["reduction_low"] or 0.0 for row in summary["rows"]]
    ends = arrays["reduction_percent"][:, -1]
    bottom = min(*points, max(float(ends.min()), -2 * top), 0.0)
    room = 0.08 * (top - bottom)
    return bottom - room, top + room
