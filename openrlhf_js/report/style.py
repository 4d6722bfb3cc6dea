"""The look of every picture: readable in black and white, by the colour-blind, and on a page.

A series differs from the next in colour, in its dashes and in its marker. Colours have a contrast
of 4.5 on white, and `on_dark` gives each one its partner on a dark page. Text has 13 pixels of 800,
so that it has 11 where a page shows a picture 690 pixels wide.
"""

from __future__ import annotations

import colorsys
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import altair as alt
import vl_convert

from openrlhf_js.common.files import atomic_write

INK = "#37352f"
RULE = "#c9c8c5"
GRID = "#e3e2e0"
WHITE = "#ffffff"
DARK_PAGE = "#191919"
ON_DARK = {  # what is no series: text, lines and backgrounds
    INK: "#e6e4df",
    RULE: "#5b5955",
    GRID: "#343331",
    WHITE: DARK_PAGE,
}
LEAST_CONTRAST_ON_DARK = 6.0
COLOUR = re.compile(r"#[0-9a-f]{6}")
VEGA_LITE = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
PNG_SCALE = 1.5  # pixels of the file for each of the picture: 1,200 of 800
LINE_WIDTH = 2
LONGEST_NAME = 22  # characters of a series that a picture has room for
VERSION = re.compile(r"(?<=\w)@[0-9a-f]{8}$")  # that `estimators.own.label_of` puts behind a name

# Markers as Vega's shapes, in a square from -1 to 1.
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
}

CONFIG: dict[str, Any] = {
    "font": "sans-serif",
    "background": WHITE,
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


class Look(NamedTuple):
    """How a series is drawn."""

    colour: str
    stroke: tuple[float, ...]
    """Lengths of dashes and gaps, as multiples of the line's width."""
    marker: str


SOLID = (1, 0)
DOTS = (1, 1.5)
DASHES = (5, 2)
LONG_DASHES = (8, 2, 2, 2)
LONGER_DASHES = (10, 3)
DASH_DOT = (6, 2, 1, 2)
DASH_DOT_DOT = (5, 2, 1, 2, 1, 2)
LOOKS = {  # of the estimators in every picture; what is none gets those that are free, in order
    "js": Look("#0072b2", SOLID, "o"),
    "rloo": Look("#1a1a1a", DASHES, "s"),
    "js_grad": Look("#c25200", SOLID, "^"),
    "bloo": Look("#007d5b", DOTS, "D"),
    "no_baseline": Look("#84644f", DOTS, "p"),
    "grpo": Look("#756c00", DASH_DOT_DOT, "P"),
    "dr_grpo": Look("#0b7f9c", DASHES, "X"),
    "reinforce++": Look("#6940a5", DASH_DOT, "<"),
    "reinforce_baseline": Look("#2b6cc4", DOTS, "o"),
    "flash_reinforce": Look("#8258d4", DASHES, "D"),
    "remax": Look("#6f6f6f", SOLID, ">"),
    "js1": Look("#b0508a", LONGER_DASHES, "v"),
    "js_fixed": Look("#9a5f00", LONGER_DASHES, "h"),
    "ebpo": Look("#2f6f8f", LONG_DASHES, "o"),
    "dbb": Look("#a0522d", LONG_DASHES, "s"),
    "spo": Look("#556b2f", SOLID, "v"),
    "opo": Look("#3f74a3", LONGER_DASHES, "D"),
    "weighted_rloo": Look("#6b5f1e", DASHES, "s"),
    "weighted_mean": Look("#556070", DASH_DOT, "s"),
    "jspo++": Look("#336b8f", DASH_DOT, "o"),
    "maxrl": Look("#b8400e", DOTS, "s"),
    "mc_grpo": Look("#8b3a62", DOTS, "X"),
}


def series_looks(names: Sequence[str]) -> dict[str, Look]:
    """The look of each name; no two alike while there are looks left.

    A known estimator looks the same in every picture, and gives its look to a name that has it as
    a word, such as the run `js-seed0`.
    """
    looks = {name: LOOKS[name] for name in names if name in LOOKS}
    for name in names:
        for word in re.split(r"\W+", name):
            look = LOOKS.get(word)
            if look and look not in looks.values():
                looks.setdefault(name, look)
    free = [look for look in LOOKS.values() if look not in looks.values()]
    free_looks = itertools.cycle(free or LOOKS.values())
    for name in names:
        if name not in looks:
            looks[name] = next(free_looks)
    return looks


def short_names(names: Iterable[str], longest: int = LONGEST_NAME) -> dict[str, str]:
    """By name, what a picture has room for, by which no two can be mistaken.

    That is the name without the version of a user's file, then its end, then both of its ends, and
    then what stands where the names begin to differ.
    """
    plain = {name: VERSION.sub("", name) for name in names}
    if len(set(plain.values())) < len(plain):
        plain = {name: name for name in names}
    letters = zip(*[text for text in plain.values() if len(text) > longest], strict=False)
    shared = len(list(itertools.takewhile(lambda places: len(set(places)) == 1, letters)))
    half = longest // 2
    ways: list[Callable[[str], str]] = [
        lambda text: f"…{text[1 - longest :]}",
        lambda text: f"{text[:half]}…{text[half + 1 - longest :]}",
        lambda text: f"…{text[shared : shared + longest - 2]}…",
    ]
    for way in ways:
        short = {name: text if len(text) <= longest else way(text) for name, text in plain.items()}
        if len(set(short.values())) == len(short):
            return short
    return plain


def scale(
    names: Iterable[str], looks: Mapping[str, Look], value_of: Callable[[Look], Any]
) -> alt.Scale:
    """What the looks say of each name: its `colour`, `shape` or `dashes`."""
    shown = list(dict.fromkeys(names))
    return alt.Scale(
        domain=[printable(name) for name in shown],
        range=[value_of(looks[name]) for name in shown],
    )


def colour(look: Look) -> str:
    """As CSS has it."""
    return look.colour


def shape(look: Look) -> str:
    """The marker as Vega has it."""
    return SHAPES[look.marker]


def dashes(look: Look) -> list[float]:
    """The lengths of strokes and gaps in pixels."""
    return [LINE_WIDTH * length for length in look.stroke]


def interval(
    value: float | None,
    low: float | None,
    high: float | None,
    form: str = ".3g",
    scale: float = 1,
    unit: str = "",
) -> str:
    """A number with its interval, such as `84.2 % (82.9 to 85.5)`; "-" where there is none.

    A plus in the form is of the number alone: `+5.6 (2.7 to 8.5)`.
    """
    if value is None:
        return "-"
    text = f"{_digits(scale * value, form)}{unit}"
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return text
    form = form.removeprefix("+")
    return f"{text} ({_digits(scale * low, form)} to {_digits(scale * high, form)})"


def _digits(value: float, form: str) -> str:
    """A number in this form; a large one in whole digits, such as 1,234, without an exponent."""
    text = f"{value:{form}}"
    if "e+" not in text:
        return text
    sign = "+" if form.startswith("+") else ""
    return f"{value:{sign},.0f}"


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, from 1 to 21 (Web Content Accessibility Guidelines 2.1)."""
    darker, lighter = sorted([_luminance(one), _luminance(other)])
    return (lighter + 0.05) / (darker + 0.05)


def _channels(colour: str) -> list[float]:
    """Red, green and blue from 0 to 1."""
    return [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]


def _luminance(colour: str) -> float:
    linear = [
        channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
        for channel in _channels(colour)
    ]
    red, green, blue = linear
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def on_dark(colour: str) -> str:
    """The colour in its place on a dark page: lighter in the same hue; a grey is inverted."""
    if colour in ON_DARK:
        return ON_DARK[colour]
    hue, lightness, saturation = colorsys.rgb_to_hls(*_channels(colour))
    if saturation == 0:
        lightness = 1 - lightness
    lighter = colour
    while contrast(lighter, DARK_PAGE) < LEAST_CONTRAST_ON_DARK:
        channels = colorsys.hls_to_rgb(hue, lightness, saturation)
        lighter = "#" + "".join(f"{round(255 * channel):02x}" for channel in channels)
        lightness += 0.01
    return lighter


def specification(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """A chart with the look of the house, as Vega-Lite has it."""
    return {**chart.to_dict(validate=False), "config": CONFIG}


def svg(chart: alt.TopLevelMixin) -> str:
    """The picture, with each colour's partner where the reader's pages are dark."""
    drawn = vl_convert.vegalite_to_svg(
        specification(chart), vl_version=VEGA_LITE, config={"aria": False}
    )
    rules = []
    for colour in sorted(set(COLOUR.findall(drawn))):
        for part in ("fill", "stroke"):
            rules.append(f'[{part}="{colour}"]{{{part}:{on_dark(colour)}}}')
    dark = f"<style>@media (prefers-color-scheme: dark){{{''.join(rules)}}}</style>"
    opening, end, rest = drawn.partition(">")
    return f"{opening}{end}{dark}{rest}"


def save_png(chart: alt.TopLevelMixin, path: Path, *, dark: bool = False) -> Path:
    """Writes the picture, whole or not at all, and returns its path."""
    drawing = specification(chart)
    if dark:
        text = json.dumps(drawing)
        drawing = json.loads(COLOUR.sub(lambda match: on_dark(match[0]), text))
    png = vl_convert.vegalite_to_png(drawing, vl_version=VEGA_LITE, scale=PNG_SCALE)
    with atomic_write(path) as file:
        file.write(png)
    return path


def save_both(chart: alt.TopLevelMixin, path: Path) -> Path:
    """Writes NAME.png and, for dark pages, NAME-dark.png; returns the first."""
    save_png(chart, path.with_stem(f"{path.stem}-dark"), dark=True)
    return save_png(chart, path)


def printable(name: str) -> str:
    """The name with a mark for what does not print, which no picture or page may hold."""
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in name
    )
