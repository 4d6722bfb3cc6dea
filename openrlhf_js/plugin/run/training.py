"""Upstream's training with our actors, in a Ray that they can live in."""

from __future__ import annotations

import argparse
import contextlib
import gc
import os

from openrlhf_js.plugin import cpu, processes, upstream
from openrlhf_js.plugin.prompts import Flat
from openrlhf_js.plugin.run.checkpoints import latest_checkpoint
from openrlhf_js.plugin.run.device import CPU_STACK, find_device, fit
from openrlhf_js.plugin.run.failures import WRITTEN, existing_folder
from openrlhf_js.plugin.run.ray_session import ray_session


def start_problems(flat: Flat) -> list[str]:
    """What would come out minutes after the start, or when hours of training are to be saved."""
    device, reason = find_device()
    if flat["js.device"] != "auto":
        device = flat["js.device"]
    max_len = flat["data.max_len"]
    max_new_tokens = flat["rollout.max_new_tokens"]
    problems = cpu.needs_gpu(flat) if device == "cpu" else []
    if device == "gpu" and reason == CPU_STACK:
        problems.append(f"--js.device gpu: {reason}")
    if max_new_tokens is not None and max_new_tokens >= max_len:
        problems.append(
            f"--rollout.max_new_tokens {max_new_tokens} leaves no room in --data.max_len {max_len} "
            "for a prompt"
        )
    if flat["ckpt.load_enable"] and not latest_checkpoint(flat).is_file():
        problems.append(
            f"--ckpt.load_enable: there is no checkpoint in {flat['ckpt.path']}: "
            "leave it out to start afresh"
        )
    for flag in filter(flat.get, WRITTEN):
        folder = existing_folder(flat[flag])
        if not os.access(folder, os.W_OK | os.X_OK):
            problems.append(f"--{flag} {flat[flag]}: {folder} is no folder that can be written")
    return problems


def train(args: argparse.Namespace, device: str) -> None:
    """Trains as OpenRLHF's `train(args)` does, with our actors; `device` is "cpu" or "gpu"."""
    alone = device == "cpu" and not os.environ.get("RAY_ADDRESS")
    with processes.forkable_ray() if alone else contextlib.nullcontext():
        from openrlhf.cli import train_ppo_ray
        from vllm.v1.engine import async_llm  # noqa: F401  # what upstream imports late

        from openrlhf_js.plugin import watch
        from openrlhf_js.plugin.trainer import put_our_actors
    gc.freeze()
    gc.enable()

    fit(args, device, upstream.RELIED_ON, upstream.RELIED_ON_FOR_CPU)
    with ray_session(args, device), watch.watched(train_ppo_ray):
        put_our_actors(args)
        train_ppo_ray.train(args)
