"""Processors of models that see, also where torchvision is missing, as in the stack for CPU."""

from __future__ import annotations

import functools
import re
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from answer_graders.labels import IMAGE_TAG

MEDIA_TOKENS = ("image_token_id", "video_token_id", "audio_token_id")  # of configurations
FORBIDDEN = -100.0  # the logit, or what is added to it, of a token that must not be sampled


def media_tokens(config: Any) -> list[int]:
    """The tokens in whose places a model puts what it sees or hears; without media they fail."""
    tokens = [getattr(config, name, None) for name in MEDIA_TOKENS]
    return [token for token in tokens if token is not None]


def parts(content: str) -> str | list[dict[str, str]]:
    """What chat templates of models that see take: text and images, as OpenRLHF splits them."""
    if IMAGE_TAG not in content:
        return content
    pieces = [piece.strip() for piece in re.split(f"({IMAGE_TAG})", content) if piece.strip()]
    return [
        {"type": "image"} if piece == IMAGE_TAG else {"type": "text", "text": piece}
        for piece in pieces
    ]


@functools.cache
def leave_out_videos(processing_utils: ModuleType) -> None:
    """Lets processors load without torchvision, which only their part for videos needs."""
    if not find_spec("torchvision"):
        mixin = processing_utils.ProcessorMixin
        all_attributes = mixin.get_attributes.__func__
        mixin.get_attributes = classmethod(
            lambda cls: [name for name in all_attributes(cls) if name != "video_processor"]
        )


def load_processor(folder: str | Path, trust_remote_code: bool) -> Any:
    """The processor of a model, which is its tokenizer if the model reads text alone."""
    from transformers import AutoProcessor, processing_utils

    leave_out_videos(processing_utils)
    return AutoProcessor.from_pretrained(folder, trust_remote_code=trust_remote_code)
