"""Figures side by side as a picture, or on a page with words for those who cannot see them."""

from __future__ import annotations

import base64
import textwrap
from collections.abc import Sequence
from typing import Any, Protocol

import altair as alt
from markupsafe import Markup

from paired_eval.pages import style
from paired_eval.pages.forest import Forest
from paired_eval.pages.text import printable

PANEL_WIDTH = 330  # pixels
FOREST_WIDTH = 220  # since labels stand on both sides
TITLE_LENGTH = 95  # characters of a line over a picture
NOTE_LENGTH = 55  # and over one of its panels
# Room on both sides on a page, since the reader's font may be wider than the layout's.
PAGE_PADDING = {"left": 25, "right": 25, "top": 5, "bottom": 5}
FIGURE = Markup(
    '<figure><figcaption><b>{title}</b><br><span class="quiet">{note}</span></figcaption>\n'
    '<img alt="{sentence}" src="data:image/svg+xml;base64,{data}"></figure>\n'
)


class Figure(Protocol):
    """A chart with a title and a note, and what it shows in words."""

    @property
    def title(self) -> str: ...

    @property
    def note(self) -> str: ...

    def chart(self) -> Any: ...

    def sentence(self) -> str: ...


def picture(
    figures: Sequence[Figure], widths: Sequence[int] = (PANEL_WIDTH, PANEL_WIDTH), title: str = ""
) -> alt.ConcatChart:
    """A picture with `len(widths)` figures in a row, of these widths in pixels and one height."""
    bare_charts = [figure.chart() for figure in figures]
    height = max(chart.height for chart in bare_charts)
    charts = []
    for place, (figure, chart) in enumerate(zip(figures, bare_charts, strict=True)):
        caption = alt.Title(
            printable(figure.title),
            subtitle=textwrap.wrap(printable(figure.note), NOTE_LENGTH),
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
    heading = textwrap.wrap(printable(title), TITLE_LENGTH)
    return panels.properties(title=alt.Title(heading, fontSize=14, fontWeight="normal"))


def page(figures: Sequence[Figure]) -> Markup:
    """HTML with a picture of each figure; they lie side by side as the width allows."""
    if not figures:
        return Markup()
    shown = []
    for figure in figures:
        width = FOREST_WIDTH if isinstance(figure, Forest) else PANEL_WIDTH
        svg = style.svg(figure.chart().properties(width=width, padding=PAGE_PADDING))
        markup = FIGURE.format(
            title=printable(figure.title),
            note=printable(figure.note),
            sentence=printable(figure.sentence()),
            data=base64.b64encode(svg.encode()).decode(),
        )
        shown.append(markup)
    return Markup('<div class="panels">\n{}</div>\n').format(Markup().join(shown))
