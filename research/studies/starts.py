"""What the start models of tiny tasks solve before they are trained by reinforcement learning.

python research/studies/starts.py OUT [TASK ...]     # makes those that are missing: minutes each

Prints, of the 200 held-out prompts, the share of right responses among 16 samples at temperature 1
(pass@1), the share with one right sample (pass@16), and the share whose greedy response is right.
"""

import argparse
from pathlib import Path
from statistics import fmean

from baseline_research.markdown_table import print_table
from baseline_research.study.design import InlineStudy
from baseline_research.study.inline.engine import pass_at
from baseline_research.study.inline.prompts import (
    held_out_greedy,
    held_out_rates,
    policy_in,
    warm_start,
)

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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="folder of a study; its start models are taken")
    parser.add_argument("tasks", nargs="*", default=TASKS, metavar="TASK")
    arguments = parser.parse_args()
    settings = InlineStudy(
        tasks=list(arguments.tasks), width=64, layers=2, samples=SAMPLES, out=arguments.out
    )
    rows = []
    for task in arguments.tasks:
        print(f"{task}: its start model", flush=True)
        policy = policy_in(warm_start(task, settings), settings)
        rates = held_out_rates(task, settings, policy)
        solved = (fmean(rates), pass_at(SAMPLES, rates, SAMPLES))
        greedy = held_out_greedy(task, settings, policy)
        rows.append((f"`{task}`", *(f"{100 * share:.1f}" for share in (*solved, greedy))))
    print_table(("task", "pass@1", "pass@16", "greedy"), rows)


if __name__ == "__main__":
    main()
