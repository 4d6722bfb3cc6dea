"""Prints SmolLM2's runs on word problems, and the paired differences, as docs/results.md has them.

.venv/bin/python research/studies/words.py
"""

from operator import itemgetter
from pathlib import Path

from baseline_research.study.values import read_runs
from paired_eval.stats import clustered_mean

HERE = Path(__file__).parent
QUANTITIES = {"pass@1": "pass1", "pass@4": "pass4", "training reward": "reward"}


def main() -> None:
    runs = sorted(read_runs(HERE / "smollm2_words.jsonl.xz"), key=itemgetter("seed"))
    columns = ("seed", "estimator", *QUANTITIES, "nats per token", "variance of the gradient")
    print(f"| {' | '.join(columns)} |\n|---:|---|{'---:|' * (len(columns) - 2)}")
    for run in runs:
        percent = " | ".join(f"{100 * run[name]:.1f}" for name in QUANTITIES.values())
        shown = f"{percent} | {run['entropy']:.3f} | {run['gradient_variance']:.3f}"
        print(f"| {run['seed']} | `{run['estimator']}` | {shown} |")
    print("\n| `js_grad` over `rloo` | points | low | high |\n|---|---:|---:|---:|")
    for quantity, name in QUANTITIES.items():
        of = {
            estimator: [run[name] for run in runs if run["estimator"] == estimator]
            for estimator in ("js_grad", "rloo")
        }
        over = clustered_mean([a - b for a, b in zip(of["js_grad"], of["rloo"], strict=True)])
        shown = " | ".join(f"{100 * value:.1f}" for value in (over.value, over.low, over.high))
        print(f"| {quantity} | {shown} |")


if __name__ == "__main__":
    main()
