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
FLAG = "algo.advantage.estimator"


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

    Raises BadInput for a checkpoint without memory, or with that of another estimator or version,
    unless `--js.changed` names the estimator: then it begins with an empty one.
    """
    if estimator is None or estimator.memory is None:
        return
    name = estimator.record.name
    kept = states.get(ESTIMATOR)
    if kept is None or not is_memory_of(kept, estimator):
        if FLAG in (args.js.changed or ()):
            print(f"openrlhf_js: {name} begins with an empty memory", flush=True)
            return
        of_what = "no memory" if kept is None else "the memory of another estimator or version"
        raise BadInput(
            f"--ckpt.load_enable: that checkpoint holds {of_what}, not that of {name}: resume it "
            f"as it was, or begin with an empty memory by --js.changed {FLAG}"
        )
    if has_other_weights(kept, estimator, over_tokens=means_over_tokens(args)):
        print(
            f"openrlhf_js: the loss now weighs responses differently: {name} begins with an empty "
            "memory",
            flush=True,
        )
    else:
        estimator.load_state_dict(kept["state"])
