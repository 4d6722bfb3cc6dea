"""The page about one or several runs, which opens offline, and its pictures as PNG."""

from __future__ import annotations

import base64
import dataclasses
import functools
import itertools
import json
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure

from openrlhf_js import __version__
from openrlhf_js.common.console import cell
from openrlhf_js.common.files import atomic_write
from openrlhf_js.report import panels, style
from openrlhf_js.report.plot import Panel, Row, plot
from openrlhf_js.report.runs import Condition, compare_flags

PAGE = "report.html"
LAB_RESULTS = ("value", "mse", "gradient", "sweep", "heterogeneity", "simulate")


class Written(NamedTuple):
    """What a report has left."""

    page: Path
    pictures: list[Path]
    left_out: list[str]
    """Titles of panels whose scalars are nowhere, or always 0, and how to have them logged."""


def render(template: str, **context: Any) -> str:
    """A page from a template; every text is escaped, since names may come from files."""
    return _environment().get_template(template).render(**context)


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        finalize=lambda each: (
            each
            if isinstance(each, Markup)
            else "-"
            if each is None
            else style.printable(str(each))
        ),
    )


def write(
    conditions: Sequence[Condition],
    labs: Sequence[Path],
    folder: Path,
    smooth: int | None = None,
) -> Written:
    """Writes the page and its PNGs into a folder, in place of an earlier report.

    Args:
        conditions: what is compared, if anything; the first one is what ratios are to.
        labs: folders with results of the variance lab.
        folder: made if it does not exist.
        smooth: logged values of the running averages, None for a share of long runs.

    Raises:
        ValueError: a folder of the lab holds no result.
    """
    results = [result for each in labs for result in lab_results(each)]
    folder.mkdir(parents=True, exist_ok=True)
    looks = style.series_styles([condition.name for condition in conditions])
    sections: dict[str, list[dict[str, str]]] = {}
    pictures: list[Path] = []
    left_out: list[str] = []
    for section, curves in panels.SECTIONS.items():
        for curve in curves:
            drawn = panels.draw(curve, conditions, smooth)
            if not drawn:
                left_out.append(curve.title + f" ({curve.how})" * bool(curve.how))
            for panel, rows in drawn:
                figure = _figure(panel, rows, looks)
                pictures.append(style.save_png(figure, _free(folder, panel.title, pictures)))
                picture = {"title": panel.title, "note": panel.note, "source": svg_source(figure)}
                sections.setdefault(section, []).append(picture)
    context = _of_runs(conditions, looks) if conditions else {"runs": [], "title": "Variance lab"}
    text = render(
        "report.html",
        written=time.strftime("%Y-%m-%d %H:%M %Z"),
        version=__version__,
        sections=sections,
        left_out=left_out,
        lab=results,
        **context,
    )
    with atomic_write(folder / PAGE) as file:
        file.write(text.encode())
    return Written(folder / PAGE, pictures, left_out if conditions else [])


def _of_runs(conditions: Sequence[Condition], looks: dict[str, dict[str, Any]]) -> dict[str, Any]:
    differing, agreeing = compare_flags(conditions)
    unknown = [c.name for c in conditions if not any(run.config.flags for run in c.runs)]
    columns = ["flag", *(c.name for c in conditions if c.name not in unknown)]
    return {
        "title": _title(conditions, dict(agreeing)),
        "runs": [
            {"name": c.name, "seeds": c.runs, "swatch": _swatch(looks[c.name])} for c in conditions
        ],
        "warnings": [each for c in conditions for run in c.runs for each in run.warnings()],
        "figures": panels.final_figures(conditions),
        "figures_note": panels.NOTE,
        "unknown": unknown,
        "differing": [dict(zip(columns, row, strict=True)) for row in differing],
        "agreeing": agreeing,
        "tags": sorted({tag for c in conditions for tag in c.tags}),
    }


def _title(conditions: Sequence[Condition], flags: dict[str, str]) -> str:
    """The names of the runs, and the model and prompts that they share."""
    shared = (
        flags.get(f"--{name}") for name in ("actor.model_name_or_path", "data.prompt_dataset")
    )
    of = " on ".join("/".join(Path(each).parts[-2:]) for each in shared if each)
    return ", ".join(condition.name for condition in conditions) + f": {of}" * bool(of)


def lab_results(folder: Path) -> list[dict[str, Any]]:
    """The results of the variance lab at or below a folder: title, finding, rows and picture."""
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}; give the --out of a lab command")
    found = []
    for path in sorted(path for name in LAB_RESULTS for path in folder.rglob(f"{name}.json")):
        try:
            summary = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:  # being written, or of another program
            continue
        if not isinstance(summary, dict) or summary.get("lab") not in LAB_RESULTS:
            continue
        rows, png = summary.get("rows") or [], path.with_suffix(".png")
        names = list(dict.fromkeys(name for row in rows for name in row))
        found.append(
            {
                "title": f"{path.resolve().parent.name}: {path.stem}",
                "finding": summary.get("finding", ""),
                "rows": [{name: cell(row.get(name)) for name in names} for row in rows],
                "source": _source("image/png", png.read_bytes()) if png.is_file() else "",
            }
        )
    if not found:
        raise ValueError(f"{folder} holds no result of openrlhf-js lab; give its --out")
    return found


def _figure(panel: Panel, rows: list[Row], looks: dict[str, dict[str, Any]]) -> Figure:
    """A panel without its note, which the page has, as high as the names of its lines need."""
    size = 5.0, max(3.2, 1.2 + style.LABEL_GAP_INCHES * len({row["run"] for row in rows}))
    bare = {panel.title: dataclasses.replace(panel, note="")}
    return plot(rows, bare, x="step", xlabel="training step", line="run", size=size, looks=looks)


def svg_source(figure: Any) -> str:
    """A picture as the address of an image; two inlined SVGs would share names of their parts."""
    return _source("image/svg+xml", style.svg(figure).encode())


def _source(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def _swatch(look: dict[str, Any]) -> str:
    with rc_context(style.HOUSE):
        figure = style.figure(1, 1, 0.9, 0.25)
        (axes,) = figure.axes
        axes.plot([0, 1, 2], [0, 0, 0], **look, markevery=[1])
        axes.set_axis_off()
    return svg_source(figure)


def _free(folder: Path, title: str, taken: Iterable[Path]) -> Path:
    """A file for a picture, which no other picture has."""
    plain = re.sub(r"[^a-z0-9]+", "_", title.lower().replace("λ", "lambda")).strip("_")
    names = itertools.chain([plain], (f"{plain}_{i}" for i in itertools.count(2)))
    return next(folder / f"{name}.png" for name in names if folder / f"{name}.png" not in taken)
