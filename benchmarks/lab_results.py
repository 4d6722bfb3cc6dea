"""Claim: on a tiny model `js` and `js_grad` err less than `rloo`, in baselines and gradients.

    python benchmarks/lab_results.py                   # four minutes; the tables of docs/lab.md

The whole experiment of docs/lab.md, from nothing. A model is warm-started on the quickstart's
task `sort`; then `openrlhf-js lab` samples many responses to each prompt, and measures values, the
baselines' errors, the gradients' distances and how they depend on lambda, all compared to `rloo`;
last, the same errors for made-up values. The same command resumes what takes long, sampling and
gradients. Prints the tables of docs/lab.md; the pictures are in --out.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from markdown_table import print_table, shown

from openrlhf_js.cli import lab
from openrlhf_js.common.console import progress
from openrlhf_js.common.settings import Field, Settings, parse
from openrlhf_js.tasks import GRADERS
from openrlhf_js.tiny.model import warm_start
from openrlhf_js.tiny.supervise import prepare_libraries
from openrlhf_js.tiny.tasks import TASKS, draw, write_prompts

TASK = TASKS["sort"]
PROMPTS = 128
RESPONSES = 256  # to each prompt
HELD_OUT = 200  # of the task's items, as in the quickstart
PROGRAMS = ("value", "mse", "gradient", "sweep", "simulate")
REDUCTION = "reduction_percent"

Results = Mapping[str, Mapping[str, Any]]  # what a program of the lab has found, by its name


class ExperimentSettings(Settings):
    """A tiny model from nothing, and the lab's figures on it."""

    out: Path = Field(Path("runs/lab-results"), description="folder of model, samples and results")
    seed: int = Field(0, ge=0, description="of everything")


def command_line(settings: ExperimentSettings, program: str) -> list[str]:
    """The command line of one of the lab's programs."""
    flags: dict[str, Any] = {"out": settings.out, "seed": settings.seed}
    if program == "value":  # which samples; the others take what is there
        flags |= {
            "model": settings.out / "model",
            "prompts": settings.out / "prompts.jsonl",
            "reward": GRADERS / TASK.grader,
            "prompts_count": PROMPTS,
            "responses": RESPONSES,
            "max_new_tokens": TASK.max_new_tokens,
            "engine": "transformers",
            "batch_size": 512,
        }
    if program != "simulate":
        flags["device"] = "cpu"
    words = [program]
    for name, value in flags.items():
        words += [f"--{name}", str(value)]
    return words


def prepare(settings: ExperimentSettings) -> None:
    """Leaves the warm-started model and the prompts that it is asked."""
    settings.out.mkdir(parents=True, exist_ok=True)
    items = TASK.split(settings.seed, HELD_OUT).train
    if not (settings.out / "model/tokenizer_config.json").is_file():  # written last
        with progress("imitating", TASK.warm_start_steps, "steps") as bar:
            warm_start(
                settings.out / "model",
                TASK,
                items,
                seed=settings.seed,
                on_step=lambda step, loss: bar.update(step),
            )
    generator = random.Random(f"lab/{settings.seed}")
    chosen = draw(items, PROMPTS, generator)
    write_prompts(settings.out / "prompts.jsonl", TASK, chosen, "sort")


class CellKey(NamedTuple):
    """Where a figure stands in the lab's results; m and rule are None where there are none."""

    program: str
    m: int | None
    rule: str | None  # an estimator, or a point of a sweep
    quantity: str


class Cells:
    """The figures of all results, over all prompts."""

    def __init__(self, results: Results) -> None:
        self.rows: dict[CellKey, Mapping[str, Any]] = {}
        for program, result in results.items():
            for row in result["rows"]:
                if row.get("group", "all") == "all":
                    rule = row.get("estimator", row.get("point"))
                    key = CellKey(program, row.get("m"), rule, row["quantity"])
                    self.rows[key] = row

    def value(self, quantity: str) -> float:
        """A figure of the prompts' values."""
        return self.rows[CellKey("value", None, None, quantity)]["value"]

    def reduction(self, program: str, m: int, rule: str) -> str:
        """How much lower than rloo's, in percent, with its interval."""
        row = self.rows[CellKey(program, m, rule, REDUCTION)]
        return shown(row["value"], row["low"], row["high"], digits=1)

    def shrinkage(self, program: str, m: int, rule: str) -> str:
        """Lambda, with its interval."""
        row = self.rows[CellKey(program, m, rule, "shrinkage")]
        return shown(row["value"], row["low"], row["high"], digits=2)


def print_tables(results: Results) -> None:
    cells = Cells(results)
    gradient = results["gradient"]
    response_counts = gradient["settings"]["m"]
    print(
        f"Mean reward {cells.value('mean_value'):.3f}, "
        f"standard deviation of the prompts' values {cells.value('sd_of_values'):.3f}. "
        f"Gradients: {gradient['batches']} batches of {gradient['batch_prompts']} prompts for each "
        "m.\n"
    )

    print("How much lower than `rloo`'s, in percent, with 95 % intervals:\n")
    print_table(
        columns=["m", "baseline", "MSE to the value", "squared distance of the gradient"],
        rows=[
            (
                m,
                f"`{rule}`",
                cells.reduction("mse", m, rule),
                cells.reduction("gradient", m, rule),
            )
            for m in response_counts
            for rule in ("js", "js_grad")
        ],
    )

    print("\nThe best constant lambda, and what it would save, in percent:\n")
    print_table(
        columns=["m", "for the MSE", "saves", "for the gradient (95 %)", "saves (95 %)"],
        rows=[
            (
                m,
                cells.shrinkage("mse", m, "js_fixed"),
                cells.reduction("mse", m, "js_fixed"),
                cells.shrinkage("sweep", m, "least distance"),
                cells.reduction("sweep", m, "least distance"),
            )
            for m in response_counts
        ],
    )

    simulated = results["simulate"]
    print(f"\nWithout a model: {simulated['title']}, {simulated['batch_prompts']} prompts:\n")
    print_table(
        columns=["m", "`js`", "`js_grad`", "best constant lambda"],
        rows=[
            (
                m,
                cells.reduction("simulate", m, "js"),
                cells.reduction("simulate", m, "js_grad"),
                cells.reduction("simulate", m, "js_fixed"),
            )
            for m in simulated["settings"]["m"]
        ],
    )


def main() -> int:
    """Runs everything; the status of the first program that fails."""
    settings = parse(ExperimentSettings, "benchmarks/lab_results.py", sys.argv[1:])
    prepare_libraries()
    began = time.monotonic()
    prepare(settings)
    for program in PROGRAMS:
        status = lab.main(command_line(settings, program))
        if status:
            return status
    results = {
        program: json.loads((settings.out / f"{program}.json").read_bytes()) for program in PROGRAMS
    }
    print_tables(results)
    minutes = (time.monotonic() - began) / 60
    print(f"\nIt took {minutes:.1f} minutes.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
