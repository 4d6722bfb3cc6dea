"""The stack engine: each run is `openrlhf-js train`, and its figures come from its log."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from openrlhf_js.report import runs as logged
from openrlhf_js.report.runs import Scalars, read_config
from openrlhf_js.study import inline
from openrlhf_js.study.design import OWN, Run, StudySettings
from openrlhf_js.tiny import quickstart
from openrlhf_js.tiny.supervise import ProgramFailed, supervised
from openrlhf_js.tiny.tasks import write_lines

STACK_NAMES = {"grpo": "group_norm", "reinforce++": "reinforce"}  # what OpenRLHF calls them
FINISHED = "done"
ARRAY = """#!/usr/bin/env bash
#SBATCH --array=0-{last}
# One run of the study a task; add what your cluster needs (--gpus, --time, ...). When all have
# ended, the study's own command without --print reads them, and trains none again.
sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" {commands} | bash
"""


def folder_of(run: Run, settings: StudySettings) -> Path:
    """Where a run leaves its log and its model."""
    return settings.out.absolute() / "stack" / run.name


def words(run: Run, settings: StudySettings) -> list[str]:
    """The command line of a run."""
    folder = folder_of(run, settings)
    own = {
        "algo.advantage.estimator": STACK_NAMES.get(run.estimator, run.estimator),
        "actor.adam.lr": run.learning_rate,
        "rollout.batch_size": run.prompts,
        "rollout.n_samples_per_prompt": run.responses,
        "train.seed": run.seed,
        "js.max_steps": settings.steps,
        "logger.tensorboard_dir": folder / "tensorboard",
        "logger.wandb.run_name": run.name,
        "ckpt.output_dir": folder / "model",
        "ckpt.path": folder / "checkpoints",
        **dict(each.split("=", 1) for each in run.vary.split()),
    }
    given = {word[2:].partition("=")[0] for word in settings.train if word.startswith("--")}
    if taken := sorted(given & own.keys()):
        raise ValueError(f"the study sets --{taken[0]} itself: leave it out behind --")
    if run.task == OWN:
        base = [sys.executable, "-m", "openrlhf_js.cli.train", *settings.train]
        if "train.batch_size" not in given:
            own["train.batch_size"] = run.prompts * run.responses
    else:
        own |= {
            "actor.model_name_or_path": settings.out.absolute() / "warm_start" / run.task,
            "actor.lr_scheduler": "constant",
            "actor.lr_warmup_ratio": 0,
            "js.gradient_variance": inline.MEASURED_EVERY,
        }
        base = _tiny(run, settings, folder)
    return [*base, *(word for name, value in own.items() for word in (f"--{name}", str(value)))]


def _tiny(run: Run, settings: StudySettings, folder: Path) -> list[str]:
    """The quickstart's command, for the prompts of the inline engine's run of that seed."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    start = settings.out / "warm_start" / run.task
    for name, given in (
        ("train", inline.problems(run, settings, start)),
        ("held_out", inline.held_out(run.task, settings)),
    ):
        rows = ({"input": each.prompt, "label": each.label} for each in given)
        path = folder / "data" / f"{name}.jsonl"
        write_lines(path, ({**row, "datasource": run.task} for row in rows))
    made = quickstart.QuickstartSettings.model_construct(
        task=run.task, steps=settings.steps, prompts_per_step=run.prompts,
        responses_per_prompt=run.responses, held_out=settings.held_out, curve_every=settings.steps,
    )  # fmt: skip
    gpu = torch.cuda.is_available()
    return quickstart.command(made, run.estimator, folder, folder, gpu)


def write_commands(settings: StudySettings) -> list[str]:
    """Writes `commands.txt` and a Slurm job array; returns the commands."""
    commands = [shlex.join(words(run, settings)) for run in settings.runs()]
    path = settings.out.absolute() / "commands.txt"
    path.write_text("".join(f"{each}\n" for each in commands), encoding="utf-8")
    array = ARRAY.format(last=len(commands) - 1, commands=shlex.quote(str(path)))
    path.with_name("array.sh").write_text(array, encoding="utf-8")
    return commands


def train(run: Run, settings: StudySettings) -> dict[str, Any]:
    """Trains, unless a run there has finished, and returns the run's record."""
    folder = folder_of(run, settings)
    if not _finished(folder):
        shutil.rmtree(folder, ignore_errors=True)  # what a run left that did not finish
        folder.mkdir(parents=True)
        log, environment = folder / "train.log", quickstart.training_environment
        with (
            tempfile.TemporaryDirectory() as cache,
            supervised(words(run, settings), log, environment(cache)) as process,
        ):
            if process.wait():
                raise ProgramFailed(process.returncode, log)
    return record(run, settings, folder)


def _log_folder(folder: Path) -> Path | None:
    return next((path.parent for path in folder.rglob(logged.CONFIG)), None)


def _finished(folder: Path) -> bool:
    place = _log_folder(folder)
    config = place and read_config(place)
    return bool(config and config.outcome == FINISHED)


def record(run: Run, settings: StudySettings, folder: Path) -> dict[str, Any]:
    """A run's record, from its log and, of the tiny model, from its final weights."""
    place = _log_folder(folder)
    if place is None:
        raise ValueError(f"{folder} has no log of a training")
    scalars = Scalars(place)
    rewards = scalars[logged.REWARD].values
    if len(rewards) < settings.steps:
        raise ValueError(f"{folder} has {len(rewards)} steps of {settings.steps}: remove it")
    variance = scalars["train/js/gradient_variance"].mean
    square = scalars["train/js/gradient_norm_squared"].mean
    ours, rloos = scalars[logged.BASELINE_MSE].mean, scalars[logged.BASELINE_MSE_RLOO].mean
    return {
        **run._asdict(),
        "pass1": _pass1(run, settings, folder, scalars),
        "reward": fmean(rewards),
        "curve": inline.curve(rewards),
        "steps": settings.steps,
        "dead": scalars["train/js/all_equal_groups"].mean,
        "baseline_error": ours / rloos if ours is not None and rloos else None,
        "gradient_variance": variance,
        "gradient_snr": square / variance if square and variance else None,
        "spread": None,
    }


def _pass1(run: Run, settings: StudySettings, folder: Path, scalars: Scalars) -> float | None:
    """pass@1 of the tiny model as the inline engine measures it; else the last one logged."""
    if run.task != OWN:
        return inline.final(run.task, settings, inline.load(folder / "model"))
    last = [scalars[tag].values[-1] for tag in scalars.tags if tag.endswith("_pass1")]
    return fmean(last) if last else None
