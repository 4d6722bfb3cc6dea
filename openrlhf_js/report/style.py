"""The look of every picture: readable in black and white, by the colour-blind, and on a page.

A series differs from the next in colour (about Okabe and Ito's palette), in its dashes and in its
marker. Text has 13 pixels of 800, so that it has 11 where a page shows a picture 690 pixels wide.
"""

from __future__ import annotations

import base64
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import altair as alt
import vl_convert

from openrlhf_js.common.files import atomic_write

if TYPE_CHECKING:
    from openrlhf_js.estimators.record import Look

INK = "#37352f"
RULE = "#c9c8c5"
GRID = "#e3e2e0"
MOST_USED = ("js", "rloo", "js_plus", "bloo")  # whose looks other series get first
VEGA_LITE = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
PNG_SCALE = 2  # pixels of the file for each of the picture
LINE_WIDTH = 2
SOLID = "-"

# Markers of the estimators' records as Vega's shapes, in a square from -1 to 1.
SHAPES = {
    "": "stroke",
    "o": "circle",
    "s": "square",
    "D": "diamond",
    "P": "cross",
    "X": "M-1,-.6L-.6,-1L0,-.4L.6,-1L1,-.6L.4,0L1,.6L.6,1L0,.4L-.6,1L-1,.6L-.4,0Z",
    "^": "triangle-up",
    "v": "triangle-down",
    "<": "triangle-left",
    ">": "triangle-right",
    "p": "M0,-1L.95,-.31L.59,.81L-.59,.81L-.95,-.31Z",
    "h": "M0,-1L.87,-.5L.87,.5L0,1L-.87,.5L-.87,-.5Z",
    "*": "M0,-1.2L.28,-.39L1.14,-.37L.45,.15L.7,.97L0,.48L-.7,.97L-.45,.15L-1.14,-.37L-.28,-.39Z",
}

CONFIG: dict[str, Any] = {
    "font": "sans-serif",
    "background": "white",
    "padding": 8,
    "view": {"stroke": None},
    "axis": {
        "domainColor": RULE,
        "grid": True,
        "gridColor": GRID,
        "labelColor": INK,
        "labelFontSize": 13,
        "labelLimit": 300,
        "ticks": False,
        "labelPadding": 6,
        "titleColor": INK,
        "titleFontSize": 13,
        "titleFontWeight": "normal",
    },
    "axisX": {"grid": False, "labelFlush": False},
    "axisY": {"domain": False},
    "legend": {
        "orient": "bottom",
        "columns": 3,
        "columnPadding": 16,
        "labelColor": INK,
        "labelFontSize": 13,
        "labelLimit": 250,
        "symbolOpacity": 1,
        "symbolSize": 90,
        "symbolStrokeWidth": 2,
        "title": None,
    },
    "title": {
        "anchor": "start",
        "color": INK,
        "fontSize": 15,
        "fontWeight": "bold",
        "frame": "group",
        "offset": 10,
        "subtitleColor": INK,
        "subtitleFontSize": 13,
    },
}


def series_looks(names: Sequence[str]) -> dict[str, Look]:
    """The look of each name; no two alike while there are looks left.

    A known estimator looks the same in every picture.
    """
    from openrlhf_js.estimators.catalogue import ESTIMATORS

    looks = {name: ESTIMATORS[name].look for name in (*MOST_USED, *ESTIMATORS)}
    free = [look for name, look in looks.items() if name not in names] or list(looks.values())
    free_looks = itertools.cycle(free)
    return {name: looks[name] if name in looks else next(free_looks) for name in names}


def dashes(look: Look) -> list[float]:
    """The lengths of strokes and gaps in pixels."""
    if look.dashes == SOLID:
        return [1, 0]
    _, lengths = look.dashes
    return [LINE_WIDTH * length for length in lengths]


def interval(
    value: float | None,
    low: float | None,
    high: float | None,
    form: str = ".3g",
    scale: float = 1,
    unit: str = "",
) -> str:
    """A number with its interval, such as `84.2 % (82.9 to 85.5)`; "-" where there is none."""
    if value is None:
        return "-"
    text = f"{scale * value:{form}}{unit}"
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return text
    return f"{text} ({scale * low:{form}} to {scale * high:{form}})"


def specification(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """A chart with the look of the house, as Vega-Lite has it."""
    return {**chart.to_dict(validate=False), "config": CONFIG}


def svg(chart: alt.TopLevelMixin) -> str:
    """The picture, in which text stays text."""
    return vl_convert.vegalite_to_svg(
        specification(chart), vl_version=VEGA_LITE, config={"aria": False}
    )


def svg_source(chart: alt.TopLevelMixin) -> str:
    """A picture as the address of an image; two inlined SVGs would share names of their parts."""
    return source("image/svg+xml", svg(chart).encode())


def source(kind: str, data: bytes) -> str:
    """An image as its own address."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def save_png(chart: alt.TopLevelMixin, path: Path) -> Path:
    """Writes the picture, whole or not at all, and returns its path."""
    png = vl_convert.vegalite_to_png(specification(chart), vl_version=VEGA_LITE, scale=PNG_SCALE)
    with atomic_write(path) as file:
        file.write(png)
    return path


def printable(name: str) -> str:
    """The name with a mark for what does not print, which no picture or page may hold."""
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in name
    )
