"""One picture of any tidy rows: settings, a quantity, its value and the ends of its interval."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

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
    looks = looks or style.series_styles(list(dict.fromkeys(str(row[line]) for row in rows)))
    columns = min(columns, len(panels))
    any_note = any(drawn.note for drawn in panels.values())
    with rc_context(style.HOUSE):
        figure = style.figure(-(-len(panels) // columns), columns, *size)
        if title:
            figure.suptitle(style.printable(title), x=0.01, ha="left", color=style.INK)
        for axes, (quantity, drawn) in zip(figure.axes, panels.items(), strict=False):
            key, label, kind = drawn.axis or (x, xlabel, scale)
            panel_rows = [
                row for row in rows if row[panel] == quantity and finite(row.get("value"))
            ]
            places = _places(axes, sorted({row[key] for row in panel_rows}), kind)
            lines = []
            for name, look in looks.items():
                line_rows = [row for row in panel_rows if str(row[line]) == name]
                line_rows.sort(key=lambda row: places[row[key]])
                if line_rows:
                    lines.append(_line(name, line_rows, key, places, look))
            _draw(axes, drawn, lines)
            if len(looks) > 1:
                _legend(axes, lines)
            axes.margins(x=0.04)
            note = drawn.note or (" " if any_note else "")  # all plots of a row are equally high
            style.dress(axes, drawn.title, label, drawn.ylabel, note)
        for axes in figure.axes[len(panels) :]:
            axes.set_visible(False)
    return figure


class _Line(NamedTuple):
    """The points of a line, from left to right; the ends of an interval are NaN without one."""

    name: str
    x: np.ndarray
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    look: Mapping[str, Any]


def _line(
    name: str, rows: Sequence[Row], key: str, places: Mapping[Any, float], look: Mapping[str, Any]
) -> _Line:
    def column(end: str) -> np.ndarray:
        values = [row.get(end) for row in rows]
        return np.array([value if finite(value) else math.nan for value in values], dtype=float)

    x = np.array([places[row[key]] for row in rows], dtype=float)
    return _Line(name, x, column("value"), column("low"), column("high"), look)


def _places(axes: Axes, values: Sequence[Any], scale: Scale) -> dict[Any, float]:
    """Where each value of the horizontal axis stands; sets up that axis."""
    if scale == "log2":
        axes.set_xscale("log", base=2)
    places = {v: i if scale == "categories" else v for i, v in enumerate(values)}
    if scale != "linear":
        axes.set_xticks(list(places.values()), [str(value) for value in values])
        axes.xaxis.set_minor_locator(NullLocator())
    elif all(float(value).is_integer() for value in values):
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
    return places


def _draw(axes: Axes, panel: Panel, lines: Sequence[_Line]) -> None:
    """Lines with their intervals, the reference, and the vertical axis."""
    if panel.reference is not None:
        axes.axhline(panel.reference, color=style.INK, linewidth=1)
    if panel.log and all((line.value > 0).all() for line in lines):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")  # no powers
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
    bands = []
    for i, line in enumerate(lines):
        x = line.x
        if panel.intervals == "bars" or len(x) == 1:
            if len(x) > 1:  # side by side, so that none hides another
                x = x + (i - (len(lines) - 1) / 2) * DODGE * max(np.ptp(x), 1)
            reach = np.array([line.value - line.low, line.high - line.value])
            colour = line.look["color"]
            axes.errorbar(x, line.value, reach, fmt="none", ecolor=colour, capsize=3, linewidth=1.2)
        else:
            bands.append(line)
        every = -(-len(x) // MAX_MARKERS)
        axes.plot(x, line.value, label=short(line.name), markevery=every, **line.look)
    axes.set_ylim(axes.get_ylim())  # a wide band does not press the lines together
    for band in bands:
        colour = band.look["color"]
        axes.fill_between(band.x, band.low, band.high, color=colour, alpha=0.15, linewidth=0)
    if not panel.log:
        axes.set_ylim(*panel.limits)


def _legend(axes: Axes, lines: Sequence[_Line]) -> None:
    """Names in the order in which the lines end."""
    last = {short(line.name): line.value[-1] for line in lines}
    handles = [drawn for drawn in axes.lines if drawn.get_label() in last]
    handles.sort(key=lambda drawn: -last[str(drawn.get_label())])
    axes.legend(handles=handles, **style.LEGEND)


def finite(value: Any) -> bool:
    """Whether it is a number that can be drawn."""
    return value is not None and math.isfinite(value)


def short(name: str) -> str:
    """The name as it fits beside a line: its beginning and its end."""
    name = style.printable(name)
    if len(name) <= MAX_NAME_LENGTH:
        return name
    half = MAX_NAME_LENGTH // 2
    return f"{name[: half - 1]}…{name[-half:]}"
