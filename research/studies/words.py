"""Prints SmolLM2's runs on word problems, and the paired differences, as docs/results.md has them.

.venv/bin/python research/studies/words.py
"""

import argparse
from operator import itemgetter
from pathlib import Path

from baseline_research.markdown_table import print_table
from baseline_research.study.values import read_runs
from paired_eval.stats import clustered_mean

HERE = Path(__file__).parent
QUANTITIES = {"pass@1": "pass1", "pass@4": "pass4", "training reward": "reward"}


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    runs = sorted(read_runs(HERE / "smollm2_words.jsonl.xz"), key=itemgetter("seed"))
    columns = ("estimator", "seed", *QUANTITIES, "nats per token", "variance of the gradient")
    rows = []
    for run in runs:
        percent = (f"{100 * run[name]:.1f}" for name in QUANTITIES.values())
        others = f"{run['entropy']:.3f}", f"{run['gradient_variance']:.3f}"
        rows.append((f"`{run['estimator']}`", run["seed"], *percent, *others))
    print_table(columns, rows)
    print()
    differences = []
    for quantity, name in QUANTITIES.items():
        of = {
            estimator: [run[name] for run in runs if run["estimator"] == estimator]
            for estimator in ("js_grad", "rloo")
        }
        over = clustered_mean([a - b for a, b in zip(of["js_grad"], of["rloo"], strict=True)])
        shown = (f"{100 * value:.1f}" for value in (over.value, over.low, over.high))
        differences.append((quantity, *shown))
    print_table(("`js_grad` over `rloo`", "points", "low", "high"), differences)


if __name__ == "__main__":
    main()
