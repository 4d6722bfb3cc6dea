"""Evaluates a reward model on held-out preferences: accuracy, calibration, and length.

A margin is the reward of the chosen response minus that of the rejected one. The Bradley-Terry
model says that the response with the larger reward is preferred with confidence sigmoid(|margin|).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openrlhf_js import stats
from openrlhf_js.common.store import Store
from openrlhf_js.reward_model.preferences import PreferencePair, Template, rendered

Floats = NDArray[np.float64]
Interval = dict[str, float | None]  # value, low and high

BINS = 15  # of confidence
LEAST_PER_BIN = 20  # pairs; fewer bins where there are not so many
HISTOGRAM_BINS = 40
SHOWN_POINTS = 2_000  # of reward over length


class ScoringFailed(RuntimeError):
    """The model gave a reward that is not a finite number."""


def texts_of(
    pairs: Iterable[PreferencePair],
    template: Template | None = None,
    input_template: str | None = None,
) -> list[tuple[str, str]]:
    """Chosen and rejected texts as in training, but for their end; templates as in `rendered`."""
    found = []
    for pair in pairs:
        try:
            found.append(rendered(pair, template, input_template)[:2])
        except ValueError as error:
            raise ValueError(f"{pair.place}: {error}") from None
    return found


def prompt_of(pair: PreferencePair) -> str:
    """What tells prompts apart; each pair of texts that hold their prompt is its own cluster."""
    prompt: Any = pair.prompt
    if prompt is None:
        prompt = pair.place if isinstance(pair.chosen, str) else pair.chosen[:-1]
    return json.dumps(prompt, sort_keys=True)


def score_pairs(
    texts: Sequence[tuple[str, str]],
    score: Callable[[Sequence[str]], Sequence[float]],
    store: Store,
    at_once: int = 128,
    progress: Callable[[int], None] = lambda pairs: None,
) -> Floats:
    """The rewards (pairs, 2) of chosen and rejected texts; those in the store are not repeated.

    `at_once` pairs are scored and stored together; `progress` gets the number that have rewards.
    """
    left = [pair for pair in range(len(texts)) if (pair,) not in store]
    for start in range(0, len(left), at_once):
        part = left[start : start + at_once]
        rewards = np.array(score([text for pair in part for text in texts[pair]]), dtype=float)
        rewards = rewards.reshape(len(part), 2)
        for pair, row in zip(part, rewards, strict=True):
            if not np.isfinite(row).all():
                raise ScoringFailed(f"the sides of pair {pair + 1} got the rewards {row}")
        store.append(
            {"pair": pair, "chosen": chosen, "rejected": rejected}
            for pair, (chosen, rejected) in zip(part, rewards.tolist(), strict=True)
        )
        progress(len(store.records))
    records = [store.records[(pair,)] for pair in range(len(texts))]
    return np.array([[each["chosen"], each["rejected"]] for each in records], dtype=np.float64)


def token_counts(tokenizer: Any, responses: Sequence[tuple[str, str]]) -> Floats:
    """The tokens (pairs, 2) of chosen and rejected responses."""
    texts = [text for pair in responses for text in pair]
    ids = tokenizer(texts, add_special_tokens=False).input_ids
    return np.array([len(each) for each in ids], dtype=np.float64).reshape(-1, 2)


def evaluate(
    rewards: Floats, lengths: Floats, prompts: Sequence[str], subsets: Sequence[str]
) -> dict[str, Any]:
    """Everything that is reported about a reward model, as values for JSON.

    Accuracy is the share of pairs whose chosen response has the larger reward; a tie counts half.
    An interval is {"value", "low", "high"} at 95 %, clustered by prompt; an end is None where the
    pairs do not bound it, and the interval where there are none.

    `rewards`, not normalised, and `lengths` in tokens are (pairs, 2): chosen and rejected.
    """
    if not len(rewards):
        raise ValueError("there is no pair to evaluate on")
    margins = rewards[:, 0] - rewards[:, 1]
    clusters = np.unique(np.array(prompts, dtype=object), return_inverse=True)[1]
    names = np.array(subsets, dtype=object)
    several = sorted(set(subsets)) if len(set(subsets)) > 1 else []
    bins = reliability(margins)
    parts = {name: _part(margins[names == name], clusters[names == name]) for name in several}
    return {
        **_part(margins, clusters),
        "subsets": parts,
        "reward": {"mean": float(rewards.mean()), "std": float(rewards.std(ddof=1))},
        "calibration": {
            "error": calibration_error(bins),
            "error_by_chance": error_by_chance(margins),
            "mean_confidence": float(_confidence(margins).mean()),
            "log_loss": log_loss(margins),
            "bins": bins,
        },
        "length": _length(lengths, margins, clusters),
        "pictures": _pictures(rewards, lengths, margins),
    }


def _part(margins: Floats, clusters: NDArray[np.int64]) -> dict[str, Any]:
    return {
        "pairs": len(margins),
        "prompts": len(np.unique(clusters)),
        "accuracy": _share(hits(margins), clusters),
        "margin": stats.clustered_mean(margins, clusters).plain(),
        "ties": float((margins == 0).mean()),
    }


def _share(values: Floats, clusters: NDArray[np.int64]) -> Interval | None:
    """The mean of values in [0, 1]; None if there are none."""
    return stats.clustered_proportion(values, clusters).plain() if len(values) else None


def hits(margins: Floats) -> Floats:
    """1 where the chosen response has the larger reward, 1/2 where both have the same, else 0."""
    return np.heaviside(margins, 0.5)


# Calibration: do margins mean the probabilities that Bradley and Terry give them?


def reliability(margins: Floats, bins: int = BINS) -> list[dict[str, float]]:
    """Mean confidence and accuracy in at most so many bins of as many pairs each, least first."""
    confidence, right = _confidence(margins), hits(margins)
    return [
        {
            "confidence": float(confidence[part].mean()),
            "accuracy": float(right[part].mean()),
            "pairs": len(part),
        }
        for part in _bins(confidence, bins)
    ]


def _confidence(margins: Floats) -> Floats:
    return 1 / (1 + np.exp(-np.abs(margins)))


def _bins(confidence: Floats, most: int) -> list[NDArray[np.intp]]:
    count = max(1, min(most, len(confidence) // LEAST_PER_BIN))
    return np.array_split(np.argsort(confidence, kind="stable"), count)


def calibration_error(bins: list[dict[str, float]]) -> float:
    """The expected calibration error: mean |confidence - accuracy| over bins, weighted by pairs.

    Bins with as many pairs each: Nguyen and O'Connor (2015), "Posterior calibration and exploratory
    analysis for natural language processing models".
    """
    off = [each["pairs"] * abs(each["confidence"] - each["accuracy"]) for each in bins]
    return sum(off) / sum(each["pairs"] for each in bins)


def error_by_chance(margins: Floats, bins: int = BINS) -> float:
    """The expected calibration error of exact confidences on as many independent pairs.

    A bin's accuracy is then nearly normal, at a mean distance of sqrt(2 / pi) standard deviations.
    """
    confidence = _confidence(margins)
    variances = [(confidence * (1 - confidence))[part].sum() for part in _bins(confidence, bins)]
    return float(np.sqrt(2 / np.pi * np.array(variances)).sum()) / len(margins)


def log_loss(margins: Floats) -> float:
    """Mean of -log sigmoid(margin), in nats: the loss of reward training; log 2 by chance."""
    return float(np.logaddexp(0, -margins).mean())


# Length: how far does the model follow it, and how good is it apart from that?


def correlation_within_pairs(margins: Floats, differences: Floats) -> float | None:
    """Pearson's of reward and length, each minus its pair's mean: free of prompts' differences."""
    norm = float(np.linalg.norm(margins) * np.linalg.norm(differences))
    return float(np.clip(margins @ differences / norm, -1, 1)) if norm > 0 else None


def _length(lengths: Floats, margins: Floats, clusters: NDArray[np.int64]) -> dict[str, Any]:
    differences, right = lengths[:, 0] - lengths[:, 1], hits(margins)
    longer, shorter, unequal = differences > 0, differences < 0, differences != 0
    prefers_longer = hits(margins * np.sign(differences))[unequal], longer[unequal].astype(float)
    more = balanced = None  # balanced: length alone would get exactly one half
    if unequal.any():
        more = stats.paired_difference(*prefers_longer, clusters[unequal]).estimate.plain()
    if longer.any() and shorter.any():
        balanced = stats.stratified_mean(right[unequal], longer[unequal], clusters[unequal]).plain()
    return {
        "mean_chosen": float(lengths[:, 0].mean()),
        "mean_rejected": float(lengths[:, 1].mean()),
        "share_chosen_longer": float(longer.mean()),
        "share_chosen_shorter": float(shorter.mean()),
        "correlation_within_pairs": correlation_within_pairs(margins, differences),
        "longer_preferred_by_model": _share(prefers_longer[0], clusters[unequal]),
        "longer_preferred_by_labels": _share(prefers_longer[1], clusters[unequal]),
        "longer_preferred_more_by_model": more,
        "accuracy_of_length_alone": _share(hits(differences), clusters),
        "accuracy_where_chosen_is_longer": _share(right[longer], clusters[longer]),
        "accuracy_where_chosen_is_shorter": _share(right[shorter], clusters[shorter]),
        "accuracy_balanced": balanced,
    }


def _pictures(rewards: Floats, lengths: Floats, margins: Floats) -> dict[str, Any]:
    """What the pictures need beyond the figures: a histogram, and points, thinned evenly."""
    counts, edges = np.histogram(margins, HISTOGRAM_BINS)
    every = -(-len(margins) // SHOWN_POINTS)
    return {
        "margins": {"counts": counts.tolist(), "edges": edges.tolist()},
        "points": {
            side: {
                "lengths": lengths[::every, column].tolist(),
                "rewards": rewards[::every, column].tolist(),
            }
            for column, side in enumerate(("chosen", "rejected"))
        },
    }
