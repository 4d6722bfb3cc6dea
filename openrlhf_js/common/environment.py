"""The environment variables that our programs set, for this process and for those that it starts.

Libraries read them when they are imported, or when their process starts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

RUN_ID = "OPENRLHF_JS_RUN"  # in every process of a run, to find and end them by
DEVICE = "OPENRLHF_JS_DEVICE"  # "cpu": vLLM's processes load `baseline_research.on_cpu`

VLLM_ON_CPU = {
    DEVICE: "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # else each engine takes the same cores
    "TORCHDYNAMO_DISABLE": "1",  # else vLLM compiles a sampler, which wants a C++ compiler
}
TRAINING_ON_CPU = {
    "DS_ACCELERATOR": "cpu",
    "RAY_prestart_worker_first_driver": "0",  # workers are forks of the nursery
}
STARTING_RAY = {
    "RAY_raylet_start_wait_time_s": "180",  # Ray's default of 30 is too short on a busy machine
    "RAY_worker_niceness": "0",  # at Ray's default, 15, other programs take nearly all their time
    "RAY_OVERRIDE_JOB_RUNTIME_ENV": "1",  # a submitted job's may name the same variables
}
OF_UPSTREAM = {  # as upstream sets it where it starts Ray itself
    "TOKENIZERS_PARALLELISM": "true",
    "NCCL_DEBUG": "WARN",
    "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "1",
}
OF_ONE_RANK = {  # what a launcher sets for each of its ranks
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",  # any free port
}
NO_BARS = {"nrows": -1, "delay": 1e9}  # for tqdm: hides bars whose `disable` upstream sets
RAY_JOB = "01000000"  # the number of the first job in a cluster of its own


def training_on_cpu() -> dict[str, str]:
    """For a process that trains on CPU, with the user's settings for vLLM, such as its cache."""
    return {**or_as_set(VLLM_ON_CPU), DEVICE: "cpu", **TRAINING_ON_CPU}


def of_workers(device: str, run: str) -> dict[str, str]:
    """For Ray's workers in a run on "cpu" or "gpu"."""
    environment = {RUN_ID: run, **or_as_set(OF_UPSTREAM)}
    if not sys.stdout.isatty():  # each refresh of a bar would be a line of the log
        for name, number in NO_BARS.items():
            environment[f"TQDM_{name.upper()}"] = f"{number:g}"
    if device == "cpu":
        environment.update(training_on_cpu())
    return environment


def or_as_set(defaults: dict[str, str]) -> dict[str, str]:
    """The defaults, each replaced by what the user has set."""
    return {name: os.environ.get(name, value) for name, value in defaults.items()}


@contextmanager
def ray_of_forks() -> Iterator[None]:
    """Lets Ray be imported here for its workers, which are forks and end with this process.

    Ray reads both variables when it is imported, and not again in a fork.
    """
    os.environ.update(RAY_JOB_ID=RAY_JOB, RAY_RAYLET_PID=str(os.getpid()))
    yield
    del os.environ["RAY_JOB_ID"], os.environ["RAY_RAYLET_PID"]
