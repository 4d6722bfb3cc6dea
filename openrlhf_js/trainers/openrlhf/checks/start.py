"""Problems that would show minutes after the start: the device, and the output folders."""

from __future__ import annotations

import glob
import os

from openrlhf_js.trainers.openrlhf.flags import Flat
from openrlhf_js.trainers.openrlhf.run.checkpoints import latest_checkpoint, rank_problems
from openrlhf_js.trainers.openrlhf.run.device import CPU_STACK, find_device, needs_gpu
from openrlhf_js.trainers.openrlhf.run.failures import existing_folder
from openrlhf_js.trainers.openrlhf.run.record import resume_problems

EARLIER_RUNS = {  # flag of a folder -> what a run leaves there
    "ckpt.path": "_actor/*",
    "ckpt.output_dir": "*model*.[sb]*",  # .safetensors, .bin
    "logger.tensorboard_dir": "{run_name}/events.out.tfevents.*",
    "js.save_batches": "batch_*.npz",
}


def start_problems(flat: Flat) -> list[str]:
    """Problems that would show minutes after the start, or after hours, when a run is saved."""
    device, reason = find_device()
    if flat["js.device"] != "auto":
        device = flat["js.device"]
    problems = needs_gpu(flat) if device == "cpu" else []
    if device == "gpu" and reason == CPU_STACK and not flat["js.dry_run"]:
        problems.append(f"--js.device gpu: {reason}")
    if flat["eval.dataset"] and flat["eval.steps"] == -1:
        problems.append(
            f"--eval.dataset {flat['eval.dataset']} is never evaluated without --eval.steps: give "
            "it, or leave both out"
        )
    if flat["ckpt.load_enable"] and not latest_checkpoint(flat).is_file():
        problems.append(
            f"--ckpt.load_enable: there is no checkpoint in {flat['ckpt.path']}: "
            "leave it out to start afresh"
        )
    elif flat["ckpt.load_enable"]:
        problems += rank_problems(flat)
        problems += resume_problems(flat)
    for flag in filter(flat.get, EARLIER_RUNS):
        folder = existing_folder(flat[flag])
        if not os.access(folder, os.W_OK | os.X_OK):
            problems.append(f"--{flag} {flat[flag]}: {folder} is not a writable folder")
    return problems


def earlier_run_problems(flat: Flat) -> list[str]:
    """What an earlier run left in this run's folders, unless this run resumes it."""
    if flat["ckpt.load_enable"] or flat["js.requeued"]:
        return []
    used = []
    for flag, pattern in EARLIER_RUNS.items():
        pattern = pattern.format(run_name=glob.escape(flat["logger.wandb.run_name"]))
        files = sorted(glob.glob(pattern, root_dir=flat[flag])) if flat[flag] else []
        if files:
            used.append(f"--{flag} {flat[flag]} ({files[0]})")
    if not used:
        return []
    advice = "it has no checkpoint; if it is this run, begin it again with --js.requeued"
    if latest_checkpoint(flat).is_file():
        advice = "resume it with --ckpt.load_enable"
    return [f"an earlier run is in {', '.join(used)}: {advice}, or name other folders"]
