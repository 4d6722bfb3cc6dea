"""The tensors of a Hugging Face folder: names and shapes from the headers, and one tensor alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILES = ("model.safetensors", "pytorch_model.bin")  # transformers takes the first that is there
Shapes = dict[str, tuple[int, ...]]


def tensor_shapes(folder: Path) -> Shapes:
    """The shape of every tensor, read without the weights.

    Raises:
        ValueError: there are no weights, a shard is missing, or a file is damaged.
    """
    shapes: Shapes = {}
    for path in _files(folder):
        shapes |= _shapes_in(path)
    return shapes


def read_tensor(folder: Path, name: str) -> Any:
    """One tensor, shape and type as stored, on CPU.

    Raises:
        ValueError: no file has it, or a file is damaged.
    """
    import torch
    from safetensors import safe_open

    for path in _files(folder):
        if name in _shapes_in(path):
            if path.suffix == ".safetensors":
                with safe_open(path, "pt") as file:
                    return file.get_tensor(name)
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)[name].clone()
    raise ValueError(f"{folder} has no tensor {name}")


def _files(folder: Path) -> list[Path]:
    """The files of the weights: one, or the shards that an index names."""
    for name in FILES:
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            return _shards(index)
    raise ValueError(f"{folder} has no weights: neither {FILES[0]} nor {FILES[1]}, nor shards")


def _shards(index: Path) -> list[Path]:
    try:
        names = set(json.loads(index.read_bytes())["weight_map"].values())
        shards = sorted(index.parent / name for name in names if Path(name).name == name)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"{index} is no index of shards: copy the checkpoint anew") from None
    missing = [path.name for path in shards if not path.is_file()]
    if missing or len(shards) != len(names) or not shards:
        lacking = ", ".join(missing[:3]) or "files outside of its folder"
        raise ValueError(f"{index} names {lacking}, which are not there: copy the checkpoint anew")
    return shards


def _shapes_in(path: Path) -> Shapes:
    import pickle

    import torch
    from safetensors import SafetensorError, safe_open

    try:
        if path.suffix == ".safetensors":
            with safe_open(path, "pt") as file:
                names = file.keys()
                return {name: tuple(file.get_slice(name).get_shape()) for name in names}
        tensors = torch.load(path, map_location="meta", weights_only=True)
        return {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError, AttributeError) as bad:
        reason = next(iter(str(bad).splitlines()), type(bad).__name__)
        raise ValueError(f"{path} is damaged ({reason:.120}): copy the checkpoint anew") from None
