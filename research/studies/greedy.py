"""What models solve greedily, and in samples: before training, and after 20 steps of it.

python research/studies/greedy.py                    # after 20 steps, from the kept records
python research/studies/greedy.py OUT [TASK ...]     # start models; makes them: minutes each

pass@1 is the share of right responses among 16 samples at temperature 1 to each of 200 held-out
prompts, pass@16 the share of prompts with one right sample, greedy that with a right greedy
response.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from conditions import REFERENCE, difference

from baseline_research.markdown_table import print_table
from baseline_research.study.design import InlineStudy
from baseline_research.study.inline.engine import pass_at
from baseline_research.study.inline.prompts import (
    held_out_greedy,
    held_out_rates,
    policy_in,
    warm_start,
)
from baseline_research.study.values import grouped, read_runs, setting_of

KEPT = Path(__file__).with_name("early.jsonl.xz")
QUANTITIES = ("pass1", "greedy")
TASKS = (
    "walk_60",
    "swaps_60",
    "product_60",
    "machine_60",
    "rows_60",
    "misled_walk_60",
    "misled_product_60",
)
SAMPLES = 16


def print_early() -> None:
    """Each estimator after 20 steps, in percent, and its points over RLOO."""
    by_setting = grouped(read_runs(KEPT), setting_of)
    rows = []
    for (cell, estimator), runs in by_setting.items():
        row = [cell.task, f"`{estimator}`"]
        for quantity in QUANTITIES:
            over = ""
            if estimator != REFERENCE:
                over = difference(runs, by_setting[cell, REFERENCE], quantity)
            row += [f"{100 * fmean(run[quantity] for run in runs):.1f}", over]
        rows.append(row)
    over = f"over `{REFERENCE}`"
    print_table(("task", "estimator", "pass@1", over, "greedy", over), rows, text_columns=2)


def print_starts(out: Path, tasks: Sequence[str]) -> None:
    """The start model of each task, in percent."""
    settings = InlineStudy(tasks=list(tasks), width=64, layers=2, samples=SAMPLES, out=out)
    rows = []
    for task in tasks:
        print(f"{task}: its start model", flush=True)
        policy = policy_in(warm_start(task, settings), settings)
        rates = held_out_rates(task, settings, policy)
        greedy = held_out_greedy(task, settings, policy)
        shares = (fmean(rates), pass_at(SAMPLES, rates, SAMPLES), greedy)
        rows.append((task, *(f"{100 * share:.1f}" for share in shares)))
    print_table(("task", "pass@1", "pass@16", "greedy"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, nargs="?", help="folder of a study with start models")
    parser.add_argument("tasks", nargs="*", default=TASKS, metavar="TASK")
    arguments = parser.parse_args()
    if arguments.out is None:
        print_early()
    else:
        print_starts(arguments.out, arguments.tasks)


if __name__ == "__main__":
    main()
