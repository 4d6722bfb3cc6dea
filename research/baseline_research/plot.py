"""Curves of any tidy rows: settings, a quantity, its value and the ends of its interval.

`draw` says what each panel shows; `figures` makes a picture or a page of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import altair as alt

from paired_eval.pages import style
from paired_eval.pages.text import short_names, with_interval

HEIGHT = 250  # pixels
PADDING = 12  # pixels between the ends of an axis and the values
DODGE = 5  # pixels between the bars of neighbours
MAX_MARKERS = 8  # on a line with a band

Row = Mapping[str, Any]
Scale = Literal["linear", "log2"]


class Axis(NamedTuple):
    """The horizontal axis."""

    setting: str  # of the rows
    label: str
    scale: Scale = "linear"


@dataclass(frozen=True)
class Panel:
    """How one quantity is drawn."""

    title: str
    ylabel: str  # with its unit
    note: str = ""  # a smaller line under the title
    limits: tuple[float, float] | None = None  # of the vertical axis
    log: bool = False  # a logarithmic vertical axis, if all that is drawn is above 0
    reference: float | None = None  # where to draw a horizontal line
    intervals: Literal["band", "bars"] = "band"


class Drawing(NamedTuple):
    """What one panel shows: a `figures.Figure`."""

    panel: Panel
    axis: Axis
    lines: dict[str, list[Row]]  # from left to right; the line that ends highest comes first
    series: Sequence[str]  # all that share a look, those of panels beside it included

    @property
    def title(self) -> str:
        """Over the chart."""
        return self.panel.title

    @property
    def note(self) -> str:
        """Under the title."""
        return self.panel.note

    def chart(self) -> alt.LayerChart:
        """The chart, without its title."""
        return _chart(self).properties(height=HEIGHT)

    def sentence(self) -> str:
        """Where each line begins and ends, for those who cannot see the chart."""
        lines = []
        for name, rows in self.lines.items():
            line = f"{name}: {_in_words(rows[0], self.axis)}"
            if len(rows) > 1:
                line += f", {_in_words(rows[-1], self.axis)}"
            lines.append(line)
        shown = "; ".join(lines)
        return f"{self.title}, {self.panel.ylabel}, by {self.axis.label}. {shown}."


def _in_words(row: Row, axis: Axis) -> str:
    number = with_interval(row["value"], row.get("low"), row.get("high"))
    return f"{number} at {row[axis.setting]}"


def draw(
    rows: Iterable[Row],
    panels: Mapping[str, Panel],
    axis: Axis,
    *,
    line: str = "estimator",
    panel: str = "quantity",
    series: Sequence[str] = (),
) -> list[Drawing]:
    """A drawing for each panel that has values, for `figures.picture` or `figures.page`.

        rows = [{"m": 4, "estimator": "js", "quantity": "mse", "value": 1, "low": 0.9, "high": 1.1}]
        drawings = draw(rows, {"mse": Panel("Error", "MSE")}, Axis("m", "responses, m"))
        style.save_png(figures.picture(drawings), path)

    A row has no point if its `value` is missing, None or NaN, and no interval if `low` or `high`
    is. `line` and `panel` name settings of the rows; `panels` decides what is drawn, in its order.
    A line's place in `series` (by default, the order in the rows) decides its look.
    """
    rows = [row for row in rows if row[panel] in panels and finite(row.get("value"))]
    series = series or list(dict.fromkeys(str(row[line]) for row in rows))
    drawings = []
    for quantity, shown in panels.items():
        lines = _lines_of([row for row in rows if row[panel] == quantity], axis, line)
        if lines:
            drawings.append(Drawing(shown, axis, lines, series))
    return drawings


def _lines_of(rows: Sequence[Row], axis: Axis, line: str) -> dict[str, list[Row]]:
    """The rows of each line from left to right; the line that ends highest comes first."""
    lines: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row[axis.setting]):
        name = str(row[line])
        lines.setdefault(name, []).append(row)
    return dict(sorted(lines.items(), key=lambda item: item[1][-1]["value"], reverse=True))


def _chart(drawing: Drawing) -> alt.LayerChart:
    """Lines, their intervals and markers."""
    panel = drawing.panel
    points = _points(drawing)
    names = short_names(drawing.series)
    scale = alt.Scale(domain=list(names.values()))
    legend = None
    if len(names) > 1:
        legend = alt.Legend(values=[names[name] for name in drawing.lines])
    base = alt.Chart().encode(
        x=_horizontal(drawing, points),
        color=alt.Color("line:N", legend=legend, scale=scale),
    )
    values = base.encode(y=_vertical(panel, points))
    intervals = base.encode(y=alt.Y("low:Q", title=panel.ylabel), y2="high:Q")
    bands = intervals.transform_filter("datum.interval == 'band'")
    bars = intervals.transform_filter("datum.interval == 'bar'")
    marked = values.transform_filter("datum.marked")
    shift = alt.ExprRef("datum.shift")
    line = values.mark_line(clip=True, strokeWidth=style.LINE_WIDTH, xOffset=shift)
    markers = marked.mark_point(clip=True, filled=True, size=70, opacity=1, xOffset=shift)
    layers: list[Any] = [
        line.encode(strokeDash=alt.StrokeDash("line:N", legend=None, scale=scale)),
        bands.mark_area(clip=True, fillOpacity=0.15),
        bars.mark_rule(clip=True, xOffset=shift),
        markers.encode(shape=alt.Shape("line:N", legend=legend, scale=scale)),
    ]
    if panel.reference is not None:
        reference = alt.Chart(alt.InlineData(values=[{}])).mark_rule(color=style.INK)
        layers.append(reference.encode(y=alt.datum(panel.reference)))
    chart = alt.LayerChart(data=alt.InlineData(values=points), layer=layers)
    return chart.resolve_legend(strokeDash="independent")  # not on the markers' outlines


def _points(drawing: Drawing) -> list[Row]:
    """The data of a chart, point by point."""
    has_bars = drawing.panel.intervals == "bars"
    names = short_names(drawing.series)
    points: list[Row] = []
    for index, (name, rows) in enumerate(drawing.lines.items()):
        is_alone = len(rows) == 1
        shift = 0.0
        marked_every = math.ceil(len(rows) / MAX_MARKERS)
        if has_bars and not is_alone:  # side by side, so that no bar hides another
            shift = DODGE * (index - (len(drawing.lines) - 1) / 2)
            marked_every = 1
        for count, row in enumerate(rows):
            point = {
                "line": names[name],
                "x": row[drawing.axis.setting],
                "shift": shift,
                "value": row["value"],
                "marked": count % marked_every == 0,
            }
            if finite(row.get("low")) and finite(row.get("high")):
                kind = "bar" if has_bars or is_alone else "band"
                point |= {"low": row["low"], "high": row["high"], "interval": kind}
            points.append(point)
    return points


def _horizontal(drawing: Drawing, points: Sequence[Row]) -> alt.X:
    """Ticks at round numbers, or at each value of a logarithmic axis."""
    padding = PADDING + max(abs(point["shift"]) for point in points)
    settings = {point["x"] for point in points}
    if drawing.axis.scale == "log2":
        scale = alt.Scale(type="log", base=2, nice=False, padding=padding)
        axis = alt.Axis(values=sorted(settings), format="~g", labelOverlap=False)
    else:
        scale = alt.Scale(nice=False, zero=False, padding=padding)
        only_integers = all(float(setting).is_integer() for setting in settings)
        axis = alt.Axis(tickCount=6, tickMinStep=1 if only_integers else 0)
    return alt.X("x:Q", title=drawing.axis.label, scale=scale, axis=axis)


def _vertical(panel: Panel, points: Sequence[Row]) -> alt.Y:
    """The vertical axis, which holds all intervals unless the panel has limits."""
    scale = alt.Scale(nice=False, zero=False, padding=PADDING)
    axis = alt.Axis(tickCount=6)
    if panel.limits:
        scale.domain = list(panel.limits)
    elif panel.log and all(min(point["value"], point.get("low", 1)) > 0 for point in points):
        scale.type = "log"
        axis = alt.Axis(format="~g")
    return alt.Y("value:Q", title=panel.ylabel, scale=scale, axis=axis)


def finite(value: Any) -> bool:
    """Whether it is a number that can be drawn."""
    return value is not None and math.isfinite(value)
