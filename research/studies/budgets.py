"""Prints the tables of kept studies at the same number of responses, and draws their pictures.

.venv/bin/python research/studies/budgets.py [IMAGES]      # default docs/images

Kept records lie beside their settings: chains.yaml and chains.jsonl.xz.
"""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any

from answer_graders.programs.files import read_yaml
from baseline_research.markdown_table import print_table
from baseline_research.study.analysis import Findings, analyse
from baseline_research.study.budget import Tried, final_records, tried_splits
from baseline_research.study.design import InlineStudy
from baseline_research.study.page import curves_of, results_by_split
from baseline_research.study.runs import Run
from baseline_research.study.tables import by_estimator, choice_table
from baseline_research.study.values import RunRecord, grouped, read_runs
from baseline_research.tiny.chains import MISLED
from paired_eval.pages import figures, style
from paired_eval.stats import clustered_mean

HERE = Path(__file__).parent
IMAGES = HERE.parents[1] / "docs/images"
PANEL_WIDTH = 250  # pixels
OURS = "js_grad"
ALSO = "_also"  # in a file's name, after the study's: the final seeds at settings not chosen
MEASURED = {"pass16": "pass@16", "pass4": "pass@4"}  # beside pass@1; the first that a study has


def print_results(findings: Findings, over_ours: Findings, cells: Sequence[str]) -> None:
    """Each estimator at its own split and rate, on the final seeds, in percent and points."""
    pass_k = measured(row.quantity for row in findings.means)
    has_greedy = any(row.quantity == "greedy" for row in findings.means)
    columns = ["task", "estimator", "prompts x responses", "rate", "pass@1"]
    columns += ["greedy"] * has_greedy
    columns += [f"over `{findings.reference}`", f"over `{OURS}`"]
    columns += ["share of samples", MEASURED[pass_k], "nats per token"]
    rows = []
    for cell in cells:
        means = by_estimator(findings.means, cell)
        shares = {row.estimator: row.share for row in findings.samples if row.cell == cell}
        for estimator in sorted(means, key=lambda name: -means[name]["pass1"].value):
            pass1 = means[estimator]["pass1"]
            share = shares[estimator]
            row = [
                task_of(cell),
                f"`{estimator}`",
                pass1.split,
                pass1.learning_rate,
                f"{100 * pass1.value:.1f}",
            ]
            if has_greedy:
                greedy = means[estimator].get("greedy")
                row.append(f"{100 * greedy.value:.1f}" if greedy else "")
            row += [
                shown_difference(findings, cell, estimator),
                shown_difference(over_ours, cell, estimator),
                "never" if share is None else f"{share:.2f}",
                f"{100 * means[estimator][pass_k].value:.1f}",
                f"{means[estimator]['entropy'].value:.3f}",
            ]
            rows.append(row)
    print()
    print_table(columns, rows, text_columns=3)


def measured(names: Iterable[str]) -> str:
    """Which pass@k is among these figures."""
    present = set(names)
    return next(name for name in MEASURED if name in present)


def task_of(cell: str) -> str:
    """The task in a cell's title."""
    return cell.partition(",")[0]


def shown_difference(findings: Findings, cell: str, estimator: str) -> str:
    """Points of pass@1 over the reference, ± half of their interval; empty for the reference."""
    row = by_estimator(findings.differences, cell).get(estimator, {}).get("pass1")
    if row is None:
        return ""
    if not isfinite(row.low):
        return "0, the same runs"
    return points(row.value, row.low, row.high)


def print_splits(tried: list[Tried]) -> None:
    """pass@1 of each split at its best rate, on the choice seeds."""
    by_cell = grouped(tried, lambda row: row.cell)
    tables = {cell: choice_table(rows) for cell, rows in by_cell.items()}
    columns = ("task", *next(iter(tables.values()))[0])
    shown = [(task_of(cell), *row.values()) for cell, rows in tables.items() for row in rows]
    print_table(columns, shown, text_columns=2)


def print_settings(runs: Iterable[RunRecord]) -> None:
    """Every setting that was trained, on all seeds: how it ends, and how often it ends ruined.

    A run is ruined if its pass@1 is below the reward of the start: the mean of the first twentieth
    of the training at the lowest learning rate, which hardly changes the policy in that time.
    """
    runs = list(runs)
    starts = {task: start_reward(own) for task, own in grouped(runs, itemgetter("task")).items()}
    pass_k = measured(name for name, value in runs[0].items() if value is not None)
    columns = ("task", "estimator", "prompts x responses", "rate", "runs", "ruined", "pass@1")
    columns += ("lowest", MEASURED[pass_k], "nats per token")
    rows = []
    names = ("task", "estimator", "responses", "learning_rate")
    by_setting = grouped(runs, lambda run: tuple(run[name] for name in names))
    for (task, estimator, responses, rate), own in sorted(by_setting.items()):
        passed = [100 * run["pass1"] for run in own]
        ruined = sum(run["pass1"] < starts[task] for run in own)
        row = (
            task,
            f"`{estimator}`",
            f"{own[0]['prompts']} x {responses}",
            f"{rate:g}",
            len(own),
            ruined,
            f"{fmean(passed):.1f}",
            f"{min(passed):.1f}",
            f"{100 * fmean(run[pass_k] for run in own):.1f}",
            f"{fmean(run['entropy'] for run in own):.3f}",
        )
        rows.append(row)
    print_table(columns, rows, text_columns=3)


def print_not_chosen(others: Sequence[RunRecord], final: Sequence[Mapping[str, Any]]) -> None:
    """Settings that were not chosen, on the final seeds, and what `js_grad` has over them."""
    ours = {(run["task"], run["seed"]): run["pass1"] for run in final if run["estimator"] == OURS}
    columns = ("task", "estimator", "prompts x responses", "rate", "pass@1", f"`{OURS}` over it")
    rows = []
    names = ("task", "estimator", "prompts", "responses", "learning_rate")
    for key, runs in grouped(others, lambda run: tuple(run[name] for name in names)).items():
        task, estimator, prompts, responses, rate = key
        over = clustered_mean([ours[task, run["seed"]] - run["pass1"] for run in runs])
        pass1 = f"{100 * fmean(run['pass1'] for run in runs):.1f}"
        split = f"{prompts} x {responses}"
        shown = points(over.value, over.low, over.high)
        rows.append((task, f"`{estimator}`", split, f"{rate:g}", pass1, shown))
    print_table(columns, rows, text_columns=3)


def start_reward(runs: Sequence[RunRecord]) -> float:
    """The mean reward with which the runs at the lowest learning rate began."""
    lowest = min(run["learning_rate"] for run in runs)
    return fmean(run["curve"][0] for run in runs if run["learning_rate"] == lowest)


def picture_of(findings: Findings, tried: list[Tried], path: Path) -> None:
    """Draws a column for each cell of `tried`: rewards over the samples, and pass@1 by split."""
    splits = results_by_split(findings, tried)
    cells = [drawing.title for drawing in splits]
    curves = curves_of(findings, findings.estimators)
    curves.sort(key=lambda drawing: cells.index(drawing.title))
    widths = [PANEL_WIDTH] * len(cells)
    style.save_png(figures.picture([*curves, *splits], widths), path)


def print_over_tasks(studies: Iterable[Findings]) -> None:
    """Points of pass@1 over the reference: means and intervals over tasks.

    Prompts as drawn, one optimizer step with each batch.
    """
    rows = [row for findings in studies for row in findings.differences]
    rows = [row for row in rows if row.quantity == "pass1" and "natural" in row.cell]
    shown = []
    for estimator, own in grouped(rows, lambda row: row.estimator).items():
        over = clustered_mean([row.value for row in own])
        shown.append((f"`{estimator}`", len(own), points(over.value, over.low, over.high)))
    print_table(("estimator", "tasks", "over `rloo`"), shown)


def points(value: float, low: float, high: float) -> str:
    """A difference in points, ± half of its interval."""
    return f"{100 * value:+.1f} ± {50 * (high - low):.1f}"


def print_study(settings: InlineStudy, path: Path, images: Path) -> Findings:
    """The tables of one study, cell by cell, and its picture."""
    records = {Run.of(record): record for record in read_runs(path)}
    name = path.name.partition(".")[0]
    print(f"\n{name}: {len(records)} runs")
    final = final_records(settings, records.values())
    findings = analyse(final, settings.compared_with)
    over_ours = analyse(final, OURS)
    tried = tried_splits(settings, records)
    cells = [cell for cell in dict.fromkeys(row.cell for row in tried) if cell in findings.cells]
    if cells:
        print_results(findings, over_ours, cells)
        finished = [row for row in tried if row.cell in cells]
        picture_of(findings, finished, images / f"results_{name}.png")
    print("\nOn the choice seeds\n")
    print_splits(tried)
    also = HERE / f"{name}{ALSO}.jsonl.xz"
    if also.is_file():
        print("\nNot chosen\n")
        print_not_chosen(read_runs(also), final)
    print("\nEvery setting\n")
    print_settings(records.values())
    return findings


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("images", type=Path, nargs="?", default=IMAGES, help="of the pictures")
    images = parser.parse_args().images
    found = []
    for settings in sorted(HERE.glob("*.yaml")):
        records = settings.with_suffix(".jsonl.xz")
        if records.is_file():
            study = InlineStudy(**read_yaml(settings, numbers=False))
            findings = print_study(study, records, images)
            if study.passes == 1 and not study.tasks[0].startswith(MISLED):  # a task counts once
                found.append(findings)
    print("\nOver tasks\n")
    print_over_tasks(found)


if __name__ == "__main__":
    main()
