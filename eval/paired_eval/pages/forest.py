"""A forest plot: a dot with its interval for each row, with the numbers beside it.

Rows stand under headings, such as the mixes of a study or the benchmarks of an evaluation. Nothing
joins the dots, since neither the headings nor the rows have an order.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal, NamedTuple

import altair as alt

from paired_eval.pages import style
from paired_eval.pages.text import printable, short_names, with_interval

ROW_HEIGHT = 24  # pixels
PADDING = 16  # pixels between the ends of the axis and the intervals


class ForestRow(NamedTuple):
    """A dot, and the ends of its interval."""

    heading: str
    name: str  # of a series, which decides how the row looks
    value: float
    low: float | None
    high: float | None


class ForestLine(NamedTuple):
    """One line of the plot: a heading, or a row with its numbers as text."""

    label: str
    row: ForestRow | None
    figures: str


class Forest(NamedTuple):
    """A `figures.Figure` of rows under their headings."""

    title: str
    note: str
    xlabel: str  # with its unit
    rows: Sequence[ForestRow]
    series: Sequence[str]  # all that share a look, those of figures beside it included
    form: str = ".3g"  # of the numbers
    reference: float | None = None  # where to draw a vertical line

    def chart(self) -> alt.LayerChart:
        """The chart, without its title."""
        lines = self._lines()
        dots = alt.Chart(_data(lines)).encode(
            color=alt.Color("name:N", legend=None, scale=self._scale())
        )
        layers = [self._intervals(dots, lines), self._points(dots, lines)]
        if self.reference is not None:
            layers.insert(0, self._reference_line(self.reference))
        layered = alt.layer(*layers).resolve_axis(y="independent")
        return layered.properties(height=ROW_HEIGHT * len(lines))

    def sentence(self) -> str:
        """Every row in words."""
        rows = []
        for row in self.rows:
            name = f"{row.heading}, {row.name}" if row.heading else row.name
            rows.append(f"{name}: {self._figures(row)}")
        return f"{self.title}, {self.xlabel}. {'; '.join(rows)}."

    def _lines(self) -> list[ForestLine]:
        """The lines from top to bottom, each heading before its rows."""
        by_heading: dict[str, list[ForestRow]] = {}
        for row in self.rows:
            by_heading.setdefault(row.heading, []).append(row)
        short = short_names(self.series)
        lines = []
        for heading, rows in by_heading.items():
            if heading:
                lines.append(ForestLine(heading, None, ""))
            for row in rows:
                lines.append(ForestLine(short[row.name], row, self._figures(row)))
        return lines

    def _figures(self, row: ForestRow) -> str:
        return with_interval(row.value, row.low, row.high, self.form)

    def _intervals(self, dots: alt.Chart, lines: Sequence[ForestLine]) -> alt.Chart:
        """The bars, with the numbers of each row on the right."""
        figures = [line.figures for line in lines]
        bars = dots.mark_rule(strokeWidth=style.LINE_WIDTH)
        return bars.encode(
            x=alt.X(
                "low:Q",
                title=self.xlabel,
                scale=alt.Scale(nice=False, zero=False, padding=PADDING),
            ),
            x2="high:Q",
            y=_vertical(lines, "right", figures),
        )

    def _points(self, dots: alt.Chart, lines: Sequence[ForestLine]) -> alt.Chart:
        """The dots, with the headings and names on the left."""
        labels = [line.label for line in lines]
        points = dots.mark_point(filled=True, size=80, opacity=1)
        return points.encode(
            x=alt.X("value:Q", axis=alt.Axis(tickCount=5)),
            y=_vertical(lines, "left", labels),
            shape=alt.Shape("name:N", legend=None, scale=self._scale()),
        )

    def _reference_line(self, place: float) -> alt.Chart:
        line = alt.Chart(alt.InlineData(values=[{}]))
        return line.mark_rule(color=style.INK).encode(x=alt.datum(place))

    def _scale(self) -> alt.Scale:
        return alt.Scale(domain=[printable(name) for name in self.series])


def _data(lines: Sequence[ForestLine]) -> alt.InlineData:
    """The rows with the number of their line."""
    dots = []
    for number, line in enumerate(lines):
        if line.row is not None:
            dot = {
                **line.row._asdict(),
                "heading": printable(line.row.heading),
                "name": printable(line.row.name),
                "figures": line.figures,
                "line": number,
            }
            dots.append(dot)
    return alt.InlineData(values=dots)


def _vertical(
    lines: Sequence[ForestLine], side: Literal["left", "right"], labels: Sequence[str]
) -> alt.Y:
    """The lines from top to bottom, with a label of each on one side; headings are bold."""
    texts = json.dumps([printable(label) for label in labels])
    headings = json.dumps([line.row is None for line in lines])
    axis = alt.Axis(
        orient=side,
        grid=False,
        labelExpr=f"{texts}[datum.value]",
        labelFontWeight=alt.ExprRef(f"{headings}[datum.value] ? 'bold' : 'normal'"),
    )
    scale = alt.Scale(domain=list(range(len(lines))))
    return alt.Y("line:O", title=None, axis=axis, scale=scale)
