"""The page about one or several runs, which opens offline."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from openrlhf_js import __version__
from openrlhf_js.common.files import atomic_write
from openrlhf_js.report import evaluations, figures, lab, panels, plot, style
from openrlhf_js.report.plot import Panel, Row
from openrlhf_js.report.runs import Condition, compare_flags
from openrlhf_js.report.selection import calibration

PAGE = "report.html"
TIMINGS = "Timings"
PanelRows = tuple[Panel, list[Row]]
LAB_RESULTS = ("value", "mse", "gradient", "sweep", "heterogeneity", "simulate")
STEPS = plot.Axis("step", "training step")
TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    finalize=lambda text: text if isinstance(text, Markup) else style.printable(str(text)),
)


class Result(NamedTuple):
    """A result of the variance lab."""

    title: str
    caption: str
    rows: list[dict[str, str]]
    source: str  # of its picture, "" without one


class Curves(NamedTuple):
    """What a page draws."""

    charts: dict[str, Markup]  # by section
    timings: Markup  # of the parts of a step
    left_out: list[str]  # titles of panels that nobody logged, with the flag that logs them


def render(template: str, **context: Any) -> str:
    """A page from a template; every text is escaped, since names may come from files."""
    colours = " ".join([*style.ON_DARK, *(look.colour for look in style.LOOKS.values())])
    return TEMPLATES.get_template(template).render(
        written=time.strftime("%Y-%m-%d %H:%M %Z"),
        version=__version__,
        dark_rules=Markup(style.dark_rules(colours, scope=".chart ")),
        **context,
    )


def write(
    conditions: Sequence[Condition],
    labs: Sequence[Path],
    out: Path,
    smooth: int | None = None,
    evaluated: Sequence[Path] = (),
) -> Path:
    """Writes the page in place of an earlier one, and returns its path.

    `out` is a file, NAME.html, or a folder for report.html. Ratios are to the first condition;
    `smooth` is of the running averages, None for a share of long runs; `evaluated` are results of
    `eval passk` and scores of `eval arena`.
    """
    results = [result for lab_folder in labs for result in lab_results(lab_folder)]
    models = evaluations.read(evaluated)
    models_title = ", ".join(model.name for model in models) or "Report"
    forests = evaluations.Forests([], [])
    if any(model.step is None for model in models):
        forests = evaluations.forests(models)
    differing, agreeing = compare_flags(conditions)
    shared = {row["flag"]: row["value"] for row in agreeing}
    curves = draw_runs(conditions, smooth)
    text = render(
        "report.html",
        title=_title(conditions, shared) or models_title,
        states=_states(conditions),
        sections=curves.charts,
        figures=panels.final_figures(conditions, panels.CURVES),
        timings=panels.final_figures(conditions, panels.TIMINGS),
        timing_charts=curves.timings,
        left_out=curves.left_out,
        reference=conditions[0].name if len(conditions) > 1 else "",
        evaluations=figures.page([*evaluations.curves(models), *forests.plots]),
        scores=evaluations.table(models),
        not_compared=forests.not_compared,
        unknown=[c.name for c in conditions if not any(run.config for run in c.runs)],
        differing=differing,
        agreeing=agreeing,
        logs=_logs(conditions),
        lab=results,
        script=figures.script() if conditions or models else "",
    )
    page = out if out.suffix == ".html" else out / PAGE
    page.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(page) as file:
        file.write(text.encode())
    return page


def draw_runs(conditions: Sequence[Condition], smooth: int | None = None) -> Curves:
    """Charts of all that runs logged."""
    left_out: list[str] = []
    charts: dict[str, Markup] = {}
    if not conditions:
        return Curves(charts, Markup(), left_out)
    sections = {**panels.SECTIONS, TIMINGS: panels.TIMINGS}
    for section, curves in sections.items():
        drawn: list[PanelRows] = []
        for curve in curves:
            curve_panels = panels.draw(curve, conditions, smooth)
            drawn += curve_panels
            if not curve_panels:
                flag = f" ({curve.flag})" if curve.flag else ""
                left_out.append(curve.title + flag)
        if section == panels.CHOSEN:
            drawn += calibration(conditions)
        if drawn:
            charts[section] = _draw_panels(drawn, conditions)
    timings = charts.pop(TIMINGS, Markup())
    return Curves(charts, timings, left_out)


def _draw_panels(panels_drawn: Sequence[PanelRows], conditions: Sequence[Condition]) -> Markup:
    """These panels, each with its rows, side by side."""
    shown: dict[str, Panel] = {}
    rows: list[Row] = []
    for panel, panel_rows in panels_drawn:
        shown[panel.title] = panel
        rows += panel_rows
    looks = style.series_looks([condition.name for condition in conditions])
    return figures.page(plot.draw(rows, shown, STEPS, line="run", looks=looks))


def _states(conditions: Sequence[Condition]) -> list[str]:
    now = time.time()
    return [
        f"{condition.name}: {run.status(now)}" for condition in conditions for run in condition.runs
    ]


def _logs(conditions: Sequence[Condition]) -> list[dict[str, str]]:
    return [
        {"run": condition.name, "log": str(run.folder)}
        for condition in conditions
        for run in condition.runs
    ]


def _title(conditions: Sequence[Condition], flags: Mapping[str, str]) -> str:
    """The runs, and the model and the prompts that they share."""
    names = ", ".join(condition.name for condition in conditions)
    shared = []
    for flag in ("--actor.model_name_or_path", "--data.prompt_dataset"):
        if flag in flags:
            last_folders = Path(flags[flag]).parts[-2:]
            shared.append("/".join(last_folders))
    subject = " on ".join(shared)
    return f"{names}: {subject}" if subject else names


def lab_results(folder: Path) -> list[Result]:
    """The results of the variance lab at or below a folder."""
    paths = sorted(path for name in LAB_RESULTS for path in folder.rglob(f"{name}.json"))
    if not paths:
        raise ValueError(f"{folder} holds no result of openrlhf-js lab; give its --out")
    results = []
    for path in paths:
        summary = json.loads(path.read_text(encoding="utf-8"))
        png = path.with_suffix(".png")
        result = Result(
            title=f"{path.resolve().parent.name}: {path.stem}",
            caption=summary.get("caption", ""),
            rows=lab.table(summary),
            source=style.source("image/png", png.read_bytes()) if png.is_file() else "",
        )
        results.append(result)
    return results
