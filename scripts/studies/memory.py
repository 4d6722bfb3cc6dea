"""What docs/memory.md says of training: prints its tables from the records, draws its picture."""

import json
import lzma
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean

from openrlhf_js.report import style
from openrlhf_js.stats import paired_difference
from openrlhf_js.study import analysis, page, tables
from openrlhf_js.study.analysis import StudyRow
from openrlhf_js.study.values import RunRecord, chosen_runs, grouped

HERE = Path(__file__).parent
SIZES = {"memory": [(64, 1), (32, 2), (32, 4), (32, 8)], "memory1024": [(64, 2)]}
MAIN_SIZE = (32, 2)  # which has ten seeds
COMPARED = ("js_memory", "js_plus", "js", "spo", "rloo")
FIVE_SEEDS = range(5)  # of the other sizes
PICTURED = ((32, 2), (32, 4), (64, 2))
AT_64_RESPONSES = [(64, 1), (32, 2), (16, 4), (8, 8)]
AT_128_RESPONSES = [(128, 1), (64, 2), (32, 4), (16, 8)]


def read(name: str) -> list[RunRecord]:
    """The runs of a file of records, without its first line."""
    with lzma.open(HERE / f"{name}.jsonl.xz", "rt") as file:
        return [json.loads(line) for line in file][1:]


def of_size(runs: Iterable[RunRecord], size: tuple[int, int]) -> list[RunRecord]:
    """Runs with so many prompts and responses."""
    return [run for run in runs if (run["prompts"], run["responses"]) == size]


def whole_sets(runs: Iterable[RunRecord], size: tuple[int, int]) -> list[RunRecord]:
    """Those of a size that all cells and seeds have: no rate of 8e-4, and no `js` at 32 x 8."""
    kept = []
    for run in of_size(runs, size):
        unfinished = size == (32, 8) and run["estimator"] == "js"
        extra_seed = size != MAIN_SIZE and run["seed"] not in FIVE_SEEDS
        compared = run["estimator"] in COMPARED and run["learning_rate"] < 5e-4
        if compared and not unfinished and not extra_seed:
            kept.append(run)
    return kept


def print_regret(title: str, runs: list[RunRecord]) -> None:
    """Mean and worst regret, and js_memory less js_plus over tasks, by mix."""
    print(f"\n{title}: mean and worst regret")
    for regret in analysis.analyse(runs, "js_plus").regret:
        print(f"  {regret.estimator:12} {regret.mean:4.1f} {regret.worst:5.1f}")
    compared = [run for run in chosen_runs(runs) if run["estimator"] in ("js_memory", "js_plus")]
    for mix, mix_runs in grouped(compared, lambda run: run["mix"]).items():
        by_seed = grouped(mix_runs, lambda run: run["seed"]).values()
        gap = paired_difference(
            [100 * mean_pass1(seed_runs, "js_memory") for seed_runs in by_seed],
            [100 * mean_pass1(seed_runs, "js_plus") for seed_runs in by_seed],
        )
        print(f"  js_memory - js_plus, {mix}: {gap.value:+.1f} ({gap.low:.1f} to {gap.high:.1f})")


def mean_pass1(runs: Iterable[RunRecord], estimator: str) -> float:
    """pass@1 of an estimator, averaged over tasks."""
    return fmean(run["pass1"] for run in runs if run["estimator"] == estimator)


def print_ratios(runs: list[RunRecord]) -> None:
    """Causes beside rloo's, in the mean of the cells."""
    findings = analysis.analyse(runs, "rloo")
    quantities = ("baseline_error", "steps_to_target", "gradient_variance")
    means: dict[tuple[str, str, str], StudyRow] = {
        (row.quantity, row.estimator, row.cell): row for row in findings.means
    }
    print("\n32 x 2: ratio to rloo's, mean of the cells")
    for quantity in quantities:
        for estimator in ("js", "js_plus", "spo", "js_memory"):
            ratios = [
                means[quantity, estimator, cell].value / means[quantity, "rloo", cell].value
                for cell in findings.cells
                if (quantity, estimator, cell) in means and (quantity, "rloo", cell) in means
            ]
            if ratios:
                print(f"  {quantity:18} {estimator:10} {fmean(ratios):.2f}")


def print_differences(title: str, runs: list[RunRecord], reference: str) -> None:
    """pass@1 of each estimator less the reference's, by cell."""
    findings = analysis.analyse(runs, reference)
    print(f"\n{title}: pass@1 - {reference}")
    for row in findings.differences:
        if row.quantity == "pass1":
            gap, low, high = (f"{100 * number:.1f}" for number in (row.value, row.low, row.high))
            print(f"  {row.cell:26} {row.estimator:10} {gap} ({low} to {high})")


def print_shapes(title: str, runs: list[RunRecord], sizes: list[tuple[int, int]]) -> None:
    """pass@1 of js_memory in the mix, by size."""
    print(f"\n{title}: js_memory, mixed")
    for size in sizes:
        ours = [
            run
            for run in of_size(runs, size)
            if run["estimator"] == "js_memory" and run["mix"] == "mixed"
        ]
        for row in analysis.analyse(ours, "js_memory").means:
            if row.quantity == "pass1":
                half_width = 100 * (row.high - row.value)
                print(f"  {row.cell:26} {100 * row.value:.1f} ± {half_width:.1f}")


def main() -> None:
    everything = {name: read(name) for name in SIZES}
    pictured = []
    for name, sizes in SIZES.items():
        for size in sizes:
            runs = whole_sets(everything[name], size)
            print_regret(f"{name}, {size[0]} x {size[1]}", runs)
            if size in PICTURED:
                pictured += runs
    main_runs = whole_sets(everything["memory"], MAIN_SIZE)
    tables.print_tables(analysis.analyse(main_runs, "rloo"))
    print_differences("32 x 2", main_runs, "js_plus")
    print_ratios(main_runs)
    print_differences("32 x 2, offline samples", read("memory_offline"), "spo")
    stack = read("memory_stack")
    print("\nOn Ray, DeepSpeed and vLLM")
    tables.print_tables(analysis.analyse(of_size(stack, MAIN_SIZE), "rloo"))
    tables.print_tables(analysis.analyse(of_size(stack, (64, 1)), "js_plus"))
    print_shapes("64 responses a step", everything["memory"], AT_64_RESPONSES)
    print_shapes("128 responses a step", everything["memory"], AT_128_RESPONSES)
    findings = analysis.analyse(pictured, "rloo")
    print(f"\n{len(findings.cells)} cells: mean and worst regret")
    for regret in findings.regret:
        print(f"  {regret.estimator:12} {regret.mean:4.1f} {regret.worst:5.1f}")
    style.save_both(page.regret_picture(findings), HERE.parents[1] / "docs/images/memory.png")


if __name__ == "__main__":
    main()
