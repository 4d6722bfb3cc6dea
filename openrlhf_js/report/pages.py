"""The page about one or several runs, which opens offline, and its pictures as PNG."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from openrlhf_js import __version__
from openrlhf_js.common.files import atomic_write
from openrlhf_js.report import lab, panels, style
from openrlhf_js.report.chart import chart, script
from openrlhf_js.report.plot import Panel, Row, plot
from openrlhf_js.report.runs import Condition, compare_flags

PAGE = "report.html"
LAB_RESULTS = ("value", "mse", "gradient", "sweep", "heterogeneity", "simulate")
STEPS: Any = {"x": "step", "xlabel": "training step", "line": "run"}
STEP = re.compile(r"[-_]*(?:global[-_])?(?:step|checkpoint)[-_]?(\d+).*")  # in a name
TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    finalize=lambda each: each if isinstance(each, Markup) else style.printable(str(each)),
)


class Written(NamedTuple):
    """What a report has left."""

    page: Path
    pictures: list[Path]
    left_out: list[str]  # titles of panels that nobody logged, with the flag that logs them


def render(template: str, **context: Any) -> str:
    """A page from a template; every text is escaped, since names may come from files."""
    return TEMPLATES.get_template(template).render(**context)


def write(
    conditions: Sequence[Condition],
    labs: Sequence[Path],
    folder: Path,
    smooth: int | None = None,
    evaluated: Sequence[Path] = (),
) -> Written:
    """Writes the page and its PNGs into a folder, in place of an earlier report.

    Ratios are to the first condition; `smooth` is of the running averages, None for a share of
    long runs; `evaluated` are results of `eval passk` and scores of `eval arena`.
    """
    results = [result for each in labs for result in lab_results(each)]
    along, scores = evaluations(evaluated)
    folder.mkdir(parents=True, exist_ok=True)
    looks = style.series_styles([condition.name for condition in conditions])
    now, (differing, agreeing) = time.time(), compare_flags(conditions)
    names = ", ".join(condition.name for condition in conditions)
    names = names or ("Variance lab" if labs else "Evaluations")
    of = _subject(conditions, dict(agreeing))
    sections: dict[str, Markup] = {}
    pictures: list[Path] = []
    left_out: list[str] = []
    for section, curves in panels.SECTIONS.items() if conditions else ():
        shown: dict[str, Panel] = {}
        rows: list[Row] = []
        for curve in curves:
            drawn = panels.draw(curve, conditions, smooth)
            if not drawn:
                left_out.append(curve.title + f" ({curve.how})" * bool(curve.how))
            for panel, own in drawn:
                bare = {panel.title: replace(panel, note="")}  # a long note leaves the picture
                figure = plot(own, bare, title=of, looks=looks, **STEPS)
                pictures.append(style.save_png(figure, folder / _free_name(panel.title, pictures)))
                shown[panel.title], rows = panel, rows + own
        if shown:
            sections[section] = chart(rows, shown, looks=looks, **STEPS)
    if evaluated:
        measures = {row["measure"]: Panel(row["measure"], "%", intervals="bars") for row in along}
        sections["Evaluations"] = chart(along, measures, **STEPS, panel="measure")
    unknown = [c.name for c in conditions if not any(run.config for run in c.runs)]
    columns = ["flag", *(c.name for c in conditions if c.name not in unknown)]
    text = render(
        "report.html",
        title=f"{names}: {of}" if of else names,
        written=time.strftime("%Y-%m-%d %H:%M %Z"),
        version=__version__,
        now=now,
        conditions=conditions,
        warnings=[each for c in conditions for run in c.runs for each in run.warnings(now)],
        figures=panels.final_figures(conditions),
        figures_note=panels.NOTE,
        unknown=unknown,
        differing=[dict(zip(columns, row, strict=True)) for row in differing],
        agreeing=agreeing,
        sections=sections,
        script=script() if sections else "",
        left_out=left_out,
        lab=results,
        scores=scores,
        tags=sorted({tag for c in conditions for tag in c.tags}),
    )
    with atomic_write(folder / PAGE) as file:
        file.write(text.encode())
    return Written(folder / PAGE, pictures, left_out)


def _subject(conditions: Sequence[Condition], flags: Mapping[str, str]) -> str:
    """The model that the runs share, and the tasks of their evaluations, else their prompts."""
    names = "--actor.model_name_or_path", "--data.prompt_dataset"
    model, prompts = ("/".join(Path(flags.get(name, "")).parts[-2:]) for name in names)
    pass_at_1 = panels.titles(panels.PASS_AT_1, conditions).values()
    tasks = ", ".join(task for _, _, task in (each.partition(", ") for each in pass_at_1) if task)
    return " on ".join(each for each in (model, tasks or prompts) if each)


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
        png, title = path.with_suffix(".png"), f"{path.resolve().parent.name}: {path.stem}"
        source = style.source("image/png", png.read_bytes()) if png.is_file() else ""
        shown = {"finding": summary.get("finding"), "rows": lab.table(summary)}
        found.append({"title": title, "source": source, **shown})
    if not found:
        raise ValueError(f"{folder} holds no result of openrlhf-js lab; give its --out")
    return found


def evaluations(paths: Sequence[Path]) -> tuple[list[Row], list[dict[str, str]]]:
    """Rows of pass@k and Arena's scores over training, in per cent, and a table of all models.

    js-global_step20_hf is step 20 of the run js. A model without a step is in the table alone, but
    that of a first PATH with pass@k is step 0 of every run.
    """
    found: dict[tuple[str, int, str], dict[str, Any]] = {}  # the last of several figures
    start = None
    for path in paths:
        place = path / "results.json" if path.is_dir() else path
        try:
            content = json.loads(place.read_bytes())
            rows = list(_scores(content) if isinstance(content, list) else _passes(content))
        except (ValueError, LookupError, TypeError):
            said = "neither results of eval passk nor scores of eval arena score --json"
            raise ValueError(f"{place} holds {said}") from None
        for row in rows:
            name = "-".join(Path(row.pop("model").rpartition("#")[2]).parts[-2:])
            place_of = STEP.search(name)
            run, step = STEP.sub("", name), int(place_of[1]) if place_of else -1
            start = run if not found and isinstance(content, dict) else start
            found[run, step, row["measure"]] = {"run": run, "step": step, **row}
    runs = {run for run, step, _ in found if step >= 0}
    first = [row for row in found.values() if (row["run"], row["step"]) == (start, -1)]
    along: list[Row] = [row for row in found.values() if row["step"] >= 0]
    along += [{**row, "run": run, "step": 0} for run in runs for row in first]
    table: dict[tuple[str, int], dict[str, str]] = {}
    columns = dict.fromkeys((measure for _, _, measure in found), "-")
    for (run, step, measure), row in sorted(found.items(), key=lambda each: each[0][:2]):
        line = table.setdefault((run, step), {"run": run, "step": str(step), **columns})
        line[measure] = style.interval(row["value"], row["low"], row["high"], ".1f")
    return along, [line | {"step": line["step"].replace("-1", "-")} for line in table.values()]


def _passes(found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for task, of in found["tasks"].items():
        for row in of["rows"]:
            if row["quantity"] == "pass_at" and row["j"] in (1, of["samples"]):
                ends = {end: row[end] and 100 * row[end] for end in ("value", "low", "high")}
                yield {"model": found["model"], "measure": f"{task}, pass@{row['j']}", **ends}


def _scores(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        if row["model"] != row["baseline"]:
            controlled = f", style: {row['style_control']}".removesuffix(", style: none")
            measure = f"{row['category']}, judged by {row['judge']}{controlled}"
            ends = {"value": row["score"], "low": row["ci_low"], "high": row["ci_high"]}
            yield {"model": row["model"], "measure": measure, **ends}


def _free_name(title: str, taken: Sequence[Path]) -> str:
    plain = re.sub(r"[^a-z0-9]+", "_", title.lower().replace("λ", "lambda")).strip("_")
    name = f"{plain}.png"
    return f"{plain}_{len(taken)}.png" if name in [path.name for path in taken] else name
