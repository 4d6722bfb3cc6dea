"""Replacements that let Ray, DeepSpeed, vLLM and OpenRLHF train on a machine without a GPU.

`install` prepares a process. It is the setup hook of every Ray worker; vLLM's engine, a separate
process outside Ray, calls it through `baseline_research.on_cpu.processes`. Each replacement names
the upstream lines that it stands in for.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import importlib.util
import multiprocessing
import random
import socket
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from openrlhf_js.common.processors import leave_out_videos
from openrlhf_js.trainers.openrlhf import flash_attn
from openrlhf_js.trainers.openrlhf.imports import around_import

GPU_MEMORY = ("vllm.enable_sleep", "ds.enable_sleep", "ds.adam_offload")  # memory-saving switches
PORTS = range(20_000, 30_000)  # above those of Ray's workers in a cluster


def adapt(args: argparse.Namespace) -> None:
    """Sets OpenRLHF's nested arguments to what a CPU needs."""
    for flag in GPU_MEMORY:
        section, _, name = flag.partition(".")
        group = getattr(args, section, None)  # `rm train` has no vLLM
        if hasattr(group, name):
            setattr(group, name, False)
    if hasattr(args, "vllm"):
        args.vllm.enforce_eager = True  # compiling costs more than it saves at this size
        args.vllm.sync_backend = "gloo"  # anything but nccl keeps upstream from CUDA IPC


# --- replacements ------------------------------------------------------------------------------

Act = Callable[[ModuleType], None]


# module -> the function applied to it after import, and the "module | line" of upstream's source
# that make it necessary; a line without a module is in the module itself
REPLACEMENTS: dict[str, tuple[Act, tuple[str, ...]]] = {}


def _stands_in_for(module: str, *lines: str) -> Callable[[Act], Act]:
    def register(act: Act) -> Act:
        REPLACEMENTS[module] = (act, lines)
        return act

    return register


def _replace(owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """Replaces `owner.name` with the decorated function; `__wrapped__` keeps the original."""

    def put(function: Callable[..., Any]) -> None:
        setattr(owner, name, functools.wraps(getattr(owner, name))(function))

    return put


class _Device(str):
    """The string "cpu", which formats as an index in `torch.device(f"cuda:{...}")`. Upstream
    builds such a device for a method that training does not call."""

    def __format__(self, spec: str) -> str:
        return "0"


@_stands_in_for(
    "torch.cuda",
    "openrlhf.utils.deepspeed.deepspeed | torch.cuda.set_device(local_rank)",
    "openrlhf.utils.distributed_util | torch.cuda.synchronize()",
    "openrlhf.trainer.ppo_utils.replay_buffer | "
    'self.target_device = torch.device(f"cuda:{torch.cuda.current_device()}")',
    "openrlhf.trainer.ray.ppo_actor | device = torch.cuda.current_device()",
    "openrlhf.trainer.ray.ppo_actor | torch.cuda.empty_cache()",
    "openrlhf.trainer.ray.ppo_actor | "
    "self._model_update_group.broadcast(param.data, src=0, stream=torch.cuda.current_stream())",
)
def _cuda(cuda: ModuleType) -> None:
    _replace(cuda, "current_device")(lambda: _Device("cpu"))
    for name in ("set_device", "synchronize", "empty_cache", "current_stream"):
        # a separate function for each: torch._dynamo keeps a table keyed by function
        _replace(cuda, name)(lambda *_, **__: None)


# else DeepSpeed compiles an AdamW of its own on first use
@_stands_in_for(
    "openrlhf.utils.deepspeed.deepspeed",
    'self.ds_device_mesh = init_device_mesh( "cuda",',
    "ds_config = self.get_ds_train_config(optim_dict=optim_dict,",
    "deepspeed.runtime.engine | optimizer_parameters.pop(TORCH_ADAM_PARAM, False)",
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


# DeepSpeed compiles an inference operation, which needs a C++ compiler and a path without spaces.
@_stands_in_for("deepspeed.comm.torch", "self.shm_comm_op = build_shm_op()")
def _no_compiler(module: ModuleType) -> None:
    _replace(module, "build_shm_op")(lambda: None)


# On NCCL's stream the last of several collectives finishes last. Gloo runs them in two
# threads, so ZeRO-3 would continue before all parameters have arrived.
@_stands_in_for(
    "torch.distributed.distributed_c10d",
    "deepspeed.runtime.zero.partition_parameters | launch_handles[-1].wait()",
    "backend_class = ProcessGroupGloo(backend_prefix_store, group_rank, group_size, "
    "# pyrefly: ignore [bad-argument-type] timeout=timeout,)",
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
        sends = self._group.rank == src
        # a copy: for a view, the whole buffer behind it would be sent
        received = self._group.broadcast_obj(tensor.clone() if sends else None, src)
        if not sends:
            tensor.copy_(received)


@_stands_in_for("openrlhf.utils.distributed_util", "pynccl = PyNcclCommunicator(pg, device=device)")
def _weight_sync(module: ModuleType) -> None:
    @_replace(module, "stateless_init_process_group")
    def _(host: str, port: int, rank: int, world_size: int, _: object) -> _Broadcast:
        from vllm.distributed.utils import StatelessProcessGroup

        return _Broadcast(StatelessProcessGroup.create(host, port, rank, world_size))


@_stands_in_for(
    "openrlhf.trainer.ray.vllm_worker_wrap",
    'weight = torch.empty(shape, dtype=dtype, device="cuda")',
    "self.model_runner.model.load_weights(weights=[(name, weight)])",
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


# A weight that is removed after repacking could not be updated.
@_stands_in_for(
    "vllm.model_executor.layers.utils",
    "layer.weight = torch.nn.Parameter(torch.empty(0), requires_grad=False)",
    "vllm.model_executor.layers.linear | dispatch_cpu_unquantized_gemm(layer, remove_weight=True)",
)
def _keep_weights(module: ModuleType) -> None:
    @_replace(module, "dispatch_cpu_unquantized_gemm")
    def _(layer: Any, remove_weight: bool) -> None:
        import torch

        layer.cpu_linear = torch.nn.functional.linear


@functools.cache
def _multiplies_bfloat16() -> bool:
    """Whether the processor has instructions for bfloat16 products."""
    import torch

    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


# Without such instructions a product takes ten times as long in bfloat16 as in float32. The results
# differ only in the rounding of the sums.
@_stands_in_for(
    "torch.nn.functional",
    "torch.nn.modules.linear | return F.linear(input, self.weight, self.bias)",
)
def _linear_in_float32(module: ModuleType) -> None:
    linear = module.linear

    @_replace(module, "linear")
    def _(input: Any, weight: Any, bias: Any = None) -> Any:
        import torch

        if input.dtype != torch.bfloat16 or _multiplies_bfloat16():
            return linear(input, weight, bias)
        bias = None if bias is None else bias.float()
        return linear(input.float(), weight.float(), bias).to(input.dtype)


# Upstream names a port that is free now and listens on it seconds later. The system gives ports of
# the same range to all of Ray's workers here meanwhile, so ours come from below that range.
@_stands_in_for("openrlhf.trainer.ray.launcher", 'sock.bind(("", 0))')
def _ports_that_nobody_is_given(module: ModuleType) -> None:
    def free_port() -> int:
        while True:
            port = random.SystemRandom().choice(PORTS)  # forked workers share `random`'s state
            with contextlib.suppress(OSError), socket.socket() as listener:
                listener.bind(("", port))
                return port

    module.BaseDistributedActor._get_free_port = staticmethod(free_port)


# torchvision has no build for CPU on PyPI, and only videos need it
_stands_in_for(
    "transformers.processing_utils",
    "args_in_init = inspect.signature(cls.__init__).parameters.keys()",
    "transformers.models.qwen2_vl.video_processing_qwen2_vl | "
    "import torchvision.transforms.v2.functional as tvF",
)(leave_out_videos)


# transformers has a second version of the function that needs no torchvision
@_stands_in_for(
    "transformers.models.qwen2_vl",
    "vllm.model_executor.models.qwen2_vl | "
    "from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize",
    "transformers.models.qwen2_vl.image_processing_qwen2_vl | "
    "from torchvision.transforms.v2 import functional as tvF",
)
def _resize_with_pil(module: ModuleType) -> None:
    if not importlib.util.find_spec("torchvision"):
        files = f"{module.__name__}.image_processing"
        sys.modules[f"{files}_qwen2_vl"] = importlib.import_module(f"{files}_pil_qwen2_vl")


# When vLLM prefills a prompt in chunks, it rewinds the response's generator, and a CPU generator
# cannot be rewound. With prompts read whole, a response depends only on its seed.
@_stands_in_for(
    "vllm.config.model",
    "def is_chunked_prefill_supported(self) -> bool:",
    "vllm.engine.arg_utils | default_chunked_prefill = model_config.is_chunked_prefill_supported",
    "vllm.v1.worker.gpu_model_runner | gen.set_offset(gen.get_offset() - 4)",
)
def _whole_prompts(module: ModuleType) -> None:
    module.ModelConfig.is_chunked_prefill_supported = False


# A spawned engine imports torch and vLLM again, and so does its worker: a third of the time to the
# first step. A fork is unsafe only after a process has touched a GPU, and none has here.
@_stands_in_for(
    "vllm.utils.system_utils",
    "mp_method = envs.VLLM_WORKER_MULTIPROC_METHOD",
    'vllm.platforms.cpu | os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"',
)
def _fork_engines(module: ModuleType) -> None:
    @_replace(module, "get_mp_context")
    def _() -> Any:
        return multiprocessing.get_context("fork")


def after_import(name: str, action: Callable[[ModuleType], None]) -> None:
    """Runs `action(module)` once `name` is imported, or at once if it already is."""

    @contextlib.contextmanager
    def context(module: ModuleType) -> Iterator[None]:
        yield
        action(module)

    around_import(name, context)
    if name in sys.modules:
        action(sys.modules[name])


@functools.cache  # a forked engine inherits what was installed
def install() -> None:
    """Makes this process ready for OpenRLHF without a GPU. Safe to call twice."""
    flash_attn.install()
    for module, (act, _) in REPLACEMENTS.items():
        after_import(module, act)
