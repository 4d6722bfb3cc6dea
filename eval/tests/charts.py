"""What the charts of a picture show, read from their Vega-Lite."""

from typing import Any, NamedTuple

import pandas as pd

from paired_eval.pages import style


class Shown(NamedTuple):
    """A panel."""

    title: str
    note: str
    lines: dict[str, pd.DataFrame]  # the points by name, in the order of the legend
    horizontal: dict[str, Any]  # the encoding
    vertical: dict[str, Any]  # the scale
    layers: list[dict[str, Any]]


def panels_of(chart):
    """The panels of a picture, or of a page's chart."""
    specification = style.specification(chart)
    panels = specification.get("concat", [specification])
    shown = []
    for panel in panels:
        if is_forest(panel):
            continue
        data = panel.get("data") or specification["data"]  # one panel alone has that of all
        points = data.get("values") or specification["datasets"][data["name"]]
        columns = ["line", "at", "x", "value", "low", "high", "interval"]
        shown.append(_panel(panel, pd.DataFrame(points, columns=columns)))
    return shown


def forests_of(chart):
    """The dots of each forest plot, as {(heading, name): (value, low, high)}."""
    specification = style.specification(chart)
    forests = []
    for panel in specification.get("concat", [specification]):
        if is_forest(panel):
            points = panel["layer"][-1]
            data = points.get("data") or panel.get("data") or specification["data"]
            dots = data.get("values") or specification["datasets"][data["name"]]
            forests.append(
                {
                    (dot["heading"], dot["name"]): (dot["value"], dot["low"], dot["high"])
                    for dot in dots
                }
            )
    return forests


def is_forest(panel):
    """Whether nothing joins its dots."""
    return all(layer["mark"]["type"] != "line" for layer in panel["layer"])


def _panel(panel, points):
    points["interval"] = points.interval.fillna("")
    line = next(layer for layer in panel["layer"] if layer["mark"]["type"] == "line")
    encoding = line["encoding"]
    names = encoding["color"]["scale"]["domain"]
    title = panel.get("title", {})
    return Shown(
        title.get("text", ""),
        " ".join(title.get("subtitle", [])),
        {name: points[points.line == name].reset_index() for name in names},
        encoding["x"],
        encoding["y"]["scale"],
        panel["layer"],
    )
