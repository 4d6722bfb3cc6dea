"""Scores with their intervals: by question, and as the official scripts have them.

The score of a model is the mean of its weighted rows, which is the Bradley-Terry probability to win
against the one baseline that all models meet.

Official intervals resample rows. A question has two games and up to six rows, which are not
independent, so they are too narrow: on Arena-Hard by a factor of 1.6 to 1.7. They are here to
repeat what was published.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from openrlhf_js.evaluation.arena.rows import Ints, Rows, Tally, tally
from openrlhf_js.uncertainty import Estimate, clustered_proportion

Rule: TypeAlias = Literal["v0.1", "v2.0"]
OFFICIAL_ROUNDS = 100
LEVELS: Mapping[Rule, tuple[float, float]] = {"v0.1": (0.025, 0.975), "v2.0": (0.05, 0.95)}
OFFICIAL_BOTH: Mapping[Rule, bool] = {"v0.1": False, "v2.0": True}
"""Whether a judgment with one verdict only is left out whole."""


class Official(NamedTuple):
    """A score with the interval of an official script."""

    estimate: Estimate
    bootstrap_mean: float
    """Mean of the resamples, which v2.0 prints as the score."""


def of_model(of: Rows, place: int) -> Rows:
    """The rows of the model at this place."""
    return of.only(of.model == place)


def clustered(of: Rows) -> Estimate:
    """The score of one model's rows in [0, 1], with a 95 % interval by question.

    `uncertainty.clustered_proportion`: its interval follows from a formula, needs no seed, stays in
    [0, 1], and has a width also where every game was lost. Of 2,000 simulated sets (1,000 for 500
    questions) with correlated games, 20, 50, 150 or 500 questions and scores of 1, 8 or 50 %, it
    holds the truth in 93 to 97 %. The bootstrap by question holds it in 68 to 98 %, v0.1's interval
    in 68 to 89 %, and v2.0's, which is for 90 %, in 64 to 82 %.

    Args:
        of: rows of one model; of several judges too, whose rows of a question are one cluster.

    Raises:
        ValueError: no row.
    """
    return clustered_proportion(of.points, of.question, weights=of.weight)


def official(
    tallies: Mapping[str, Tally], rule: Rule, seed: int, rounds: int = OFFICIAL_ROUNDS
) -> dict[str, Official]:
    """Each model's score with the interval that a version of Arena-Hard prints.

    v0.1: all rows of all models are resampled together, the Bradley-Terry model is fitted again,
    and the interval is from the 2.5th to the 97.5th percentile. v2.0: the rows of each model are
    resampled by themselves, and the interval is from the 5th to the 95th percentile, which makes it
    a 90 % interval. A row is won, lost or tied, so a resample is a multinomial draw of three
    numbers for each model, and with one baseline the fit is the share of wins.

    The official scripts have no seed (v2.0) or another generator (v0.1), so their figures differ by
    the chance of a bootstrap. v0.1 takes percentiles on Elo's scale, which lie less than 0.02
    points from these.

    Args:
        tallies: weighted rows by model.
        rule: whose.
        seed: of the bootstrap.
        rounds: resamples; 100 in both.

    Raises:
        ValueError: no such rule, or no round.
    """
    if rule not in get_args(Rule):
        raise ValueError(f"the rule must be one of {', '.join(get_args(Rule))}; got {rule!r}")
    if rounds < 1:
        raise ValueError(f"needs one round at least, got {rounds}")
    generator = np.random.default_rng(seed)
    counts = np.array(list(tallies.values()), float).reshape(-1, 3)
    if rule == "v0.1":
        total = counts.sum()
        drawn = generator.multinomial(int(total), counts.ravel() / total, rounds)
        drawn = drawn.reshape(rounds, *counts.shape)
    else:
        drawn = np.stack(
            [generator.multinomial(int(own.sum()), own / own.sum(), rounds) for own in counts], 1
        )
    return {
        name: _official(tallies[name], drawn[:, place], rule) for place, name in enumerate(tallies)
    }


def _official(own: Tally, drawn: Ints, rule: Rule) -> Official:
    # A model with very few rows may be missing from a joint resample.
    there = drawn[drawn.sum(1) > 0]
    if not len(there):
        return Official(Estimate(own.score, -math.inf, math.inf), own.score)
    scores = (there[:, 0] + there[:, 2] / 2) / there.sum(1)
    low, high = np.quantile(scores, LEVELS[rule])
    return Official(Estimate(own.score, float(low), float(high)), float(scores.mean()))


def tallies(of: Rows, models: tuple[str, ...]) -> dict[str, Tally]:
    """The tally of each model that has a row."""
    present = np.unique(of.model)
    return {models[place]: tally(of_model(of, int(place))) for place in present}
