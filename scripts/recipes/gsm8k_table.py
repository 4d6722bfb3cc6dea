"""The paper's table of baselines on GSM8K, from the runs that gsm8k_table.sh has trained.

    .venv/bin/python scripts/recipes/gsm8k_table.py [FOLDER]    (default runs/gsm8k_table)

Test accuracy in % after the last step, the mean over seeds, and what it was before the first one;
then each estimator less rloo, paired by seed, with 95 % intervals.
"""

import argparse
import sys
from pathlib import Path
from statistics import fmean

from answer_graders.programs.store import Record, read_store
from baseline_research.study.runs import Run
from baseline_research.study.stack import Scalars
from baseline_research.study.values import grouped
from paired_eval.stats import paired_difference

REFERENCE = "rloo"


def accuracy_before(folder: Path, record: Record) -> list[float]:
    """In percent, of the evaluations before the first step; none where the log is gone."""
    name = Run.of(record).name
    scalars = Scalars(folder / "stack" / name / "tensorboard" / name)
    tags = [tag for tag in scalars.tags if tag.endswith("_pass1")]
    return [100 * float(scalars[tag].iloc[0]) for tag in tags if scalars[tag].index[0] == 0]


def by_seed(records: list[Record], estimator: str, responses: int) -> dict[int, float]:
    """The last accuracy in percent of each seed."""
    return {
        record["seed"]: 100 * record["pass1"]
        for record in records
        if record["estimator"] == estimator and record["responses"] == responses
    }


def show_row(cells: list[str]) -> None:
    """Prints a row of a table in Markdown."""
    print(f"| {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", default="runs/gsm8k_table")
    folder = parser.parse_args().folder
    path = folder / "runs-stack.jsonl"
    if not path.is_file():
        sys.exit(f"{path} is not there: bash scripts/recipes/gsm8k_table.sh trains and writes it")
    _, lines = read_store(path)
    records = list(lines)
    responses = sorted({record["responses"] for record in records})
    estimators = list(grouped(records, lambda record: record["estimator"]))
    show_row(["", *(f"M = {m}" for m in responses)])
    show_row(["---", *("---:" for _ in responses)])
    before = [value for record in records for value in accuracy_before(folder, record)]
    if before:
        show_row(["before", *(f"{fmean(before):.2f}" for _ in responses)])
    for estimator in estimators:
        accuracies = [by_seed(records, estimator, m).values() for m in responses]
        show_row([f"`{estimator}`", *(f"{fmean(a):.2f}" if a else "" for a in accuracies)])
    for estimator in estimators:
        if estimator != REFERENCE:
            gaps = [gap(records, estimator, m) for m in responses]
            show_row([f"`{estimator}` - `{REFERENCE}`", *gaps])


def gap(records: list[Record], estimator: str, responses: int) -> str:
    """An estimator less the reference over the seeds that both have; empty with fewer than two."""
    own = by_seed(records, estimator, responses)
    reference = by_seed(records, REFERENCE, responses)
    seeds = sorted(own.keys() & reference.keys())
    if len(seeds) < 2:
        return ""
    difference = paired_difference(
        [own[seed] for seed in seeds], [reference[seed] for seed in seeds]
    )
    return f"{difference.value:+.2f} ({difference.low:.2f} to {difference.high:.2f})"


if __name__ == "__main__":
    main()
