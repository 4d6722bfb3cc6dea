"""Figures as a picture, or interactive on a page with words for those who cannot see them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Protocol

import altair as alt
import vl_convert
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from openrlhf_js.report import style

PANEL_WIDTH = 330  # pixels
PICTURE_WIDTH = 800
FIGURE = Markup(  # in single quotes, since none is in the JSON
    '<figure><figcaption><b>{title}</b><br><span class="quiet">{note}</span></figcaption>\n'
    '<div class="chart" role="img" aria-label="{sentence}" '
    "data-figure='{specification}'></div></figure>\n"
)


class Figure(Protocol):
    """A chart with its title: `plot.Drawing` or `forest.Forest`."""

    @property
    def title(self) -> str:
        """Over the chart."""

    @property
    def note(self) -> str:
        """A smaller line under the title."""

    def chart(self, interactive: bool) -> alt.LayerChart:
        """The chart of its own height, without its title."""

    def sentence(self) -> str:
        """What the chart shows, in words."""


def picture(
    figures: Sequence[Figure], widths: Sequence[int] = (PANEL_WIDTH, PANEL_WIDTH), title: str = ""
) -> alt.ConcatChart:
    """A picture with as many figures in a row as there are widths, in pixels; all of one height."""
    bare_charts = [figure.chart(interactive=False) for figure in figures]
    height = max(chart.height for chart in bare_charts)
    charts = []
    for place, (figure, chart) in enumerate(zip(figures, bare_charts, strict=True)):
        caption = alt.Title(
            style.printable(figure.title),
            subtitle=style.printable(figure.note),
        )
        width = widths[place % len(widths)]
        charts.append(chart.properties(width=width, height=height, title=caption))
    panels = alt.concat(*charts, columns=len(widths), spacing=24).resolve_scale(
        x="independent",
        y="independent",
        color="independent",
        shape="independent",
        strokeDash="independent",
    )
    if not title:
        return panels
    heading = style.printable(title)
    return panels.properties(title=alt.Title(heading, fontSize=14, fontWeight="normal"))


def wide_picture(figures: Sequence[Figure], title: str = "") -> alt.ConcatChart:
    """A picture of figures side by side, `PICTURE_WIDTH` wide with all their labels."""
    width = PANEL_WIDTH
    drawn = picture(figures, [width] * len(figures), title)
    svg = vl_convert.vegalite_to_svg(style.specification(drawn), vl_version=style.VEGA_LITE)
    attribute = re.search(r'width="([0-9.]+)"', svg)
    if attribute:
        excess = float(attribute[1]) - PICTURE_WIDTH
        width -= math.ceil(excess / len(figures))
    return picture(figures, [width] * len(figures), title)


def page(figures: Sequence[Figure]) -> Markup:
    """HTML with an interactive chart for each figure.

    The charts lie side by side as the width allows. A page with any ends with `script()`. A click
    on a line's name shows it alone in all charts of the page.
    """
    if not figures:
        return Markup()
    shown = []
    for figure in figures:
        chart = figure.chart(interactive=True)
        chart = chart.properties(width="container", background="transparent")
        markup = FIGURE.format(
            title=style.printable(figure.title),
            note=style.printable(figure.note),
            sentence=style.printable(figure.sentence()),
            specification=htmlsafe_json_dumps(style.specification(chart)),
        )
        shown.append(markup)
    return Markup('<div class="panels">\n{}</div>\n').format(Markup().join(shown))


@cache
def script() -> Markup:
    """Vega, and what draws the charts above it: 0.9 MB, once, at the end of a page."""
    draw_charts = (Path(__file__).parent / "templates" / "chart.js").read_text(encoding="utf-8")
    bundle = vl_convert.javascript_bundle(draw_charts, vl_version=style.VEGA_LITE)
    return Markup(f'<script type="module">{bundle}</script>')
