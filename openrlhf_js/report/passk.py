"""The picture of pass@k: one panel for each benchmark, one curve with its band for each model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from openrlhf_js.report import style
from openrlhf_js.report.style import Label

COLUMNS = 3  # of panels


def draw(found: Sequence[Mapping[str, Any]], names: Sequence[str], path: Path) -> Path:
    """Draws pass@j over j and saves a PNG.

    Args:
        found: results of each model, on the same benchmarks.
        names: of the models.
        path: of the PNG.
    """
    tasks = [*found[0]["tasks"]]
    columns = min(COLUMNS, len(tasks))
    with rc_context(style.HOUSE):
        figure = style.figure(-(-len(tasks) // columns), columns, width=5.2)
        looks = style.series_styles(names)
        for axes, task in zip(figure.axes, tasks, strict=False):
            ends = [
                _curve(axes, each["tasks"][task], name, looks[name])
                for each, name in zip(found, names, strict=True)
            ]
            _dress(axes, task, found[0]["tasks"][task])
            if len(names) > 1:
                style.label_ends(axes, ends)
        for axes in figure.axes[len(tasks) :]:
            axes.set_visible(False)
        return style.save_png(figure, path)


def _curve(axes: Axes, task: Mapping[str, Any], name: str, look: dict[str, Any]) -> Label:
    tries = sorted(map(int, task["pass_at"]))
    estimates = [task["pass_at"][str(j)] for j in tries]
    values = [each["value"] for each in estimates]
    low, high = (
        [math.nan if each[side] is None else each[side] for each in estimates]
        for side in ("low", "high")
    )
    axes.fill_between(tries, low, high, color=look["color"], alpha=0.15, linewidth=0)
    axes.plot(tries, values, **look)
    majority = task["majority_at_k"]["value"]
    axes.plot(tries[-1], majority, marker="*", markersize=10, color=look["color"], clip_on=False)
    return Label(tries[-1], values[-1], name, look["color"])


def _dress(axes: Axes, name: str, task: Mapping[str, Any]) -> None:
    tries = sorted(map(int, task["pass_at"]))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(tries))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylim(0, 1)
    note = f"{task['items']:,} items; star: majority of {tries[-1]}"
    style.dress(axes, name, "samples j (bands: 95 %, by item)", "pass@j", note)
