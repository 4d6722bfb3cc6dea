"""What a run remembers of its prompts.

Given the policy, rewards of earlier steps are independent of today's, so a baseline built on them
leaves the gradient unbiased.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Tensor

from openrlhf_js.estimators.batch import Batch


def key_of(*texts: str | None) -> int:
    """A prompt's key, from its prompt, label and datasource: 63 bits, the same in every process."""
    digest = hashlib.blake2b(repr(texts).encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def digest_of(content: Any) -> str:
    """A hash that identifies bytes, an array, or the pixels of a decoded image."""
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    if hasattr(content, "convert"):  # the bytes of an image may be places in its palette
        content = content.convert("RGBA")
    size = getattr(content, "shape", None) or getattr(content, "size", None)
    return hashlib.sha256(repr(size).encode() + content.tobytes()).hexdigest()


def keys_of(batch: Batch) -> Tensor:
    """(n,) the keys of a batch, on the CPU."""
    if batch.keys is None:
        raise ValueError("this needs the keys of the prompts (key_of): give keys=.")
    return batch.keys.cpu()


class PromptTable:
    """Numbers remembered for each prompt under its key, in columns (N, ...)."""

    def __init__(self, **columns: Tensor):
        """Takes columns without rows, of the shape and dtype that they will have."""
        self.keys = torch.zeros(0, dtype=torch.int64)  # (N,) ascending
        self.columns = columns

    def __len__(self) -> int:
        return len(self.keys)

    def known(self, keys: Tensor) -> Tensor:
        """(n,) bool: which prompts have a row; found by binary search."""
        if not len(self):
            return torch.zeros_like(keys, dtype=torch.bool)
        return self.keys[self.place(keys).clamp(max=len(self) - 1)] == keys

    def place(self, keys: Tensor) -> Tensor:
        """(n,) the row numbers of prompts that have a row."""
        return torch.searchsorted(self.keys, keys)

    def insert(self, keys: Tensor) -> None:
        """Adds rows of zeros for those keys, each given once, that are new."""
        new = keys[~self.known(keys)]
        if not len(new):
            return
        self.keys, order = torch.cat([self.keys, new]).sort()
        for name, column in self.columns.items():
            empty = column.new_zeros(new.shape + column.shape[1:])
            self.columns[name] = torch.cat([column, empty])[order]

    def get(self, name: str, batch: Batch, new: float) -> Tensor:
        """(n, ...) a column's values for a batch's prompts; `new` for those without a row."""
        keys = keys_of(batch)
        known = self.known(keys)
        column = self.columns[name]
        values = column.new_full(keys.shape + column.shape[1:], new)
        values[known] = column[self.place(keys[known])]
        return values.to(batch.rewards)

    def put(self, batch: Batch, **columns: Tensor) -> None:
        """Replaces the values (n, ...) of those prompts of a batch that have a valid response."""
        answered = batch.mask.any(1).cpu()
        keys = keys_of(batch)[answered]
        self.insert(keys.unique())
        place = self.place(keys)
        for name, values in columns.items():
            self.columns[name][place] = values.cpu()[answered]

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        columns = {name: column.clone() for name, column in self.columns.items()}
        return {"keys": self.keys, **columns}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the state from a checkpoint."""
        self.keys = state["keys"].cpu()
        self.columns = {name: state[name].cpu().clone() for name in self.columns}
