"""Strengths of models from games between them, with or without covariates (style control).

    P(i beats j) = 1 / (1 + exp(-(theta_i - theta_j + beta x)))

fitted by weighted logistic regression. The anchor's theta is 0; a model's score is its probability
to win against the anchor, covariates equal. Source: Bradley and Terry, "Rank analysis of incomplete
block designs" (Biometrika 39, 1952); with covariates as in the style control of Arena-Hard.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import special

from openrlhf_js.stats.bootstrap import Seed, percentile_interval
from openrlhf_js.stats.bootstrap import counts as cluster_counts
from openrlhf_js.stats.estimate import CONFIDENCE, Estimate, Floats, check_confidence
from openrlhf_js.stats.games import Games, unbounded
from openrlhf_js.stats.newton import Design

RIDGE = 1e-6
"""Of the penalty ridge |parameters|^2 / 2, on a scale where a game of weight 1 has information of
up to 1/4: it moves the score of a model with 100 games, not all won or lost, by less than 1e-7."""


class Fit(NamedTuple):
    """One fit."""

    models: tuple[str, ...]
    strengths: Floats
    """(models,) theta, in log-odds; 0 for the anchor."""
    coefficients: Floats
    """(K,) beta."""
    unbounded: tuple[str, ...]
    """Models that no finite strength fits best, such as one that won every game. The ridge keeps
    theirs finite, and their score shows as 0 or 1 to about 5 digits."""

    @property
    def scores(self) -> dict[str, float]:
        """The probability of each model to win against the anchor, in [0, 1]."""
        return dict(zip(self.models, special.expit(self.strengths).tolist(), strict=True))


class Bootstrap(NamedTuple):
    """A fit, and the same for resamples of the clusters, all models together."""

    fit: Fit
    strengths: Floats
    """(rounds, models); nan where a model has no game in a resample."""
    coefficients: Floats
    """(rounds, K)"""
    clusters: int

    def score(self, model: str, confidence: float = CONFIDENCE) -> Estimate:
        """The probability to win against the anchor, with its bootstrap interval."""
        return self._interval(special.expit, self._place(model), None, confidence)

    def strength(self, model: str, confidence: float = CONFIDENCE) -> Estimate:
        """Theta with its bootstrap interval, in log-odds."""
        return self._interval(lambda theta: theta, self._place(model), None, confidence)

    def score_difference(self, a: str, b: str, confidence: float = CONFIDENCE) -> Estimate:
        """Score of a minus score of b. Both meet the same questions in every resample: paired."""
        return self._interval(special.expit, self._place(a), self._place(b), confidence)

    def coefficient(self, number: int, confidence: float = CONFIDENCE) -> Estimate:
        """Beta of one covariate with its bootstrap interval."""
        value = float(self.fit.coefficients[number])
        return self._ends(value, self.coefficients[:, number], confidence)

    def _place(self, model: str) -> int:
        if model not in self.fit.models:
            raise ValueError(f"no model {model!r}; there are {', '.join(self.fit.models[:10])}")
        return self.fit.models.index(model)

    def _interval(
        self, scale: Callable[[Floats], Floats], a: int, b: int | None, confidence: float
    ) -> Estimate:
        value, drawn = scale(self.fit.strengths[a]), scale(self.strengths[:, a])
        if b is not None:
            value = value - scale(self.fit.strengths[b])
            drawn = drawn - scale(self.strengths[:, b])
        return self._ends(float(value), drawn, confidence)

    def _ends(self, value: float, drawn: Floats, confidence: float) -> Estimate:
        check_confidence(confidence)
        known = drawn[np.isfinite(drawn)]
        if self.clusters < 2 or not len(known):
            return Estimate(value, -np.inf, np.inf)
        return percentile_interval(value, known, self.clusters, confidence)


def fit(games: Games, *, ridge: float = RIDGE) -> Fit:
    """Fit all games together.

    Args:
        games: of `games.games`.
        ridge: more than 0. With it every data set has one finite answer, also where a model won
            every game (see `Fit.unbounded`) or a covariate is constant (its coefficient is 0).

    Raises:
        ValueError: a ridge that is not positive.
    """
    design = _design(games, ridge)
    return _fit(games, _best(design, games))


def bootstrap_fit(
    games: Games, *, seed: Seed, rounds: int = 1000, ridge: float = RIDGE
) -> Bootstrap:
    """Fit all games, and the same for resamples of whole clusters.

    The same question counts equally often for all models in a resample, so differences between
    models are paired. All fits go through one Newton iteration together, on sums by question and
    model, and start at the fit of all games.

    Args:
        games: of `games.games`.
        seed: a number or a generator.
        rounds: number of resamples.
        ridge: see `fit`.

    Raises:
        ValueError: see `fit`; no round.
    """
    design = _design(games, ridge)
    best = _best(design, games)
    played = np.zeros((games.clusters, len(games.models)))
    for block in games.blocks:
        np.add.at(played[:, block.first], block.clusters, block.weights)
        np.add.at(played[:, block.second], block.clusters, block.weights)
    strengths, coefficients = [], []
    for counts in cluster_counts(games.clusters, rounds, seed):
        parameters = design.fit(counts, best)
        strengths.append(np.where(counts @ played > 0, parameters[:, : design.models], np.nan))
        coefficients.append(parameters[:, design.models :])
    return Bootstrap(
        _fit(games, best), np.concatenate(strengths), np.concatenate(coefficients), games.clusters
    )


def _design(games: Games, ridge: float) -> Design:
    if not 0 < ridge < np.inf:
        raise ValueError(
            f"ridge must be positive, such as {RIDGE}; got {ridge}. Without one a model that won "
            "every game has no finite strength"
        )
    return Design(games, ridge)


def _best(design: Design, games: Games) -> Floats:
    everything = np.ones((1, games.clusters))
    return design.fit(everything, np.zeros(design.parameters))[0]


def _fit(games: Games, parameters: Floats) -> Fit:
    models = len(games.models)
    return Fit(games.models, parameters[:models], parameters[models:], unbounded(games))
