"""Run by test_gpu.py: `benchmarks/gpu.py` on a CPU, as on a machine with torch and transformers.

Other packages look as if they were absent, a dispatch mode counts bytes in the place of CUDA's
allocator, and one part runs out of memory.
"""

# ruff: noqa: E402  # what is absent is so before anything asks for it

import json
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace

EXTRAS = (
    *("altair", "fastapi", "httptools", "openai", "pandas", "psutil"),
    *("pydantic", "rich", "scipy", "starlette", "tyro", "uvicorn"),
)
STACK = ("datasets", "deepspeed", "flash_attn", "openrlhf", "peft", "ray", "vllm")
sys.modules.update(dict.fromkeys((*EXTRAS, *STACK)))  # None: not found
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))  # as for a script

import gpu
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

torch.set_num_threads(1)  # of a process beside pytest's two


class Bytes(TorchDispatchMode):
    """Bytes of all storages that operators have made, now and at most since a reset."""

    now = most = 0

    def __init__(self):
        super().__init__()
        self.alive = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(found):
            storage = tensor.untyped_storage() if isinstance(tensor, torch.Tensor) else None
            if storage is not None and storage._cdata not in self.alive:
                self.alive[storage._cdata] = storage.nbytes()
                self.now += storage.nbytes()
                weakref.finalize(storage, self.free, storage._cdata)
        self.most = max(self.most, self.now)
        return found

    def free(self, key):
        self.now -= self.alive.pop(key)

    def reset(self, device):
        self.most = self.now


def training(bench, scale, name, whole=gpu.training):
    rows = whole(bench, scale, name)
    if name == "tiny 2":
        yield next(rows)
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate | some")
    yield from rows


training.__name__ = "training"
gpu.training = training
count = Bytes()
gpu.CPU = SimpleNamespace(
    synchronize=lambda device: None,
    reset_peak_memory_stats=count.reset,
    memory_allocated=lambda device: count.now,
    max_memory_allocated=lambda device: count.most,
    empty_cache=lambda: None,
)
sys.argv = ["gpu.py", "--device", "cpu", "--tiny", "--out", sys.argv[1]]
with count:
    gpu.main()
models = {name: gpu.make_model(torch.device("meta"), x) for name, x in gpu.FULL.shapes.items()}
counts = {name: sum(each.numel() for each in x.parameters()) for name, x in models.items()}
Path(sys.argv[-1]).with_name("parameters.json").write_text(json.dumps(counts))
