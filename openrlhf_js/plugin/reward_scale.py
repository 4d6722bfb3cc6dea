"""The mean and std that a reward model in Ray normalises with, which upstream loses.

Upstream keeps them in buffers that are no part of the checkpoint and fills those when the model is
built. Transformers 5 builds a model without memory and gives it some afterwards, so that they hold
whatever was there: rewards shrink to nothing, or change their sign.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from openrlhf.models import get_llm_for_sequence_regression


@functools.wraps(get_llm_for_sequence_regression)
def load_with_scale(model_name_or_path: str, model_type: str, **settings: Any) -> Any:
    """Upstream's model with the mean and std of its config.json, or 0 and 1 for a critic.

    Raises:
        ValueError: rewards are to be normalised, but config.json has no mean and std.
    """
    model = get_llm_for_sequence_regression(model_name_or_path, model_type, **settings)
    # a model of which LoRA trains a part is wrapped twice
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    mean, std = getattr(inner.config, "mean", None), getattr(inner.config, "std", None)
    if mean is None or std is None:
        if inner.normalize_reward and model_type == "reward":
            raise ValueError(
                f"--reward.normalize_enable: config.json of {model_name_or_path} has no mean and "
                "std (`openrlhf-js rm train` writes them)"
            )
        mean, std = 0.0, 1.0
    for name, value in (("mean", mean), ("std", std)):
        buffer = getattr(inner, name)
        setattr(inner, name, torch.full_like(buffer, value))
    return model
