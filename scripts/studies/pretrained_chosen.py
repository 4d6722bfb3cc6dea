"""A pretrained model with prompts as they come, and chosen: what docs/selection.md says of it.

.venv/bin/python scripts/studies/pretrained_chosen.py    resumable; an hour of one core

Prints pass@1 over all held-out questions and by kind, paired by seed.
"""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

from pretrained import STUDY, print_table, values_by_kind

from openrlhf_js.cli.study import read as read_settings
from openrlhf_js.common.console import progress
from openrlhf_js.stats import paired_difference
from openrlhf_js.study.design import Run, StudySettings
from openrlhf_js.study.inline.engine import train_policy
from openrlhf_js.study.inline.prompts import policy_in
from openrlhf_js.study.running import prepare
from openrlhf_js.study.tasks import PRETRAINED

RECORDS = Path(__file__).with_suffix(".jsonl")
FLAGS = (
    "--estimators js_memory --selection uniform informative --distinct 64 --learning_rates 5e-6 "
    "--device cpu --dtype float32 --seeds 4 --out runs/smollm2_chosen"
)
UNIFORM = "js_memory"
CHOSEN = "js_memory+informative"


def trained(run: Run, settings: StudySettings) -> dict[str, Any]:
    """The record of one run, with pass@1 by kind of held-out question."""
    policy = policy_in(settings.start_of(PRETRAINED), settings)
    figures = train_policy(policy, run, settings)
    kinds = {kind: fmean(values) for kind, values in values_by_kind(policy, settings).items()}
    numbers = {name: getattr(figures, name) for name in ("pass1", "reward", "effective_prompts")}
    return {"estimator": run.estimator, "seed": run.seed, **numbers, "kinds": kinds}


def run_of(record: dict[str, Any]) -> tuple[str, int]:
    """Estimator and seed."""
    return record["estimator"], record["seed"]


def row(name: str, values: dict[tuple[str, int], float]) -> list[str]:
    """Both means in percent, and the differences by seed in points, with the mean's interval."""
    seeds = sorted({seed for _, seed in values})
    uniform = [100 * values[UNIFORM, seed] for seed in seeds]
    chosen = [100 * values[CHOSEN, seed] for seed in seeds]
    gaps = [ours - theirs for ours, theirs in zip(chosen, uniform, strict=True)]
    ends = ["", ""]
    if len(seeds) > 1:
        difference = paired_difference(chosen, uniform)
        ends = [f"{end:+.1f}" for end in (difference.low, difference.high)]
    means = [f"{fmean(uniform):.1f}", f"{fmean(chosen):.1f}", f"{fmean(gaps):+.1f}"]
    return [name, " ".join(f"{gap:+.1f}" for gap in gaps), *means, *ends]


def main() -> None:
    settings = read_settings([str(STUDY), *FLAGS.split()])
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
    rows = []
    for name in ("pass1", "reward"):
        rows.append(row(name, {run_of(record): record[name] for record in records}))
    looked_at = [record for record in records if record["kinds"]]  # the first three seeds were not
    for kind in looked_at[-1]["kinds"]:
        rows.append(row(kind, {run_of(record): record["kinds"][kind] for record in looked_at}))
    print_table(["", "by seed", UNIFORM, CHOSEN, "difference", "from", "to"], rows)
    effective = [f"{record['effective_prompts'] or 64:.1f}" for record in records]
    print(f"\neffective number of prompts, run by run: {', '.join(effective)}")


if __name__ == "__main__":
    main()
