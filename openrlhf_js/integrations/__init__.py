"""The estimators in other training stacks, each in a file that imports its stack: verl, TRL."""

from __future__ import annotations

import functools
import warnings

from openrlhf_js.estimators import Batch, Estimator


def check_prompts(record: Estimator, batch: Batch) -> None:
    """Warns once where a batch of one prompt leaves nothing to shrink towards."""
    shrinks_to_batch = record.shrink is not None and record.memory is None
    if shrinks_to_batch and batch.present.sum() == 1:
        _warn_of_one_prompt(record.name)


@functools.cache
def _warn_of_one_prompt(name: str) -> None:
    warnings.warn(
        f"{name} needs the other prompts of a batch, and a batch has one prompt: it computes rloo. "
        "Use more prompts in a batch.",
        stacklevel=4,
    )
