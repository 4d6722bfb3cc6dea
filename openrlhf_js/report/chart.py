"""The interactive counterpart of `plot`: hover, zoom, runs switched on and off, all offline.

plotly.js draws in the browser. Bokeh's script is a quarter as long, but building its charts took
3 seconds where this takes 0.2, and its hover shows each line in a box of its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape
from plotly.offline import get_plotlyjs

from openrlhf_js.report import style
from openrlhf_js.report.plot import MAX_MARKERS, Panel, Row, Scale, finite, short

WIDTH = 2  # pixels, of a line
SCALES = {"linear": "linear", "log2": "log", "categories": "category"}
SYMBOLS = {
    **{"o": "circle", "s": "square", "D": "diamond", "P": "cross", "X": "x", "p": "pentagon"},
    **{"^": "triangle-up", "v": "triangle-down", "<": "triangle-left", ">": "triangle-right"},
    "h": "hexagon",
}
AXIS = {"zeroline": False, "exponentformat": "power", "linecolor": style.RULE}
LAYOUT = {
    "font": {"family": "system-ui, sans-serif", "color": style.INK},
    "margin": {"l": 56, "r": 12, "t": 8, "b": 44},
    "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
    "hovermode": "x unified",
    "scattermode": "group",  # error bars stand side by side
    "scattergap": 0.85,
}
FIGURE = Markup(
    '<figure><figcaption><b>{}</b><br><span class="quiet">{}</span></figcaption>\n'
    '<div class="chart" data-figure="{}"></div></figure>\n'
)


def chart(
    rows: Iterable[Row],
    panels: Mapping[str, Panel],
    *,
    x: str,
    xlabel: str,
    line: str = "estimator",
    panel: str = "quantity",
    scale: Scale = "linear",
    looks: Mapping[str, dict[str, Any]] | None = None,
) -> Markup:
    """HTML with an interactive chart for each panel that has values; arguments as of `plot`.

    The charts lie side by side as the width allows. A page with any ends with `script()`. A click
    on a line's name switches it off in all charts of the page, a double click all others.
    """
    rows = sorted((row for row in rows if finite(row.get("value"))), key=lambda row: row[x])
    looks = looks or style.series_styles(list(dict.fromkeys(str(row[line]) for row in rows)))
    ruler = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "line": {"width": 1}}
    figures = []
    for quantity, shown in panels.items():
        own = [row for row in rows if row[panel] == quantity]
        if not own:
            continue
        lines = {name: [row for row in own if str(row[line]) == name] for name in looks}
        data = [t for name, each in lines.items() for t in _line(name, each, x, shown, looks[name])]
        layout = LAYOUT | {
            "showlegend": len(looks) > 1,
            "yaxis": _vertical(shown, own),
            "xaxis": AXIS
            | {"title": {"text": xlabel}, "type": SCALES[scale], "showgrid": False}
            | {"unifiedhovertitle": {"text": f"{xlabel} %{{x}}"}}
            | ({} if scale == "linear" else {"tickvals": sorted({row[x] for row in own})}),
            "shapes": [ruler | {"y0": y, "y1": y} for y in [shown.reference] if y is not None],
        }
        figure = json.dumps({"data": data, "layout": layout}, allow_nan=False)
        title, note = style.printable(shown.title), style.printable(shown.note)
        figures.append(FIGURE.format(title, note, figure))
    return Markup('<div class="panels">\n{}</div>\n').format(Markup().join(figures))


def script() -> Markup:
    """plotly.js, and what draws the charts above it: 5 MB, once, at the end of a page."""
    own = (Path(__file__).parent / "templates" / "chart.js").read_text(encoding="utf-8")
    return Markup(f"<script>{get_plotlyjs()}</script>\n<script>{own}</script>")


def _vertical(panel: Panel, rows: Sequence[Row]) -> dict[str, Any]:
    """The vertical axis; a wide band does not press the lines together."""
    keys = ("value", "low", "high") if panel.intervals == "bars" else ("value",)
    heights = [row[key] for row in rows for key in keys if finite(row.get(key))]
    heights += [] if panel.reference is None else [panel.reference]
    log = panel.log and min(heights) > 0
    heights = [math.log10(height) for height in heights] if log else heights
    bottom, top = (None, None) if log else panel.limits
    low = min(heights) if bottom is None else bottom
    high = max(heights) if top is None else top
    margin = 0.06 * (high - low) or 0.1 * abs(high) or 1
    shown = {"range": [low - margin * (bottom is None), high + margin * (top is None)]}
    kind = {"type": "log", "dtick": "D2"} if log else {"type": "linear"}  # D2: 1, 2, 5, 10, ...
    return AXIS | {"title": {"text": panel.ylabel}, "gridcolor": style.GRID} | shown | kind


def _line(
    name: str, rows: Sequence[Row], x: str, panel: Panel, look: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """A line, with its intervals as bars or in a band before it."""
    dashes = () if look["linestyle"] == style.SOLID else look["linestyle"][1]
    dash = ",".join(f"{WIDTH * length}px" for length in dashes) or "solid"
    group = {"legendgroup": name, "name": escape(short(name))}  # plotly reads HTML in it
    bars = panel.intervals == "bars" or len(rows) == 1
    line: dict[str, Any] = group | {
        "x": [row[x] for row in rows],
        "y": [_digits(row["value"]) for row in rows],
        "mode": "lines+markers",
        "line": {"color": look["color"], "width": WIDTH, "dash": dash},
        "marker": {"symbol": SYMBOLS[look["marker"]], "maxdisplayed": 0 if bars else MAX_MARKERS},
        "text": [style.interval(r["value"], r.get("low"), r.get("high"), ".4g") for r in rows],
        "hovertemplate": "%{text}",
        "offsetgroup": name,
    }
    ends = [row for row in rows if finite(row.get("low")) and finite(row.get("high"))]
    if bars:
        reach = {
            side: [_digits(abs(r[end] - r["value"])) if r in ends else None for r in rows]
            for side, end in (("array", "high"), ("arrayminus", "low"))
        }
        line["error_y"] = {"type": "data", "thickness": 1.2, "width": 3} | reach
    elif ends:
        round_trip = [(r, "low") for r in ends] + [(r, "high") for r in reversed(ends)]
        yield group | {
            "x": [row[x] for row, _ in round_trip],
            "y": [_digits(row[end]) for row, end in round_trip],
            "mode": "lines",
            "line": {"width": 0},
            "fill": "toself",
            "fillcolor": look["color"],
            "opacity": 0.15,
            "hoverinfo": "skip",
            "showlegend": False,
        }
    yield line


def _digits(number: float) -> float:
    """Six of them, more than a screen shows: pages stay small."""
    return float(f"{number:.6g}")
