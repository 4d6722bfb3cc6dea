"""The estimators in other training stacks, each in a file that imports its stack: verl, TRL."""

from __future__ import annotations

import json
from typing import Any

from openrlhf_js.estimators import Batch, Estimator, key_of
from openrlhf_js.estimators.advantages import warn_once


def prompt_key(*columns: Any) -> int:
    """What a prompt is known by: text and messages as they are, images by their pixels."""
    return key_of(json.dumps(columns, default=_contents))


def _contents(value: Any) -> Any:
    if hasattr(value, "tolist"):  # an array
        return value.tolist()
    return value.tobytes().hex() if hasattr(value, "tobytes") else repr(value)


def check_prompts(record: Estimator, batch: Batch) -> None:
    """Warns once where a batch of one prompt leaves nothing to shrink towards."""
    shrinks_to_batch = record.shrink is not None and record.memory is None
    if shrinks_to_batch and batch.present.sum() == 1:
        warn_once(
            f"{record.name} needs the other prompts of a batch, and a batch has one prompt: it "
            "computes rloo. Use more prompts in a batch.",
            stacklevel=4,
        )
