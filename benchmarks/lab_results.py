"""The whole experiment of docs/results.md: a tiny model from nothing, and the lab's figures on it.

A model is warm-started on the quickstart's task `sort`; then `openrlhf-js lab` samples many
responses to each prompt, and measures values, the baselines' errors, the gradients' distances and
how they depend on lambda; last, the same errors for made-up values. The same command resumes what
takes long, sampling and gradients. Prints the tables of docs/results.md; the pictures are in --out.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markdown_table import print_table, shown
from tiny_policies import training_items, warm_start

from openrlhf_js.cli import lab
from openrlhf_js.common.console import progress
from openrlhf_js.common.settings import Field, Settings, parse
from openrlhf_js.tasks import GRADERS
from openrlhf_js.tiny.supervise import prepare_libraries
from openrlhf_js.tiny.tasks import TASKS, draw, write_prompts

TASK = TASKS["sort"]
PROMPTS, RESPONSES, BATCHES = 128, 256, 20  # of the sample: prompts, responses to each; gradients
PROGRAMS = ("value", "mse", "gradient", "sweep", "simulate")


class ExperimentSettings(Settings):
    """A tiny model from nothing, and the lab's figures on it."""

    out: Path = Field(Path("runs/lab-results"), description="folder of model, samples and results")
    seed: int = Field(0, ge=0, description="of everything")


def words(settings: ExperimentSettings, name: str) -> list[str]:
    """The command line of one of the lab's programs."""
    given: dict[str, Any] = {"out": settings.out, "seed": settings.seed}
    if name == "value":  # which samples; the others take what is there
        given |= {"model": settings.out / "model", "prompts": settings.out / "prompts.jsonl"}
        given |= {"reward": GRADERS / TASK.grader, "prompts_count": PROMPTS}
        given |= {"responses": RESPONSES, "max_new_tokens": TASK.max_new_tokens}
        given |= {"engine": "transformers", "batch_size": 512}
    if name in ("gradient", "sweep"):
        given["batches"] = BATCHES
    if name != "simulate":
        given["device"] = "cpu"
    return [name, *(str(word) for flag in given for word in (f"--{flag}", given[flag]))]


def prepare(settings: ExperimentSettings) -> None:
    """Leaves the warm-started model and the prompts that it is asked."""
    settings.out.mkdir(parents=True, exist_ok=True)
    with progress("imitating", TASK.warm_start_steps, "steps") as bar:
        warm_start(TASK, settings.seed, settings.out / "model", bar.update)
    train, rng = training_items(TASK, settings.seed), random.Random(f"lab/{settings.seed}")
    write_prompts(settings.out / "prompts.jsonl", TASK, draw(train, PROMPTS, rng), "sort")


def print_tables(found: Mapping[str, Mapping[str, Any]]) -> None:
    rows = {
        (name, row.get("m"), row.get("estimator", row.get("point")), row["quantity"]): row
        for name, result in found.items()
        for row in result["rows"]
        if row.get("group", "all") == "all"
    }

    def cell(name: str, m: int, rule: str, quantity: str = "reduction_percent") -> str:
        row = rows[name, m, rule, quantity]
        return shown(row["value"], row["low"], row["high"], 2 if quantity == "shrinkage" else 1)

    def cells(m: int, *asked: Sequence[str]) -> list[str]:
        return [cell(name, m, *rest) for name, *rest in asked]

    gradient, simulated = found["gradient"], found["simulate"]
    mean, sd = (rows["value", None, None, each]["value"] for each in ("mean_value", "sd_of_values"))
    precise, counts = gradient["precise"], gradient["settings"]["m"]
    print(
        f"Mean reward {mean:.3f}, standard deviation of the prompts' values {sd:.3f}. Gradients: "
        f"{gradient['batches']} batches of {gradient['batch_prompts']} prompts for each m, against "
        f"a gradient of {precise['responses']:,} other responses whose own squared error is "
        f"{precise['relative_error']:.1%} of the squared norm.\n\n"
        "How much lower than `rloo`'s, in percent, with 95 % intervals:\n"
    )
    columns = "baseline", "MSE to the value", "squared distance of the gradient", "mean lambda"
    lower = (
        (m, f"`{rule}`", *cells(m, ("mse", rule), ("gradient", rule), ("mse", rule, "shrinkage")))
        for m in counts
        for rule in ("js", "js_plus")
    )
    print_table(["m", *columns], lower)
    print("\nThe best constant lambda, and what it would save, in percent:\n")
    best = ("mse", "js_fixed"), ("sweep", "least distance")
    asked = [each for own in best for each in ((*own, "shrinkage"), own)]
    columns = "for the MSE", "saves", "for the gradient (95 %)", "saves (95 %)"
    print_table(["m", *columns], ([m, *cells(m, *asked)] for m in counts))
    print(f"\nWithout a model: {simulated['title']}, {simulated['batch_prompts']} prompts:\n")
    asked = [("simulate", rule) for rule in ("js", "js_plus", "js_fixed")]
    columns = "`js`", "`js_plus`", "best constant lambda"
    print_table(["m", *columns], ([m, *cells(m, *asked)] for m in simulated["settings"]["m"]))


def main() -> int:
    """Runs everything; the status of the first program that fails."""
    settings = parse(ExperimentSettings, "benchmarks/lab_results.py", sys.argv[1:])
    prepare_libraries()
    began = time.monotonic()
    prepare(settings)
    for name in PROGRAMS:
        if status := lab.main(words(settings, name)):
            return status
    print_tables({n: json.loads((settings.out / f"{n}.json").read_bytes()) for n in PROGRAMS})
    print(f"\nIt took {(time.monotonic() - began) / 60:.1f} minutes.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
