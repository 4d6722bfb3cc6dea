"""Processors of models that see, also where torchvision is missing, as in the stack for CPU."""

from __future__ import annotations

import functools
import re
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

IMAGE_TAG = "<image>"  # where in a prompt an image stands, for OpenRLHF


def parts(content: str) -> str | list[dict[str, str]]:
    """What chat templates of models that see take: text and images, as OpenRLHF splits them."""
    if IMAGE_TAG not in content:
        return content
    pieces = [piece.strip() for piece in re.split(f"({IMAGE_TAG})", content) if piece.strip()]
    image = {"type": "image"}
    return [image if p == IMAGE_TAG else {"type": "text", "text": p} for p in pieces]


@functools.cache
def leave_out_videos(processing_utils: ModuleType) -> None:
    """Lets processors load without torchvision, which only their part for videos needs."""
    if not find_spec("torchvision"):
        mixin = processing_utils.ProcessorMixin
        every = mixin.get_attributes.__func__
        mixin.get_attributes = classmethod(
            lambda cls: [part for part in every(cls) if part != "video_processor"]
        )


def load_processor(folder: str | Path) -> Any:
    """The processor of a model, which is its tokenizer if the model reads text alone."""
    from transformers import AutoProcessor, processing_utils

    leave_out_videos(processing_utils)
    return AutoProcessor.from_pretrained(folder)
