"""What docs/training.md says of rivals.yaml: keeps folders' records, prints tables, draws pictures.

.venv/bin/python scripts/studies/rivals.py [runs/rivals ...]   (without a folder: the kept records)
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from grid import averages_by_size, forest_of, keep, read, show, size_of, wide, with_size
from heat_map import heat_map

from openrlhf_js.report import figures, style
from openrlhf_js.stats import clustered_mean
from openrlhf_js.study.analysis import StudyRow, analyse
from openrlhf_js.study.regret import regrets
from openrlhf_js.study.values import RunRecord, grouped

HERE = Path(__file__).parent
RECORDS = HERE / "rivals.jsonl.xz"
DOCS = HERE.parents[1] / "docs"
REFERENCE = "rloo"
OURS = "js_plus"
COMPARED = [OURS, "js", "bloo", "grpo", "ebpo", "opo"]  # with the reference
RUINED = 0.05
PICTURED = "16 x"  # the sizes in the picture of averages
AVERAGE = ["points", "low", "high"]
IN_POINTS = ["less_rloo", "low", "high", "detects"]


def cell_table(differences: Sequence[StudyRow]) -> pd.DataFrame:
    """The differences of pass@1 to rloo, cell by cell, in points."""
    cells = pd.DataFrame(differences).query("quantity == 'pass1'")
    cells = cells.rename(
        columns={"value": "less_rloo", "detectable": "detects", "p_holm": "p_holm_less_rloo"}
    )
    cells[IN_POINTS] *= 100
    columns = ["task", "mix", "prompts", "responses", "estimator", "learning_rate", "seeds"]
    return cells[[*columns, *IN_POINTS, "p", "p_holm_less_rloo"]]


def show_cells(cells: pd.DataFrame) -> None:
    """Prints every cell, and in how many an estimator is significantly above or below rloo."""
    numbers = cells.round({name: 1 for name in IN_POINTS})
    show("Cells", numbers.drop(columns=["p", "p_holm_less_rloo", "learning_rate"]))
    significant = cells[cells.p_holm_less_rloo < 0.05]
    groups = {
        "cells": cells,
        "above": significant.query("less_rloo > 0"),
        "below": significant.query("less_rloo < 0"),
    }
    by = ["size", "estimator"]
    counts = pd.DataFrame(
        {name: with_size(rows).groupby(by).estimator.count() for name, rows in groups.items()}
    )
    print(f"\nSignificant after Holm\n\n{counts.fillna(0).astype(int)}")


def show_tasks(cells: pd.DataFrame) -> None:
    """Prints js_plus less rloo by task, not mixed, with an interval over tasks as a sample."""
    shown = cells.query("estimator == @OURS and mix != 'mixed'")
    for size, rows in with_size(shown).groupby("size"):
        by_task = rows.groupby("task", sort=False).less_rloo.mean()
        mean = clustered_mean(list(by_task))
        tasks = ", ".join(f"{task} {points:+.1f}" for task, points in by_task.items())
        print(
            f"\n{size}, not mixed: {tasks}; over tasks as a sample "
            f"{mean.value:+.1f} ({mean.low:.1f} to {mean.high:.1f})"
        )


def show_regret(runs: Sequence[RunRecord]) -> None:
    """Prints the mean and the worst regret of each size of batch."""
    for size, of_size in grouped(runs, size_of).items():
        print(f"\nRegret, {size}: mean, worst\n")
        for row in regrets(of_size):
            print(f"{row.estimator:8} {row.mean:5.1f} {row.worst:5.1f} {row.worst_cell.title}")


def show_errors(means: Sequence[StudyRow]) -> None:
    """Prints the error of each baseline as a share of rloo's, averaged over tasks."""
    rows = with_size(pd.DataFrame(means).query("quantity == 'baseline_error'"))
    shares = rows.groupby(["size", "mix", "estimator"], sort=False).value.mean().reset_index()
    shares["text"] = shares.value.map("{:.2f}".format)
    title = "Error of the baseline, as a share of rloo's"
    show(title, wide(shares, ["size", "mix"], COMPARED))
    shrinking = rows[rows.estimator.isin([OURS, "js"])]
    above = shrinking[shrinking.value > 1]
    print(f"\nAbove rloo's, of {len(shrinking)} cells of {OURS} and js:")
    for row in above.itertuples():
        print(f"{row.estimator:8} {row.value:.3f} {row.cell}")


def show_ruined(runs: Sequence[RunRecord]) -> None:
    """Prints how many runs in the mix end below 5 % of pass@1, by learning rate."""
    rows = with_size(pd.DataFrame(runs).query("mix == 'mixed'"))
    rows = rows.assign(ruined=rows.pass1 < RUINED)
    counts = rows.groupby(["size", "learning_rate", "estimator"]).ruined.agg(["sum", "size"])
    print(f"\nMixed runs that end below {RUINED:.0%}\n\n{counts.query('sum > 0')}")


def main() -> None:
    if len(sys.argv) > 1:
        keep([Path(folder) for folder in sys.argv[1:]], RECORDS)
    runs = read(RECORDS)
    findings = analyse(runs, REFERENCE)
    cells = cell_table(findings.differences)
    cells.to_csv(DOCS / "data/rivals.csv", index=False, float_format="%.4g")
    style.save_png(heat_map(cells), DOCS / "images/rivals_cells.png")
    print(f"{len(runs)} runs, {len(cells)} differences")
    over_rloo = averages_by_size(runs, REFERENCE)
    written = over_rloo.drop(columns=["text", "m"])
    written.insert(0, "size", written.pop("size"))
    written.to_csv(DOCS / "data/rivals_averages.csv", index=False, float_format="%.3g")
    show("pass@1 less rloo's, averaged over cells", wide(over_rloo, ["size", "mix"], COMPARED))
    there = {run["estimator"] for run in runs}
    for other in [REFERENCE, *COMPARED[1:]]:
        if other in there:
            ours = averages_by_size(runs, other).query("estimator == @OURS")
            show(f"{OURS} less {other}", ours[["size", "mix", *AVERAGE]].round(1))
    note = "95 % intervals over cells and seeds"
    pictured = over_rloo[over_rloo["size"].str.startswith(PICTURED)]
    forests = [forest_of(pictured, m, COMPARED, note) for m in pictured.m.unique()]
    style.save_both(figures.wide_picture(forests), DOCS / "images/rivals.png")
    show_cells(cells)
    show_tasks(cells)
    show_regret(runs)
    show_errors(findings.means)
    show_ruined(runs)


if __name__ == "__main__":
    main()
