"""What lets Ray, DeepSpeed, vLLM and OpenRLHF train together on a machine without a GPU.

Each replacement stands beside the upstream lines that it stands in for; a test holds them against
the installed packages. `install` is the setup hook of every Ray worker; vLLM's engine, which is a
process of its own outside Ray, calls it through `openrlhf_js.plugin.vllm_plugin`. This module is
imported on CPU runs only.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from openrlhf_js.plugin import flash_attn
from openrlhf_js.plugin.imports import after_import

ENVIRONMENT = {
    "OPENRLHF_JS_DEVICE": "cpu",
    "DS_ACCELERATOR": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "TORCHDYNAMO_DISABLE": "1",  # else vLLM compiles a sampler, which wants a C++ compiler
}


def environment() -> dict[str, str]:
    """`ENVIRONMENT`, but with what the user has set for vLLM, such as more room for its cache."""
    return {
        name: os.environ.get(name, value) if name.startswith("VLLM_") else value
        for name, value in ENVIRONMENT.items()
    }


Act = Callable[[ModuleType], None]


class Replacement(NamedTuple):
    """What is done to a module once it is imported, and the upstream lines that call for it."""

    act: Act
    lines: dict[str, tuple[str, ...]]  # upstream module -> lines of its source


REPLACEMENTS: dict[str, Replacement] = {}


def _stands_in_for(module: str, lines: dict[str, tuple[str, ...]]) -> Callable[[Act], Act]:
    def register(act: Act) -> Act:
        REPLACEMENTS[module] = Replacement(act, lines)
        return act

    return register


def _replace(owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """Puts the decorated function in the place of `owner.name`, which stays its `__wrapped__`."""

    def put(function: Callable[..., Any]) -> None:
        setattr(owner, name, functools.wraps(getattr(owner, name))(function))

    return put


class _Device(str):
    """The string "cpu", which `torch.device(f"cuda:{...}")` reads as an index. Upstream builds
    such a device for a method that training does not call."""

    def __format__(self, spec: str) -> str:
        return "0"


@_stands_in_for(
    "torch.cuda",
    {
        "openrlhf.utils.deepspeed.deepspeed": ("torch.cuda.set_device(local_rank)",),
        "openrlhf.utils.distributed_util": ("torch.cuda.synchronize()",),
        "openrlhf.trainer.ppo_utils.replay_buffer": (
            'self.target_device = torch.device(f"cuda:{torch.cuda.current_device()}")',
        ),
        "openrlhf.trainer.ray.ppo_actor": (
            "device = torch.cuda.current_device()",
            "torch.cuda.empty_cache()",
            "self._model_update_group.broadcast("
            "param.data, src=0, stream=torch.cuda.current_stream())",
        ),
    },
)
def _cuda(cuda: ModuleType) -> None:
    _replace(cuda, "current_device")(lambda: _Device("cpu"))
    for name in ("set_device", "synchronize", "empty_cache", "current_stream"):
        # a function of its own for each: torch._dynamo keeps a table by function
        _replace(cuda, name)(lambda *_, **__: None)


@_stands_in_for(
    "openrlhf.utils.deepspeed.deepspeed",
    {
        "openrlhf.utils.deepspeed.deepspeed": (
            'self.ds_device_mesh = init_device_mesh( "cuda",',
            "ds_config = self.get_ds_train_config(optim_dict=optim_dict,",
        ),
        # else DeepSpeed compiles an AdamW of its own on first use
        "deepspeed.runtime.engine": ("optimizer_parameters.pop(TORCH_ADAM_PARAM, False)",),
    },
)
def _deepspeed(module: ModuleType) -> None:
    mesh = module.init_device_mesh
    configure = module.DeepspeedStrategy.get_ds_train_config

    @_replace(module, "init_device_mesh")
    def _(_: str, *args: Any, **kwargs: Any) -> Any:
        return mesh("cpu", *args, **kwargs)

    @_replace(module.DeepspeedStrategy, "get_ds_train_config")
    def _(self: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        config = configure(self, *args, **kwargs)
        if config.get("optimizer", {}).get("type") in ("Adam", "AdamW"):
            config["optimizer"]["params"]["torch_adam"] = True
        return config


@_stands_in_for(
    "deepspeed.comm.torch",
    # compiles an operation for inference, which wants a C++ compiler and a path without spaces
    {"deepspeed.comm.torch": ("self.shm_comm_op = build_shm_op()",)},
)
def _no_compiler(module: ModuleType) -> None:
    _replace(module, "build_shm_op")(lambda: None)


@_stands_in_for(
    "torch.distributed.distributed_c10d",
    {
        # On NCCL's stream the last of several collectives ends last. Gloo runs them in two
        # threads, so that ZeRO-3 would go on with parameters that are still on their way.
        "deepspeed.runtime.zero.partition_parameters": ("launch_handles[-1].wait()",),
        "torch.distributed.distributed_c10d": (
            "backend_class = ProcessGroupGloo("
            "backend_prefix_store, group_rank, group_size, # pyrefly: ignore [bad-argument-type]"
            " timeout=timeout,)",
        ),
    },
)
def _gloo_in_order(module: ModuleType) -> None:
    gloo: Any = module.ProcessGroupGloo

    class ProcessGroupGloo(gloo):
        def __init__(self, store: Any, rank: int, size: int, timeout: Any):
            options = self._Options()
            options._devices = [self.create_default_device()]
            options._threads = 1
            options._timeout = timeout
            super().__init__(store, rank, size, options)

    module.ProcessGroupGloo = ProcessGroupGloo  # type: ignore[attr-defined]


class _Broadcast:
    """Sends tensors between processes over vLLM's TCP store, where NCCL does not exist."""

    def __init__(self, group: Any):
        self._group = group

    def broadcast(self, tensor: Any, src: int, stream: None = None) -> None:
        received = self._group.broadcast_obj(tensor if self._group.rank == src else None, src)
        if self._group.rank != src:
            tensor.copy_(received)


@_stands_in_for(
    "openrlhf.utils.distributed_util",
    {"openrlhf.utils.distributed_util": ("pynccl = PyNcclCommunicator(pg, device=device)",)},
)
def _weight_sync(module: ModuleType) -> None:
    @_replace(module, "stateless_init_process_group")
    def _(host: str, port: int, rank: int, world_size: int, _: object) -> _Broadcast:
        from vllm.distributed.utils import StatelessProcessGroup

        return _Broadcast(StatelessProcessGroup.create(host, port, rank, world_size))


@_stands_in_for(
    "openrlhf.trainer.ray.vllm_worker_wrap",
    {
        "openrlhf.trainer.ray.vllm_worker_wrap": (
            'weight = torch.empty(shape, dtype=dtype, device="cuda")',
            "self.model_runner.model.load_weights(weights=[(name, weight)])",
        )
    },
)
def _receive_weight(module: ModuleType) -> None:
    @_replace(module.WorkerWrap, "update_weight")
    def _(self: Any, name: str, dtype: Any, shape: Any, empty_cache: bool = False) -> None:
        import torch

        if dtype != self.model_config.dtype:
            raise TypeError(f"weight {name} is {dtype}, the engine holds {self.model_config.dtype}")
        weight = torch.empty(shape, dtype=dtype)
        self._model_update_group.broadcast(weight, src=0)
        self.model_runner.model.load_weights(weights=[(name, weight)])


@_stands_in_for(
    "vllm.model_executor.layers.utils",
    {  # a weight that is gone once it is repacked cannot be updated
        "vllm.model_executor.layers.utils": (
            "layer.weight = torch.nn.Parameter(torch.empty(0), requires_grad=False)",
        ),
        "vllm.model_executor.layers.linear": (
            "dispatch_cpu_unquantized_gemm(layer, remove_weight=True)",
        ),
    },
)
def _keep_weights(module: ModuleType) -> None:
    @_replace(module, "dispatch_cpu_unquantized_gemm")
    def _(layer: Any, remove_weight: bool) -> None:
        import torch

        layer.cpu_linear = torch.nn.functional.linear


def install() -> None:
    """Makes this process ready for OpenRLHF without a GPU. Safe to call twice."""
    flash_attn.install_stand_ins()
    for module, replacement in REPLACEMENTS.items():
        after_import(module, replacement.act)
