"""Upstream's training with our actors, in a Ray that they can live in."""

from __future__ import annotations

import argparse
import contextlib
import gc
import os

from openrlhf_js.plugin import processes, upstream
from openrlhf_js.plugin.run.device import check_and_adapt
from openrlhf_js.plugin.run.ray_session import ray_session


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

    check_and_adapt(args, device, upstream.RELIED_ON, upstream.RELIED_ON_FOR_CPU)
    with ray_session(args, device), watch.watched(train_ppo_ray):
        put_our_actors(args)
        train_ppo_ray.train(args)
