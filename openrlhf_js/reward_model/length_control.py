"""How much does a reward model go by length, and how good is it apart from that?

Lengths are of the responses, in whatever unit the caller counts. A pair's difference is the length
of the chosen response less that of the rejected one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from openrlhf_js import uncertainty
from openrlhf_js.reward_model.calibration import Floats
from openrlhf_js.uncertainty import Estimate
from openrlhf_js.uncertainty.correlations import Kind

MATCHED_SHARE = 0.1  # lengths of a matched pair differ by at most so much of their mean
CORRELATION_ROUNDS = 200  # which leave its standard error uncertain by 5 %
NEWTON_STEPS = 50
FARTHEST = 1e3  # log-odds per standard deviation: the weights grow without end


def matched(chosen: Floats, rejected: Floats) -> NDArray[np.bool_]:
    """Which pairs have nearly the same length on both sides."""
    return np.abs(chosen - rejected) <= MATCHED_SHARE * (chosen + rejected) / 2


def without_length(margins: Floats, differences: Floats) -> Floats:
    """Margins less the part that is proportional to the length difference (least squares).

    That part may hold what length rightly earned, so accuracy can fall even for a perfect model.
    """
    square = float(differences @ differences)
    return margins - (float(margins @ differences) / square if square else 0.0) * differences


def correlation(
    rewards: Floats, lengths: Floats, clusters: NDArray[np.int64], kind: Kind
) -> Estimate | None:
    """With its interval by cluster; None if one of the two does not vary."""
    if np.ptp(rewards) == 0 or np.ptp(lengths) == 0:
        return None
    return uncertainty.correlation(
        rewards, lengths, clusters, kind=kind, seed=0, rounds=CORRELATION_ROUNDS
    )


def correlation_within_pairs(margins: Floats, differences: Floats) -> float | None:
    """Pearson's of reward and length, each less its pair's mean: free of prompts' differences.

    It does not depend on which response of a pair was the chosen one.
    """
    norm = float(np.linalg.norm(margins) * np.linalg.norm(differences))
    return float(np.clip(margins @ differences / norm, -1, 1)) if norm > 0 else None


class Weight(NamedTuple):
    """A weight of the logistic regression, in log-odds per unit of its regressor, and its error."""

    value: float
    standard_error: float


def preference_regression(
    margins: Floats, differences: Floats, clusters: NDArray[np.int64]
) -> dict[str, Weight] | None:
    """What tells the chosen response when margin and length difference are both known?

        P(the first of two is chosen) = sigmoid(a (its reward - the other's) + b (its length - ...))

    There is no constant, since neither response is the first. If length has a weight although the
    margin is known, the model takes length for too little (b > 0) or too much (b < 0).

    Args:
        margins: (pairs,).
        differences: (pairs,).
        clusters: (pairs,) the prompt of each; errors are robust to what its pairs have in common.

    Returns:
        The weights of `margin` and `length`, or None where they are not determined: one does not
        vary or follows from the other, or the two tell all pairs apart.
    """
    regressors = np.stack([margins, differences], axis=1)
    scale = np.sqrt((regressors**2).mean(axis=0))
    if not (scale > 0).all():
        return None
    unit = regressors / scale
    if np.linalg.cond(unit.T @ unit) > 1e10:
        return None
    weights = _newton(unit)
    if weights is None or (unit @ weights >= 0).all():  # no finite weights are the best
        return None
    missing = expit(-unit @ weights)
    information = (unit * (missing * (1 - missing))[:, None]).T @ unit
    scores = np.zeros((int(clusters.max()) + 1, 2))
    np.add.at(scores, clusters, unit * missing[:, None])
    bread = np.linalg.inv(information)
    errors = np.sqrt(np.diag(bread @ (scores.T @ scores) @ bread))
    names = ("margin", "length")
    return {
        name: Weight(float(weights[i] / scale[i]), float(errors[i] / scale[i]))
        for i, name in enumerate(names)
    }


def _newton(unit: Floats) -> Floats | None:
    """The weights with the greatest likelihood, or None where they grow without end."""

    def loss(weights: Floats) -> float:
        return float(np.logaddexp(0, -unit @ weights).mean())

    weights = np.zeros(unit.shape[1])
    for _ in range(NEWTON_STEPS):
        missing = expit(-unit @ weights)
        slope = (unit * missing[:, None]).mean(axis=0)
        if np.abs(slope).max() < 1e-10:
            return weights
        curvature = (unit * (missing * (1 - missing))[:, None]).T @ unit / len(unit)
        if np.linalg.cond(curvature) > 1e12:
            return None
        step, here = np.linalg.solve(curvature, slope), loss(weights)
        while loss(weights + step) > here and np.abs(step).max() > 1e-12:
            step /= 2
        weights = weights + step
        if np.abs(weights).max() > FARTHEST:
            return None
    return None


def summary_of_lengths(
    chosen: Floats, rejected: Floats, rewards: Floats, clusters: NDArray[np.int64]
) -> dict[str, Any]:
    """Means, shares, and the correlations of length and reward, as plain values.

    Args:
        chosen: (pairs,) lengths.
        rejected: (pairs,) lengths.
        rewards: (2 pairs,) those of the chosen responses, then those of the rejected ones.
        clusters: (pairs,) the prompt of each.
    """
    differences = chosen - rejected
    lengths = np.concatenate([chosen, rejected])
    margins = rewards[: len(chosen)] - rewards[len(chosen) :]
    twice = np.tile(clusters, 2)
    pearson = correlation(rewards, lengths, twice, "pearson")
    spearman = correlation(rewards, lengths, twice, "spearman")
    return {
        "mean_chosen": float(chosen.mean()),
        "mean_rejected": float(rejected.mean()),
        "share_chosen_longer": float((differences > 0).mean()),
        "share_chosen_shorter": float((differences < 0).mean()),
        "correlation": pearson and pearson.plain(),
        "rank_correlation": spearman and spearman.plain(),
        "correlation_within_pairs": correlation_within_pairs(margins, differences),
    }
