"""Prints the tables of kept studies at the same number of responses, and draws their pictures.

.venv/bin/python research/studies/budgets.py [IMAGES]      # default docs/images

Kept records lie beside their settings: chains.yaml and chains.jsonl.xz.
"""

import runpy
import sys
from collections.abc import Iterable
from math import isfinite
from pathlib import Path
from statistics import fmean

from answer_graders.programs.files import read_yaml
from baseline_research.study.analysis import Findings, analyse
from baseline_research.study.budget import Tried, final_records, tried_splits
from baseline_research.study.design import InlineStudy, Run
from baseline_research.study.page import curves_of, results_by_split
from baseline_research.study.tables import by_estimator, choice_table
from baseline_research.study.values import RunRecord, grouped
from paired_eval.pages import figures, style

HERE = Path(__file__).parent
IMAGES = HERE.parents[1] / "docs/images"
PANEL_WIDTH = 250  # pixels
read = runpy.run_path(str(HERE / "results.py"))["read"]


def print_results(findings: Findings, cell: str) -> None:
    """Each estimator at its own split and rate, on the final seeds, in percent and points."""
    print(
        f"\n{cell}\n\n| estimator | prompts x responses | rate | pass@1 | "
        f"over `{findings.reference}` | low | high | share of samples | pass@16 | nats a token |\n"
        f"|---|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    )
    means = by_estimator(findings.means, cell)
    differences = by_estimator(findings.differences, cell)
    shares = {row.estimator: row.share for row in findings.samples if row.cell == cell}
    for estimator in sorted(means, key=lambda name: -means[name]["pass1"].value):
        pass1 = means[estimator]["pass1"]
        cells = [f"`{estimator}`", pass1.split, pass1.learning_rate, f"{100 * pass1.value:.1f}"]
        over = differences.get(estimator, {}).get("pass1")
        # Runs that are equal in every seed have no interval.
        ends = (over.value, over.low, over.high) if over else ()
        shown = [f"{100 * end:+.1f}" if isfinite(end) else "" for end in ends]
        cells += shown or ["", "", ""]
        share = shares[estimator]
        cells.append("never" if share is None else f"{share:.2f}")
        cells.append(f"{100 * means[estimator]['pass16'].value:.1f}")
        cells.append(f"{means[estimator]['entropy'].value:.3f}")
        print(f"| {' | '.join(cells)} |")


def print_splits(rows: list[dict[str, str]]) -> None:
    """pass@1 of each split at its best rate, on the seeds of the choice."""
    print(f"\n| {' | '.join(rows[0])} |\n|---|{'---:|' * (len(rows[0]) - 1)}")
    for row in rows:
        print(f"| {' | '.join(row.values())} |")


def print_settings(runs: Iterable[RunRecord]) -> None:
    """Every setting that was trained, on all seeds: how it ends, and how often it ends ruined.

    A run is ruined if its pass@1 is below its reward in the first twentieth of the training.
    """
    print(
        "\n| estimator | prompts x responses | rate | runs | ruined | pass@1 | lowest | pass@16 | "
        "nats a token |\n|---|---|---:|---:|---:|---:|---:|---:|---:|"
    )
    names = ("estimator", "responses", "learning_rate")
    by_setting = grouped(runs, lambda run: tuple(run[name] for name in names))
    for (estimator, responses, rate), own in sorted(by_setting.items()):
        passed = [100 * run["pass1"] for run in own]
        ruined = sum(run["pass1"] < run["curve"][0] for run in own)
        pass16 = 100 * fmean(run["pass16"] for run in own)
        entropy = fmean(run["entropy"] for run in own)
        split = f"{own[0]['prompts']} x {responses}"
        numbers = f"{fmean(passed):.1f} | {min(passed):.1f} | {pass16:.1f} | {entropy:.3f}"
        print(f"| `{estimator}` | {split} | {rate:g} | {len(own)} | {ruined} | {numbers} |")


def picture_of(findings: Findings, tried: list[Tried], path: Path) -> None:
    """Draws a column for each finished cell: rewards over the samples, and pass@1 by split."""
    curves = curves_of(findings, findings.estimators)
    cells = [curve.title for curve in curves]
    of_cells = [row for cell in cells for row in tried if row.cell == cell]
    splits = results_by_split(findings, of_cells)
    widths = [PANEL_WIDTH] * len(cells)
    style.save_png(figures.picture([*curves, *splits], widths), path)


def print_study(settings: InlineStudy, path: Path, images: Path) -> None:
    """The tables of one study, cell by cell, and its picture."""
    records = {Run.of(record): record for record in read(path)}
    name = path.name.partition(".")[0]
    print(f"\n{name}: {len(records)} runs")
    findings = analyse(final_records(settings, records.values()), settings.compared_with)
    tried = tried_splits(settings, records)
    for cell in dict.fromkeys(row.cell for row in tried):
        if cell in findings.cells:
            print_results(findings, cell)
        print(f"\n{cell}, on the seeds of the choice")
        print_splits(choice_table([row for row in tried if row.cell == cell]))
    for cell, runs in grouped(records.values(), lambda run: (run["task"], run["mix"])).items():
        print(f"\n{', '.join(cell)}, every setting")
        print_settings(runs)
    if findings.cells:
        picture_of(findings, tried, images / f"results_{name}.png")


def main() -> None:
    images = Path(sys.argv[1]) if sys.argv[1:] else IMAGES
    for settings in sorted(HERE.glob("*.yaml")):
        records = settings.with_suffix(".jsonl.xz")
        if records.is_file():
            print_study(InlineStudy(**read_yaml(settings, numbers=False)), records, images)


if __name__ == "__main__":
    main()
