"""The picture of `lab gradient`: distances to the precise gradient, and what baselines save."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from openrlhf_js.report import style
from openrlhf_js.report.style import Label

REFERENCE = "rloo"
LEAST_SHOWN = -100.0  # percent; what is worse would leave no room for the others
SHIFT = 0.06  # between neighbours of the same m, in steps from one m to the next


def draw(summary: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Figure:
    """Draws the result of `lab gradient`.

    Args:
        summary: its JSON.
        arrays: its raw numbers, which are not needed.
    """
    rows = summary["rows"]
    names = list(dict.fromkeys(row["estimator"] for row in rows))
    figure = style.figure(1, 2, 5.9, 4.4)
    distance, saved = figure.axes
    style.log_scale(distance)
    distance.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    _lines(distance, rows, names, ("distance", "distance_low", "distance_high"))
    batches = summary["batches"]
    style.dress(
        distance,
        "Distance to the true gradient",
        "responses to a prompt, m",
        "squared distance ‖g - ∇J‖², log scale",
        f"mean over {batches['batches']} batches of {batches['prompts']} prompts, 95 % intervals",
    )
    far = [row for row in rows if row["reduction_percent"] < LEAST_SHOWN]
    below = list(dict.fromkeys(row["estimator"] for row in far))
    ours = [name for name in names if name not in (REFERENCE, *below)]
    _lines(saved, rows, ours, ("reduction_percent", "reduction_low", "reduction_high"))
    saved.axhline(0, color=style.INK, linewidth=1)
    note = "paired by batch, 95 % intervals"
    style.dress(
        saved,
        f"Lower than {REFERENCE} by",
        "responses to a prompt, m",
        "reduction of the squared distance, %",
        f"{note}; {', '.join(below)}: far higher" if below else note,
    )
    return figure


def _lines(
    axes: Axes, rows: list[dict[str, Any]], names: list[str], keys: tuple[str, str, str]
) -> None:
    """A line for each baseline, its points side by side at every m."""
    every_m = sorted({row["m"] for row in rows})
    looks = style.series_styles(names)
    labels = []
    for place, name in enumerate(names):
        own = sorted((row for row in rows if row["estimator"] == name), key=lambda row: row["m"])
        x = [every_m.index(row["m"]) + SHIFT * (place - (len(names) - 1) / 2) for row in own]
        value, low, high = ([_number(row[key]) for row in own] for key in keys)
        axes.errorbar(x, value, _reach(value, low, high), capsize=2, elinewidth=1, **looks[name])
        said = name + " (biased)" * (own[0]["gradient"] == "biased")
        labels.append(Label(x[-1], value[-1], said, looks[name]["color"]))
    axes.set_xticks(range(len(every_m)), [str(m) for m in every_m])
    style.label_ends(axes, labels)


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _reach(value: list[float], low: list[float], high: list[float]) -> np.ndarray:
    """(2, points) lengths of error bars; none where an interval has no end."""
    of, down, up = np.array(value), np.array(low), np.array(high)
    return np.nan_to_num(np.stack([of - down, up - of]))
