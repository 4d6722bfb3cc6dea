"""The estimators in other training stacks, one file per stack, which imports it: verl, TRL."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch

from openrlhf_js.estimators import Batch, Estimator
from openrlhf_js.estimators.advantages import warn_once
from openrlhf_js.estimators.memory import digest_of, key_of


def prompt_key(prompt: Any) -> int:
    """A key that identifies a prompt by its text, messages or row, with images by their pixels."""
    return key_of(json.dumps(prompt, default=_known_by))


def _known_by(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        value = value.cpu().numpy()
    if isinstance(value, np.ndarray) and value.dtype.hasobject:  # an array of messages
        return value.tolist()
    return digest_of(value) if hasattr(value, "tobytes") else repr(value)


def check_prompts(record: Estimator, batch: Batch) -> None:
    """Warns once where a batch of one prompt leaves nothing to shrink towards."""
    shrinks_to_batch = record.shrink is not None and record.memory is None
    if shrinks_to_batch and batch.present.sum() == 1:
        warn_once(
            f"{record.name} needs the other prompts of a batch, and a batch has one prompt: it "
            "computes rloo. Use more prompts in a batch.",
            stacklevel=4,
        )
