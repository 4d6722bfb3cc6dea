"""The stages of the quickstart, up to the files that its report reads."""

from __future__ import annotations

import json
import logging
import os
import random
import shlex
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers.utils.logging import disable_progress_bar

from openrlhf_js.tiny import model
from openrlhf_js.tiny.evaluate import sample_scores, write_scores
from openrlhf_js.tiny.screen import Screen
from openrlhf_js.tiny.settings import Settings
from openrlhf_js.tiny.supervise import ProgramFailed, supervised
from openrlhf_js.tiny.tasks import TASKS, Split, TinyTask, draw
from openrlhf_js.tiny.training import command
from openrlhf_js.tiny.warm_start import imitate

POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Quickstart:
    """One run: each method is a stage that shows itself on the screen and leaves its files.

    Attributes:
        settings: of the run.
        folder: gets all files.
        screen: shows the stages.
    """

    settings: Settings
    folder: Path
    screen: Screen

    @property
    def task(self) -> TinyTask:
        """What the model learns."""
        return TASKS[self.settings.task]

    def make_data(self) -> Split:
        """Writes the prompts of training, new ones for every step, and the held-out ones."""
        settings, data = self.settings, self.folder / "data"
        data.mkdir()
        split = self.task.split(settings.seed, settings.held_out)
        count = settings.steps * settings.prompts_per_step
        drawn = draw(split.train, count, random.Random(settings.seed))
        write_prompts(data / "train.jsonl", self.task, drawn, "train")
        write_prompts(data / "held_out.jsonl", self.task, split.held_out, "held_out")
        return split

    def warm_start(self, split: Split) -> None:
        """Makes `warm_start/`: a model that has imitated careless demonstrations."""
        seed, task, screen = self.settings.seed, self.task, self.screen
        with screen.stage("warm start", "imitating", task.warm_start_steps) as stage:
            tokenizer = model.make_tokenizer(task)
            policy = model.make_model(tokenizer, seed)
            imitate(
                policy,
                tokenizer,
                task,
                split.train,
                seed=seed,
                on_step=lambda step, loss: screen.step(stage, step, f"loss {loss:.2f}"),
            )
            model.save(policy, tokenizer, self.folder / "warm_start")

    def measure(self, stage_name: str, split: Split, model_folder: Path, path: Path) -> float:
        """Measures pass@1 on the held-out prompts, and saves the scores."""
        items, samples, seed = split.held_out, self.settings.evaluation_samples, self.settings.seed
        with self.screen.stage(stage_name, f"{len(items)} held-out prompts") as stage:
            scores = sample_scores(model_folder, self.task, items, samples=samples, seed=seed)
            write_scores(path, [self.task.prompt(item) for item in items], scores)
            mean = sum(map(sum, scores)) / (len(scores) * samples)
            stage.note = f"pass@1 {mean:.1%}"
        return mean

    def train(self, estimator: str, folder: Path, progress: Callable[[], tuple[int, str]]) -> None:
        """Runs the training program, which leaves `folder/model` and `tensorboard/<estimator>`.

        Args:
            estimator: one of the settings'.
            folder: gets `model/` and `train.log`.
            progress: the number of steps done so far, and what to say about them.

        Raises:
            ProgramFailed: the program ended with an error.
        """
        words = command(self.settings, estimator, self.folder, folder, torch.cuda.is_available())
        (folder / "command.txt").write_text(shlex.join(words) + "\n", encoding="utf-8")
        log, name = folder / "train.log", f"train with {estimator}"
        with (
            self.screen.stage(name, "starting Ray, vLLM, DeepSpeed", self.settings.steps) as stage,
            tempfile.TemporaryDirectory() as cache,
            supervised(words, log, training_environment(cache)) as process,
        ):
            try:
                while process.poll() is None:
                    time.sleep(POLL_SECONDS)
                    done, note = progress()
                    self.screen.step(stage, done, note or stage.note)  # a sign of life, at least
            except KeyboardInterrupt:
                self.screen.say(stage, "stopping")
                raise
            if process.returncode:
                raise ProgramFailed(process.returncode, log)


def write_prompts(path: Path, task: TinyTask, items: Iterable[Any], source: str) -> None:
    """Writes prompts as OpenRLHF reads them: JSON lines with input, label and datasource."""
    rows = (
        {"input": task.prompt(item), "label": task.label(item), "datasource": source}
        for item in items
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def prepare_libraries() -> None:
    """Keeps libraries from writing over the screen, and torch from crowding busy cores."""
    logging.disable(logging.WARNING)
    disable_progress_bar()
    torch.set_num_threads(1)  # two threads gain little here, and wait for each other on busy cores


def training_environment(cache: str) -> dict[str, str]:
    """Of the training program: as ours, but on a Ray of its own, and without a word to the net.

    Args:
        cache: a folder for the prompts that `datasets` has read.
    """
    inherited = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    return {
        **inherited,
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_CACHE": cache,
        "RAY_USAGE_STATS_ENABLED": "0",
        "VLLM_NO_USAGE_STATS": "1",
    }
