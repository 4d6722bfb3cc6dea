"""Runs upstream's training in Ray.

Ray is an existing cluster, or a node for this run alone, which without GPUs pretends to have some.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import glob
import importlib
import os
import shlex
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import psutil

from answer_graders.programs.console import say
from openrlhf_js.common import environment
from openrlhf_js.common.environment import RUN_ID
from openrlhf_js.common.processes import end_processes
from openrlhf_js.estimators.own import parse_own
from openrlhf_js.trainers.openrlhf import upstream
from openrlhf_js.trainers.openrlhf.run.device import (
    check_and_adapt,
    gpus_needed,
    stand_ins_for_gpu,
    versions,
)
from openrlhf_js.trainers.openrlhf.run.failures import existing_folder
from openrlhf_js.trainers.openrlhf.run.leftovers import (
    end_run,
    interrupt_on_signals,
    remove_dead_folders,
)
from openrlhf_js.trainers.openrlhf.upstream import BadInput, UpstreamMismatch

NODE_SECONDS = 120.0  # for a node of a cluster to start a worker, which imports PyTorch
START_ATTEMPTS = 3  # of Ray, which waits at most 30 seconds for its own server
FLASH_ATTN_HOOK = "openrlhf_js.trainers.openrlhf.flash_attn.install"  # Ray runs it in each worker


def train(args: argparse.Namespace, device: str) -> None:
    """Trains as OpenRLHF's `train(args)` does, with our actors; `device` is "cpu" or "gpu"."""
    os.environ.update(environment.or_as_set(environment.STARTING_RAY))  # read at Ray's import
    alone = device == "cpu" and not os.environ.get("RAY_ADDRESS")
    with environment.ray_of_forks() if alone else contextlib.nullcontext():
        from openrlhf.cli import train_ppo_ray
        from vllm.v1.engine import async_llm  # noqa: F401  # which upstream imports late

        # import the trainer, too, before actors are forked
        from openrlhf_js.trainers.openrlhf import trainer, watch  # noqa: F401
    gc.freeze()
    gc.enable()

    readers = (upstream.DRIVER, upstream.TRAINER, upstream.LEARNER)
    relied_on = [upstream.RELIED_ON, upstream.replaced_names(*readers)]
    if device == "cpu":
        relied_on.append(stand_ins_for_gpu().RELIED_ON)
    check_and_adapt(args, device, relied_on)
    with ray_session(args, device), watch.watched():
        upstream.replace_names(*readers, args=args)
        train_ppo_ray.train(args)


@contextlib.contextmanager
def ray_session(args: argparse.Namespace, device: str) -> Iterator[None]:
    """Ray set up for our actors: the existing cluster, or a node for this run alone."""
    import ray

    marker = os.environ.setdefault(RUN_ID, uuid.uuid4().hex)
    hook = stand_ins_for_gpu().WORKER_HOOK if device == "cpu" else FLASH_ATTN_HOOK
    runtime_env: dict[str, object] = {
        "env_vars": environment.of_workers(device, marker),
        "worker_process_setup_hook": hook,
    }
    cluster = os.environ.get("RAY_ADDRESS")
    node = Node([sys.executable], settings={} if cluster else {"address": "local"})
    if not sys.stdout.isatty():
        _without_bars()
    remove_dead_folders()
    with contextlib.ExitStack() as stack:
        if device == "cpu" and not cluster:
            node = stand_ins_for_gpu().open_node(args, stack)
        runtime_env["py_executable"] = shlex.join(node.python)  # Ray passes it to a shell unquoted
        stack.callback(remove_dead_folders)
        stack.callback(end_run, marker, node.nursery)
        stack.callback(ray.shutdown)
        _start_ray(node, runtime_env)
        _check_gpus(args, cluster)
        if cluster:
            spared = (os.getpid(), psutil.Process().create_time())
            stack.callback(_on_each_node, end_run, marker, None, spared)
            _check_nodes(args)
        if node.nursery and ray.get_runtime_context().get_job_id() != environment.RAY_JOB:
            raise UpstreamMismatch("Ray counts its jobs in another way")
        interrupt_on_signals()  # replaces Ray's handlers, which skip the cleanup
        yield


def _without_bars() -> None:
    """Hides tqdm's bars in this process and its forks, where tqdm is already imported."""
    tqdm: Any = importlib.import_module("tqdm").tqdm
    tqdm.__init__ = functools.partialmethod(tqdm.__init__, **environment.NO_BARS)


class Node(NamedTuple):
    """How to start Ray: the settings of the run's own node, and the command that runs Python."""

    python: list[str]
    nursery: int | None = None  # the process that workers are forked from
    settings: Mapping[str, Any] = MappingProxyType({})


def _start_ray(node: Node, runtime_env: Mapping[str, object]) -> None:
    """Starts Ray, or connects to it; tries again if a busy machine makes Ray's start time out.

    Ray leaves the processes of a timed-out start running: they are ended here.
    """
    import ray

    this_process = psutil.Process()
    older = this_process.children(recursive=True)

    def is_left(process: psutil.Process) -> bool:
        if process in older or os.getsid(process.pid) == node.nursery:
            return False
        return this_process in process.parents()

    for attempts_left in reversed(range(START_ATTEMPTS)):
        try:
            ray.init(runtime_env=runtime_env, **node.settings)
            return
        except Exception as error:  # Ray raises no narrower one
            if "timed out during startup" not in str(error) or not attempts_left:
                raise
        say("openrlhf_js: Ray did not start within its 30 seconds; it is started again")
        ray.shutdown()
        end_processes(is_left, patience_seconds=0)


def _check_gpus(args: argparse.Namespace, cluster: str | None) -> None:
    """Raises BadInput if this run's own Ray lacks GPUs, for which upstream would wait for ever.

    A cluster may grow, so there it is a message.
    """
    import ray

    needed = gpus_needed(args)
    present = int(ray.cluster_resources().get("GPU", 0))
    if present >= needed:
        return
    advice = (
        "let models share GPUs (--train.colocate_all), or lower --actor.num_gpus_per_node, "
        "--ref.num_gpus_per_node, --vllm.num_engines"
    )
    problem = f"policy, reference, vLLM's engines and other models need {needed} GPUs; "
    if not cluster:
        raise BadInput(f"{problem}this machine has {present}: {advice}")
    say(
        f"openrlhf_js: {problem}the cluster has {present}. The run waits for more; if none come, "
        f"{advice}"
    )


def _on_each_node(function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """What a function returns on each node, by the node's address.

    For a node that cannot start a worker, such as one without our Python, it is Ray's error.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0, max_retries=0)(function)
    answers: dict[str, Any] = {}
    for node in ray.nodes():
        if node["Alive"]:
            place = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            reference = task.options(scheduling_strategy=place).remote(*arguments)
            answers[node["NodeManagerAddress"]] = reference
    for address, reference in answers.items():
        try:
            answers[address] = ray.get(reference, timeout=NODE_SECONDS)
        except ray.exceptions.RayError as error:
            answers[address] = error
    return answers


def _check_nodes(args: argparse.Namespace) -> None:
    """Raises BadInput unless each node has our versions and sees the files of the run."""
    here = os.getcwd()
    files = _local_files(args)
    paths = [os.path.abspath(name) for name in files]
    has_relative_paths = not all(map(os.path.isabs, [*files, *_folders(args)]))
    with tempfile.NamedTemporaryFile(dir=existing_folder(args.ckpt.path)) as shared:
        paths.append(shared.name)
        nodes = _on_each_node(_look, paths)
    versions_here = versions()
    problems = []
    for address, seen in nodes.items():
        if isinstance(seen, Exception):
            problems.append(
                f"node {address} cannot start a worker with {sys.executable}: {type(seen).__name__}"
            )
            continue
        versions_there, folder, missing_files = seen
        if versions_there != versions_here:
            problems.append(f"the node {address} has {versions_there}, this one {versions_here}")
        if has_relative_paths and folder != here:
            problems.append(
                f"the node {address} looks for relative paths in {folder}, this command in {here}: "
                "give absolute ones, or run `ray start` in the folder of this command"
            )
        for path in missing_files:
            title = f"--ckpt.path {args.ckpt.path}" if path == shared.name else path
            problems.append(f"the node {address} does not see {title}: put it on a shared disk")
    if problems:
        raise BadInput("\n".join(problems))


def _folders(args: argparse.Namespace) -> list[str]:
    """The folders into which a run writes."""
    folders = (
        args.ckpt.path,
        args.ckpt.output_dir,
        args.logger.tensorboard_dir,
        args.js.save_batches,
    )
    return [folder for folder in folders if folder]


def _local_files(args: argparse.Namespace) -> list[str]:
    """The files and folders that the flags name and that exist here."""
    names = [
        args.actor.model_name_or_path,
        args.critic.model_name_or_path,
        args.reward.model_name_or_path,
        args.train.agent_func_path,
        *(args.reward.remote_url or ()),
    ]
    own = parse_own(args.algo.advantage.estimator or "")
    if own is not None:
        names.append(str(own.file))
    for data_sets in filter(None, (args.data.prompt_dataset, args.eval.dataset)):
        for data_set in data_sets.split(","):
            path = data_set.partition("@")[0].strip()
            names += glob.glob(path) or [path]
    return [name for name in names if name and os.path.exists(name)]


def _look(paths: Sequence[str]) -> tuple[dict[str, str], str, list[str]]:
    """A node's versions, the folder of its workers, and the paths that do not exist on it."""
    return versions(), os.getcwd(), [path for path in paths if not os.path.exists(path)]
