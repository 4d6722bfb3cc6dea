"""What the rewards of a preference file say about the reward model that gave them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openrlhf_js.reward_model import calibration, length_control
from openrlhf_js.reward_model.calibration import Floats, hits
from openrlhf_js.uncertainty import clustered_mean, clustered_proportion, stratified_mean

HISTOGRAM_BINS = 40
Interval = dict[str, float | None]  # value, low and high
SHOWN_POINTS = 2_000  # of reward over length, in the picture


@dataclass(frozen=True)
class ScoredPairs:
    """Both rewards of every pair, and what they are compared by. Each field has one entry a pair.

    Attributes:
        chosen: rewards of the preferred responses, without normalisation.
        rejected: rewards of the others.
        chosen_lengths: of the preferred responses.
        rejected_lengths: of the others.
        prompts: what tells prompts apart: pairs with the same one are not independent.
        subsets: the names of the groups that are also reported by themselves, or "".
        length_unit: "tokens" or "characters".
    """

    chosen: Floats
    rejected: Floats
    chosen_lengths: Floats
    rejected_lengths: Floats
    prompts: Sequence[str]
    subsets: Sequence[str]
    length_unit: str

    def __post_init__(self) -> None:
        """Raises ValueError if there is no pair, or a reward that is not finite."""
        count = len(self.chosen)
        if count == 0:
            raise ValueError("there is no pair to evaluate on")
        for name in ("rejected", "chosen_lengths", "rejected_lengths", "prompts", "subsets"):
            if len(getattr(self, name)) != count:
                raise ValueError(f"{count} chosen rewards, but {len(getattr(self, name))} {name}")
        for name in ("chosen", "rejected"):
            finite = np.isfinite(getattr(self, name))
            if not finite.all():
                number = int((~finite).argmax())
                value = getattr(self, name)[number]
                raise ValueError(f"the {name} reward of pair {number + 1} is {value}")


def evaluate(pairs: ScoredPairs) -> dict[str, Any]:
    """Everything that is reported about a reward model, as plain values for JSON.

    Accuracy is the share of pairs whose chosen response has the larger reward; a tie counts half.
    An interval is `{"value", "low", "high"}` at 95 %, clustered by prompt: the pairs of one prompt
    are not independent, the prompts are. An end is None where the pairs do not bound it, and the
    whole is None where there is nothing to average.
    """
    margins = pairs.chosen - pairs.rejected
    numbers = {prompt: number for number, prompt in enumerate(dict.fromkeys(pairs.prompts))}
    clusters = np.array([numbers[prompt] for prompt in pairs.prompts])
    rewards = np.concatenate([pairs.chosen, pairs.rejected])
    return {
        **_part(margins, clusters, np.ones(len(margins), dtype=bool)),
        "subsets": _subsets(margins, clusters, pairs.subsets),
        "reward": {
            "mean": float(rewards.mean()),
            "std": float(rewards.std(ddof=1)),
            "least": float(rewards.min()),
            "greatest": float(rewards.max()),
            "chosen_mean": float(pairs.chosen.mean()),
            "rejected_mean": float(pairs.rejected.mean()),
        },
        "calibration": _calibration(margins),
        "length": _length(pairs, margins, clusters, rewards),
        "pictures": _pictures(pairs, margins),
    }


def _mean(values: Floats, clusters: NDArray[np.int64]) -> Interval:
    return clustered_mean(values, clusters).plain()


def _share(values: Floats, clusters: NDArray[np.int64], part: NDArray[np.bool_]) -> Interval | None:
    """The mean of values in [0, 1] over a part of the pairs; None if no pair is in it."""
    return clustered_proportion(values[part], clusters[part]).plain() if part.any() else None


def _part(margins: Floats, clusters: NDArray[np.int64], part: NDArray[np.bool_]) -> dict[str, Any]:
    return {
        "pairs": int(part.sum()),
        "prompts": len(np.unique(clusters[part])),
        "accuracy": _share(hits(margins), clusters, part),
        "margin": _mean(margins[part], clusters[part]),
        "ties": float((margins[part] == 0).mean()),
    }


def _subsets(
    margins: Floats, clusters: NDArray[np.int64], subsets: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """By name; empty if there is only one."""
    names = np.array(subsets, dtype=object)
    every = sorted(set(subsets))
    if len(every) < 2:
        return {}
    return {name: _part(margins, clusters, names == name) for name in every}


def _calibration(margins: Floats) -> dict[str, Any]:
    bins = calibration.reliability(margins)
    best = calibration.temperature(margins)
    found: dict[str, Any] = {
        "error": calibration.calibration_error(bins),
        "error_by_chance": calibration.error_by_chance(margins),
        "log_loss": calibration.log_loss(margins),
        "temperature": best,
        "bins": [each._asdict() for each in bins],
    }
    if best is not None:
        cooled = margins / best
        found["error_at_temperature"] = calibration.calibration_error(
            calibration.reliability(cooled)
        )
        found["log_loss_at_temperature"] = calibration.log_loss(cooled)
    return found


def _length(
    pairs: ScoredPairs, margins: Floats, clusters: NDArray[np.int64], rewards: Floats
) -> dict[str, Any]:
    differences = pairs.chosen_lengths - pairs.rejected_lengths
    right, everywhere = hits(margins), np.ones(len(margins), dtype=bool)
    longer, shorter = differences > 0, differences < 0
    matched = length_control.matched(pairs.chosen_lengths, pairs.rejected_lengths)
    residual = hits(length_control.without_length(margins, differences))
    regression = length_control.preference_regression(margins, differences, clusters)
    return {
        "unit": pairs.length_unit,
        **length_control.summary_of_lengths(
            pairs.chosen_lengths, pairs.rejected_lengths, rewards, clusters
        ),
        "share_of_matched_length": float(matched.mean()),
        "accuracy_of_length_alone": _share(hits(differences), clusters, everywhere),
        "accuracy_where_chosen_is_longer": _share(right, clusters, longer),
        "accuracy_where_chosen_is_shorter": _share(right, clusters, shorter),
        "accuracy_balanced": _balanced(right, clusters, longer, shorter),
        "accuracy_at_matched_length": _share(right, clusters, matched),
        "accuracy_without_linear_part": _share(residual, clusters, everywhere),
        "regression": regression and {name: each._asdict() for name, each in regression.items()},
    }


def _balanced(
    right: Floats,
    clusters: NDArray[np.int64],
    longer: NDArray[np.bool_],
    shorter: NDArray[np.bool_],
) -> Interval | None:
    """Accuracy if the chosen response were as often the longer one as the shorter one.

    Length alone would get exactly one half. Pairs of equal length are left out.
    """
    if not longer.any() or not shorter.any():
        return None
    unequal = longer | shorter
    return stratified_mean(right[unequal], longer[unequal], clusters[unequal]).plain()


def _pictures(pairs: ScoredPairs, margins: Floats) -> dict[str, Any]:
    """What the pictures need beyond the figures: a histogram, and points, thinned evenly.

    One edge of the histogram is 0, so that no bar holds margins of both signs.
    """
    width = float(np.ptp(np.append(margins, 0))) / HISTOGRAM_BINS or 1.0
    first, last = np.floor(margins.min() / width), np.floor(margins.max() / width) + 1
    counts, edges = np.histogram(margins, bins=np.arange(first, last + 1) * width)
    every = -(-len(margins) // SHOWN_POINTS)
    return {
        "margins": {"counts": counts.tolist(), "edges": edges.tolist()},
        "points": {
            "chosen_lengths": pairs.chosen_lengths[::every].tolist(),
            "chosen": pairs.chosen[::every].tolist(),
            "rejected_lengths": pairs.rejected_lengths[::every].tolist(),
            "rejected": pairs.rejected[::every].tolist(),
        },
    }
