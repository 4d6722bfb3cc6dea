"""The runs of rlhf_true_score.py: the reward model, the policies, their responses."""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from openrlhf_js.reward_model.model import RewardModel
from openrlhf_js.tiny import preference_run, preferences
from openrlhf_js.tiny.evaluate import grade, sample_texts
from openrlhf_js.tiny.preferences import TASK, accuracy_of_truth
from openrlhf_js.tiny.quickstart import training_environment, write_prompts
from openrlhf_js.tiny.supervise import ProgramFailed, supervised
from openrlhf_js.tiny.tasks import draw

PROMPTS_PER_STEP, RESPONSES_PER_PROMPT = 64, 4  # as the quickstart
POLL_SECONDS = 0.5
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Run:
    """One training of the policy. What it leaves stands in a folder of this name."""

    estimator: str
    seed: int
    steps: int
    learning_rate: float
    kl: float

    @property
    def name(self) -> str:
        kl = f"-kl{self.kl:g}" if self.kl else ""
        return f"{self.estimator}-{self.steps}x{self.learning_rate:g}{kl}-seed{self.seed}"


class Measured(NamedTuple):
    """Of fresh responses to the held-out prompts, (prompts, responses) each."""

    true_scores: Floats
    rewards: Floats

    @classmethod
    def read(cls, plain: dict[str, Any]) -> Measured:
        return cls(*(np.array(plain[field]) for field in cls._fields))


def program(module: str, log: Path, words: list[str], on_wait: Callable[[], None]) -> float:
    """Runs one of our programs to its end; its seconds. ProgramFailed if it fails."""
    began = time.monotonic()
    command = [sys.executable, "-m", f"openrlhf_js.cli.{module}", *words]
    with (
        tempfile.TemporaryDirectory() as cache,
        supervised(command, log, training_environment(cache)) as process,
    ):
        while process.poll() is None:
            time.sleep(POLL_SECONDS)
            on_wait()
        if process.returncode:
            raise ProgramFailed(process.returncode, log)
    return time.monotonic() - began


def words_of(flags: dict[str, Any]) -> list[str]:
    return [word for name, value in flags.items() for word in (f"--{name}", str(value))]


def make_reward_model(folder: Path, on_wait: Callable[[], None]) -> None:
    """Trains `rm/`, which is there only once it is whole."""
    flags = {
        "model.model_name_or_path": folder / preference_run.POLICY,
        "data.dataset": folder / "train.jsonl",
        "data.prompt_key": "prompt",
        "data.max_len": 16,
        "train.batch_size": 64,
        "train.micro_batch_size": 64,
        "adam.lr": 1e-3,
        "ds.zero_stage": 0,
        "ds.attn_implementation": "sdpa",
        "ckpt.output_dir": folder / "rm.unfinished",
        "ckpt.path": folder / "rm.checkpoints",
        "js.device": "cpu",
    }
    program("train_rm", folder / "rm.log", words_of(flags), on_wait)
    (folder / "rm.unfinished").rename(folder / "rm")


def evaluate_reward_model(folder: Path, on_wait: Callable[[], None]) -> dict[str, Any]:
    """Accuracy and calibration on the held-out pairs, beside what the true scores reach."""
    output = folder / "rm_evaluation"
    words = [str(folder / "held_out.jsonl"), "--model", str(folder / "rm"), "--max-len", "16"]
    words += ["--prompt-key", "prompt", "--device", "cpu", "--output", str(output)]
    program("rm_eval", folder / "rm_evaluation.log", words, on_wait)
    found = json.loads((output / "evaluation.json").read_text())
    return {
        "accuracy": found["accuracy"],
        "accuracy_of_truth": accuracy_of_truth(folder / "held_out.jsonl"),
        "calibration_error": found["calibration"]["error"],
    }


def train(run: Run, data: Path, folder: Path, on_wait: Callable[[], None]) -> dict[str, float]:
    """Leaves the trained policy in `folder/model`; the seconds that it took, start-up included."""
    shutil.rmtree(folder)  # what a stopped run has left
    folder.mkdir()
    items = TASK.split(0, preferences.HELD_OUT_PROMPTS).train
    drawn = draw(items, run.steps * PROMPTS_PER_STEP, random.Random(f"rlhf/{run.seed}"))
    write_prompts(folder / "prompts.jsonl", TASK, drawn, "train")
    roles = ("actor", "reward", "ref", "critic")
    flags = {
        "actor.model_name_or_path": data / preference_run.POLICY,
        "actor.adam.lr": run.learning_rate,
        "reward.model_name_or_path": data / "rm",
        **{f"{role}.num_gpus_per_node": 1 for role in roles},
        "vllm.num_engines": 1,
        "algo.advantage.estimator": run.estimator,
        "algo.kl.init_coef": run.kl,
        "data.prompt_dataset": folder / "prompts.jsonl",
        "data.max_len": TASK.max_tokens,
        "rollout.batch_size": PROMPTS_PER_STEP,
        "rollout.n_samples_per_prompt": RESPONSES_PER_PROMPT,
        "rollout.micro_batch_size": 128,
        "rollout.max_new_tokens": TASK.max_new_tokens,
        "train.batch_size": PROMPTS_PER_STEP * RESPONSES_PER_PROMPT,
        "train.micro_batch_size": 128,
        "train.seed": run.seed,
        "ds.zero_stage": 2,
        "ds.attn_implementation": "sdpa",
        "ckpt.output_dir": folder / "model",
        "ckpt.path": folder / "checkpoints",
        "ckpt.best_metric_key": "none",
        "logger.tensorboard_dir": folder / "tensorboard",
        "logger.wandb.run_name": "run",
        "js.device": "cpu",
    }
    words = [*words_of(flags), "--vllm.enforce_eager"]
    return {"seconds": program("train", folder / "train.log", words, on_wait)}


def measure(policy: Path, data: Path, samples: int, seed: int) -> dict[str, Any]:
    """True scores and rewards of fresh responses to the held-out prompts, (prompts, samples)."""
    held_out = TASK.split(0, preferences.HELD_OUT_PROMPTS).held_out
    texts = sample_texts(policy, TASK, held_out, samples=samples, seed=seed)
    model = RewardModel.load(data / "rm", max_len=16)
    rewards = [
        model.score([TASK.prompt(item) + text for text in row])
        for item, row in zip(held_out, texts, strict=True)
    ]
    return {"true_scores": grade(TASK, held_out, texts), "rewards": rewards}


def kept(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What is in a JSON file; it is made, and written as a whole, if it is not there."""
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(make())
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(text, encoding="utf-8")
        unfinished.rename(path)
    return json.loads(path.read_text(encoding="utf-8"))
