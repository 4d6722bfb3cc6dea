"""What docs/paper_baselines.md says: prints tables, draws the picture, writes all cells."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from grid import averages, cell_table, forest_of, read, show, show_errors, show_significant, wide

from openrlhf_js.report import figures, style
from openrlhf_js.study.analysis import analyse
from openrlhf_js.study.values import RunRecord

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
REFERENCE = "rloo"
NAMES = ["js", "bloo", "reinforce++", "grpo", "remax"]  # with the reference
SAFE = 5e-4  # learning rates above it can ruin the start
RUINED = 0.05


def show_ruined(runs: Sequence[RunRecord]) -> None:
    """Prints how many runs at the two highest rates end below 5 % of pass@1."""
    rows = pd.DataFrame(runs)
    rows = rows.assign(ruined=rows.pass1 < RUINED, mixed=rows.mix == "mixed")
    high = rows[rows.learning_rate >= 4e-4]
    counts = high.groupby(["mixed", "estimator"]).ruined.agg(["sum", "size"])
    print(f"\nRuns at 4e-4 and 8e-4 that end below {RUINED:.0%}\n\n{counts}")


def main() -> None:
    runs = read(HERE / "baselines.jsonl.xz")
    runs.sort(key=lambda run: (run["prompts"], run["responses"]))
    findings = analyse(runs, REFERENCE)
    cells = cell_table(findings.differences)
    cells.to_csv(DOCS / "data/paper_cells.csv", index=False, float_format="%.4g")
    print(f"{len(runs)} runs, {len(cells)} comparisons")
    over_rloo = averages(runs, REFERENCE)
    written = over_rloo.drop(columns="text")
    written.to_csv(DOCS / "data/paper_averages.csv", index=False, float_format="%.3g")
    show("pass@1 less rloo's, averaged over cells", wide(over_rloo, ["m", "mix"], NAMES))
    safe_runs = [run for run in runs if run["learning_rate"] <= SAFE]
    for title, rows in (("all rates", over_rloo), ("to 4e-4", averages(safe_runs, REFERENCE))):
        of_js = rows.query("estimator == 'js'")
        show(f"js, {title}", of_js[["m", "mix", "points", "low", "high"]].round(1))
    note = "95 % intervals over cells and seeds"
    forests = [forest_of(over_rloo, m, NAMES, note) for m in (2, 4)]
    style.save_both(figures.wide_picture(forests), DOCS / "images/paper_baselines.png")
    show_significant(cells)
    show_errors(findings.means, NAMES)
    show_ruined(runs)


if __name__ == "__main__":
    main()
