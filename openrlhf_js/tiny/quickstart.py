"""The quickstart: its settings, and its stages up to the files that its report reads."""

from __future__ import annotations

import logging
import os
import random
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import model_validator
from tyro.conf import Suppress

from openrlhf_js.common.console import progress, say
from openrlhf_js.common.files import write_json
from openrlhf_js.common.settings import Field, Settings
from openrlhf_js.tiny.supervise import ProgramFailed, supervised
from openrlhf_js.tiny.tasks import TASKS, TinySplit, TinyTask, draw, grade, write_prompts

# Every estimator that needs neither a critic (gae) nor a further flag (js_fixed).
ESTIMATORS = (
    *("js", "js_plus", "js1", "bloo", "remax"),
    *("rloo", "reinforce", "reinforce_baseline", "group_norm", "dr_grpo", "flash_reinforce"),
)
GRADERS = Path(__file__).parents[2] / "reward_models"
SEPARATORS = frozenset(",@*?[]")  # which OpenRLHF and datasets do not take as part of a path
POLL_SECONDS = 0.5
MODEL = "Qwen2 of 0.65M parameters"


class QuickstartSettings(Settings):
    """Make a tiny model and train it by reinforcement learning with the shrinkage baseline.

    Everything is made on the spot: a model of 0.65M parameters, its tokenizer, and a task. The
    model first imitates careless demonstrations, then the real stack (Ray, DeepSpeed, vLLM,
    OpenRLHF) trains it. Pass@1 on held-out prompts is measured before and after.

    examples:
      bash scripts/quickstart.sh                              # js, a few minutes on two cores
      bash scripts/quickstart.sh --compare rloo,js,js_plus    # from the same warm start
      bash scripts/quickstart.sh --task maze --seed 1 --out runs/mine

    results, in one folder:
      model/          the trained Hugging Face checkpoint
      tensorboard/    every metric of every step
      curves.png      reward, held-out pass@1, shrinkage and gradient norm over steps
      summary.json    settings, versions, pass@1 before and after with intervals, seconds per stage
      train.log       all that the training program printed

    With --compare, the model and the log of each estimator are in a folder of its name.
    """

    task: str = Field("sort", description=f"what the model learns: {', '.join(TASKS)}")
    estimator: str | None = Field(
        None, description=f"advantage estimator (default js): {', '.join(ESTIMATORS)}"
    )
    compare: str | None = Field(
        None, description="A,B,...: train one model with each of these estimators"
    )
    seed: int = Field(0, ge=0, lt=2**31, description="of the model, the data and the sampling")
    steps: int = Field(50, ge=2, description="of reinforcement learning, 64 prompts x 4 responses")
    out: Path | None = Field(
        None, description="new or empty folder for the results (default runs/quickstart-<time>)"
    )
    prompts_per_step: Annotated[int, Suppress] = 64
    responses_per_prompt: Annotated[int, Suppress] = 4
    learning_rate: Annotated[float, Suppress] = 3e-4
    held_out: Annotated[int, Suppress] = Field(200, description="prompts")
    evaluation_samples: Annotated[int, Suppress] = Field(8, description="per held-out prompt")
    curve_every: Annotated[int, Suppress] = Field(10, description="steps between two evaluations")
    curve_samples: Annotated[int, Suppress] = Field(2, description="per held-out prompt, of these")

    @model_validator(mode="after")
    def _check(self) -> QuickstartSettings:
        if self.task not in TASKS:
            raise ValueError(f"unknown task {self.task!r}; choose from {', '.join(TASKS)}")
        for name in self.estimators:
            if name not in ESTIMATORS:
                raise ValueError(f"unknown estimator {name!r}; choose from {', '.join(ESTIMATORS)}")
        if self.estimator and self.compare:
            raise ValueError("give --estimator or --compare, not both")
        if len(set(self.estimators)) < len(self.estimators):
            raise ValueError(f"--compare {self.compare} names an estimator twice")
        if odd := SEPARATORS & set(str((self.out or Path()).absolute())):
            raise ValueError(f"--out {self.out} must not contain {' '.join(sorted(odd))}")
        return self

    @property
    def estimators(self) -> tuple[str, ...]:
        """What to train with, one after the other."""
        return tuple(self.compare.split(",")) if self.compare else (self.estimator or "js",)

    def folders(self, out: Path) -> dict[str, Path]:
        """Where the model and the log of each estimator go."""
        names = self.estimators
        return {name: out / name if len(names) > 1 else out for name in names}


@dataclass(frozen=True)
class Quickstart:
    """One run: each method is a stage that shows its progress and leaves its files."""

    settings: QuickstartSettings
    folder: Path
    seconds: dict[str, float] = field(default_factory=dict)  # of each stage

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Callable[[int, str], None]]:
        """Shows progress while the block lasts: it calls what this yields with steps and a note."""
        began, mark, note = time.monotonic(), "✗", ""
        with progress(name, total, "steps") as bar:

            def show(done: int, text: str) -> None:
                nonlocal note
                note = text
                if total:
                    bar.update(done, text)

            try:
                yield show
                mark = "✓"
            finally:
                self.seconds[name] = round(time.monotonic() - began, 1)
                say(f"{mark} {name}, {self.seconds[name]:.0f} s: {note}")

    @property
    def task(self) -> TinyTask:
        """What the model learns."""
        return TASKS[self.settings.task]

    def make_data(self) -> TinySplit:
        """Writes the prompts of training, new ones for every step, and the held-out ones."""
        settings, data = self.settings, self.folder / "data"
        data.mkdir()
        split = self.task.split(settings.seed, settings.held_out)
        count = settings.steps * settings.prompts_per_step
        drawn = draw(split.train, count, random.Random(settings.seed))
        write_prompts(data / "train.jsonl", self.task, drawn, settings.task)
        write_prompts(data / "held_out.jsonl", self.task, split.held_out, settings.task)
        return split

    def warm_start(self, split: TinySplit) -> None:
        """Makes `warm_start/`: a model that has imitated careless demonstrations."""
        from openrlhf_js.tiny import model

        seed, task = self.settings.seed, self.task
        with self.stage("warm start", task.warm_start_steps) as show:
            tokenizer = model.make_tokenizer(task)
            policy = model.make_model(tokenizer, seed)
            model.imitate(
                *(policy, tokenizer, task, split.train),
                seed=seed,
                on_step=lambda step, loss: show(step, f"loss {loss:.2f}"),
            )
            model.save(policy, tokenizer, self.folder / "warm_start")

    def measure(self, stage_name: str, split: TinySplit, model_folder: Path, path: Path) -> float:
        """Measures pass@1 on the held-out prompts, and saves the scores."""
        from openrlhf_js.tiny.model import sample_texts

        items, samples, seed = split.held_out, self.settings.evaluation_samples, self.settings.seed
        with self.stage(stage_name) as show:
            texts = sample_texts(model_folder, self.task, items, samples=samples, seed=seed)
            scores = grade(self.task, items, texts)
            rows = zip(map(self.task.prompt, items), scores, strict=True)
            write_json(path, [{"prompt": prompt, "scores": each} for prompt, each in rows])
            mean = sum(map(sum, scores)) / (len(scores) * samples)
            show(0, f"pass@1 {mean:.1%} on {len(items)} held-out prompts")
        return mean

    def train(self, estimator: str, folder: Path, watch: Callable[[], tuple[int, str]]) -> None:
        """Runs the training program, which leaves `folder/model` and `tensorboard/<estimator>`.

        `watch` returns the number of steps done so far, and a note. Raises ProgramFailed.
        """
        import torch

        words = command(self.settings, estimator, self.folder, folder, torch.cuda.is_available())
        (folder / "command.txt").write_text(shlex.join(words) + "\n", encoding="utf-8")
        log = folder / "train.log"
        with (
            self.stage(f"train with {estimator}", self.settings.steps) as show,
            tempfile.TemporaryDirectory() as cache,
            supervised(words, log, training_environment(cache)) as process,
        ):
            try:
                while process.poll() is None:
                    time.sleep(POLL_SECONDS)
                    done, note = watch()
                    show(done, note or "starting Ray, vLLM, DeepSpeed")
            except KeyboardInterrupt:
                say("stopping the training")
                raise
            if process.returncode:
                raise ProgramFailed(process.returncode, log)


def command(
    settings: QuickstartSettings, estimator: str, run: Path, folder: Path, gpu: bool
) -> list[str]:
    """The command line that trains the tiny model, with the flags that a large one would have.

    `run` holds `warm_start/` and `data/`, and gets `tensorboard/<estimator>/`; `folder` gets
    `model/`. On a GPU, DeepSpeed and vLLM share one.
    """
    task = TASKS[settings.task]
    flags = {
        "actor.model_name_or_path": run / "warm_start",
        "actor.num_gpus_per_node": 1,
        "actor.adam.lr": settings.learning_rate,
        "reward.remote_url": GRADERS / task.grader,
        "reward.num_gpus_per_node": 1,
        "ref.num_gpus_per_node": 1,
        "critic.num_gpus_per_node": 1,
        "vllm.num_engines": 1,
        "algo.advantage.estimator": estimator,
        "algo.kl.init_coef": 0,
        "data.prompt_dataset": run / "data" / "train.jsonl",
        "data.label_key": "label",
        "data.max_len": task.max_tokens,
        "rollout.batch_size": settings.prompts_per_step,
        "rollout.n_samples_per_prompt": settings.responses_per_prompt,
        "rollout.micro_batch_size": 128,
        "rollout.max_new_tokens": task.max_new_tokens,
        "train.batch_size": settings.prompts_per_step * settings.responses_per_prompt,
        "train.micro_batch_size": 128,
        "train.seed": settings.seed,
        "ds.zero_stage": 2,
        "ds.attn_implementation": "sdpa",
        "eval.dataset": run / "data" / "held_out.jsonl",
        "eval.steps": settings.curve_every,
        "eval.temperature": 1.0,
        "eval.n_samples_per_prompt": settings.curve_samples,
        "ckpt.output_dir": folder / "model",
        "ckpt.path": folder / "checkpoints",
        "ckpt.best_metric_key": "none",
        "logger.tensorboard_dir": run / "tensorboard",
        "logger.wandb.run_name": estimator,
        "js.device": "gpu" if gpu else "cpu",
        **({"vllm.gpu_memory_utilization": 0.3} if gpu else {}),
    }
    switches = ["--vllm.enforce_eager", *(["--train.colocate_all"] if gpu else [])]
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    return [sys.executable, "-m", "openrlhf_js.cli.train", *words, *switches]


def prepare_libraries() -> None:
    """Keeps libraries from writing over the screen, and torch from crowding busy cores."""
    import torch
    from transformers.utils.logging import disable_progress_bar

    logging.disable(logging.WARNING)
    disable_progress_bar()
    torch.set_num_threads(1)  # two threads gain little here, and wait for each other on busy cores


def training_environment(cache: str) -> dict[str, str]:
    """Of the training program: as ours, with its own Ray, a `cache` of prompts, and no network."""
    inherited = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "VLLM_NO_USAGE_STATS": "1", "PYTHONUNBUFFERED": "1"}
    return {**inherited, **quiet, "HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": cache}
