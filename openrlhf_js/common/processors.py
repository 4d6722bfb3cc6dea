"""Processors of vision models, also without torchvision, which the CPU stack lacks."""

from __future__ import annotations

import functools
from pathlib import Path
from types import ModuleType
from typing import Any

MEDIA_TOKENS = ("image_token_id", "video_token_id", "audio_token_id")  # in model configurations
FORBIDDEN = -100.0  # the logit, or logit bias, of a token that must not be sampled


def media_tokens(config: Any) -> list[int]:
    """Ids of the tokens that a model replaces by images, videos or audio; without media they
    fail."""
    tokens = [getattr(config, name, None) for name in MEDIA_TOKENS]
    return [token for token in tokens if token is not None]


@functools.cache
def leave_out_videos(processing_utils: ModuleType) -> None:
    """Lets processors load without torchvision, which only their video part needs.

    To transformers it is also missing where torch is, as in a dry run.
    """
    from transformers.utils import is_torchvision_available

    if not is_torchvision_available():
        mixin = processing_utils.ProcessorMixin
        all_attributes = mixin.get_attributes.__func__
        mixin.get_attributes = classmethod(
            lambda cls: [name for name in all_attributes(cls) if name != "video_processor"]
        )


def load_processor(folder: str | Path, trust_remote_code: bool) -> Any:
    """The processor of a model, or its tokenizer if the model reads only text."""
    from transformers import AutoProcessor, processing_utils

    leave_out_videos(processing_utils)
    return AutoProcessor.from_pretrained(folder, trust_remote_code=trust_remote_code)
