"""How long does `openrlhf-js eval passk` take on a laptop, and does it repeat itself?

A tiny policy that has imitated careless demonstrations answers 200 Countdown problems 16 times
each, on the CPU, in three processes: with one seed twice, the second time in batches of another
size, and with another seed. The first two must give the same scores. The goal is 120 s for each.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tiny_policies import warm_start

from openrlhf_js.report.passk import value_of
from openrlhf_js.tiny.tasks import TASKS

ITEMS, SAMPLES, GOAL_SECONDS = 200, 16, 120
TASK = TASKS["countdown"]
RUNS = {"first": ("0", "64"), "again": ("0", "200"), "other": ("1", "64")}  # seed, batch size


def main() -> int:
    """Prints the figures; 1 if a goal is missed."""
    folder = Path(tempfile.mkdtemp())
    warm_start(TASK, 0, folder / "model", lambda step: None)
    rows = (
        {"input": TASK.prompt(item), "label": TASK.label(item), "datasource": "countdown/2"}
        for item in TASK.split(0, ITEMS).held_out
    )
    prompts = folder / "countdown.jsonl"
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    scores, slowest = {}, 0.0
    for name, (seed, batch) in RUNS.items():
        command = [sys.executable, "-m", "openrlhf_js.cli.eval", "passk", "--device", "cpu"]
        command += ["--model", str(folder / "model"), "--tasks", str(prompts)]
        command += ["--samples", str(SAMPLES), "--max_new_tokens", str(TASK.max_new_tokens)]
        command += ["--seed", seed, "--batch_size", batch, "--out", str(folder / name)]
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        seconds = time.perf_counter() - began
        task = json.loads((folder / name / "results.json").read_bytes())["tasks"]["countdown"]
        scores[name], slowest = task["per_item"]["correct"], max(slowest, seconds)
        speed = value_of(task, "tokens_per_second")["value"]
        mean, passed = value_of(task, "mean_at_k"), value_of(task, "pass_at", SAMPLES)
        print(
            f"{name}: seed {seed}, batches of {batch}: {seconds:.1f} s, {speed:,.0f} tokens/s "
            f"while sampling, mean@{SAMPLES} {mean['value']:.4f} ({mean['low']:.4f} to "
            f"{mean['high']:.4f}), pass@{SAMPLES} {passed['value']:.4f}"
        )
    same = scores["first"] == scores["again"]
    print(f"same seed, same scores of each item: {same}")
    print(f"another seed, other scores: {scores['first'] != scores['other']}")
    print(f"slowest: {slowest:.1f} s, goal {GOAL_SECONDS} s: {slowest < GOAL_SECONDS}")
    return int(not same or slowest >= GOAL_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
