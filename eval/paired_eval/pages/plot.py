"""Curves of any tidy rows: settings, a quantity, its value and the ends of its interval.

`draw` says what each panel shows; `figures` makes a picture or a page of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import altair as alt

from paired_eval.pages import style

HEIGHT = 250  # pixels
MAX_MARKERS = 8  # on a line with a band
EXPONENTS = range(-30, 31)  # of ten, at the ticks of a logarithmic axis
MANY_SERIES = 6  # whose longer names need more room in a legend
DODGE = 0.02  # of the axis, between the error bars of neighbours

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
    limits: tuple[float | None, float | None] = (None, None)
    log: bool = False  # a logarithmic vertical axis, if all values are above 0
    reference: float | None = None  # where to draw a horizontal line
    intervals: Literal["band", "bars"] = "band"


class Drawing(NamedTuple):
    """What one panel shows: a `figures.Figure`."""

    panel: Panel
    axis: Axis
    lines: dict[str, list[Row]]  # from left to right; the line that ends highest comes first
    looks: Mapping[str, style.Look]

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
    number = style.interval(row["value"], row.get("low"), row.get("high"))
    return f"{number} at {row[axis.setting]}"


def draw(
    rows: Iterable[Row],
    panels: Mapping[str, Panel],
    axis: Axis,
    *,
    line: str = "estimator",
    panel: str = "quantity",
    looks: Mapping[str, style.Look] | None = None,
) -> list[Drawing]:
    """A drawing for each panel that has values, for `figures.picture` or `figures.page`.

        rows = [{"m": 4, "estimator": "js", "quantity": "mse", "value": 1, "low": 0.9, "high": 1.1}]
        drawings = draw(rows, {"mse": Panel("Error", "MSE")}, Axis("m", "responses, m"))
        style.save_png(figures.picture(drawings), path)

    A missing, None or NaN `value` leaves out a point, and such a `low` or `high` its interval.
    `line` and `panel` name settings of the rows; `panels` decides what is drawn, in its order.
    `looks` are those of `style.series_looks`.
    """
    rows = [row for row in rows if row[panel] in panels and finite(row.get("value"))]
    looks = looks or style.series_looks(list(dict.fromkeys(str(row[line]) for row in rows)))
    drawings = []
    for quantity, shown in panels.items():
        lines = _lines_of([row for row in rows if row[panel] == quantity], axis, line)
        if lines:
            drawings.append(Drawing(shown, axis, lines, looks))
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
    legend = _legend(drawing)
    colours = style.scale(drawing.lines, drawing.looks, style.colour)
    series = alt.Chart().encode(
        x=_horizontal(drawing, points),
        color=alt.Color("line:N", legend=legend, scale=colours),
    )
    values = series.encode(y=_vertical(panel, points))
    layers: list[Any] = [
        _lines(values, drawing),
        _bands(series, panel),
        _bars(series, panel),
        _markers(values, drawing, legend),
    ]
    if panel.reference is not None:
        layers.append(_reference_line(panel.reference))
    chart = alt.LayerChart(data=alt.InlineData(values=points), layer=layers)
    return chart.resolve_legend(strokeDash="independent")


def _legend(drawing: Drawing) -> alt.Legend | None:
    """The names of the lines; none where one is alone."""
    series = len(drawing.looks)
    if series == 1:
        return None
    columns = 3 if series <= MANY_SERIES else 2
    short_names = {}
    for name, short in style.short_names(drawing.looks).items():
        short_names[style.printable(name)] = style.printable(short)
    return alt.Legend(labelExpr=f"{json.dumps(short_names)}[datum.label]", columns=columns)


def _reference_line(value: float) -> alt.Chart:
    """A horizontal line."""
    rule = alt.Chart(alt.InlineData(values=[{}])).mark_rule(color=style.INK)
    return rule.encode(y=alt.datum(value))


def _lines(values: alt.Chart, drawing: Drawing) -> alt.Chart:
    """A line through the points of each series."""
    dashes = style.scale(drawing.lines, drawing.looks, style.dashes)
    lines = values.mark_line(clip=True, strokeWidth=style.LINE_WIDTH)
    return lines.encode(strokeDash=alt.StrokeDash("line:N", legend=None, scale=dashes))


def _bands(series: alt.Chart, panel: Panel) -> alt.Chart:
    """The intervals of dense points, as an area."""
    bands = _intervals(series, panel).mark_area(clip=True, fillOpacity=0.15)
    return bands.transform_filter("datum.interval == 'band'")


def _bars(series: alt.Chart, panel: Panel) -> alt.Chart:
    """The intervals of single points."""
    bars = _intervals(series, panel).mark_errorbar(clip=True, ticks={"size": 7})
    return bars.transform_filter("datum.interval == 'bar'")


def _intervals(series: alt.Chart, panel: Panel) -> alt.Chart:
    return series.encode(y=alt.Y("low:Q", title=panel.ylabel), y2="high:Q")


def _markers(values: alt.Chart, drawing: Drawing, legend: alt.Legend | None) -> alt.Chart:
    """The points that tell series apart without colours."""
    shapes = style.scale(drawing.lines, drawing.looks, style.shape)
    shape: Any = alt.Shape("line:N", legend=legend, scale=shapes)
    markers = values.mark_point(clip=True, filled=True, size=70, fillOpacity=1)
    return markers.encode(shape=shape).transform_filter("datum.marked")


def _places(drawing: Drawing) -> dict[Any, float]:
    """Where each value of the horizontal axis stands on it."""
    values: set[Any] = set()
    for rows in drawing.lines.values():
        values.update(row[drawing.axis.setting] for row in rows)
    place_of = math.log2 if drawing.axis.scale == "log2" else float
    return {value: place_of(value) for value in sorted(values)}


def _points(drawing: Drawing) -> list[Row]:
    """The data of a chart, point by point."""
    places = _places(drawing)
    has_bars = drawing.panel.intervals == "bars"
    points: list[Row] = []
    for index, (name, rows) in enumerate(drawing.lines.items()):
        is_alone = len(rows) == 1
        shift = 0.0
        marked_every = math.ceil(len(rows) / MAX_MARKERS)
        if has_bars and not is_alone:  # side by side, so that no bar hides another
            shift = _dodge(index, len(drawing.lines), places)
            marked_every = 1
        for count, row in enumerate(rows):
            setting = row[drawing.axis.setting]
            point = {
                "line": style.printable(name),
                "at": setting,
                "x": places[setting] + shift,
                "value": row["value"],
                "marked": count % marked_every == 0,
            }
            if finite(row.get("low")) and finite(row.get("high")):
                interval = "bar" if has_bars or is_alone else "band"
                point |= {"low": row["low"], "high": row["high"], "interval": interval}
            points.append(point)
    return points


def _dodge(index: int, lines: int, places: Mapping[Any, float]) -> float:
    """How far the bars of a line are from their place on the horizontal axis."""
    width = max(places.values()) - min(places.values())
    from_middle = index - (lines - 1) / 2
    return from_middle * DODGE * max(width, 1)


def _horizontal(drawing: Drawing, points: Sequence[Row]) -> alt.X:
    """The horizontal axis, with a margin on both sides."""
    low = min(point["x"] for point in points)
    high = max(point["x"] for point in points)
    margin = 0.04 * (high - low) or 0.5
    return alt.X(
        "x:Q",
        title=drawing.axis.label,
        scale=alt.Scale(domain=[low - margin, high + margin], nice=False, zero=False),
        axis=_ticks(drawing),
    )


def _ticks(drawing: Drawing) -> alt.Axis:
    """Ticks at round numbers, or at each value of a logarithmic axis."""
    places = _places(drawing)
    positions = list(places.values())
    if drawing.axis.scale == "linear":
        only_integers = all(position.is_integer() for position in positions)
        least_step = 1 if only_integers else 0
        return alt.Axis(tickCount=6, tickMinStep=least_step)
    labels = json.dumps([str(value) for value in places])
    index = f"indexof({json.dumps(positions)}, datum.value)"
    return alt.Axis(values=positions, labelExpr=f"{labels}[{index}]")


def _vertical(panel: Panel, points: Sequence[Row]) -> alt.Y:
    """The vertical axis, which holds all intervals unless the panel has limits."""
    ends = ("value", "low", "high")
    heights = [point[end] for point in points for end in ends if end in point]
    if panel.log and all(point["value"] > 0 for point in points):
        heights = [height for height in heights if height > 0]  # an interval may reach below
        scale = _logarithmic(min(heights), max(heights))
        axis = alt.Axis(values=_logarithmic_ticks(), format="~g")
    else:
        scale = _linear(panel, min(heights), max(heights))
        axis = alt.Axis(tickCount=6)
    return alt.Y("value:Q", title=panel.ylabel, scale=scale, axis=axis)


def _linear(panel: Panel, least: float, greatest: float) -> alt.Scale:
    """A scale from the least to the greatest value, or to the limits of the panel."""
    if panel.reference is not None:
        least = min(least, panel.reference)
        greatest = max(greatest, panel.reference)
    bottom, top = panel.limits
    if bottom is not None:
        least = bottom
    if top is not None:
        greatest = top
    return alt.Scale(domain=_padded(least, greatest), nice=False, zero=False)


def _logarithmic(least: float, greatest: float) -> alt.Scale:
    """A logarithmic scale between two values above 0."""
    low, high = _padded(math.log10(least), math.log10(greatest))
    return alt.Scale(type="log", domain=[10**low, 10**high], nice=False)


def _logarithmic_ticks() -> list[float]:
    """1, 2 and 5 times powers of ten; those beyond a scale are not drawn."""
    ticks = []
    for exponent in EXPONENTS:
        for digit in (1, 2, 5):
            ticks.append(digit * 10.0**exponent)
    return ticks


def _padded(low: float, high: float) -> list[float]:
    """The ends of an axis with a margin."""
    margin = 0.05 * (high - low) or 0.1 * abs(high) or 1
    return [low - margin, high + margin]


def finite(value: Any) -> bool:
    """Whether it is a number that can be drawn."""
    return value is not None and math.isfinite(value)
