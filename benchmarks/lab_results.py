"""The whole experiment of docs/results.md: a tiny model from nothing, and the lab's figures on it.

A model is warm-started on the quickstart's task `sort`; then `openrlhf-js lab` samples many
responses to each prompt, and measures values, the baselines' errors, the gradients' distances and
how they depend on lambda; last, the same errors for made-up values. Everything in this process.

A call with the same folder goes on where the last one was stopped. Tables of the lab's programs go
to `lab.log`, and what docs/results.md says is printed.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path

from lab_results_report import markdown, replace_part
from rich.console import Console
from rlhf_runs import kept
from tiny_policies import training_items, warm_start

from openrlhf_js.cli import lab_gradient, lab_mse, lab_simulate, lab_sweep, lab_value
from openrlhf_js.cli.progress import Bar
from openrlhf_js.lab.results import load, whole_file
from openrlhf_js.tiny.quickstart import GRADERS, prepare_libraries, write_prompts
from openrlhf_js.tiny.tasks import TASKS, draw

TASK = TASKS["sort"]
DOCS = Path(__file__).parents[1] / "docs"
PROGRAMS = {
    "value": lab_value.main,
    "mse": lab_mse.main,
    "gradient": lab_gradient.main,
    "sweep": lab_sweep.main,
    "simulate": lab_simulate.main,
}
SECONDS = "seconds"  # folder of what each part took


def prepare(out: Path, prompts: int, seed: int) -> None:
    """Leaves the warm-started model and the prompts that it is asked."""
    with Bar("imitating", TASK.warm_start_steps, Console(stderr=True), "steps") as bar:
        warm_start(TASK, seed, out / "model", lambda step: bar.update(step, step))
    items = draw(training_items(TASK, seed), prompts, random.Random(f"lab/{seed}"))
    write_prompts(out / "prompts.jsonl", TASK, items, "sort")


def words(name: str, out: Path, options: argparse.Namespace) -> list[str]:
    """The command line of one of the lab's programs, without its name."""
    given = {"out": out, "seed": options.seed}
    if name != "simulate":
        given["device"] = "cpu"
    if name == "value":  # which samples; the others take what is there
        given |= {
            "model": out / "model",
            "prompts": out / "prompts.jsonl",
            "reward": GRADERS / TASK.grader,
            "prompts_count": options.prompts,
            "responses": options.responses,
            "max_new_tokens": TASK.max_new_tokens,
            "engine": "transformers",
            "batch_size": 512,
        }
    if name in ("gradient", "sweep"):
        given |= {"batches": options.batches}
    if name == "simulate":
        given |= {"values": "beta:0.5,0.5", "prompts_count": 64}
    return [word for flag, value in given.items() for word in (f"--{flag}", str(value))]


def run(name: str, out: Path, options: argparse.Namespace) -> None:
    """Runs one of the lab's programs; leaves with its exit status if it fails."""
    with (out / "lab.log").open("a", encoding="utf-8") as log, redirect_stdout(log):
        status = PROGRAMS[name](words(name, out, options))
    if status:
        sys.exit(status)


def timed(name: str, out: Path, work: Callable[[], None]) -> float:
    """Does a part, unless an earlier call has; the seconds it took, of its last call alone."""

    def make() -> dict[str, float]:
        print(f"{name} ...", file=sys.stderr)
        began = time.monotonic()
        work()
        return {"seconds": time.monotonic() - began}

    return float(kept(out / SECONDS / f"{name}.json", make)["seconds"])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--out", type=Path, default=Path("runs/lab-results"), help="default: %(default)s")
    add("--seed", type=int, default=0, help="of everything (default: %(default)s)")
    add("--prompts", type=int, default=128, help="default: %(default)s")
    add("--responses", type=int, default=256, help="to each prompt (default: %(default)s)")
    add("--batches", type=int, default=20, help="of gradients (default: %(default)s)")
    add("--write_docs", action="store_true", help="write docs/results.md and its pictures")
    options = parser.parse_args()
    if options.seed < 0 or min(options.prompts, options.batches) < 2 or options.responses < 16:
        parser.error(
            "--seed must be 0 or more, --prompts and --batches 2 or more, --responses 16 or more"
        )
    return options


def main() -> None:
    options = parse()
    out = options.out
    prepare_libraries()
    settings = {key: getattr(options, key) for key in ("seed", "prompts", "responses", "batches")}
    there = kept(out / "experiment.json", lambda: settings)
    if there != settings:
        sys.exit(f"{out} holds an experiment with {json.dumps(there)}: give another --out")
    parts = {"warm start": partial(prepare, out, options.prompts, options.seed)}
    parts |= {name: partial(run, name, out, options) for name in PROGRAMS}
    try:
        seconds = {name: timed(name, out, work) for name, work in parts.items()}
    except KeyboardInterrupt:
        sys.exit("stopped; the same call goes on from here")
    found = {name: load(out / f"{name}.json").summary for name in PROGRAMS}
    text = markdown(found, seconds)
    print(text)
    if options.write_docs:
        for name in PROGRAMS:
            shutil.copyfile(out / f"{name}.png", DOCS / "images" / f"results_{name}.png")
        path = DOCS / "results.md"
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        with whole_file(path) as file:
            file.write(replace_part(before, text).encode())


if __name__ == "__main__":
    main()
