"""The whole experiment of docs/results.md: a tiny model from nothing, and the lab's figures on it.

A model is warm-started on the quickstart's task `sort`; then `openrlhf-js lab` samples many
responses to each prompt, and measures values, the baselines' errors, the gradients' distances and
how they depend on lambda; last, the same errors for made-up values. The same command resumes what
takes long, sampling and gradients. Prints what docs/results.md says; --write_docs writes it there.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tiny_policies import training_items, warm_start

from openrlhf_js.cli import lab
from openrlhf_js.common.console import progress
from openrlhf_js.common.files import atomic_write
from openrlhf_js.common.settings import Field, Settings, parse
from openrlhf_js.tiny.quickstart import GRADERS, prepare_libraries, write_prompts
from openrlhf_js.tiny.tasks import TASKS, draw

TASK = TASKS["sort"]
DOCS = Path(__file__).parents[1] / "docs"
PICTURES = {
    "value": "the values of the prompts",
    "mse": "squared errors of the baselines to these values",
    "gradient": "squared distances of the gradients",
    "sweep": "the same for every lambda",
    "simulate": "squared errors for made-up values",
}
BEGIN, END = "<!-- printed by benchmarks/lab_results.py -->", "<!-- end of what it printed -->"


class ExperimentSettings(Settings):
    """A tiny model from nothing, and the lab's figures on it."""

    out: Path = Field(Path("runs/lab-results"), description="folder of model, samples and results")
    seed: int = Field(0, ge=0, description="of everything")
    prompts: int = Field(128, ge=2)
    responses: int = Field(256, ge=16, description="to each prompt")
    batches: int = Field(20, ge=2, description="of gradients")
    write_docs: bool = Field(False, description="write docs/results.md and its pictures")

    def words(self, name: str) -> list[str]:
        """The command line of one of the lab's programs."""
        given: dict[str, Any] = {"out": self.out, "seed": self.seed}
        if name == "value":  # which samples; the others take what is there
            given |= {"model": self.out / "model", "prompts": self.out / "prompts.jsonl"}
            given |= {"reward": GRADERS / TASK.grader, "prompts_count": self.prompts}
            given |= {"responses": self.responses, "max_new_tokens": TASK.max_new_tokens}
            given |= {"engine": "transformers", "batch_size": 512}
        if name in ("gradient", "sweep"):
            given["batches"] = self.batches
        if name != "simulate":
            given["device"] = "cpu"
        return [
            name,
            *(word for flag, value in given.items() for word in (f"--{flag}", str(value))),
        ]


def prepare(settings: ExperimentSettings) -> None:
    """Leaves the warm-started model and the prompts that it is asked."""
    settings.out.mkdir(parents=True, exist_ok=True)
    with progress("imitating", TASK.warm_start_steps, "steps") as bar:
        warm_start(TASK, settings.seed, settings.out / "model", bar.update)
    rng = random.Random(f"lab/{settings.seed}")
    items = draw(training_items(TASK, settings.seed), settings.prompts, rng)
    write_prompts(settings.out / "prompts.jsonl", TASK, items, "sort")


def markdown(found: Mapping[str, Mapping[str, Any]], seconds: Mapping[str, float]) -> str:
    """Tables and pictures of the lab's results."""
    rows = {
        (name, row.get("m"), row.get("estimator", row.get("point")), row["quantity"]): row
        for name, result in found.items()
        for row in result["rows"]
        if row.get("group", "all") == "all"
    }

    def shown(name: str, m: int, rule: str, quantity: str = "reduction_percent", form: str = ".1f"):
        value, *ends = (rows[name, m, rule, quantity][end] for end in ("value", "low", "high"))
        low, high = ("unknown" if end is None else format(end, form) for end in ends)
        return f"{value:{form}}" + (f" ({low} to {high})" if ends != [None, None] else "")

    value = {
        quantity: row["value"] for (name, *_, quantity), row in rows.items() if name == "value"
    }
    gradient, simulated = found["gradient"], found["simulate"]
    precise, counts = gradient["precise"], found["gradient"]["settings"]["m"]
    took = ", ".join(f"{name} {each:.0f} s" for name, each in seconds.items())
    lines = [
        "## A tiny model on one core",
        "",
        "```bash",
        ".venv/bin/python benchmarks/lab_results.py --write_docs",
        "```",
        "",
        "makes a model of 0.65M parameters, lets it imitate careless demonstrations of the task "
        f"`sort`, samples {value['prompts']:.0f} prompts x {found['value']['responses']} responses"
        f", and measures. It took {sum(seconds.values()) / 60:.1f} minutes ({took}).",
        "",
        f"Mean reward {value['mean_value']:.3f}, standard deviation of the prompts' values "
        f"{value['sd_of_values']:.3f}. Gradients: {gradient['batches']} batches of "
        f"{gradient['batch_prompts']} prompts for each m, against a gradient of "
        f"{precise['responses']:,} other responses whose own squared error is "
        f"{precise['relative_error']:.1%} of the squared norm. It is one model, one seed, and a "
        "policy that has only imitated; later ones, and the gradient over all prompts instead of "
        "these, are in [js_plus_gradient.md](js_plus_gradient.md).",
        "",
        "How much lower than `rloo`'s, in percent, with 95 % intervals (MSE: over prompts; "
        "gradient: over batches):",
        "",
        "| m | baseline | MSE to the value | squared distance of the gradient | mean lambda |",
        "|---:|---|---:|---:|---:|",
    ]
    for m in counts:
        for rule in ("js", "js_plus"):
            cells = shown("mse", m, rule), shown("gradient", m, rule)
            share = shown("mse", m, rule, "shrinkage", ".2f")
            lines.append(f"| {m} | `{rule}` | {' | '.join(cells)} | {share} |")
    lines += [
        "",
        "The best constant lambda, and what it would save, in percent. Only the truth tells it. "
        "For the MSE it is measured on the batches that chose it, for the gradient on others:",
        "",
        "| m | for the MSE | saves | for the gradient (95 %) | saves (95 %) |",
        "|---:|---:|---:|---:|---:|",
    ]
    for m in counts:
        of_mse = shown("mse", m, "js_fixed", "shrinkage", ".2f"), shown("mse", m, "js_fixed")
        least = shown("sweep", m, "least distance", "shrinkage", ".2f")
        cells = *of_mse, least, shown("sweep", m, "least distance")
        lines.append(f"| {m} | {' | '.join(cells)} |")
    lines += [
        "",
        f"Without a model: {simulated['title']}, {simulated['batch_prompts']} prompts. How much "
        "lower the MSE is than `rloo`'s, in percent:",
        "",
        "| m | `js` | `js_plus` | best constant lambda |",
        "|---:|---:|---:|---:|",
    ]
    for m in simulated["settings"]["m"]:
        cells = (shown("simulate", m, rule) for rule in ("js", "js_plus", "js_fixed"))
        lines.append(f"| {m} | {' | '.join(cells)} |")
    lines += ["", *(f"![{text}](images/results_{name}.png)" for name, text in PICTURES.items())]
    return "\n".join(lines)


def main() -> int:
    """Runs everything; the status of the first program that fails."""
    settings = parse(ExperimentSettings, "lab_results.py", sys.argv[1:])
    prepare_libraries()
    seconds, began = {}, time.monotonic()
    prepare(settings)
    seconds["warm start"] = time.monotonic() - began
    for name in PICTURES:
        began = time.monotonic()
        if status := lab.main(settings.words(name)):
            return status
        seconds[name] = time.monotonic() - began
    found = {name: json.loads((settings.out / f"{name}.json").read_bytes()) for name in PICTURES}
    text = markdown(found, seconds)
    print(text)
    if settings.write_docs:
        for name in PICTURES:
            shutil.copyfile(settings.out / f"{name}.png", DOCS / "images" / f"results_{name}.png")
        before, _, rest = (DOCS / "results.md").read_text(encoding="utf-8").partition(BEGIN)
        with atomic_write(DOCS / "results.md") as file:
            file.write(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}".encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
