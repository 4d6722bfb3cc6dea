"""Scores of models, with intervals, and paired comparisons.

A game counts as one row, or as 3 for "much better"; the score is the share of rows won, ties as
half: the Bradley-Terry probability of beating the baseline.

The official intervals resample rows. A question has two games and up to six rows, which are not
independent, so these intervals are too narrow: on Arena-Hard by a factor of 1.6 to 1.7.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from paired_eval import stats
from paired_eval.arena import style
from paired_eval.arena.pool import Pool

MUCH_WEIGHT = 3  # rows that a verdict of "much better" counts as
LEVELS = {"v0.1": (0.025, 0.975), "v2.0": (0.05, 0.95)}  # percentiles of the official intervals
MARGINS = ["margin_1", "margin_2"]
Scores = dict[str, stats.Estimate]  # by model, in [0, 1]


def games(judged: pd.DataFrame, both: bool = True) -> pd.DataFrame:
    """The games that count, a row each: judge, model, uid, points in {0, 1/2, 1}, weight.

    With `both`, a judgment counts only if both games have a verdict: both orders count equally.
    """
    if both:
        judged = judged[judged[MARGINS].notna().all(axis=1)]
    long = judged.melt(["judge", "model", "uid"], MARGINS, value_name="margin").dropna()
    points = (np.sign(long.margin) + 1) / 2
    weight = np.where(long.margin.abs() == 2, float(MUCH_WEIGHT), 1.0)
    rows = long[["judge", "model", "uid"]].assign(points=points, weight=weight)
    return rows.reset_index(drop=True)


def clustered(rows: pd.DataFrame) -> stats.Estimate:
    """The score of one model's rows in [0, 1], with a 95 % interval by question."""
    return stats.clustered_proportion(rows.points, rows.uid.to_numpy(), weights=rows.weight)


def official(rows: pd.DataFrame, rule: str, seed: int = 0, rounds: int = 100) -> Scores:
    """Each model's score with the interval that a version of Arena-Hard prints, from 100 rounds.

    v0.1 resamples the rows of all models together, v2.0 those of each model (and prints the
    resamples' mean as the score). The official scripts are unseeded.
    """
    rng = np.random.default_rng(seed)
    rows = rows.loc[rows.index.repeat(rows.weight.round().astype(int))]
    resampled_together = rows if rule == "v0.1" else rows.groupby("model")
    rounds_scores = []
    for _ in range(rounds):
        resample = resampled_together.sample(frac=1, replace=True, random_state=rng)
        rounds_scores.append(resample.groupby("model").points.mean())
    quantiles = pd.DataFrame(rounds_scores).quantile(LEVELS[rule])
    scores = {}
    for model, score in rows.groupby("model").points.mean().items():
        low, high = quantiles[model]
        scores[str(model)] = stats.Estimate(float(score), float(low), float(high))
    return scores


def at_equal_style(pool: Pool, rows: pd.DataFrame) -> tuple[Scores, list[str]]:
    """Scores at equal style with intervals by question, and notes on what is left out."""
    if pool.bench.rule == "v0.1":
        raise ValueError(
            "arena-hard-v0.1 has a style control of its own, another model than v2.0's, which is "
            "not offered: leave out --style_control"
        )
    known, notes = _styled(pool, rows)
    return style.control(known), notes


def _styled(pool: Pool, rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The rows that style control can use, with all features, and notes on what is left out.

    A model that won, or lost, every game cannot be fitted.
    """
    differences = style.differences(
        _style_counts(pool, rows.model, rows.uid),
        _style_counts(pool, [pool.baseline] * len(rows), rows.uid),
    )
    features = dict(zip(style.FEATURES, differences.T, strict=True))
    known = rows.assign(**features)[np.isfinite(differences).all(axis=1)]
    notes = []
    for model, model_rows in rows.groupby("model"):
        model_known = known[known.model == model]
        lost = model_rows.uid.nunique() - model_known.uid.nunique()
        if lost:
            notes.append(f"{model}: {lost} questions without style counts are left out.")
        if set(model_known.points) in ({0.0}, {1.0}):
            known = known[known.model != model]
            notes.append(f"{model} won, or lost, every game, which has no fit.")
    if known.empty:
        raise ValueError(f"no game is left for style control: {' '.join(notes)}")
    return known, notes


def _style_counts(pool: Pool, models: Sequence[str], uids: pd.Series) -> style.Floats:
    """The style counts of these answers, (rows, 4); NaN where they are unknown."""
    counts: style.Floats = pool.styles.reindex(pd.MultiIndex.from_arrays([models, uids])).to_numpy()
    return counts


class ModelComparison(NamedTuple):
    """Two models, paired on the questions that were judged for both; scores in per cent."""

    a: str
    b: str
    score_a: float
    score_b: float
    difference: stats.Difference  # score of a minus score of b, in [0, 1]
    questions: int
    left_out: int  # judgments of only one of the two

    def __str__(self) -> str:
        difference = self.difference
        p_value = "p < 0.0001" if difference.p_value < 1e-4 else f"p = {difference.p_value:.2g}"
        outcome = "no difference is shown"
        if difference.p_value < 0.05:
            outcome = f"{self.a if difference.value > 0 else self.b} is better"
        points = f"{100 * difference.value:+.1f} points"
        if self.has_spread:
            points += f" (95 %: {100 * difference.low:.1f} to {100 * difference.high:.1f}), "
            points += f"{p_value}; {outcome}"
        text = (
            f"{self.a} against {self.b}, paired by question: {self.score_a:.1f} - "
            f"{self.score_b:.1f} = {points}. On the {self.questions} questions of both "
            f"({self.left_out} judgments of one alone left out)"
        )
        if not self.has_spread:
            return f"{text}, which differ too little among themselves for an interval."
        return (
            f"{text}; a difference of {100 * self.detectable:.1f} points would have been found "
            "with a probability of 80 %."
        )

    @property
    def has_spread(self) -> bool:
        """Whether the questions differ in their differences, so that there is an interval."""
        return 0 < self.difference.standard_error < math.inf

    @property
    def detectable(self) -> float:
        """The smallest true difference that would be found with a probability of 80 %."""
        return stats.detectable_effect(
            self.difference.standard_error, self.difference.degrees_of_freedom
        )


def compare(pool: Pool, judges: Sequence[str], a: str, b: str) -> ModelComparison:
    """The scores of two models, paired on the questions that a judge judged for both.

    A question's difficulty is the same for both and cancels. Style is not controlled.
    """
    rows = games(pool.judged[pool.judged.judge.isin(list(judges))])
    rows["won"] = rows.points * rows.weight
    rows_of_two = rows[rows.model.isin([a, b])]
    item = ["judge", "uid"]
    won = rows_of_two.pivot_table("won", item, "model", "sum").reindex(columns=[a, b])
    weight = rows_of_two.pivot_table("weight", item, "model", "sum").reindex(columns=[a, b])
    both = weight.notna().all(axis=1)
    if a == b or not both.any():
        models = ", ".join(sorted(rows.model.unique()))
        raise ValueError(
            f"{a} and {b} have no completely judged question in common, or are the same model; "
            f"there are complete judgments of {models}"
        )
    won = won[both]
    weight = weight[both]
    questions = won.index.get_level_values("uid")
    points = won / weight
    scores = 100 * won.sum() / weight.sum()
    return ModelComparison(
        a=a,
        b=b,
        score_a=scores[a],
        score_b=scores[b],
        difference=stats.paired_difference(
            points[a].to_numpy(),
            points[b].to_numpy(),
            clusters=questions.to_numpy(),
            weights_a=weight[a],
            weights_b=weight[b],
        ),
        questions=questions.nunique(),
        left_out=int((~both).sum()),
    )
