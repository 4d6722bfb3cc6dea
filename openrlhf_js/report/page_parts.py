"""The parts of the page about runs, as HTML: tables, panels, the lab, and what is missing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from openrlhf_js import __version__
from openrlhf_js.report import differences, html, lab, style
from openrlhf_js.report.final_figures import NOTE, figures
from openrlhf_js.report.panels import Picture, Styles
from openrlhf_js.report.runs import Condition

BANDS = (
    "Running averages are of so many logged values, and begin once there are so many. Intervals "
    "over seeds reach as far as all seeds of a run have come."
)


def title() -> list[str]:
    """What this is, and when it was made."""
    written = time.strftime("%Y-%m-%d %H:%M %Z")
    said = f"Written {written} by openrlhf_js {__version__}."
    return ["<h1>Report</h1>", html.paragraph(said, quiet=True)]


def head(conditions: Sequence[Condition], styles: Styles) -> list[str]:
    """Who runs, and what came out."""
    rows = [
        [
            html.image(_swatch(styles[c.name]), f"line of {c.name}", "swatch") + html.text(c.name),
            str(len(c.runs)),
            "<br>".join(html.text(run.status()) for run in c.runs),
            "<br>".join(html.text(str(run.folder)) for run in c.runs),
        ]
        for c in conditions
    ]
    columns, body = figures(conditions)
    return [
        "<h2>Runs</h2>",
        html.table_of(("run", "seeds", "state", "log"), rows, whole=True),
        *(html.paragraph(warning) for warning in warnings(conditions)),
        "<h2>Final figures</h2>",
        html.table(columns, body, whole=True),
        html.paragraph(NOTE, quiet=True),
    ]


def warnings(conditions: Sequence[Condition]) -> list[str]:
    """What is wrong with the logs: what could not be read, and values that are not finite."""
    said = []
    for run in (run for condition in conditions for run in condition.runs):
        said += [
            f"{path} {why}; this report has what was read of it before."
            for path, why in run.logged.lost.items()
        ]
        if not run.running():
            said += [
                f"{path} ends in {count:,} bytes that cannot be read: it is damaged or was cut "
                "off there, and what came after is not in this report."
                for path, count in run.logged.unread.items()
            ]
        odd = [
            tag
            for tag in run.logged.tags
            if len(run.series(tag).steps) < len(run.logged[tag].steps)
        ]
        if odd:
            said.append(
                f"{run.folder} has values that are not finite, left out, of {', '.join(odd)}."
            )
    return said


def _swatch(look: dict[str, Any]) -> str:
    figure = style.figure(1, 1, 0.9, 0.25)
    (axes,) = figure.axes
    axes.plot([0, 1, 2], [0, 0, 0], **look, markevery=[1])
    axes.set_axis_off()
    return style.svg(figure)


def configuration(conditions: Sequence[Condition]) -> list[str]:
    """In what the runs differ, and on demand in what they do not."""
    unknown = differences.without_flags(conditions)
    known = [c.name for c in conditions if c.name not in unknown]
    rows, same = differences.differing(conditions), differences.agreeing(conditions)
    said = "No file beside the log tells the flags of " + ", ".join(unknown) + "."
    parts = ["<h2>Differences in configuration</h2>", html.paragraph(said if unknown else "")]
    if rows:
        parts += [
            html.table(("flag", *known), rows),
            html.paragraph(
                "A bar parts the values of several seeds. Where a run leaves its "
                "files is not shown.",
                quiet=True,
            ),
        ]
    elif len(known) > 1:
        parts.append(html.paragraph("None: all flags and versions are the same."))
    same_table = html.table((), same) if same else ""
    heading = "The same in all runs" if len(known) > 1 else "All flags and versions"
    return [*parts, html.folded(f"{heading} ({len(same)})", same_table)]


def panels(sections: Mapping[str, Sequence[Picture]]) -> list[str]:
    parts = [html.paragraph(BANDS, quiet=True)]
    for section, pictures in sections.items():
        shown = "".join(
            html.figure(style.svg(each.figure), each.title, each.note, quiet=True)
            for each in pictures
        )
        parts += [f"<h2>{section}</h2>", f'<div class="panels">{shown}</div>']
    return parts


def lab_results(paths: Sequence[Path], pictures: Sequence[Picture]) -> list[str]:
    """Findings, pictures and tables of the variance lab."""
    parts = ["<h2>Variance lab</h2>"] if paths else []
    for path, picture in zip(paths, pictures, strict=True):
        summary = lab.read(path)
        columns, rows = lab.table(summary)
        parts += [
            f"<h3>{html.text(picture.title)}</h3>",
            html.paragraph(str(summary.get("finding", ""))),
            html.figure(style.svg(picture.figure), picture.title, ""),
            html.folded("Numbers", html.table(columns, rows) if rows else ""),
        ]
    return parts


def rest(conditions: Sequence[Condition], left_out: Sequence[str]) -> list[str]:
    """What was not drawn: panels without a scalar."""
    tags = sorted({tag for c in conditions for tag in c.tags})
    said = "Left out, since not logged, or always 0: " + "; ".join(left_out) + "."
    return [
        "<h2>Not shown</h2>" if left_out else "",
        html.paragraph(said if left_out else ""),
        html.folded(f"All scalars in the logs ({len(tags)})", html.paragraph(", ".join(tags))),
    ]
