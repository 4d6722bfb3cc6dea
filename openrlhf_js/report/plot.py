"""One picture of any tidy rows: settings, a quantity, its value and the ends of its interval."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from openrlhf_js.report import style

MAX_NAME_LENGTH = 24  # of a name beside its line
MAX_MARKERS = 8  # on a line
DODGE = 0.02  # of the axis, between the error bars of neighbours

Row = Mapping[str, Any]
Scale = Literal["linear", "log2", "categories"]


@dataclass(frozen=True)
class Panel:
    """How one quantity is drawn."""

    title: str
    ylabel: str  # with its unit
    note: str = ""  # a smaller line under the title
    limits: tuple[float | None, float | None] = (None, None)
    log: bool = False  # a logarithmic vertical axis, if all values are above 0
    reference: float | None = None  # where to draw a horizontal line
    intervals: Literal["band", "bars"] = "band"
    axis: tuple[str, str, Scale] | None = None  # in `plot`, its own x, xlabel and scale


def plot(
    rows: Iterable[Row],
    panels: Mapping[str, Panel],
    *,
    x: str,
    xlabel: str,
    line: str = "estimator",
    panel: str = "quantity",
    scale: Scale = "linear",
    columns: int = 2,
    size: tuple[float, float] = (5.5, 3.7),
    title: str = "",
    looks: Mapping[str, dict[str, Any]] | None = None,
) -> Figure:
    """Draws one panel for each quantity, and in it one line for each value of a setting.

        rows = [{"m": 4, "estimator": "js", "quantity": "mse", "value": 1, "low": 0.9, "high": 1.1}]
        figure = plot(rows, {"mse": Panel("Error", "MSE")}, x="m", xlabel="responses, m")
        style.save_png(figure, path)

    A missing, None or NaN `value` leaves out a point, and such a `low` or `high` its interval.
    `x`, `line` and `panel` name settings of the rows; `panels` decides what is drawn, in its order.
    The scale `categories` puts all values of `x` at equal distances. `size` is of one panel, in
    inches, and `looks` are those of `style.series_styles`.
    """
    rows = [row for row in rows if row[panel] in panels]
    names = list(dict.fromkeys(str(row[line]) for row in rows))
    looks = looks or style.series_styles(names)
    columns = min(columns, len(panels))
    noted = any(each.note for each in panels.values())
    with rc_context(style.HOUSE):
        figure = style.figure(-(-len(panels) // columns), columns, *size)
        if title:
            figure.suptitle(style.printable(title), x=0.01, ha="left", color=style.INK)
        for axes, (quantity, shown) in zip(figure.axes, panels.items(), strict=False):
            key, label, kind = shown.axis or (x, xlabel, scale)
            own = [row for row in rows if row[panel] == quantity and finite(row.get("value"))]
            values = sorted({row[key] for row in own})
            places = {v: i if kind == "categories" else v for i, v in enumerate(values)}
            own.sort(key=lambda row: places[row[key]])
            lines = {name: [row for row in own if str(row[line]) == name] for name in names}
            lines = {name: each for name, each in lines.items() if each}
            at = {name: [places[row[key]] for row in each] for name, each in lines.items()}
            _draw(axes, shown, lines, at, kind, looks)
            if kind != "linear":
                axes.set_xticks(list(places.values()), [str(each) for each in places])
                axes.xaxis.set_minor_locator(NullLocator())
            elif all(float(each).is_integer() for each in places):
                axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
            axes.margins(x=0.04)
            style.dress(axes, shown.title, label, shown.ylabel, shown.note or " " * noted)
        for axes in figure.axes[len(panels) :]:
            axes.set_visible(False)
    return figure


def _draw(
    axes: Axes,
    panel: Panel,
    lines: Mapping[str, Sequence[Row]],
    places: Mapping[str, Sequence[float]],
    scale: Scale,
    looks: Mapping[str, dict[str, Any]],
) -> None:
    if scale == "log2":
        axes.set_xscale("log", base=2)
    if panel.reference is not None:
        axes.axhline(panel.reference, color=style.INK, linewidth=1)
    if panel.log and all(row["value"] > 0 for own in lines.values() for row in own):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")  # no powers
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
    bands, ends = [], {}
    for i, (name, own) in enumerate(lines.items()):
        at, colour = np.array(places[name]), looks[name]["color"]
        value, low, high = (
            np.array([row[key] if finite(row.get(key)) else math.nan for row in own], dtype=float)
            for key in ("value", "low", "high")
        )
        if panel.intervals == "bars" or len(at) == 1:
            if len(at) > 1:  # side by side, so that none hides another
                at = at + (i - (len(lines) - 1) / 2) * DODGE * max(np.ptp(at), 1)
            reach = np.array([value - low, high - value])
            axes.errorbar(at, value, reach, fmt="none", ecolor=colour, capsize=3, linewidth=1.2)
        else:
            bands.append((at, low, high, colour))
        look = looks[name] | {"label": short(name), "markevery": -(-len(at) // MAX_MARKERS)}
        ends[axes.plot(at, value, **look)[0]] = own[-1]["value"]
    axes.set_ylim(axes.get_ylim())  # a wide band does not press the lines together
    for at, low, high, colour in bands:
        axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_ylim(*((None, None) if panel.log else panel.limits))
    if len(looks) > 1:  # names in the order in which the lines end
        axes.legend(handles=sorted(ends, key=lambda line: -ends[line]), **style.LEGEND)


def finite(value: Any) -> bool:
    """Whether it is a number that can be drawn."""
    return value is not None and math.isfinite(value)


def short(name: str) -> str:
    """The name as it fits beside a line: its beginning and its end."""
    name, half = style.printable(name), MAX_NAME_LENGTH // 2
    return name if len(name) <= MAX_NAME_LENGTH else f"{name[: half - 1]}…{name[-half:]}"
