"""The look of every picture: readable in black and white, by the colour-blind, and on a page.

A series differs from the next in colour (about Okabe and Ito's palette), in its dashes and in its
marker.
"""

from __future__ import annotations

import base64
import io
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from openrlhf_js.common.files import atomic_write

INK = "#37352f"
RULE = "#c9c8c5"
GRID = "#e3e2e0"
SOLID = "-"
MOST_USED = ("js", "rloo", "js_plus", "bloo")  # whose looks other series get first
# On the right of the axes, with names in the colours of their lines.
LEGEND: Any = {"loc": "center left", "bbox_to_anchor": (1, 0.5), "labelcolor": "linecolor"}

HOUSE: Any = {  # text stays text in an SVG, which keeps a page small and lets it be searched
    "svg.fonttype": "none",
    "svg.hashsalt": "openrlhf_js",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.edgecolor": RULE,
    "hatch.linewidth": 0.8,
    "legend.frameon": False,
    "text.parse_math": False,  # a run may be called "$1"
}


def series_styles(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Arguments of `Axes.plot` for each name; no two alike while there are looks left.

    A known estimator looks the same in every picture.
    """
    from openrlhf_js.estimators import ESTIMATORS  # which takes a second to import

    looks = {name: ESTIMATORS[name].look for name in (*MOST_USED, *ESTIMATORS)}
    free = [look for name, look in looks.items() if name not in names] or list(looks.values())
    free_looks = itertools.cycle(free)
    styles = {}
    for name in names:
        look = looks[name] if name in looks else next(free_looks)
        styles[name] = {
            "color": look.colour,
            "linestyle": look.dashes,
            "marker": look.marker,
            "markersize": 4.5,
            "linewidth": 1.8,
        }
    return styles


def figure(nrows: int = 1, ncols: int = 1, width: float = 5.6, height: float = 3.6) -> Figure:
    """A figure of nrows x ncols axes, each so many inches wide and high."""
    spaced = ConstrainedLayoutEngine(h_pad=0.1, w_pad=0.1, hspace=0.05, wspace=0.05)
    drawn = Figure(figsize=(width * ncols, height * nrows), dpi=150, layout=spaced)
    drawn.subplots(nrows, ncols, squeeze=False)
    return drawn


def dress(axes: Axes, title: str, xlabel: str, ylabel: str, note: str = "") -> None:
    """Frame, grid and text; the note is a smaller line under the title."""
    axes.set_title(
        printable(title),
        loc="left",
        pad=20 if note else 8,
        fontsize=12,
        fontweight="bold",
        color=INK,
    )
    below_title = axes.text(
        0, 1.025, printable(note), transform=axes.transAxes, fontsize=9, color=INK, alpha=0.8
    )
    below_title.set_in_layout(False)
    axes.set_xlabel(xlabel, color=INK)
    axes.set_ylabel(ylabel, color=INK)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(RULE)


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
    if low is None or high is None or not np.isfinite([low, high]).all():
        return text
    return f"{text} ({scale * low:{form}} to {scale * high:{form}})"


def svg(drawn: Figure) -> str:
    """The picture from its first tag on, the same bytes every time."""
    file = io.StringIO()
    no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with rc_context(HOUSE):
        drawn.savefig(file, format="svg", metadata=no_metadata)
    text = file.getvalue()
    return text[text.index("<svg") :]


def svg_source(drawn: Figure) -> str:
    """A picture as the address of an image; two inlined SVGs would share names of their parts."""
    return source("image/svg+xml", svg(drawn).encode())


def source(kind: str, data: bytes) -> str:
    """An image as its own address."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def save_png(drawn: Figure, path: Path) -> Path:
    """Writes the picture, whole or not at all, and returns its path."""
    with rc_context(HOUSE), atomic_write(path) as file:
        drawn.savefig(file, format="png")
    return path


def printable(name: str) -> str:
    """The name with a mark for what does not print, which no picture or page may hold."""
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in name
    )
