"""The page about one or several runs, and its pictures as PNG."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib import rc_context

from openrlhf_js.report import html, lab, page_parts, style
from openrlhf_js.report.panels import (
    GRADIENT,
    GRADIENT_FLAG,
    LEARNING,
    RESPONSES,
    SHRINKAGE,
    Lines,
    Picture,
    Special,
    Styles,
    draw_lines,
)
from openrlhf_js.report.pass_panel import draw_pass_at_1
from openrlhf_js.report.runs import Condition
from openrlhf_js.report.special_panels import (
    draw_gradient_variance,
    draw_grading,
    draw_shrinkage,
    draw_timings,
)
from openrlhf_js.whole_file import whole_file

PAGE = "report.html"
SECTIONS: dict[str, tuple[Lines | Special, ...]] = {
    "Learning": (LEARNING[0], Special("Held-out pass@1", draw_pass_at_1), *LEARNING[1:]),
    "Shrinkage": (Special("Shrinkage λ", draw_shrinkage), *SHRINKAGE),
    "Gradient": (
        Special("Gradient variance", draw_gradient_variance, GRADIENT_FLAG),
        *GRADIENT,
    ),
    "Responses": RESPONSES,
    "Grading": (Special("Grading statuses", draw_grading),),
    "Time": (Special("Time of a training step", draw_timings),),
}


class Written(NamedTuple):
    """What a report has left."""

    page: Path
    pictures: list[Path]
    left_out: list[str]
    """Titles of panels whose scalars are nowhere, or always 0, and how to have them logged."""


def write(
    conditions: Sequence[Condition],
    labs: Sequence[Path],
    folder: Path,
    smooth: int | None = None,
) -> Written:
    """Draws everything, and writes the page and the PNGs into a folder.

    Args:
        conditions: what is compared, if anything; the first one is what ratios are to.
        labs: results of the variance lab, NAME.json.
        folder: made if it is not there; files of an earlier report are replaced.
        smooth: logged values of the running averages, None for a share of long runs.

    Raises:
        ValueError: a lab result cannot be drawn.
    """
    folder.mkdir(parents=True, exist_ok=True)
    styles = style.series_styles([condition.name for condition in conditions])
    left_out: list[str] = []
    sections: dict[str, list[Picture]] = {}
    with rc_context(style.HOUSE):
        for section, panels in SECTIONS.items():
            drawn = _draw(panels, conditions, styles, smooth, left_out)
            if drawn:
                sections[section] = drawn
        results = [Picture(lab.title(path), lab.drawn(path), "") for path in labs]
    pictures = [picture for drawn in (*sections.values(), results) for picture in drawn]
    paths = [
        style.save_png(picture.figure, folder / f"{slug}.png")
        for picture, slug in zip(pictures, _slugs(pictures), strict=True)
    ]
    of_runs = [
        *page_parts.head(conditions, styles),
        *page_parts.configuration(conditions),
        *page_parts.panels(sections),
    ]
    parts = [
        *page_parts.title(),
        *(of_runs if conditions else ()),
        *page_parts.lab_results(labs, results),
        *(page_parts.rest(conditions, left_out) if conditions else ()),
    ]
    names = ", ".join(condition.name for condition in conditions) or "variance lab"
    with whole_file(folder / PAGE) as file:
        file.write(html.page(f"Report: {names}", parts).encode())
    return Written(folder / PAGE, paths, left_out if conditions else [])


def _draw(
    panels: Iterable[Lines | Special],
    conditions: Sequence[Condition],
    styles: Styles,
    smooth: int | None,
    left_out: list[str],
) -> list[Picture]:
    drawn: list[Picture] = []
    for panel in panels:
        if isinstance(panel, Special):
            found = panel.draw(conditions, styles, smooth)
        else:
            picture = draw_lines(panel, conditions, styles, smooth)
            found = [picture] if picture else []
        if not found:
            left_out.append(panel.title + (f" ({panel.how})" if panel.how else ""))
        drawn += found
    return drawn


def _slugs(pictures: Sequence[Picture]) -> list[str]:
    """A file name for each picture, no two alike."""
    plain = [re.sub(r"[^a-z0-9]+", "_", p.title.lower().replace("λ", "lambda")) for p in pictures]
    names: list[str] = []
    for name in (each.strip("_") for each in plain):
        other = (f"{name}_{i}" for i in itertools.count(2))
        names.append(
            next(each for each in (name, *itertools.islice(other, len(plain))) if each not in names)
        )
    return names
