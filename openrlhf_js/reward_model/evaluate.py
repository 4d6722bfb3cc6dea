"""Evaluates a reward model on held-out preferences: accuracy, calibration, and length.

A margin is the reward of the chosen response minus that of the rejected one. The Bradley-Terry
model says that the response with the larger reward is preferred with confidence sigmoid(|margin|).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from answer_graders.programs.store import Store
from openrlhf_js.common.intervals import mean_interval, share_interval
from openrlhf_js.reward_model.preferences import PreferencePair, Template, rendered, response

Floats = NDArray[np.float64]
Interval = dict[str, float | None]  # value, low and high

BINS = 15  # of confidence
LEAST_PER_BIN = 20  # pairs; too few pairs for this make fewer bins


def texts_of(
    pairs: Iterable[PreferencePair],
    template: Template | None = None,
    input_template: str | None = None,
) -> list[tuple[str, str]]:
    """Chosen and rejected texts as in training, except for EOS; templates as in `rendered`."""
    texts = []
    for pair in pairs:
        try:
            made = rendered(pair, template, input_template)
        except (ValueError, LookupError) as error:  # LookupError: of other braces in a template
            raise ValueError(f"{pair.place}: {error}") from None
        texts.append((made.chosen, made.rejected))
    return texts


def repetitions(texts: Iterable[tuple[str, str]]) -> dict[str, int]:
    """How many pairs repeat an earlier pair, and how many repeat one with the sides swapped."""
    seen = set()
    counts = {"repeated": 0, "reversed": 0}
    for chosen, rejected in texts:
        if (chosen, rejected) in seen:
            counts["repeated"] += 1
        elif (rejected, chosen) in seen:
            counts["reversed"] += 1
        else:
            seen.add((chosen, rejected))
    return counts


def prompt_of(pair: PreferencePair) -> str:
    """What identifies the prompt; a pair of texts that include it is its own cluster."""
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
    """The rewards (pairs, 2) of chosen and rejected texts; those in the store are not computed
    again.

    `at_once` pairs are scored and stored together; `progress` gets the number that have rewards.
    """
    missing = [index for index in range(len(texts)) if (index,) not in store]
    for start in range(0, len(missing), at_once):
        indices = missing[start : start + at_once]
        sides: list[str] = []
        for index in indices:
            sides += texts[index]
        rewards = score(sides)
        records = []
        for index, chosen, rejected in zip(indices, rewards[::2], rewards[1::2], strict=True):
            if not (math.isfinite(chosen) and math.isfinite(rejected)):
                message = f"the sides of pair {index + 1} got the rewards {chosen} and {rejected}"
                raise ValueError(message)
            records.append({"pair": index, "chosen": float(chosen), "rejected": float(rejected)})
        store.append(records)
        progress(len(store.records))
    rewards_of_pairs = []
    for index in range(len(texts)):
        record = store.records[index,]
        rewards_of_pairs.append((record["chosen"], record["rejected"]))
    return np.array(rewards_of_pairs, dtype=np.float64)


def response_lengths(tokenizer: Any, pairs: Iterable[PreferencePair]) -> Floats:
    """The tokens (pairs, 2) of chosen and rejected responses."""
    texts = []
    for pair in pairs:
        texts.append(response(pair.chosen))
        texts.append(response(pair.rejected))
    ids = tokenizer(texts, add_special_tokens=False).input_ids
    return np.array([len(tokens) for tokens in ids], dtype=np.float64).reshape(-1, 2)


def evaluate(
    rewards: Floats, lengths: Floats, prompts: Sequence[str], subsets: Sequence[str]
) -> dict[str, Any]:
    """Everything that is reported about a reward model, as values for JSON.

    Accuracy is the share of pairs whose chosen response has the larger reward; a tie counts half.
    An interval is {"value", "low", "high"} at 95 %, clustered by prompt; an end is None where the
    pairs do not bound it, and the interval is None without pairs.

    `rewards`, not normalised, and `lengths` in tokens are (pairs, 2): chosen and rejected.
    """
    if not len(rewards):
        raise ValueError("there is no pair to evaluate on")
    margins = rewards[:, 0] - rewards[:, 1]
    _, clusters = np.unique(np.array(prompts, dtype=object), return_inverse=True)
    return {
        **_accuracy_and_margin(margins, clusters),
        "subsets": _by_subset(margins, clusters, subsets),
        "reward": {"mean": float(rewards.mean()), "std": float(rewards.std(ddof=1))},
        "calibration": {
            "error": calibration_error(margins),
            "error_by_chance": error_by_chance(margins),
            "log_loss": log_loss(margins),
        },
        "length": _length(lengths, margins, clusters),
    }


def _by_subset(
    margins: Floats, clusters: NDArray[np.int64], subsets: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Figures of each subset, where there are several."""
    names = sorted(set(subsets))
    if len(names) == 1:
        return {}
    subset_of_pair = np.array(subsets, dtype=object)
    figures = {}
    for name in names:
        members = subset_of_pair == name
        figures[name] = _accuracy_and_margin(margins[members], clusters[members])
    return figures


def _accuracy_and_margin(margins: Floats, clusters: NDArray[np.int64]) -> dict[str, Any]:
    return {
        "pairs": len(margins),
        "prompts": len(np.unique(clusters)),
        "accuracy": _share(hits(margins), clusters),
        "margin": mean_interval(margins, clusters)._asdict(),
        "ties": float((margins == 0).mean()),
    }


def _share(values: Floats, clusters: NDArray[np.int64]) -> Interval | None:
    """The mean of values in [0, 1]; None if there are none."""
    return share_interval(values, clusters)._asdict() if len(values) else None


def hits(margins: Floats) -> Floats:
    """1 where the chosen response has the larger reward, 1/2 where both have the same, else 0."""
    return np.heaviside(margins, 0.5)


# Calibration: do margins match the probabilities of the Bradley-Terry model?


def calibration_error(margins: Floats, bins: int = BINS) -> float:
    """The expected calibration error: mean |confidence - accuracy| over bins, weighted by pairs.

    The bins hold equal numbers of pairs: Nguyen and O'Connor (2015), "Posterior calibration and
    exploratory analysis for natural language processing models".
    """
    confidence = _confidence(margins)
    excess = confidence - hits(margins)
    errors = [abs(excess[pairs].sum()) for pairs in _bins(confidence, bins)]
    return float(sum(errors) / len(margins))


def _confidence(margins: Floats) -> Floats:
    return 1 / (1 + np.exp(-np.abs(margins)))


def _bins(confidence: Floats, max_bins: int) -> list[NDArray[np.intp]]:
    """Indices of the pairs of each bin."""
    count = max(1, min(max_bins, len(confidence) // LEAST_PER_BIN))
    return np.array_split(np.argsort(confidence, kind="stable"), count)


def error_by_chance(margins: Floats) -> float:
    """The calibration error to expect from exact confidences on as many independent pairs.

    A bin's accuracy is then nearly normal, at a mean distance of sqrt(2 / pi) standard deviations
    from its confidence.
    """
    confidence = _confidence(margins)
    variance = confidence * (1 - confidence)
    deviations = 0.0
    for pairs in _bins(confidence, BINS):
        deviations += math.sqrt(variance[pairs].sum())
    return math.sqrt(2 / math.pi) * deviations / len(margins)


def log_loss(margins: Floats) -> float:
    """Mean of -log sigmoid(margin), in nats: the loss of reward training; log 2 by chance."""
    return float(np.logaddexp(0, -margins).mean())


def _length(lengths: Floats, margins: Floats, clusters: NDArray[np.int64]) -> dict[str, Any]:
    """How far the model follows length; "longer_preferred..." is for pairs whose lengths differ."""
    differences = lengths[:, 0] - lengths[:, 1]
    unequal = differences != 0
    prefers_longer = hits(margins * np.sign(differences))[unequal]
    labels_prefer_longer = hits(differences)[unequal]
    return {
        "accuracy_of_length_alone": _share(hits(differences), clusters),
        "longer_preferred_by_model": _share(prefers_longer, clusters[unequal]),
        "longer_preferred_by_labels": _share(labels_prefer_longer, clusters[unequal]),
    }
