"""What docs/pretrained.md says of training: prints its tables from the records of pretrained.yaml.

With a study's folder (`pretrained.py runs/smollm2`), first keeps the records that it holds,
and measures the start of all runs. Passes in bfloat16, in float32 and on a GPU are studies of
their own.
"""

import json
import sys
from collections.abc import Sequence
from itertools import count
from math import isfinite
from pathlib import Path
from statistics import fmean, stdev

import pandas as pd
from grid import keep, read, size_of

from openrlhf_js.cli.study import read as read_settings
from openrlhf_js.sampling.settings import DTYPES
from openrlhf_js.stats import detectable_effect, paired_difference
from openrlhf_js.study.analysis import StudyRow, analyse
from openrlhf_js.study.design import StudySettings
from openrlhf_js.study.inline.prompts import policy_in
from openrlhf_js.study.inline.rollout import right_probabilities
from openrlhf_js.study.tasks import PRETRAINED, questions
from openrlhf_js.study.values import RunRecord, grouped
from openrlhf_js.tiny.policy import TinyPolicy
from openrlhf_js.tiny.tasks import Problem

RECORDS = {  # by dtype and device of the passes
    ("bfloat16", "cpu"): Path(__file__).with_name("pretrained.jsonl.xz"),
    ("float32", "cpu"): Path(__file__).with_name("pretrained_float32.jsonl.xz"),
    ("bfloat16", "cuda"): Path(__file__).with_name("pretrained_gpu.jsonl.xz"),
}
DATA = Path(__file__).parents[2] / "docs/data"
ERRORS = {  # what `lab mse` has measured, in the study's folder, and the end of the table's name
    "lab/mse.json": "mse.csv",
    "lab_trained/mse.json": "trained_mse.csv",
}
FLAGS = {name: flag for flag, name in DTYPES.items()}
STUDY = Path(__file__).with_suffix(".yaml")
REFERENCE = "rloo"
OURS = "js_grad"
SOUGHT = 3.0  # points of pass@1: the difference that a seed's share of the power is planned for
UNITS = {  # of each quantity: its name on the page, and what it is multiplied by
    "pass1": ("pass@1, points", 100),
    "reward": ("mean reward over training, points", 100),
    "baseline_error": ("error of the baseline, share of rloo's", 1),
    "dead": ("groups of equal rewards, %", 100),
    "length": ("tokens of a response, late", 1),
    "entropy": ("entropy, nats a token, late", 1),
}


def keep_errors(folder: Path, prefix: str) -> None:
    """Writes what `lab mse` has measured, if it has, as tables for the page."""
    for name, table in ERRORS.items():
        path = folder / name
        if path.is_file():
            rows = pd.DataFrame(json.loads(path.read_bytes())["rows"])
            rows.to_csv(DATA / f"{prefix}_{table}", index=False, float_format="%.4g")


def values_by_kind(policy: TinyPolicy, settings: StudySettings) -> dict[str, list[float]]:
    """The probability of the right response to each held-out question, by its kind."""
    items = questions.split(settings.start_seed, settings.held_out).held_out
    problems = [Problem(questions.prompt(item), questions.label(item)) for item in items]
    values = right_probabilities(policy, questions, problems)
    pairs = list(zip(items, values, strict=True))
    by_kind = grouped(pairs, lambda pair: pair[0]["kind"])
    return {kind: [value for _, value in of_kind] for kind, of_kind in by_kind.items()}


def print_start(folder: Path, dtype: str, device: str) -> None:
    """The probability of right responses before training, by kind of question."""
    flags = ["--out", str(folder), "--dtype", FLAGS[dtype], "--device", device]
    settings = read_settings([str(STUDY), *flags])
    policy = policy_in(settings.start_of(PRETRAINED), settings)
    by_kind = values_by_kind(policy, settings)
    rows = [["all", *_summary([value for values in by_kind.values() for value in values])]]
    rows += [[kind, *_summary(values)] for kind, values in by_kind.items()]
    print_table(["kind", "questions", "pass@1, %", "deviation over questions"], rows)


def _summary(values: Sequence[float]) -> list[str]:
    return [str(len(values)), f"{100 * fmean(values):.1f}", f"{100 * stdev(values):.1f}"]


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table in Markdown."""
    print(f"\n| {' | '.join(head)} |")
    print(f"|{'---|' * 2}{'---:|' * (len(head) - 2)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def print_means(means: Sequence[StudyRow]) -> None:
    """What was measured of each estimator."""
    rows = []
    for row in means:
        if row.quantity in UNITS:
            name, scale = UNITS[row.quantity]
            numbers = (row.value, row.low, row.high)
            ends = [f"{scale * end:.2f}" if isfinite(end) else "" for end in numbers]
            rows.append([name, f"`{row.estimator}`", *ends, str(row.seeds)])
    print_table(["quantity", "estimator", "mean", "low", "high", "seeds"], rows)


def print_differences(differences: Sequence[StudyRow]) -> None:
    """Each estimator less the reference, paired by seed, with what could have been seen."""
    rows = []
    for row in differences:
        if row.quantity in UNITS and row.p is not None and row.detectable is not None:
            name, scale = UNITS[row.quantity]
            numbers = [f"{scale * end:+.2f}" for end in (row.value, row.low, row.high)]
            detectable = f"{scale * row.detectable:.2f}"
            rows.append(
                [name, f"`{row.estimator}`", *numbers, f"{row.p:.2g}", detectable, str(row.seeds)]
            )
    head = ["quantity", "estimator", "difference", "low", "high", "p", "detects", "pairs"]
    print_table(head, rows)


def print_power(runs: Sequence[RunRecord]) -> None:
    """How many pairs a difference of `SOUGHT` points takes, from the noise of those there are."""
    finals = {(run["estimator"], run["seed"]): 100 * run["pass1"] for run in runs}
    for estimator in dict.fromkeys(run["estimator"] for run in runs):
        seeds = sorted(seed for name, seed in finals if name == estimator)
        seeds = [seed for seed in seeds if (REFERENCE, seed) in finals]
        if estimator == REFERENCE or len(seeds) < 2:
            continue
        difference = paired_difference(
            [finals[estimator, seed] for seed in seeds],
            [finals[REFERENCE, seed] for seed in seeds],
        )
        ahead = sum(finals[estimator, seed] > finals[REFERENCE, seed] for seed in seeds)
        deviation = difference.standard_error * len(seeds) ** 0.5
        needed = next(
            pairs
            for pairs in count(3)
            if detectable_effect(deviation / pairs**0.5, pairs - 1) <= SOUGHT
        )
        print(
            f"{estimator}: ahead in {ahead} of {len(seeds)} pairs; standard deviation of a pair "
            f"{deviation:.1f} points; {needed} pairs find {SOUGHT:.0f} points with a probability "
            "of 80 %"
        )


def compared_runs(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Those of the estimators that were run at every learning rate that the reference was, on the
    seeds that all of them have at each."""
    rates = {
        estimator: {run["learning_rate"] for run in group}
        for estimator, group in grouped(runs, lambda run: run["estimator"]).items()
    }
    runs = [run for run in runs if rates[run["estimator"]] >= rates[REFERENCE]]
    settings = grouped(runs, lambda run: (run["estimator"], run["learning_rate"]))
    seeds = set.intersection(*({run["seed"] for run in group} for group in settings.values()))
    return [run for run in runs if run["seed"] in seeds]


def print_study(runs: Sequence[RunRecord]) -> None:
    """What was measured with each size of batch: at each learning rate, and at the best."""
    for size, of_size in grouped(runs, size_of).items():
        by_rate = grouped(of_size, lambda run: run["learning_rate"])
        for rate, rate_runs in by_rate.items():
            print(f"\n{size}, learning rate {rate:g}")
            print_rate(rate_runs)
        compared = compared_runs(of_size)
        if len(by_rate) > 1 and compared:
            print(f"\n{size}, each at the learning rate that is best on the other seeds")
            findings = analyse(compared, REFERENCE)
            print_means([row for row in findings.means if row.kind == "mean"])
            print_differences([row for row in findings.differences if row.kind == "difference"])


def print_rate(runs: Sequence[RunRecord]) -> None:
    """What was measured at one learning rate."""
    findings = analyse(runs, REFERENCE)
    print_means(findings.means)
    print_differences(findings.differences)
    print_power(runs)
    estimators = {run["estimator"] for run in runs}
    if OURS in estimators:
        for other in sorted(estimators - {REFERENCE, OURS}):
            print(f"\nLess {other}")
            ours = [run for run in runs if run["estimator"] in (OURS, other)]
            print_differences(analyse(ours, other).differences)


def main() -> None:
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
        settings = json.loads((folder / "runs-inline.jsonl").read_text().partition("\n")[0])
        dtype = settings["dtype"]
        device = settings.get("device", "cpu")
        records = RECORDS[dtype, device]
        keep([folder], records)
        keep_errors(folder, records.name.partition(".")[0])
        print_start(folder, dtype, device)
    for (dtype, device), records in RECORDS.items():
        if records.is_file():
            runs = read(records)
            print(f"\n{len(runs)} runs, passes in {dtype} on {device}")
            print_study(runs)


if __name__ == "__main__":
    main()
