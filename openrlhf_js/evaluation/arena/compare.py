"""Is one model better than another? Both on the same questions, paired.

What makes a question hard, or its baseline answer good, is the same for both and drops out, so a
paired test sees smaller differences than two intervals side by side.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

from openrlhf_js.evaluation.arena.rows import Floats, Rows, Table
from openrlhf_js.evaluation.arena.style_control import (
    Differences,
    Styles,
    control,
    differences,
)
from openrlhf_js.uncertainty import Difference, detectable_effect, paired_difference
from openrlhf_js.uncertainty.bradley_terry import Bootstrap
from openrlhf_js.uncertainty.clusters import add_up


class Comparison(NamedTuple):
    """The score of a minus the score of b, on the questions that both were judged on."""

    a: str
    b: str
    questions: int
    only_a: int
    """Questions left out, since they count for a alone."""
    only_b: int
    score_a: float
    """In [0, 1], on the questions of both."""
    score_b: float
    difference: Difference
    detectable: float
    """The smallest true difference that this test would have found with a probability of 80 %."""


class Shared(NamedTuple):
    """The questions of two models."""

    questions: np.ndarray
    only_a: int
    only_b: int


def compare(of: Rows, judged: Table, a: str, b: str) -> Comparison:
    """The paired test without style control.

    Var = sum over questions of (u_a - u_b)^2, with u what a question adds to the error of each
    score; see `uncertainty.paired_difference`.

    Args:
        of: rows of at least these two models.
        judged: the table they were made from, for its names.
        a: a model.
        b: another one.

    Raises:
        ValueError: an unknown model, the same one twice, or no question in common.
    """
    shared = shared_questions(of, judged, a, b)
    (points_a, weight_a), (points_b, weight_b) = (
        _by_question(of, judged.models.index(name), shared.questions) for name in (a, b)
    )
    found = paired_difference(points_a, points_b, weights_a=weight_a, weights_b=weight_b)
    return Comparison(
        a,
        b,
        len(shared.questions),
        shared.only_a,
        shared.only_b,
        float(np.average(points_a, weights=weight_a)),
        float(np.average(points_b, weights=weight_b)),
        found,
        detectable_effect(found.standard_error, found.degrees_of_freedom),
    )


def compare_controlled(
    of: Rows,
    judged: Table,
    styles: Styles,
    features: tuple[str, ...],
    a: str,
    b: str,
    *,
    seed: int,
    rounds: int,
) -> Comparison:
    """The paired test with style held equal.

    The whole pool is fitted, with the two models' rows on their shared questions alone. Both meet
    the same questions in every resample. p is twice the share of resamples on the side of 0 that
    is farther from the difference, so it is no smaller than 2 / (rounds + 1).

    Args:
        of: rows of the whole pool.
        judged: the table they were made from.
        styles: counts of each answer.
        features: that are held equal.
        a: a model.
        b: another one.
        seed: of the bootstrap.
        rounds: resamples.

    Raises:
        ValueError: as `compare`, or counts are missing.
    """
    counted = differences(of, judged, styles, features)
    shared = shared_questions(counted.rows, judged, a, b)
    pair = np.isin(counted.rows.model, [judged.models.index(a), judged.models.index(b)])
    keep = ~pair | np.isin(counted.rows.question, shared.questions)
    fitted = control(
        Differences(counted.rows.only(keep), counted.values[keep], {}),
        judged,
        features,
        seed=seed,
        rounds=rounds,
    )
    found = _tested(fitted.bootstrap, a, b, len(shared.questions))
    return Comparison(
        a,
        b,
        len(shared.questions),
        shared.only_a,
        shared.only_b,
        fitted.score(a).value,
        fitted.score(b).value,
        found,
        detectable_effect(found.standard_error, found.degrees_of_freedom),
    )


def shared_questions(of: Rows, judged: Table, a: str, b: str) -> Shared:
    """The questions that count for both of two models.

    Raises:
        ValueError: see `compare`.
    """
    if a == b:
        raise ValueError(f"{a} cannot be compared with itself; name two models")
    own = []
    for name in (a, b):
        place = judged.models.index(name) if name in judged.models else -1
        own.append(np.unique(of.question[of.model == place]))
        if not len(own[-1]):
            baseline = (
                " It is the baseline, which scores 50 by definition: read the interval of the "
                "other model's own score."
                if name == judged.baseline
                else ""
            )
            raise ValueError(
                f"{name} has no judgment that counts; there are {', '.join(judged.models[:10])}."
                + baseline
            )
    both = np.intersect1d(own[0], own[1])
    if not len(both):
        raise ValueError(f"{a} and {b} were judged on no question in common")
    return Shared(both, len(own[0]) - len(both), len(own[1]) - len(both))


def _by_question(of: Rows, model: int, questions: np.ndarray) -> tuple[Floats, Floats]:
    """Mean points and summed weight of one model on each of its questions named."""
    own = (of.model == model) & np.isin(of.question, questions)
    place = np.searchsorted(questions, of.question[own])
    weight = add_up(of.weight[own], place, len(questions))
    points = add_up(of.weight[own] * of.points[own], place, len(questions))
    return points / weight, weight


def _tested(fitted: Bootstrap, a: str, b: str, questions: int) -> Difference:
    value, low, high = fitted.score_difference(a, b)
    place = [fitted.fit.models.index(name) for name in (a, b)]
    scores = special.expit(fitted.strengths[:, place])
    drawn = (scores[:, 0] - scores[:, 1])[np.isfinite(scores).all(1)]
    if questions < 2 or len(drawn) < 2:
        return Difference(value, low, high, 1.0, float("inf"), 0)
    farther = min((drawn <= 0).sum(), (drawn >= 0).sum())
    p_value = min(1.0, 2 * (float(farther) + 1) / (len(drawn) + 1))
    return Difference(value, low, high, p_value, float(drawn.std(ddof=1)), questions - 1)
