"""A forest plot: a dot with its interval for each row, beside the figures themselves.

Rows stand under headings, such as the mixes of a study or the benchmarks of an evaluation. Nothing
joins the dots, since neither the headings nor the rows have an order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import altair as alt

from openrlhf_js.estimators.record import Look
from openrlhf_js.report import style

ROW_HEIGHT = 24  # pixels
LONGEST_NAME = 22  # characters of a row's name; of a longer one the end is shown
DOMAIN_MARGIN = 0.06  # of the axis, on both sides


class Row(NamedTuple):
    """A dot, and the ends of its interval."""

    heading: str
    name: str  # of a series, which decides how the row looks
    value: float
    low: float | None
    high: float | None


class Forest(NamedTuple):
    """A `figures.Figure` of rows under their headings."""

    title: str
    note: str
    xlabel: str  # with its unit
    rows: Sequence[Row]
    looks: Mapping[str, Look]  # by name
    form: str = ".3g"  # of the numbers
    reference: float | None = None  # where to draw a vertical line

    def chart(self, interactive: bool) -> alt.LayerChart:
        """The chart, without its title."""
        labels, numbers, dots = self._lines()
        data = alt.Chart(alt.InlineData(values=dots)).encode(
            color=alt.Color("name:N", legend=None, scale=self._scale(lambda look: look.colour))
        )
        shapes = self._scale(lambda look: style.SHAPES[look.marker])
        horizontal = alt.Scale(domain=self._domain(), nice=False, zero=False)
        names = _vertical(labels, "left", headings=[not number for number in numbers])
        figures = _vertical(numbers, "right", headings=[])
        x = alt.X("value:Q", title=self.xlabel, scale=horizontal, axis=alt.Axis(tickCount=5))
        intervals = data.mark_rule(strokeWidth=style.LINE_WIDTH).encode(
            x=alt.X("low:Q", title=self.xlabel, scale=horizontal),
            x2="high:Q",
            y=figures,
        )
        points = data.mark_point(filled=True, size=80, opacity=1).encode(
            x=x,
            y=names,
            shape=alt.Shape("name:N", legend=None, scale=shapes),
            tooltip=["heading:N", "name:N", "figures:N"],
        )
        layers: list[alt.Chart] = [intervals, points]
        if self.reference is not None:
            line = alt.Chart(alt.InlineData(values=[{}])).mark_rule(color=style.INK)
            layers.insert(0, line.encode(x=alt.datum(self.reference)))
        height = ROW_HEIGHT * len(labels)
        return alt.layer(*layers).resolve_axis(y="independent").properties(height=height)

    def _lines(self) -> tuple[list[str], list[str], list[dict[str, Any]]]:
        """The labels on the left and on the right of each line, and the dots."""
        by_heading: dict[str, list[Row]] = {}
        for row in self.rows:
            by_heading.setdefault(row.heading, []).append(row)
        labels: list[str] = []
        numbers: list[str] = []
        dots: list[dict[str, Any]] = []
        for heading, rows in by_heading.items():
            if heading:
                labels.append(style.printable(heading))
                numbers.append("")
            for row in rows:
                dot = row._asdict()
                dot["line"] = len(labels)
                dot["heading"] = style.printable(heading)
                dot["name"] = style.printable(row.name)
                dot["figures"] = self._figures(row)
                dots.append(dot)
                labels.append(_shortened(dot["name"]))
                numbers.append(dot["figures"])
        return labels, numbers, dots

    def _figures(self, row: Row) -> str:
        return style.interval(row.value, row.low, row.high, self.form)

    def sentence(self) -> str:
        """Every row in words."""
        rows = []
        for row in self.rows:
            name = f"{row.heading}, {row.name}" if row.heading else row.name
            rows.append(f"{name}: {self._figures(row)}")
        return f"{self.title}, {self.xlabel}. {'; '.join(rows)}."

    def _domain(self) -> list[float]:
        """The ends of the horizontal axis, which holds every interval."""
        ends = [row.value for row in self.rows]
        for row in self.rows:
            ends += [end for end in (row.low, row.high) if end is not None]
        if self.reference is not None:
            ends.append(self.reference)
        margin = DOMAIN_MARGIN * (max(ends) - min(ends)) or 1
        return [min(ends) - margin, max(ends) + margin]

    def _scale(self, value_of: Callable[[Look], str]) -> alt.Scale:
        """What the looks of the rows say, by name."""
        names = list(dict.fromkeys(row.name for row in self.rows))
        return alt.Scale(
            domain=[style.printable(name) for name in names],
            range=[value_of(self.looks[name]) for name in names],
        )


def _vertical(
    labels: Sequence[str], side: Literal["left", "right"], headings: Sequence[bool]
) -> alt.Y:
    """The lines from top to bottom, with a label of each on one side."""
    weight = f"{json.dumps(headings)}[datum.value] ? 'bold' : 'normal'"
    axis = alt.Axis(
        orient=side,
        grid=False,
        labelExpr=f"{json.dumps(labels)}[datum.value]",
        labelFontWeight=alt.ExprRef(weight),
    )
    domain = list(range(len(labels)))
    return alt.Y("line:O", title=None, axis=axis, scale=alt.Scale(domain=domain))


def _shortened(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else "…" + name[1 - LONGEST_NAME :]
