"""Starts the estimator of a run, and keeps its memory in the run's checkpoints."""

from __future__ import annotations

from typing import Any

from openrlhf_js.estimators import LiveEstimator
from openrlhf_js.estimators.catalogue import in_training
from openrlhf_js.trainers.kept import has_other_weights, is_memory_of, kept_memory
from openrlhf_js.trainers.openrlhf.flags import means_over_tokens
from openrlhf_js.trainers.openrlhf.upstream import BadInput

# The key in a checkpoint's states that holds the name and the state of an estimator.
ESTIMATOR = "js_estimator"


def start_estimator(args: Any) -> LiveEstimator | None:
    """The estimator of a new run; None if we have no estimator with upstream's baseline."""
    record = in_training(args.algo.advantage.estimator).record
    return None if record is None else LiveEstimator(record.name, shrinkage=args.js.shrinkage)


def keep_memory(states: dict[str, Any], estimator: LiveEstimator | None, args: Any) -> None:
    """Adds what an estimator remembers to the states of a checkpoint."""
    if estimator is not None and estimator.memory is not None:
        states[ESTIMATOR] = kept_memory(estimator, over_tokens=means_over_tokens(args))


def resume_memory(states: dict[str, Any], estimator: LiveEstimator | None, args: Any) -> None:
    """Restores an estimator's memory from a checkpoint, unless its weights have another unit.

    Raises BadInput for a checkpoint without memory, or with that of another estimator or version.
    """
    if estimator is None or estimator.memory is None:
        return
    name = estimator.record.name
    if ESTIMATOR not in states:
        raise BadInput(
            f"--ckpt.load_enable: that checkpoint holds no memory, and {name} would begin with an "
            "empty one: resume it with its own estimator, or start afresh without "
            "--ckpt.load_enable"
        )
    kept = states[ESTIMATOR]
    if not is_memory_of(kept, estimator):
        raise BadInput(
            "--ckpt.load_enable: that checkpoint holds the memory of another estimator, or of "
            "another version of openrlhf_js: resume it with that one, or start afresh without "
            "--ckpt.load_enable"
        )
    if has_other_weights(kept, estimator, over_tokens=means_over_tokens(args)):
        print(
            f"openrlhf_js: the loss now weighs responses otherwise: {name} begins with what it "
            "knew at the start",
            flush=True,
        )
    else:
        estimator.load_state_dict(kept["state"])
