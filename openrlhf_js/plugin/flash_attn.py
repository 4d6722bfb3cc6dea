"""Run OpenRLHF where flash-attn is not installed.

OpenRLHF imports two flash-attn modules whether it uses them or not. They serve packing and ring
attention. Packing needs only index arithmetic, which transformers has in plain PyTorch; with
sdpa, transformers keeps packed sequences apart by their position ids. Ring attention is refused.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from openrlhf_js.plugin.errors import BadInput
from openrlhf_js.plugin.imports import around_import


def installed() -> bool:
    """Whether flash-attn can be imported here."""
    return importlib.util.find_spec("flash_attn") is not None


def _all_gather(*_: Any) -> Any:
    raise BadInput("ring attention needs flash-attn: install it, or set --ds.ring_attn_size 1")


@contextmanager
def _stand_ins(_: ModuleType) -> Iterator[None]:
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
    finally:  # others ask whether flash_attn exists, and must hear the truth
        for name in contents:
            del sys.modules[name]


def install_stand_ins() -> None:
    """Makes OpenRLHF importable in this process if flash-attn is missing, else does nothing."""
    if not installed():
        around_import("openrlhf.models.ring_attn_utils", _stand_ins)


def fall_back_to_sdpa(args: argparse.Namespace) -> str | None:
    """Sets `args.ds.attn_implementation` to sdpa where flash-attn is asked for and missing.

    Args:
        args: OpenRLHF's nested arguments, after its own validation.

    Returns:
        A notice for the user, or None if nothing changed.

    Raises:
        BadInput: ring attention was asked for, which has no other implementation.
    """
    if installed() or "flash_attention" not in args.ds.attn_implementation:
        return None
    if args.ds.ring_attn_size > 1:
        _all_gather()
    wanted, args.ds.attn_implementation = args.ds.attn_implementation, "sdpa"
    return f"flash-attn is not installed: attention runs with sdpa instead of {wanted}."
