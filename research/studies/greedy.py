"""What models solve greedily, and in samples: before training, early in it, and at its end.

python research/studies/greedy.py                    # after 20 steps and at the end, as kept
python research/studies/greedy.py OUT [TASK ...]     # start models; makes them: minutes each

pass@1 is the share of right responses among 16 samples at temperature 1 to each of 200 held-out
prompts, pass@16 the share of prompts with one right sample, greedy that with a right greedy
response.
"""

import argparse
from collections.abc import Sequence
from operator import itemgetter
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
from baseline_research.study.values import grouped, read_runs

HERE = Path(__file__).parent
KEPT = {  # records of runs, and what they are
    "early": "after 20 steps of 64 x 2",
    "chains": "after 60 steps, each estimator at its own best split and rate",
    "chains_misled": "after 60 steps, each estimator at its own best split and rate",
}
FINAL_SEEDS = range(5)
QUANTITIES = ("pass1", "greedy")
TASKS = (
    "walk_60",
    "swaps_60",
    "product_60",
    "machine_60",
    "rows_60",
    "misled_walk_60",
    "misled_product_60",
    "sort",
    "countdown",
    "maze",
)
SAMPLES = 16


def print_kept(name: str) -> None:
    """Each estimator in percent, and its points over RLOO on the same seeds."""
    runs = read_runs(HERE / f"{name}.jsonl.xz")
    measured = [run for run in runs if "greedy" in run and run["seed"] in FINAL_SEEDS]
    by_estimator = grouped(
        sorted(measured, key=itemgetter("task")), itemgetter("task", "estimator")
    )
    rows = []
    for (task, estimator), runs in by_estimator.items():
        row = [f"`{task}`", f"`{estimator}`"]
        for quantity in QUANTITIES:
            over = ""
            if estimator != REFERENCE:
                over = difference(runs, by_estimator[task, REFERENCE], quantity)
            row += [f"{100 * fmean(run[quantity] for run in runs):.1f}", over]
        rows.append(row)
    over = f"over `{REFERENCE}`"
    print(f"\n{name}: {KEPT[name]}\n")
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
        rows.append((f"`{task}`", *(f"{100 * share:.1f}" for share in shares)))
    print_table(("task", "pass@1", "pass@16", "greedy"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, nargs="?", help="folder of a study with start models")
    parser.add_argument("tasks", nargs="*", default=TASKS, metavar="TASK")
    arguments = parser.parse_args()
    if arguments.out is None:
        for name in KEPT:
            print_kept(name)
    else:
        print_starts(arguments.out, arguments.tasks)


if __name__ == "__main__":
    main()
