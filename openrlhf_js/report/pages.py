"""The page about one or several runs, which opens offline."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from openrlhf_js import __version__
from openrlhf_js.common.files import atomic_write
from openrlhf_js.report import lab, panels, passk, style
from openrlhf_js.report.chart import chart, script
from openrlhf_js.report.plot import Panel, Row
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


def render(template: str, **context: Any) -> str:
    """A page from a template; every text is escaped, since names may come from files."""
    made = {"written": time.strftime("%Y-%m-%d %H:%M %Z"), "version": __version__}
    return TEMPLATES.get_template(template).render({**made, **context})


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
    results = [result for each in labs for result in lab_results(each)]
    figures = evaluations(evaluated)
    folder.mkdir(parents=True, exist_ok=True)
    looks = style.series_styles([condition.name for condition in conditions])
    differing, agreeing = compare_flags(conditions)
    names = ", ".join(condition.name for condition in conditions) or "Report"
    of = _subject(conditions, dict(agreeing))
    sections: dict[str, Markup] = {}
    left_out: list[str] = []  # titles of panels that nobody logged, with the flag that logs them
    for section, curves in panels.SECTIONS.items() if conditions else ():
        shown: dict[str, Panel] = {}
        rows: list[Row] = []
        for curve in curves:
            drawn = panels.draw(curve, conditions, smooth)
            if not drawn:
                left_out.append(curve.title + f" ({curve.flag})" * bool(curve.flag))
            for panel, own in drawn:
                shown[panel.title], rows = panel, rows + own
        if shown:
            sections[section] = chart(rows, shown, looks=looks, **STEPS)
    if evaluated:
        along = [row for row in figures if row["step"] is not None]
        shown = {r["quantity"]: Panel(r["quantity"], "%", intervals="bars") for r in along}
        sections["Evaluations"] = chart(along, shown, **STEPS)
    states = [
        {"run": c.name, "state": each.status(time.time()), "log": str(each.folder)}
        for c in conditions
        for each in c.runs
    ]
    text = render(
        "report.html",
        title=f"{names}: {of}" if of else names,
        states=states,
        figures=panels.final_figures(conditions),
        unknown=[c.name for c in conditions if not any(run.config for run in c.runs)],
        differing=differing,
        agreeing=agreeing,
        sections=sections,
        script=script() if sections else "",
        left_out=left_out,
        lab=results,
        scores=lab.table({"rows": figures}),
    )
    with atomic_write(folder / PAGE) as file:
        file.write(text.encode())
    return folder / PAGE


def _subject(conditions: Sequence[Condition], flags: Mapping[str, str]) -> str:
    """The model that the runs share, and the tasks of their evaluations, else their prompts."""
    names = "--actor.model_name_or_path", "--data.prompt_dataset"
    model, prompts = ("/".join(Path(flags.get(name, "")).parts[-2:]) for name in names)
    pass_at_1 = panels.titles(panels.PASS_AT_1, conditions).values()
    tasks = ", ".join(task for _, _, task in (each.partition(", ") for each in pass_at_1) if task)
    return " on ".join(each for each in (model, tasks or prompts) if each)


def lab_results(folder: Path) -> list[dict[str, Any]]:
    """The results of the variance lab at or below a folder: title, finding, rows and picture."""
    found = []
    for path in sorted(path for name in LAB_RESULTS for path in folder.rglob(f"{name}.json")):
        summary, png = json.loads(path.read_text(encoding="utf-8")), path.with_suffix(".png")
        title = f"{path.resolve().parent.name}: {path.stem}"
        source = style.source("image/png", png.read_bytes()) if png.is_file() else ""
        shown = {"finding": summary["finding"], "rows": lab.table(summary)}
        found.append({"title": title, "source": source, **shown})
    if not found:
        raise ValueError(f"{folder} holds no result of openrlhf-js lab; give its --out")
    return found


def evaluations(paths: Sequence[Path]) -> list[Row]:
    """Rows of pass@k and of Arena's scores of models, in per cent; the last of several counts.

    js-global_step20_hf is step 20 of the run js. A model without a step has none, but for that of
    a first PATH with pass@k, which is step 0.
    """
    found: dict[tuple[str, int | None, str], Row] = {}
    start = None
    for path in paths:
        place = path / "results.json" if path.is_dir() else path
        try:
            content = json.loads(place.read_bytes())
            figures = list(_figures(content))
        except (ValueError, LookupError, TypeError):
            said = "neither results of eval passk nor scores of eval arena score --json"
            raise ValueError(f"{place} holds {said}") from None
        for model, quantity, value, low, high in figures:
            name = "-".join(Path(model.rpartition("#")[2]).parts[-2:])
            start = name if not found and isinstance(content, dict) else start
            run, number = STEP.sub("", name) or "run", STEP.search(name)
            step = int(number[1]) if number else 0 if name == start else None
            ends = {"quantity": quantity, "value": value, "low": low, "high": high}
            found[run, step, quantity] = {"run": run, "step": step, **ends}
    return sorted(found.values(), key=lambda row: (row["run"], row["step"] or 0))


def _figures(content: Any) -> Iterator[tuple[str, str, float, float | None, float | None]]:
    if isinstance(content, list):
        for row in content:
            if row["model"] != row["baseline"]:
                style_control = f", style: {row['style_control']}".removesuffix(", style: none")
                judged = f"{row['category']}, judged by {row['judge']}{style_control}"
                yield row["model"], judged, row["score"], row["ci_low"], row["ci_high"]
        return
    for name, task in content["tasks"].items():
        for j in sorted({1, task["samples"]}):
            row = passk.value_of(task, "pass_at", j)
            value, low, high = (row[e] and 100 * row[e] for e in ("value", "low", "high"))
            yield content["model"], f"{name}, pass@{j}", value, low, high
