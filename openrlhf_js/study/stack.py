"""The stack engine: each run is `openrlhf-js train`, and its figures come from its log."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from openrlhf_js.estimators import ESTIMATORS
from openrlhf_js.report import runs as logged
from openrlhf_js.report.runs import Scalars, read_config
from openrlhf_js.study import inline
from openrlhf_js.study.design import OWN, Run, StudySettings
from openrlhf_js.tasks import GRADERS
from openrlhf_js.tiny.policy import load
from openrlhf_js.tiny.supervise import ProgramFailed, supervised, training_environment
from openrlhf_js.tiny.tasks import TASKS, write_lines

COMMANDS, COMMAND = "commands.txt", "command.txt"  # of the study, of a run
FINISHED = "done"  # as `openrlhf-js train` records it
POLL_SECONDS = 0.5
ARRAY = """#!/usr/bin/env bash
#SBATCH --array=0-{last}
# One run of the study a task; add what your cluster needs (--gpus, --time, ...). Then the study's
# own command reads them without --print, and with it writes those that did not finish.
runs=(
{runs}
)
bash "${{runs[$SLURM_ARRAY_TASK_ID]}}"
"""


def folder_of(run: Run, settings: StudySettings) -> Path:
    """Where a run leaves its log and its model."""
    return settings.out.absolute() / "stack" / run.name


def _flag_of(estimator: str) -> str:
    """What `openrlhf-js train` calls an estimator: OpenRLHF's own name, where it has one."""
    record = ESTIMATORS.get(estimator)
    return record.upstream[0] if record and record.upstream else estimator


def words(run: Run, settings: StudySettings) -> list[str]:
    """The command line of a run."""
    folder = folder_of(run, settings)
    own: dict[str, Any] = {
        "algo.advantage.estimator": _flag_of(run.estimator),
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
    given = {word[2:].partition("=")[0] for word in settings.train if word.startswith("--")}
    varied = dict(each.split("=", 1) for each in run.vary.split())
    if taken := sorted((given | varied.keys()) & own.keys()):
        raise ValueError(
            f"the study sets --{taken[0]} itself: leave it out behind -- and in --vary"
        )
    own |= varied
    if "train.batch_size" not in given:
        own.setdefault("train.batch_size", run.prompts * run.responses)  # one update a step
    base = settings.train if run.task == OWN else _tiny(run, settings, folder)
    program = [sys.executable, "-m", "openrlhf_js.cli.train"]
    return program + base + [w for name, value in own.items() for w in (f"--{name}", str(value))]


def _tiny(run: Run, settings: StudySettings, folder: Path) -> list[str]:
    """The flags that train the tiny model on the prompts of the inline engine's run.

    On a GPU, DeepSpeed and vLLM share one.
    """
    task, start = TASKS[run.task], settings.start_of(run.task)
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    for name, given in (
        ("train", inline.problems(run, settings)),
        ("held_out", inline.held_out(run.task, settings)),
    ):
        rows = ({"input": each.prompt, "label": each.label} for each in given)
        write_lines(data / f"{name}.jsonl", ({**row, "datasource": run.task} for row in rows))
    gpu, parts = torch.cuda.is_available(), 1 if run.prompts % inline.PARTS else inline.PARTS
    flags = {
        "actor.model_name_or_path": start,
        "actor.num_gpus_per_node": 1,
        "actor.lr_scheduler": "constant",
        "actor.lr_warmup_ratio": 0,
        "reward.remote_url": GRADERS / task.grader,
        "reward.num_gpus_per_node": 1,
        "ref.num_gpus_per_node": 1,
        "critic.num_gpus_per_node": 1,
        "vllm.num_engines": 1,
        "algo.kl.init_coef": 0,
        "data.prompt_dataset": data / "train.jsonl",
        "data.label_key": "label",
        "data.max_len": task.max_tokens,
        "rollout.micro_batch_size": min(128, run.prompts * run.responses),
        "rollout.max_new_tokens": task.max_new_tokens,
        "train.micro_batch_size": run.prompts * run.responses // parts,
        "ds.zero_stage": 2,
        "ds.attn_implementation": "sdpa",
        "eval.dataset": data / "held_out.jsonl",
        "eval.steps": max(1, settings.steps // 5),
        "eval.temperature": 1.0,
        "eval.n_samples_per_prompt": 2,
        "ckpt.best_metric_key": "none",
        **({"js.gradient_variance": inline.MEASURED_EVERY} if parts > 1 else {}),
        "js.device": "gpu" if gpu else "cpu",
        **({"vllm.gpu_memory_utilization": 0.3} if gpu else {}),
    }
    switches = ["--vllm.enforce_eager", *(["--train.colocate_all"] if gpu else [])]
    switches += ["--js.group_micro_batches"] if parts > 1 else []
    return [w for name, value in flags.items() for w in (f"--{name}", str(value))] + switches


def finished(run: Run, settings: StudySettings) -> bool:
    """Whether the run's own record says that it was trained to its end."""
    config = read_config(folder_of(run, settings) / "tensorboard" / run.name)
    return config is not None and config.outcome == FINISHED


def write_commands(runs: Sequence[Run], settings: StudySettings) -> list[str]:
    """Writes `commands.txt` and a Slurm job array of these runs; returns the commands."""
    commands, files = [], []
    for run in runs:
        (folder := folder_of(run, settings)).mkdir(parents=True, exist_ok=True)
        commands.append(shlex.join(words(run, settings)))
        (file := folder / COMMAND).write_text(commands[-1], encoding="utf-8")
        files.append(shlex.quote(str(file)))
    path = settings.out.absolute() / COMMANDS
    path.write_text("".join(f"{each}\n" for each in commands), encoding="utf-8")
    array = ARRAY.format(last=len(files) - 1, runs="\n".join(files))  # in the job, which may wait
    path.with_name("array.sh").write_text(array, encoding="utf-8")
    return commands


def train(run: Run, settings: StudySettings, note: Callable[[str], None]) -> dict[str, Any]:
    """Trains, unless a run there has finished, and returns the run's record.

    Raises:
        ProgramFailed: the training ended with an error.
    """
    folder = folder_of(run, settings)
    place = folder / "tensorboard" / run.name
    if not finished(run, settings):
        shutil.rmtree(folder, ignore_errors=True)  # what a run left that did not finish
        folder.mkdir(parents=True)
        log, command = folder / "train.log", words(run, settings)
        (folder / COMMAND).write_text(shlex.join(command), encoding="utf-8")
        scalars, own = Scalars(place), os.environ if run.task == OWN else None
        with (
            tempfile.TemporaryDirectory() as cache,
            supervised(command, log, own or training_environment(cache)) as process,
        ):
            while process.poll() is None:
                time.sleep(POLL_SECONDS)
                scalars.reload()
                note(_progress(run, settings, scalars))
            if process.returncode:
                raise ProgramFailed(process.returncode, log)
    else:
        trained = shlex.split((folder / COMMAND).read_text(encoding="utf-8"))
        if trained[1:] != words(run, settings)[1:]:
            raise ValueError(f"{folder} was trained with other flags: remove it")
    return record(run, settings, Scalars(place), folder / "model")


def _progress(run: Run, settings: StudySettings, scalars: Scalars) -> str:
    reward = scalars[logged.REWARD]
    if reward.empty:
        return f"{run.estimator}: starting Ray, vLLM, DeepSpeed"
    done = f"step {reward.index[-1]} of {settings.steps}"
    return f"{run.estimator}: {done}, reward {reward.iloc[-1]:.2f}"


def record(run: Run, settings: StudySettings, scalars: Scalars, model: Path) -> dict[str, Any]:
    """A run's record, from its log and, of the tiny model, from its final weights."""

    def mean(tag: str) -> float | None:
        return fmean(values) if len(values := scalars[tag]) else None

    rewards = list(scalars[logged.REWARD])
    if len(rewards) != settings.steps:
        raise ValueError(f"{run.name} has logged {len(rewards)} of {settings.steps} steps")
    variance = mean("train/js/gradient_variance")
    square = mean("train/js/gradient_norm_squared")
    ours, rloos = mean(logged.BASELINE_MSE), mean(logged.BASELINE_MSE_RLOO)
    if run.task == OWN:
        last = [scalars[tag].iloc[-1] for tag in scalars.tags if tag.endswith("_pass1")]
        pass1 = fmean(last) if last else None
    else:
        pass1 = inline.final(run.task, settings, load(model))
    return {
        **run._asdict(),
        "pass1": pass1,
        "reward": fmean(rewards),
        "curve": inline.curve(rewards),
        "steps": settings.steps,
        "dead": mean("train/js/all_equal_groups"),
        "baseline_error": ours / rloos if ours is not None and rloos else None,
        "gradient_variance": variance,
        "gradient_snr": square / variance if square and variance else None,
        "spread": None,
    }
