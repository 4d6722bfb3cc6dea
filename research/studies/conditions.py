"""Prints how training ends under other conditions, and draws how it goes on for 300 steps.

.venv/bin/python research/studies/conditions.py [IMAGES]      # the picture: default docs/images
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from baseline_research.markdown_table import print_table
from baseline_research.study.analysis import analyse
from baseline_research.study.page import curves_of
from baseline_research.study.values import RunRecord, chosen_runs, grouped, read_runs, setting_of
from paired_eval.pages import figures, style
from paired_eval.stats import clustered_mean

HERE = Path(__file__).parent
IMAGES = HERE.parents[1] / "docs/images"
PANEL_WIDTH = 320  # pixels
LONG = "long"
CONDITIONS = {
    "plain": "none",
    "kl": "KL 0.01",
    "kl_8": "KL 0.01",
    "constant": "constant loss",
    LONG: "300 steps",
}
REFERENCE = "rloo"


def kept(name: str) -> list[RunRecord]:
    """The kept runs under a condition."""
    return read_runs(HERE / f"{name}.jsonl.xz")


def print_conditions() -> None:
    """Each estimator under each condition, in percent, and its points over RLOO."""
    columns = ("task", "condition", "prompts x responses", "estimator", "rate", "pass@1")
    columns += ("lowest", f"over `{REFERENCE}`", "pass@16", "nats per token")
    rows = []
    for name, condition in CONDITIONS.items():
        chosen = grouped(chosen_runs(kept(name)), setting_of)
        for (cell, estimator), runs in chosen.items():
            rates = sorted({run["learning_rate"] for run in runs})
            passed = [100 * run["pass1"] for run in runs]
            row = (
                cell.task,
                condition,
                f"{cell.prompts} x {cell.responses}",
                f"`{estimator}`",
                " ".join(f"{rate:g}" for rate in rates),
                f"{fmean(passed):.1f}",
                f"{min(passed):.1f}",
                "" if estimator == REFERENCE else difference(runs, chosen[cell, REFERENCE]),
                f"{fmean(100 * run['pass16'] for run in runs):.1f}",
                f"{fmean(run['entropy'] for run in runs):.3f}",
            )
            rows.append(row)
    print_table(columns, rows, text_columns=4)


def difference(
    runs: Sequence[RunRecord], reference: Sequence[RunRecord], quantity: str = "pass1"
) -> str:
    """Points of a quantity over the reference on the same seeds, ± half of their interval."""
    of_reference = {run["seed"]: run[quantity] for run in reference}
    over = clustered_mean([run[quantity] - of_reference[run["seed"]] for run in runs])
    return f"{100 * over.value:+.1f} ± {50 * (over.high - over.low):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("images", type=Path, nargs="?", default=IMAGES, help="of the pictures")
    images = parser.parse_args().images
    print_conditions()
    findings = analyse(kept(LONG), REFERENCE)
    curves = curves_of(findings, findings.estimators)
    picture = figures.picture(curves, [PANEL_WIDTH] * len(curves))
    style.save_png(picture, images / "results_long.png")


if __name__ == "__main__":
    main()
