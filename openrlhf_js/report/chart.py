"""The interactive counterpart of `plot`, by plotly.js: hover, zoom, runs switched on and off."""

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
SYMBOLS = "osDPX^v<>    ph  *"  # the markers of `style`, where plotly counts its own
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
    '<div class="chart" style="height: {}rem" data-figure="{}"></div></figure>\n'
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
        lines = {name: [row for row in own if str(row[line]) == name] for name in looks}
        data = [part for name in looks for part in _line(name, lines[name], x, shown, looks[name])]
        if not data:
            continue
        layout = LAYOUT | {
            "showlegend": len(looks) > 1,
            "yaxis": _vertical(shown, own, any(len(each) == 1 for each in lines.values())),
            "xaxis": AXIS
            | {"title": {"text": xlabel}, "type": SCALES[scale], "showgrid": False}
            | {"unifiedhovertitle": {"text": f"{xlabel} %{{x}}"}}
            | ({} if scale == "linear" else {"tickvals": sorted({row[x] for row in own})}),
            "shapes": [ruler | {"y0": y, "y1": y} for y in [shown.reference] if y is not None],
        }
        exact = json.dumps({"data": data, "layout": layout}, allow_nan=False)
        six_digits = json.loads(exact, parse_float=lambda number: float(f"{float(number):.6g}"))
        title, note = style.printable(shown.title), style.printable(shown.note)
        height = 20 + len(looks) // 2  # with room for the names
        figures.append(FIGURE.format(title, note, height, json.dumps(six_digits)))
    return Markup('<div class="panels">\n{}</div>\n').format(Markup().join(figures))


def script() -> Markup:
    """plotly.js, and what draws the charts above it: 5 MB, once, at the end of a page."""
    own = (Path(__file__).parent / "templates" / "chart.js").read_text(encoding="utf-8")
    return Markup(f"<script>{get_plotlyjs()}</script>\n<script>{own}</script>")


def _vertical(panel: Panel, rows: Sequence[Row], points: bool) -> dict[str, Any]:
    """The vertical axis; a wide band does not press the lines together, as those of bars do."""
    log = panel.log and all(row["value"] > 0 for row in rows)
    keys = ("value", "low", "high") if points or panel.intervals == "bars" else ("value",)
    heights = [row[key] for row in rows for key in keys if finite(row.get(key))]
    heights += [] if panel.reference is None else [panel.reference]
    heights = [math.log10(height) for height in heights if height > 0] if log else heights
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
    """A line, with its intervals as bars or in a band before it; nothing without rows."""
    dashes = () if look["linestyle"] == style.SOLID else look["linestyle"][1]
    dash = ",".join(f"{WIDTH * length}px" for length in dashes) or "solid"
    group = {"legendgroup": name, "name": escape(short(name))}  # plotly reads HTML in it
    ends = [row for row in rows if finite(row.get("low")) and finite(row.get("high"))]
    bars = panel.intervals == "bars" or len(rows) == 1
    markers = 0 if bars else MAX_MARKERS  # 0: all
    if ends and not bars:
        back = ends[::-1]
        yield group | {
            "x": [row[x] for row in ends + back],
            "y": [row["low"] for row in ends] + [row["high"] for row in back],
            "mode": "lines",
            "line": {"width": 0},
            "fill": "toself",
            "fillcolor": look["color"],
            "opacity": 0.15,
            "hoverinfo": "skip",
            "showlegend": False,
        }
    errors: dict[str, Any] = {"type": "data", "thickness": 1.2, "width": 3, "visible": bars}
    for side, end in (("array", "high"), ("arrayminus", "low")) if bars else ():
        errors[side] = [abs(row[end] - row["value"]) if row in ends else None for row in rows]
    if rows:
        yield group | {
            "x": [row[x] for row in rows],
            "y": [row["value"] for row in rows],
            "error_y": errors,
            "mode": "lines+markers",
            "line": {"color": look["color"], "width": WIDTH, "dash": dash},
            "marker": {"symbol": SYMBOLS.index(look["marker"]), "maxdisplayed": markers},
            "text": [style.interval(r["value"], r.get("low"), r.get("high"), ".4g") for r in rows],
            "hovertemplate": "%{text}",
            "offsetgroup": name,
        }
