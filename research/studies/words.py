"""Prints SmolLM2's runs on word problems, a row a run, as docs/results.md shows them.

.venv/bin/python research/studies/words.py
"""

import runpy
from operator import itemgetter
from pathlib import Path

HERE = Path(__file__).parent
read = runpy.run_path(str(HERE / "results.py"))["read"]


def main() -> None:
    columns = ("seed", "estimator", "pass@1", "pass@4", "training reward", "nats per token")
    columns += ("variance of the gradient",)
    print(f"| {' | '.join(columns)} |\n|---:|---|{'---:|' * (len(columns) - 2)}")
    for run in sorted(read(HERE / "smollm2_words.jsonl.xz"), key=itemgetter("seed")):
        passed = f"{100 * run['pass1']:.1f} | {100 * run['pass4']:.1f}"
        shown = f"{run['reward']:.3f} | {run['entropy']:.3f} | {run['gradient_variance']:.3f}"
        print(f"| {run['seed']} | `{run['estimator']}` | {passed} | {shown} |")


if __name__ == "__main__":
    main()
