"""The page about one or several runs, which opens offline."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from openrlhf_js import __version__
from openrlhf_js.common.files import atomic_write
from openrlhf_js.report import lab, panels, passk, plot, selection, style
from openrlhf_js.report.plot import Panel, Row
from openrlhf_js.report.runs import Condition, compare_flags

PAGE = "report.html"
LAB_RESULTS = ("value", "mse", "gradient", "sweep", "heterogeneity", "simulate")
STEPS = plot.Axis("step", "training step")
STEP = re.compile(r"[-_]*(?:global[-_])?(?:step|checkpoint)[-_]?(\d+).*")  # in a name
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


class Score(NamedTuple):
    """A figure of a model with the ends of its interval, in per cent."""

    model: str
    quantity: str
    value: float
    low: float | None
    high: float | None


class Curves(NamedTuple):
    """What a page draws."""

    charts: dict[str, Markup]  # by section
    left_out: list[str]  # titles of panels that nobody logged, with the flag that logs them


def render(template: str, **context: Any) -> str:
    """A page from a template; every text is escaped, since names may come from files."""
    return TEMPLATES.get_template(template).render(
        written=time.strftime("%Y-%m-%d %H:%M %Z"), version=__version__, **context
    )


def write(
    conditions: Sequence[Condition],
    labs: Sequence[Path],
    folder: Path,
    smooth: int | None = None,
    evaluated: Sequence[Path] = (),
) -> Path:
    """Writes the page into a folder, in place of an earlier one, and returns its path.

    Ratios are to the first condition; `smooth` is of the running averages, None for a share of
    long runs; `evaluated` are results of `eval passk` and scores of `eval arena`.
    """
    results = [result for lab_folder in labs for result in lab_results(lab_folder)]
    scores = evaluations(evaluated)
    differing, agreeing = compare_flags(conditions)
    charts, left_out = draw_runs(conditions, smooth)
    if evaluated:
        charts["Evaluations"] = _draw_scores(scores)
    text = render(
        "report.html",
        title=_title(conditions, dict(agreeing)),
        states=_states(conditions),
        figures=panels.final_figures(conditions),
        unknown=[c.name for c in conditions if not any(run.config for run in c.runs)],
        differing=differing,
        agreeing=agreeing,
        sections=charts,
        script=plot.script() if charts else "",
        left_out=left_out,
        lab=results,
        scores=lab.table({"rows": scores}),
    )
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / PAGE) as file:
        file.write(text.encode())
    return folder / PAGE


def draw_runs(conditions: Sequence[Condition], smooth: int | None = None) -> Curves:
    """Charts of all that runs logged."""
    looks = style.series_looks([condition.name for condition in conditions])
    charts: dict[str, Markup] = {}
    left_out: list[str] = []
    if not conditions:
        return Curves(charts, left_out)
    for section, curves in panels.SECTIONS.items():
        shown: dict[str, Panel] = {}
        rows: list[Row] = []
        for curve in curves:
            drawn = panels.draw(curve, conditions, smooth)
            for panel, panel_rows in drawn:
                shown[panel.title] = panel
                rows += panel_rows
            if not drawn:
                left_out.append(f"{curve.title} ({curve.flag})" if curve.flag else curve.title)
        if shown:
            charts[section] = plot.page(plot.draw(rows, shown, STEPS, line="run", looks=looks))
    chosen = selection.draw(conditions, smooth)
    if chosen:
        shown = {panel.title: panel for panel, _ in chosen}
        rows = [row for _, panel_rows in chosen for row in panel_rows]
        drawings = plot.draw(rows, shown, STEPS, line="run", looks=looks)
        charts[selection.SECTION] = plot.page(drawings)
    return Curves(charts, left_out)


def _draw_scores(scores: Sequence[Row]) -> Markup:
    rows = [row for row in scores if row["step"] is not None]
    quantities = dict.fromkeys(row["quantity"] for row in rows)
    shown = {quantity: Panel(quantity, "%", intervals="bars") for quantity in quantities}
    return plot.page(plot.draw(rows, shown, STEPS, line="run"))


def _states(conditions: Sequence[Condition]) -> list[dict[str, str]]:
    now = time.time()
    return [
        {"run": condition.name, "state": run.status(now), "log": str(run.folder)}
        for condition in conditions
        for run in condition.runs
    ]


def _title(conditions: Sequence[Condition], flags: Mapping[str, str]) -> str:
    """The runs, the model that they share, and the tasks of their evaluations, else prompts."""
    names = ", ".join(condition.name for condition in conditions) or "Report"
    model = _end_of_path(flags.get("--actor.model_name_or_path", ""))
    prompts = _end_of_path(flags.get("--data.prompt_dataset", ""))
    data = ", ".join(_evaluated_tasks(conditions)) or prompts
    subject = " on ".join(name for name in (model, data) if name)
    return f"{names}: {subject}" if subject else names


def _evaluated_tasks(conditions: Sequence[Condition]) -> list[str]:
    tasks = []
    for title in panels.titles(panels.PASS_AT_1, conditions).values():
        _, _, task = title.partition(", ")
        if task:
            tasks.append(task)
    return tasks


def _end_of_path(path: str) -> str:
    return "/".join(Path(path).parts[-2:])


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


def evaluations(paths: Sequence[Path]) -> list[Row]:
    """Rows of pass@k and of Arena's scores of models, in per cent; the last of several counts.

    js-global_step20_hf is step 20 of the run js. A model without a step has none, but for that of
    a first PATH with pass@k, which is step 0.
    """
    rows: dict[tuple[str, int | None, str], Row] = {}
    start = None  # the name of the model at step 0
    for path in paths:
        file = path / "results.json" if path.is_dir() else path
        try:
            content = json.loads(file.read_bytes())
            scores = _arena_scores(content) if isinstance(content, list) else _pass_at_k(content)
        except (ValueError, LookupError, TypeError):
            raise ValueError(
                f"{file} holds neither results of eval passk nor scores of eval arena score --json"
            ) from None
        if not rows and isinstance(content, dict):
            start = _name_of_model(content["model"])
        for score in scores:
            name = _name_of_model(score.model)
            run = STEP.sub("", name) or "run"
            step = _step_in(name)
            if step is None and name == start:
                step = 0
            rows[run, step, score.quantity] = {
                "run": run,
                "step": step,
                "quantity": score.quantity,
                "value": score.value,
                "low": score.low,
                "high": score.high,
            }
    return sorted(rows.values(), key=lambda row: (row["run"], row["step"] or 0))


def _name_of_model(model: str) -> str:
    """The last two folders of a path or repository, or what a server calls it, behind its #."""
    return "-".join(Path(model.rpartition("#")[2]).parts[-2:])


def _step_in(name: str) -> int | None:
    match = STEP.search(name)
    return int(match[1]) if match else None


def _arena_scores(rows: Sequence[Row]) -> list[Score]:
    """The scores of a file of `eval arena score --json`, without the baselines'."""
    scores = []
    for row in rows:
        if row["model"] == row["baseline"]:
            continue
        quantity = f"{row['category']}, judged by {row['judge']}"
        if row["style_control"] != "none":
            quantity += f", style: {row['style_control']}"
        score = Score(
            model=row["model"],
            quantity=quantity,
            value=row["score"],
            low=row["ci_low"],
            high=row["ci_high"],
        )
        scores.append(score)
    return scores


def _pass_at_k(results: Mapping[str, Any]) -> list[Score]:
    """pass@1 and pass@k of each benchmark in results of `eval passk`."""
    scores = []
    for name, task in results["tasks"].items():
        for j in sorted({1, task["samples"]}):
            row = passk.value_of(task, "pass_at", j)
            score = Score(
                model=results["model"],
                quantity=f"{name}, pass@{j}",
                value=row["value"] and 100 * row["value"],
                low=row["low"] and 100 * row["low"],
                high=row["high"] and 100 * row["high"],
            )
            scores.append(score)
    return scores
