"""What a checkpoint holds of an estimator's memory, in any trainer."""

from __future__ import annotations

from typing import Any

from openrlhf_js.estimators import LiveEstimator
from openrlhf_js.estimators.own import parse_own


def kept_memory(estimator: LiveEstimator, *, over_tokens: bool) -> dict[str, Any]:
    """The entry of a checkpoint: the estimator's name and state, and the unit of its weights, which
    the loss decides (`over_tokens`: it divides each response by its length)."""
    return {
        "name": _kept_name(estimator),
        "over_tokens": over_tokens,
        "state": estimator.state_dict(),
    }


def is_memory_of(kept: dict[str, Any], estimator: LiveEstimator) -> bool:
    """Whether an entry was made by this estimator, in this version."""
    if kept["name"] != _kept_name(estimator):
        return False
    if estimator.record.reads_score_norms and "over_tokens" not in kept:
        return False
    is_own = parse_own(estimator.record.name) is not None  # a user's class may have any attributes
    return is_own or kept["state"].keys() == estimator.state_dict().keys()


def has_other_weights(kept: dict[str, Any], estimator: LiveEstimator, *, over_tokens: bool) -> bool:
    """Whether the loss has changed so that weights of an entry have another unit than today's."""
    return estimator.record.reads_score_norms and kept["over_tokens"] != over_tokens


def _kept_name(estimator: LiveEstimator) -> str:
    """The estimator's name; for a user's own, only the name in its file, which may be moved."""
    own = parse_own(estimator.record.name)
    return estimator.record.name if own is None else own.name
