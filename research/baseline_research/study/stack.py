"""The stack engine: each run is one of `openrlhf-js train`, and its figures come from its log."""

from __future__ import annotations

import math
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from answer_graders.programs.files import atomic_write, read_yaml
from baseline_research.study.design import StackStudy
from baseline_research.study.figures import Figures, learning_curve, may_be_in_unit
from baseline_research.study.own_flags import training_flags
from baseline_research.study.runs import OWN, Run
from baseline_research.tiny.supervise import ProgramFailed, supervised
from baseline_research.tiny.tasks import TASKS, write_lines, write_reward_file
from openrlhf_js.estimators.catalogue import in_training

COMMANDS = "commands.txt"  # of the study: one line for each run that has not finished
COMMAND = "command.txt"  # of a run
REWARD_FILE = "reward.py"
POLL_SECONDS = 0.5
REWARD = "train/rollout/reward_mean"
DEVIATION = "train/rollout/reward_std"
SETTINGS = "openrlhf_js.yaml"  # as `trainers.openrlhf.run.record` writes it
DONE = "done"  # the outcome of a finished run


class Scalars:
    """The scalars in the event files of one folder, which may grow and need not exist yet.

    When a run was resumed, earlier logs of the repeated steps are dropped.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._events = EventAccumulator(str(folder), size_guidance={"scalars": 0})  # keep all
        self.reload()

    def reload(self) -> None:
        """Reads the complete records that have been written since."""
        if self._folder.is_dir():
            self._events.Reload()

    def __getitem__(self, tag: str) -> pd.Series:
        """The finite values of a tag by step; empty if nothing was logged under it."""
        events = self._events.Scalars(tag) if tag in self.tags else []
        values = {event.step: event.value for event in events if math.isfinite(event.value)}
        return pd.Series(values, dtype=float)

    @property
    def tags(self) -> list[str]:
        """All logged tags."""
        return list(self._events.Tags()["scalars"])


def folder_of(run: Run, settings: StackStudy) -> Path:
    """The folder of a run's log and model."""
    return settings.out.absolute() / "stack" / run.name


def log_of(run: Run, settings: StackStudy) -> Path:
    """The folder of a run's event files."""
    return folder_of(run, settings) / "tensorboard" / run.name


def training_command(run: Run, settings: StackStudy) -> list[str]:
    """The command line of a run. For the tiny model, also writes the data that it names."""
    given = {flag for flag, _ in training_flags(settings.train)}
    flags = _flags_of_study(run, settings)
    taken = sorted(given & flags.keys())
    if taken:
        raise ValueError(f"the study sets --{taken[0]} itself: leave it out behind --")
    if "train.batch_size" not in given:
        flags["train.batch_size"] = run.prompts * run.responses  # one update a step
    base = settings.train if run.task == OWN else _tiny_words(run, settings)
    program = [sys.executable, "-m", "openrlhf_js.cli.train"]
    return program + base + _words(flags)


def _words(flags: Mapping[str, Any]) -> list[str]:
    words = []
    for name, value in flags.items():
        words += [f"--{name}", str(value)]
    return words


def _flags_of_study(run: Run, settings: StackStudy) -> dict[str, Any]:
    """The flags that only the study may set."""
    folder = folder_of(run, settings)
    return {
        "algo.advantage.estimator": in_training(settings.estimator_name(run.estimator)).name,
        "actor.adam.lr": run.learning_rate,
        "rollout.batch_size": run.prompts,
        "rollout.n_samples_per_prompt": run.responses,
        "train.seed": run.seed,
        "js.max_steps": settings.steps,
        "logger.tensorboard_dir": folder / "tensorboard",
        "logger.wandb.run_name": run.name,
        "ckpt.output_dir": folder / "model",
        "ckpt.path": folder / "checkpoints",
    }


def _tiny_words(run: Run, settings: StackStudy) -> list[str]:
    """The flags that train the tiny model on the prompts of the inline engine's run.

    On a GPU, DeepSpeed and vLLM share one.
    """
    from baseline_research.study.inline import (
        prompts,  # slow to import, and not needed for the user's own data
    )
    from baseline_research.study.inline.training import MICRO_BATCHES, STEPS_PER_MEASUREMENT

    task = TASKS[run.task]
    data = folder_of(run, settings) / "data"
    data.mkdir(parents=True, exist_ok=True)
    problems = {
        "train": prompts.training_problems(run, settings),
        "held_out": prompts.held_out(run.task, settings),
    }
    for name, of_file in problems.items():
        rows = [
            {"input": problem.prompt, "label": problem.label, "datasource": run.task}
            for problem in of_file
        ]
        write_lines(data / f"{name}.jsonl", rows)
    write_reward_file(data / REWARD_FILE, run.task)
    batch_size = run.prompts * run.responses
    micro_batches = MICRO_BATCHES if run.prompts % MICRO_BATCHES == 0 else 1
    flags = {
        "actor.model_name_or_path": settings.start_of(run.task),
        "actor.num_gpus_per_node": 1,
        "actor.lr_scheduler": "constant",
        "actor.lr_warmup_ratio": 0,
        "reward.remote_url": data / REWARD_FILE,
        "reward.num_gpus_per_node": 1,
        "ref.num_gpus_per_node": 1,
        "critic.num_gpus_per_node": 1,
        "vllm.num_engines": 1,
        "algo.kl.init_coef": 0,
        "data.prompt_dataset": data / "train.jsonl",
        "data.label_key": "label",
        "data.max_len": task.max_tokens,
        "rollout.micro_batch_size": min(128, batch_size),
        "rollout.max_new_tokens": task.max_new_tokens,
        "train.micro_batch_size": batch_size // micro_batches,
        "ds.zero_stage": 2,
        "ds.attn_implementation": "sdpa",
        "eval.dataset": data / "held_out.jsonl",
        "eval.steps": max(1, settings.steps // 5),
        "eval.temperature": 1.0,
        "eval.n_samples_per_prompt": 2,
        "ckpt.best_metric_key": "none",
    }
    switches = ["--vllm.enforce_eager"]
    if settings.model is not None:
        switches.append("--data.apply_chat_template")
    if micro_batches > 1:
        flags["js.gradient_variance"] = STEPS_PER_MEASUREMENT
    if torch.cuda.is_available():
        flags["js.device"] = "gpu"
        flags["vllm.gpu_memory_utilization"] = 0.3
        switches.append("--train.colocate_all")
    else:
        flags["js.device"] = "cpu"
    if micro_batches > 1:
        switches.append("--js.group_micro_batches")
    return _words(flags) + switches


def finished(run: Run, settings: StackStudy) -> bool:
    """Whether the run's settings file says that it finished."""
    path = log_of(run, settings) / SETTINGS
    return path.is_file() and read_yaml(path)["record"]["outcome"] == DONE


def write_commands(runs: Sequence[Run], settings: StackStudy) -> list[str]:
    """Writes and returns the commands of these runs; each is a line of `commands.txt`."""
    commands = []
    for run in runs:
        folder = folder_of(run, settings)
        folder.mkdir(parents=True, exist_ok=True)
        command = shlex.join(training_command(run, settings))
        (folder / COMMAND).write_text(command, encoding="utf-8")
        commands.append(command)
    with atomic_write(settings.out / COMMANDS) as file:
        file.write("".join(f"{command}\n" for command in commands).encode())
    return commands


def train(run: Run, settings: StackStudy, note: Callable[[str], None]) -> Figures:
    """Trains, unless the run has already finished, and reads its log.

    Raises:
        ProgramFailed: the training ended with an error.
    """
    folder = folder_of(run, settings)
    if finished(run, settings):
        command = shlex.split((folder / COMMAND).read_text(encoding="utf-8"))
        if command[1:] != training_command(run, settings)[1:]:  # whatever the interpreter
            raise ValueError(f"{folder} was trained with other flags: remove it")
    else:
        shutil.rmtree(folder, ignore_errors=True)  # the remains of an unfinished run
        _train(run, settings, note)
    return figures(run, settings)


def _train(run: Run, settings: StackStudy, note: Callable[[str], None]) -> None:
    folder = folder_of(run, settings)
    folder.mkdir(parents=True)
    command = training_command(run, settings)
    (folder / COMMAND).write_text(shlex.join(command), encoding="utf-8")
    log = folder / "train.log"
    scalars = Scalars(log_of(run, settings))
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ if run.task == OWN else _environment(cache)
        with supervised([*command, "--js.verbose"], log, environment) as process:
            while process.poll() is None:
                time.sleep(POLL_SECONDS)
                scalars.reload()
                note(_progress(run, settings, scalars))
            if process.returncode:
                raise ProgramFailed(process.returncode, log)


def _environment(cache: str) -> dict[str, str]:
    """For training on our own tasks: a separate Ray, a `cache` of prompts, no network."""
    environment = {
        **os.environ,
        "RAY_USAGE_STATS_ENABLED": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "PYTHONUNBUFFERED": "1",  # its log is read while it runs
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_CACHE": cache,
    }
    environment.pop("RAY_ADDRESS", None)
    return environment


def _progress(run: Run, settings: StackStudy, scalars: Scalars) -> str:
    rewards = scalars[REWARD]
    if rewards.empty:
        return f"{run.estimator}: starting Ray, vLLM, DeepSpeed"
    step = rewards.index[-1]
    return f"{run.estimator}: step {step} of {settings.steps}, reward {rewards.iloc[-1]:.2f}"


def figures(run: Run, settings: StackStudy) -> Figures:
    """The figures, from a run's log and, for the tiny model, from its final weights."""
    scalars = Scalars(log_of(run, settings))
    rewards = list(scalars[REWARD])
    if len(rewards) != settings.steps:
        raise ValueError(f"{run.name} has logged {len(rewards)} of {settings.steps} steps")
    if run.task == OWN:
        pass1 = _last_pass1(run, scalars)
    else:
        from baseline_research.study.inline import prompts  # slow to import

        policy = prompts.policy_in(folder_of(run, settings) / "model", settings)
        pass1 = prompts.held_out_pass1(run.task, settings, policy)
    means = {tag: fmean(scalars[tag]) for tag in scalars.tags if len(scalars[tag])}
    variance = means.get("js/gradient_variance")
    deviations = scalars[DEVIATION]
    in_unit = [
        may_be_in_unit(mean, deviations.get(step, 0.0), run.prompts * run.responses)
        for step, mean in scalars[REWARD].items()
    ]
    return Figures(
        pass1=pass1,
        reward=fmean(rewards),
        curve=learning_curve(rewards),
        steps=settings.steps,
        dead=means.get("js/share_of_equal_groups"),
        baseline_error=_ratio(means.get("js/value_error"), means.get("js/value_error_rloo")),
        gradient_variance=variance,
        gradient_snr=_ratio(means.get("js/gradient_norm_squared"), variance),
        rewards_in_unit=all(in_unit),
    )


def _ratio(numerator: float | None, denominator: float | None) -> float | None:
    if numerator is None or not denominator:
        return None
    return numerator / denominator


def _last_pass1(run: Run, scalars: Scalars) -> float:
    """The last evaluation, averaged over the datasets."""
    evaluations = [scalars[tag] for tag in scalars.tags if tag.endswith("_pass1")]
    if not evaluations or any(values.empty for values in evaluations):
        raise ValueError(f"{run.name} has logged no finite evaluation, so it cannot be compared")
    return fmean(values.iloc[-1] for values in evaluations)
