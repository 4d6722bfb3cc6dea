"""Prints how training ends rate by rate, at a constant rate and with a warm-up, on two seeds.

.venv/bin/python research/studies/rates.py [IMAGES]      # the picture: default docs/images
"""

import argparse
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean

from baseline_research import plot
from baseline_research.markdown_table import print_table
from baseline_research.study.page import RATES
from baseline_research.study.values import RunRecord, grouped, read_runs
from paired_eval.pages import figures, style

HERE = Path(__file__).parent
IMAGES = HERE.parents[1] / "docs/images"
SEEDS = (100, 101)
SERIES = ("js_grad", "no_baseline", "grpo", "rloo")  # whose place decides the look
CONSTANT = ("chains", "rates")
WARM_UP = "warm-up of ten steps"

Setting = tuple[str, int, int, str, float]


def kept(name: str) -> list[RunRecord]:
    """The kept runs of a study on the seeds compared."""
    return [run for run in read_runs(HERE / f"{name}.jsonl.xz") if run["seed"] in SEEDS]


def setting(run: RunRecord) -> Setting:
    names = ("prompts", "responses", "estimator", "learning_rate")
    return (run["task"], *(run[name] for name in names))


def print_comparison(constant: Sequence[RunRecord], warm: Sequence[RunRecord]) -> None:
    """pass@1 in percent of each setting that was trained both ways, its lower run, and pass@16."""
    columns = [grouped(runs, setting) for runs in (constant, warm)]
    names = ("task", "prompts x responses", "estimator", "rate", "constant", "lower", "pass@16")
    rows = []
    for key in sorted(columns[1]):
        task, prompts, responses, estimator, rate = key
        cells = [cell for runs in columns for cell in shown(runs.get(key, []))]
        rows.append((task, f"{prompts} x {responses}", f"`{estimator}`", f"{rate:g}", *cells))
    print_table((*names, WARM_UP, "lower", "pass@16"), rows, text_columns=3)


def shown(runs: Sequence[RunRecord]) -> list[str]:
    """The mean over both seeds, the lower one, and the mean pass@16; empty without any."""
    if not runs:
        return ["", "", ""]
    passed = [100 * run["pass1"] for run in runs]
    pass16 = fmean(100 * run["pass16"] for run in runs)
    return [f"{fmean(passed):.1f}", f"{min(passed):.1f}", f"{pass16:.1f}"]


def picture_of(constant: Sequence[RunRecord], warm: Sequence[RunRecord], path: Path) -> None:
    """Draws pass@1 by learning rate: a column for each way to train, a row for each split."""
    in_both_ways = {setting(run) for run in warm}
    rows = []
    panels = {}
    for split in sorted({key[1:3] for key in in_both_ways}, reverse=True):
        for way, runs in (("constant rate", constant), (WARM_UP, warm)):
            title = f"{split[0]} x {split[1]}, {way}"
            panels[title] = plot.Panel(title, "pass@1", limits=(0, 1))
            for key, own in grouped(runs, setting).items():
                if key in in_both_ways and key[1:3] == split:
                    value = fmean(run["pass1"] for run in own)
                    row = {"panel": title, "estimator": key[3], "learning_rate": key[4]}
                    rows.append({**row, "value": value})
    drawings = plot.draw(rows, panels, RATES, panel="panel", series=SERIES)
    style.save_png(figures.picture(drawings), path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("images", type=Path, nargs="?", default=IMAGES, help="of the pictures")
    images = parser.parse_args().images
    constant = list(chain.from_iterable(map(kept, CONSTANT)))
    warm = kept("rates_warm_up")
    print_comparison(constant, warm)
    picture_of(constant, warm, images / "results_rates.png")


if __name__ == "__main__":
    main()
