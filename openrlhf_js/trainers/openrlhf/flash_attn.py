"""Runs OpenRLHF without flash-attn.

OpenRLHF always imports two flash-attn modules, for packing and ring attention, used or not.
Packing needs only index arithmetic, which transformers has in plain PyTorch; with sdpa,
transformers keeps packed sequences apart by their position ids. Ring attention is refused.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from openrlhf_js.trainers.openrlhf.imports import around_import
from openrlhf_js.trainers.openrlhf.upstream import BadInput


def _has_flash_attn() -> bool:
    return importlib.util.find_spec("flash_attn") is not None


def _all_gather(*_: Any) -> Any:
    raise BadInput("ring attention needs flash-attn: install it, or set --ds.ring_attn_size 1")


@contextmanager
def _flash_attn_stand_ins(_: ModuleType) -> Iterator[None]:
    """Upstream (models/ring_attn_utils.py):
    from flash_attn.bert_padding import index_first_axis, pad_input, rearrange, unpad_input
    from flash_attn.utils.distributed import all_gather
    """
    import einops
    from transformers import modeling_flash_attention_utils as plain

    contents: dict[str, dict[str, Any]] = {
        "flash_attn": {},
        "flash_attn.bert_padding": {
            "index_first_axis": lambda rows, indices: rows[indices],
            "pad_input": plain._pad_input,
            "rearrange": einops.rearrange,
            "unpad_input": plain._unpad_input,
        },
        "flash_attn.utils": {},
        "flash_attn.utils.distributed": {"all_gather": _all_gather},
    }
    for name, names in contents.items():
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name]).update(names)
    try:
        yield
    finally:  # other code that checks for flash_attn must get the true answer
        for name in contents:
            del sys.modules[name]


def install() -> None:
    """Makes OpenRLHF importable in this process if flash-attn is missing."""
    if not _has_flash_attn():
        around_import("openrlhf.models.ring_attn_utils", _flash_attn_stand_ins)


def fall_back_to_sdpa(args: argparse.Namespace) -> bool:
    """Sets sdpa if flash-attn is requested and missing; returns whether it did."""
    if _has_flash_attn() or "flash_attention" not in args.ds.attn_implementation:
        return False
    if args.ds.ring_attn_size > 1:
        _all_gather()
    args.ds.attn_implementation = "sdpa"
    return True
