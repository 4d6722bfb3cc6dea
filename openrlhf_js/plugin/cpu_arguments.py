"""What the arguments of any of OpenRLHF's programs must be where there is no GPU."""

from __future__ import annotations

import argparse
from typing import Any

from openrlhf_js.plugin.errors import BadInput

# Flags, of which each program has some, and their one value that needs no GPU.
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
GPU_MEMORY = ("vllm.enable_sleep", "ds.enable_sleep", "ds.adam_offload")  # switches that save it


def adapt(args: argparse.Namespace) -> list[str]:
    """Sets what OpenRLHF's arguments must be on CPU, and says so.

    Args:
        args: OpenRLHF's nested arguments, after its own validation.

    Returns:
        One notice for each thing changed that the user had asked for.

    Raises:
        BadInput: the training asks for what only a GPU can do.
    """
    problems = []
    for flag, works in WITHOUT_GPU.items():
        group, name = _place(args, flag)
        came = getattr(group, name, works)
        if came != works:
            asked = flag if came is True else f"{flag} {came}"
            problems.append(f"--{asked} needs a GPU")
    if problems:
        raise BadInput("\n".join(problems))
    notices = []
    for flag in GPU_MEMORY:
        group, name = _place(args, flag)
        if getattr(group, name, False):
            setattr(group, name, False)
            notices.append(f"--{flag} is about GPU memory: ignored on CPU.")
    if hasattr(args, "vllm"):
        args.vllm.enforce_eager = True  # compiling costs more than it saves at this size
        args.vllm.sync_backend = "gloo"  # anything but nccl keeps upstream from CUDA IPC
    return notices


def _place(args: argparse.Namespace, flag: str) -> tuple[Any, str]:
    """The group that a dotted flag belongs to, None if the program has none such, and its name."""
    section, _, name = flag.rpartition(".")
    return (getattr(args, section, None) if section else args), name


def pretend_gpus(args: argparse.Namespace) -> int:
    """The number of GPUs that Ray must count for OpenRLHF's placement groups to fit."""
    groups = [args.actor, args.critic, args.ref, args.reward]
    return sum(group.num_nodes * group.num_gpus_per_node for group in groups) + (
        args.vllm.num_engines or 0
    )
