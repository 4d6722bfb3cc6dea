"""Claim: on a tiny model `js` and `js_grad` err less than `rloo`, in baselines and gradients.

    python research/benchmarks/lab_results.py  # a quarter of an hour of a core; for docs/studies.md

Makes a model that has imitated demonstrations of the quickstart's task `sort`. Then runs the
programs of `openrlhf-js lab` on it, which print their tables and write their pictures to --out. The
same command resumes sampling and gradients.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from answer_graders.programs.console import progress
from answer_graders.programs.settings import Field, Settings, parse
from baseline_research.cli import lab
from baseline_research.tiny.model import warm_start
from baseline_research.tiny.supervise import prepare_libraries
from baseline_research.tiny.tasks import TASKS, sample_items, write_prompts, write_reward_file

NAME = "sort"
TASK = TASKS[NAME]
PROMPTS = 128
HELD_OUT = 200  # task items, as in the quickstart


class ExperimentSettings(Settings):
    __doc__ = __doc__  # this file's, for --help

    out: Path = Field(Path("runs/lab-results"), description="folder of model, samples and results")
    seed: int = Field(0, ge=0, description="of everything")


def prepare(settings: ExperimentSettings) -> None:
    """Writes the warm-started model and its prompts."""
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
    chosen = sample_items(items, PROMPTS, generator)
    write_prompts(settings.out / "prompts.jsonl", TASK, chosen, NAME)
    write_reward_file(settings.out / "reward.py", NAME)


def main() -> int:
    """Runs everything; returns the status of the first program that fails."""
    settings = parse(ExperimentSettings, "research/benchmarks/lab_results.py", sys.argv[1:])
    prepare_libraries()
    prepare(settings)
    out = str(settings.out)
    samples = f"""--model {out}/model --prompts {out}/prompts.jsonl --reward {out}/reward.py
        --prompts_count {PROMPTS} --responses 256 --max_new_tokens {TASK.max_new_tokens}
        --engine transformers --batch_size 512 --device cpu"""
    programs = {  # the first one samples, the others use its samples
        "value": samples.split(),
        "mse": ["--baselines", "js", "js_grad", "bloo", "js_fixed"],
        "gradient": ["--device", "cpu"],
        "heterogeneity": ["--device", "cpu", "--m", "2", "4", "8"],
        "simulate": [],
    }
    for program, flags in programs.items():
        status = lab.main([program, "--out", out, "--seed", str(settings.seed), *flags])
        if status:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
