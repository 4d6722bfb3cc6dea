"""How long does `openrlhf-js eval passk` take on a laptop, and does it repeat itself?

A tiny policy that has imitated careless demonstrations answers 200 Countdown problems 16 times
each, on the CPU. It does so three times, each in a process of its own, from loading the model to
the picture: with one seed twice, the second time in batches of another size, and with another seed.
The first two must give the same scores, the third others. The goal is under 120 s for each.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tiny_policies import warm_start

from openrlhf_js.tiny.tasks import TASKS

ITEMS, SAMPLES, GOAL_SECONDS = 200, 16, 120
TASK = TASKS["countdown"]
RUNS = {"first": ("0", "64"), "again": ("0", "200"), "other": ("1", "64")}  # seed, batch size


def write_items(path: Path) -> None:
    """The held-out problems as a file of prompts."""
    rows = (
        {"input": TASK.prompt(item), "label": TASK.label(item), "datasource": "countdown/2"}
        for item in TASK.split(0, ITEMS).held_out
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def evaluated(folder: Path, name: str) -> tuple[dict[str, Any], float]:
    """The results of one run, and its wall-clock seconds."""
    seed, batch = RUNS[name]
    command = [sys.executable, "-m", "openrlhf_js.cli.eval_passk", "--device", "cpu"]
    command += ["--model", str(folder / "model"), "--tasks", str(folder / "countdown.jsonl")]
    command += ["--samples", str(SAMPLES), "--max_new_tokens", str(TASK.max_new_tokens)]
    command += ["--seed", seed, "--batch_size", batch, "--out", str(folder / name)]
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds = time.perf_counter() - began
    return json.loads((folder / name / "results.json").read_bytes()), seconds


def main() -> int:
    """Prints the figures; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, help="keep the model and the results here")
    folder = parser.parse_args().folder or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    warm_start(TASK, 0, folder / "model", lambda step: None)
    write_items(folder / "countdown.jsonl")
    scores, slowest = {}, 0.0
    for name, (seed, batch) in RUNS.items():
        found, seconds = evaluated(folder, name)
        task = found["tasks"]["countdown"]
        scores[name], slowest = task["per_item"]["correct"], max(slowest, seconds)
        mean, all_of_them = task["mean_at_k"], task["pass_at"][str(SAMPLES)]
        print(
            f"{name}: seed {seed}, batches of {batch}: {seconds:.1f} s, "
            f"{task['tokens_per_second']:,.0f} tokens/s while sampling, mean@{SAMPLES} "
            f"{mean['value']:.4f} ({mean['low']:.4f} to {mean['high']:.4f}), pass@{SAMPLES} "
            f"{all_of_them['value']:.4f}, majority {task['majority_at_k']['value']:.4f}"
        )
    same = scores["first"] == scores["again"]
    print(f"same seed, same scores of each item: {same}")
    print(f"another seed, other scores: {scores['first'] != scores['other']}")
    print(f"slowest: {slowest:.1f} s, goal {GOAL_SECONDS} s: {slowest < GOAL_SECONDS}")
    return int(not same or slowest >= GOAL_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
