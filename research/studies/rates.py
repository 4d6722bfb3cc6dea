"""Prints how training ends rate by rate: at a constant rate, with a warm-up, a KL term, PPO's clip.

.venv/bin/python research/studies/rates.py
"""

import runpy
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean

from baseline_research.study.values import RunRecord, grouped

HERE = Path(__file__).parent
SEEDS = (100, 101)
CONSTANT = ("chains", "rates")
OTHERS = {
    "rates_warm_up": "warm-up of ten steps",
    "rates_kl": "KL 0.01",
    "rates_passes": "four updates, clip 0.2",
}
read = runpy.run_path(str(HERE / "results.py"))["read"]


def kept(name: str) -> list[RunRecord]:
    return read(HERE / f"{name}.jsonl.xz")


def print_comparison(constant: Sequence[RunRecord], others: dict[str, list[RunRecord]]) -> None:
    """pass@1 in percent of each setting that was also trained otherwise, and its lowest run."""
    by_setting = grouped(constant, setting)
    print(f"\n| task | prompts x responses | estimator | rate | constant | {' | '.join(others)} |")
    print(f"|---|---|---|---:|{'---:|' * (1 + len(others))}")
    columns = [grouped(runs, setting) for runs in others.values()]
    for key in sorted(set(chain(*columns))):
        task, prompts, responses, estimator, rate = key
        cells = [shown(own.get(key, [])) for own in (by_setting, *columns)]
        split = f"{prompts} x {responses}"
        print(f"| {task} | {split} | `{estimator}` | {rate:g} | {' | '.join(cells)} |")


def setting(run: RunRecord) -> tuple[str, int, int, str, float]:
    names = ("prompts", "responses", "estimator", "learning_rate")
    return (run["task"], *(run[name] for name in names))


def shown(runs: Sequence[RunRecord]) -> str:
    """The mean over both seeds, and the lower one; empty without any."""
    passed = {run["seed"]: 100 * run["pass1"] for run in runs if run["seed"] in SEEDS}
    if not passed:
        return ""
    return f"{fmean(passed.values()):.1f} ({min(passed.values()):.1f})"


def main() -> None:
    constant = [run for name in CONSTANT for run in kept(name)]
    for name, title in OTHERS.items():
        print_comparison(constant, {title: kept(name)})


if __name__ == "__main__":
    main()
