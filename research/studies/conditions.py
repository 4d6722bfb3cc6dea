"""Prints how training ends under other conditions, and draws how it goes on for 300 steps.

.venv/bin/python research/studies/conditions.py [IMAGES]      # the picture: default docs/images
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

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


def print_table() -> None:
    """Each estimator under each condition, in percent, and its points over RLOO."""
    columns = ("task", "condition", "prompts x responses", "estimator", "rate", "pass@1")
    columns += ("lowest", f"over `{REFERENCE}`", "pass@16", "nats per token")
    print(f"| {' | '.join(columns)} |\n|---|---|---|---|{'---:|' * (len(columns) - 4)}")
    for name, condition in CONDITIONS.items():
        chosen = grouped(chosen_runs(kept(name)), setting_of)
        for (cell, estimator), runs in chosen.items():
            split = f"{cell.prompts} x {cell.responses}"
            over = "" if estimator == REFERENCE else difference(runs, chosen[cell, REFERENCE])
            rates = sorted({run["learning_rate"] for run in runs})
            passed = [100 * run["pass1"] for run in runs]
            pass16 = fmean(100 * run["pass16"] for run in runs)
            entropy = fmean(run["entropy"] for run in runs)
            named = f"{cell.task} | {condition} | {split} | `{estimator}`"
            shown = f"{' '.join(f'{rate:g}' for rate in rates)} | {fmean(passed):.1f}"
            print(
                f"| {named} | {shown} | {min(passed):.1f} | {over} | {pass16:.1f} | {entropy:.3f} |"
            )


def difference(runs: Sequence[RunRecord], reference: Sequence[RunRecord]) -> str:
    """Points of pass@1 over the reference on the same seeds, ± half of their interval."""
    of_reference = {run["seed"]: run["pass1"] for run in reference}
    over = clustered_mean([run["pass1"] - of_reference[run["seed"]] for run in runs])
    return f"{100 * over.value:+.1f} ± {50 * (over.high - over.low):.1f}"


def main() -> None:
    images = Path(sys.argv[1]) if sys.argv[1:] else IMAGES
    print_table()
    findings = analyse(kept(LONG), REFERENCE)
    curves = curves_of(findings, findings.estimators)
    picture = figures.picture(curves, [PANEL_WIDTH] * len(curves))
    style.save_png(picture, images / "results_long.png")


if __name__ == "__main__":
    main()
