"""Scores with style held equal: one Bradley-Terry fit of the whole pool, with style as covariates.

A judge may like long answers, or marked-up ones, whatever they say. With x the difference of style
between the two answers of a game,

    log-odds(model wins) = theta_model + beta z        z = (x - mean x) / sd x

and beta is what all models share, so it is fitted on all that the judge has judged, not on the
models that are shown. A model's score is 1 / (1 + e^-theta): what it would win at the pool's mean
difference of style, as v2.0 has it. What it would win at the baseline's own style is

    1 / (1 + e^-(theta - beta mean x / sd x)).

The differences, with a the model's answer and b the baseline's:

    length   (a - b) / (a + b), of tokens
    header, list, bold   (d_a - d_b) / (d_a + d_b + 1), with the density d = count / (tokens + 1)

v2.0's script divides by the tokens alone, and fails for an answer without any; for answers of more
than a few tokens it is the same. Its control by length alone, or by markup alone, drops columns
of models instead of columns of style: its figures differ wholly, and are not repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy import special

from openrlhf_js.evaluation.arena.records import Style
from openrlhf_js.evaluation.arena.rows import Floats, Rows, Table
from openrlhf_js.uncertainty import Estimate
from openrlhf_js.uncertainty.bradley_terry import Bootstrap, bootstrap_fit
from openrlhf_js.uncertainty.games import games

FEATURES = ("length", "header", "list", "bold")
CONTROLS: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "all": FEATURES,
    "length": ("length",),
    "markdown": ("header", "list", "bold"),
    "header": ("header",),
    "list": ("list",),
    "bold": ("bold",),
}
ROUNDS = 1000

Styles: TypeAlias = Mapping[str, Mapping[str, Style]]
"""By model and uid; the baseline is one of the models."""


class Differences(NamedTuple):
    """The rows whose both answers have their style counted, and how they differ in it."""

    rows: Rows
    values: Floats
    """(g, features) model minus baseline."""
    without_style: dict[str, int]
    """Models with rows left out, and how many questions that were; with none left they have no
    score."""


class Controlled(NamedTuple):
    """A fit of the pool with style held equal."""

    features: tuple[str, ...]
    bootstrap: Bootstrap
    offset: Floats
    """(features,) mean x / sd x: how far, in deviations, the pool's mean style is from equal."""
    constant: tuple[str, ...]
    """Features that are the same in all rows, and so have no coefficient."""

    def score(self, model: str) -> Estimate:
        """At the pool's mean difference of style, in [0, 1]."""
        return self.bootstrap.score(model)

    def score_at_equal_style(self, model: str) -> Estimate:
        """At the baseline's own style, in [0, 1]."""
        fit = self.bootstrap.fit
        here = self.bootstrap._replace(
            fit=fit._replace(strengths=fit.strengths - fit.coefficients @ self.offset),
            strengths=self.bootstrap.strengths
            - (self.bootstrap.coefficients @ self.offset)[:, None],
        )
        return here.score(model)

    def coefficient(self, feature: str) -> Estimate:
        """Log-odds that one standard deviation more of this feature is worth."""
        return self.bootstrap.coefficient(self.features.index(feature))

    def official(self, model: str, levels: tuple[float, float]) -> Estimate:
        """The median of the resamples and two plain quantiles, as v2.0's script has it."""
        drawn = self.bootstrap.strengths[:, self.bootstrap.fit.models.index(model)]
        low, median, high = np.quantile(drawn[np.isfinite(drawn)], [levels[0], 0.5, levels[1]])
        return Estimate(*special.expit([median, low, high]).tolist())


def features_of(control: str) -> tuple[str, ...]:
    """The features of a control, such as "all", "length" or "length+bold".

    Raises:
        ValueError: no such control.
    """
    named: list[str] = []
    for part in control.split("+"):
        if part not in CONTROLS or (part == "none" and control != "none"):
            raise ValueError(
                f"no style control {control!r}; there are {', '.join(CONTROLS)}, and sums such as "
                "length+bold"
            )
        named += CONTROLS[part]
    return tuple(feature for feature in FEATURES if feature in named)


def differences(
    of: Rows, judged: Table, styles: Styles, features: Sequence[str] = FEATURES
) -> Differences:
    """How the answers of each row differ in style.

    Args:
        of: rows of the whole pool.
        judged: the table they were made from, for its names.
        styles: counts of each answer, the baseline's included.
        features: of `FEATURES`.

    Raises:
        ValueError: nothing left, most often since the baseline's answers are not counted.
    """
    ours = np.full((len(judged.models), len(judged.questions), 4), np.nan)
    theirs = np.full((len(judged.questions), 4), np.nan)
    place = {uid: number for number, uid in enumerate(judged.questions)}
    for name, into in [(judged.baseline, theirs), *zip(judged.models, ours, strict=True)]:
        counted = [(place[uid], s) for uid, s in styles.get(name, {}).items() if uid in place]
        if counted:
            into[[number for number, _ in counted]] = [style for _, style in counted]
    values = _compared(ours, theirs)[of.model, of.question]
    known = np.asarray(np.isfinite(values).all(1))
    if not known.any():
        lacks = (
            f"the baseline {judged.baseline}" if np.isnan(theirs).all() else "the models' answers"
        )
        raise ValueError(
            f"style control needs the counts (metadata) of both answers, and {lacks} have none "
            "for the questions judged: put the answers into model_answer, count them with "
            "--count_style, or score with --style_control none"
        )
    lost = of.only(~known)
    return Differences(
        of.only(known),
        values[known][:, [FEATURES.index(feature) for feature in features]],
        {
            judged.models[number]: len(np.unique(lost.question[lost.model == number]))
            for number in np.unique(lost.model)
        },
    )


def _compared(ours: Floats, theirs: Floats) -> Floats:
    """Differences (..., 4) of counts (..., 4): tokens, headers, lists, bold."""
    tokens = ours[..., :1] + theirs[..., :1]
    length = (ours[..., :1] - theirs[..., :1]) / np.where(tokens == 0, 1, tokens)
    density_a = ours[..., 1:] / (ours[..., :1] + 1)
    density_b = theirs[..., 1:] / (theirs[..., :1] + 1)
    markup = (density_a - density_b) / (density_a + density_b + 1)
    return np.concatenate([length, markup], -1)


def control(
    of: Differences,
    judged: Table,
    features: Sequence[str],
    *,
    seed: int,
    rounds: int = ROUNDS,
    by_row: bool = False,
) -> Controlled:
    """Fit the pool with style held equal, and the same for resamples of whole questions.

    Args:
        of: of `differences`, for the same features.
        judged: for its names.
        features: what the columns are.
        seed: of the bootstrap.
        rounds: resamples.
        by_row: resample weighted rows, each by itself, as the official script does.
    """
    rows, x = of.rows, of.values
    # As over the weighted rows, one by one.
    mean = np.average(x, axis=0, weights=rows.weight)
    count = rows.weight.sum()
    variance = (rows.weight[:, None] * np.square(x - mean)).sum(0) / max(1.0, count - 1)
    deviation = np.sqrt(variance)
    varies = deviation > 1e-9
    scale = np.where(varies, deviation, 1)
    z = np.where(varies, (x - mean) / scale, 0)
    weight, question = rows.weight, rows.question
    model, points = rows.model, rows.points
    if by_row:
        copies = rows.weight.astype(int)
        model, points = np.repeat(model, copies), np.repeat(points, copies)
        z, weight = np.repeat(z, copies, 0), np.ones(len(model))
        question = np.arange(len(model))
    fitted = bootstrap_fit(
        games(
            [judged.models[number] for number in model],
            [judged.baseline] * len(model),
            points,
            anchor=judged.baseline,
            clusters=question,
            weights=weight,
            covariates=z,
        ),
        seed=seed,
        rounds=rounds,
    )
    return Controlled(
        tuple(features),
        fitted,
        np.where(varies, mean / scale, 0.0),
        tuple(name for name, moves in zip(features, varies, strict=True) if not moves),
    )
