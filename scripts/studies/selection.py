"""What docs/selection.md says of training: prints its table from the records."""

import json
import lzma
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from openrlhf_js.stats import paired_difference
from openrlhf_js.study import analysis, tables
from openrlhf_js.study.design import UNIFORM, estimator_of, selection_of
from openrlhf_js.study.values import RunRecord, grouped

HERE = Path(__file__).parent
SELECTIONS = ("informative", "weighted")


def finals(runs: Sequence[RunRecord], selection: str) -> list[float]:
    """pass@1 in percent by seed, the mean of the estimators."""
    chosen = [run for run in runs if selection_of(run["estimator"]) == selection]
    by_seed = grouped(chosen, lambda run: run["seed"])
    return [100 * fmean(run["pass1"] for run in by_seed[seed]) for seed in sorted(by_seed)]


def print_row(title: str, runs: Sequence[RunRecord]) -> None:
    """pass@1 with uniform prompts, and with chosen ones, less that, paired by seed."""
    uniform = finals(runs, UNIFORM)
    text = f"{title}: uniform {fmean(uniform):.1f}"
    for selection in SELECTIONS:
        chosen = finals(runs, selection)
        if chosen:
            gap = paired_difference(chosen, uniform)
            interval = f"{gap.value:+.1f} ({gap.low:.1f} to {gap.high:.1f})"
            text = f"{text}; {selection} {fmean(chosen):.1f}, {interval}"
    print(text)


def print_over_rloo(title: str, runs: Sequence[RunRecord]) -> None:
    """js_memory with chosen prompts less rloo with uniform ones, paired by seed."""
    by_label = grouped(runs, lambda run: run["estimator"])
    gap = paired_difference(
        finals(by_label["js_memory+informative"], "informative"), finals(by_label["rloo"], UNIFORM)
    )
    interval = f"{gap.value:+.1f} ({gap.low:.1f} to {gap.high:.1f})"
    print(f"{title}, js_memory+informative less rloo: {interval}")


def main() -> None:
    with lzma.open(HERE / "selection.jsonl.xz", "rt") as file:
        runs = [json.loads(line) for line in file][1:]
    for mix, mix_runs in grouped(runs, lambda run: run["mix"]).items():
        for rate, rate_runs in grouped(mix_runs, lambda run: run["learning_rate"]).items():
            for name, name_runs in grouped(
                rate_runs, lambda run: estimator_of(run["estimator"])
            ).items():
                print_row(f"{mix}, {rate:g}, {name}", name_runs)
            print_row(f"{mix}, {rate:g}, mean", rate_runs)
            print_over_rloo(f"{mix}, {rate:g}", rate_runs)
        tables.print_tables(analysis.analyse(mix_runs, "rloo"))
        for label, label_runs in grouped(mix_runs, lambda run: run["estimator"]).items():
            equal_groups = fmean(run["dead"] for run in label_runs)
            print(f"{mix}, {label}: groups of equal rewards {equal_groups:.2f}")
    chosen = [run for run in runs if run["effective_prompts"] is not None]
    lowest = [run for run in chosen if run["learning_rate"] == 2e-4 and run["mix"] == "mixed"]
    print(f"effective prompts at 2e-4: {fmean(run['effective_prompts'] for run in lowest):.0f}")
    print(f"longest wait of a prompt: {max(run['oldest'] for run in lowest)} of 60 steps")


if __name__ == "__main__":
    main()
