"""A pretrained model with prompts as they come, and chosen: what docs/selection.md says of it.

.venv/bin/python scripts/studies/pretrained_chosen.py    resumable; an hour of one core

Prints pass@1 over all held-out questions and by kind, paired by seed.
"""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

from openrlhf_js.cli.study import read as read_settings
from openrlhf_js.common.console import progress
from openrlhf_js.stats import paired_difference
from openrlhf_js.study.design import Run, StudySettings
from openrlhf_js.study.inline.engine import train_policy
from openrlhf_js.study.inline.prompts import policy_in
from openrlhf_js.study.inline.rollout import right_probabilities
from openrlhf_js.study.running import prepare
from openrlhf_js.study.tasks import PRETRAINED, questions
from openrlhf_js.study.values import grouped
from openrlhf_js.tiny.tasks import Problem

RECORDS = Path(__file__).with_suffix(".jsonl")
FLAGS = (
    "--estimators js_memory --selection uniform informative --distinct 64 --learning_rates 5e-6 "
    "--dtype float32 --seeds 4 --out runs/smollm2_chosen"
)
UNIFORM = "js_memory"
CHOSEN = "js_memory+informative"


def trained(run: Run, settings: StudySettings) -> dict[str, Any]:
    """The record of one run, with pass@1 by kind of held-out question."""
    policy = policy_in(settings.start_of(PRETRAINED), settings)
    figures = train_policy(policy, run, settings)
    items = questions.split(settings.start_seed, settings.held_out).held_out
    problems = [Problem(questions.prompt(item), questions.label(item)) for item in items]
    pairs = zip(items, right_probabilities(policy, questions, problems), strict=True)
    by_kind = grouped(list(pairs), lambda pair: pair[0]["kind"])
    kinds = {kind: fmean(value for _, value in group) for kind, group in by_kind.items()}
    numbers = {name: getattr(figures, name) for name in ("pass1", "reward", "effective_prompts")}
    return {"estimator": run.estimator, "seed": run.seed, **numbers, "kinds": kinds}


def run_of(record: dict[str, Any]) -> tuple[str, int]:
    """Estimator and seed."""
    return record["estimator"], record["seed"]


def print_row(name: str, values: dict[tuple[str, int], float]) -> None:
    """Both means and their difference with its interval, in percent and points."""
    seeds = sorted({seed for estimator, seed in values if (CHOSEN, seed) in values})
    uniform = [100 * values[UNIFORM, seed] for seed in seeds]
    chosen = [100 * values[CHOSEN, seed] for seed in seeds]
    numbers = [f"{fmean(uniform):.1f}", f"{fmean(chosen):.1f}"]
    numbers.append(f"{fmean(chosen) - fmean(uniform):+.1f}")
    ends = ["", ""]
    if len(seeds) > 1:
        difference = paired_difference(chosen, uniform)
        ends = [f"{end:+.1f}" for end in (difference.low, difference.high)]
    print(f"| {name} | {' | '.join([*numbers, *ends, str(len(seeds))])} |")


def main() -> None:
    settings = read_settings([str(Path(__file__).with_name("pretrained.yaml")), *FLAGS.split()])
    records = []
    if RECORDS.is_file():
        records = [json.loads(line) for line in RECORDS.read_text().splitlines()]
    there = {run_of(record) for record in records}
    missing = [run for run in settings.runs() if (run.estimator, run.seed) not in there]
    if missing:
        prepare(settings)
    with progress("training", len(missing), "runs") as bar:
        for run in missing:
            records.append(trained(run, settings))
            with RECORDS.open("a") as file:
                file.write(json.dumps(records[-1]) + "\n")
            bar.advance()
    print(
        f"{len(records)} runs\n\n|  | `{UNIFORM}` | `{CHOSEN}` | difference | from | to | pairs |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name in ("pass1", "reward"):
        print_row(name, {run_of(record): record[name] for record in records})
    for kind in records[-1]["kinds"]:
        with_kinds = [record for record in records if record["kinds"]]
        print_row(kind, {run_of(record): record["kinds"][kind] for record in with_kinds})


if __name__ == "__main__":
    main()
