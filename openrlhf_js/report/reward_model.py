"""The page of `rm eval`: what was found about a reward model, in figures, words and pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt
import pandas as pd

from openrlhf_js.report import plot, style
from openrlhf_js.report.figures import picture
from openrlhf_js.report.pages import render
from openrlhf_js.reward_model.preferences import LEAST_TO_NORMALISE

TICKS = alt.Axis(tickCount=6)
WIDTH = 440  # pixels of a picture
SIDES = {"chosen": -0.1, "rejected": 0.1}  # whole lengths are shifted: neither hides the other
FEW_PROMPTS = 20  # too few clusters for an interval

Evaluation = dict[str, Any]  # the content of evaluation.json
Interval = dict[str, float | None]


def share(interval: Interval | None) -> str:
    """An interval of a share, such as `84.2 % (82.9 to 85.5)`; "-" where there is none."""
    return number(interval, scale=100, form=".1f", unit=" %")


def number(interval: Interval | None, scale: float = 1, form: str = ".3g", unit: str = "") -> str:
    """An interval of a number, such as `1.84 (1.7 to 1.98)`; "-" where there is none."""
    if interval is None:
        return "-"
    return style.interval(interval["value"], interval["low"], interval["high"], form, scale, unit)


class FigureRow(NamedTuple):
    """A row of the table of figures."""

    figure: str
    value: str
    meaning: str


def figures(evaluation: Evaluation) -> list[dict[str, str]]:
    """The rows of the table: figure, value and meaning."""
    rows = _accuracy_figures(evaluation) + _length_figures(evaluation["length"])
    return [row._asdict() for row in rows]


def _accuracy_figures(evaluation: Evaluation) -> list[FigureRow]:
    """How often the preferred response gets the higher reward, and how rewards are spread."""
    calibration = evaluation["calibration"]
    reward = evaluation["reward"]
    normalise = "mean and std, to normalise with"
    if evaluation["pairs"] < LEAST_TO_NORMALISE:
        normalise = (
            f"mean and std, of too few pairs to normalise with ({LEAST_TO_NORMALISE} or more)"
        )
    return [
        FigureRow(
            figure="pairs",
            value=f"{evaluation['pairs']:,}",
            meaning=f"of {evaluation['prompts']:,} prompts",
        ),
        FigureRow(
            figure="accuracy",
            value=share(evaluation["accuracy"]),
            meaning="95 % interval by prompt; a tie counts half",
        ),
        FigureRow(
            figure="ties",
            value=f"{evaluation['ties']:.1%}",
            meaning="pairs whose rewards are equal",
        ),
        FigureRow(
            figure="mean margin",
            value=number(evaluation["margin"]),
            meaning="chosen minus rejected reward",
        ),
        FigureRow(
            figure="log loss",
            value=f"{calibration['log_loss']:.3f}",
            meaning="0.693 by chance",
        ),
        FigureRow(
            figure="calibration error",
            value=f"{calibration['error']:.3f}",
            meaning=f"ECE; exact confidences would show about {calibration['error_by_chance']:.3f}",
        ),
        FigureRow(
            figure="reward",
            value=f"{reward['mean']:.4g} ± {reward['std']:.4g}",
            meaning=normalise,
        ),
    ]


def _length_figures(length: dict[str, Any]) -> list[FigureRow]:
    """What longer responses have to do with the rewards."""
    correlation = length["correlation_within_pairs"]
    labels = share(length["longer_preferred_by_labels"])
    return [
        FigureRow(
            figure="length and reward",
            value="-" if correlation is None else f"{correlation:.2f}",
            meaning="correlation within pairs; length in tokens",
        ),
        FigureRow(
            figure="accuracy of length",
            value=share(length["accuracy_of_length_alone"]),
            meaning="by preferring the longer",
        ),
        FigureRow(
            figure="prefers the longer",
            value=share(length["longer_preferred_by_model"]),
            meaning=f"the labels: {labels}; where lengths differ",
        ),
        FigureRow(
            figure="accuracy, balanced",
            value=share(length["accuracy_balanced"]),
            meaning="if the chosen response were as often the longer as the shorter one",
        ),
    ]


def subsets(evaluation: Evaluation) -> list[dict[str, str]]:
    """One row for each subset."""
    return [
        {
            "subset": name or "(none)",
            "pairs": f"{subset['pairs']:,}",
            "prompts": f"{subset['prompts']:,}",
            "accuracy": share(subset["accuracy"]),
            "mean margin": number(subset["margin"]),
            "ties": f"{subset['ties']:.1%}",
        }
        for name, subset in evaluation["subsets"].items()
    ]


def in_words(evaluation: Evaluation) -> list[str]:
    """What the figures say, one sentence each."""
    accuracy = evaluation["accuracy"]
    sentences = [
        f"The model prefers the chosen response in {share(accuracy)} "
        f"of {evaluation['pairs']:,} pairs."
    ]
    again = evaluation["repetitions"]
    if any(again.values()):
        sentences.append(
            f"Of these, {again['repeated']:,} repeat an earlier pair and {again['reversed']:,} are "
            "one with its sides swapped: each counts."
        )
    if accuracy["low"] is not None and accuracy["low"] <= 0.5:
        sentences.append("That is not clearly better than chance.")
    if evaluation["prompts"] < FEW_PROMPTS:
        sentences.append(
            f"{evaluation['prompts']} prompts are few for an interval: do not rely on it."
        )
    length_alone = evaluation["length"]["accuracy_of_length_alone"]
    if length_alone["value"] >= accuracy["value"]:
        sentences.append(f"Preferring the longer response would do as well: {share(length_alone)}.")
    more_by_model = evaluation["length"]["longer_preferred_more_by_model"]
    if more_by_model and more_by_model["low"] is not None:
        where = "responses more than the labels do, where lengths differ."
        if more_by_model["low"] > 0:
            sentences.append(f"It favours longer {where}")
        elif more_by_model["high"] < 0:
            sentences.append(f"It favours shorter {where}")
    calibration = evaluation["calibration"]
    if calibration["error"] > 2 * calibration["error_by_chance"]:
        sentences.append(
            f"Its confidences are off: {calibration['mean_confidence']:.1%} on average, "
            f"calibration error {calibration['error']:.3f}, "
            f"against {calibration['error_by_chance']:.3f} by chance."
        )
    return sentences


def page(evaluation: Evaluation) -> str:
    """The evaluation as one HTML file that needs no other."""
    identity = evaluation["identity"]
    settings = dict(evaluation["description"])
    settings["sha256 of model"] = identity["model"]
    settings["sha256 of texts"] = identity["texts"]
    return render(
        "reward_model.html",
        title=f"Reward model {evaluation['model']}",
        file=evaluation["file"],
        words=in_words(evaluation),
        figures=figures(evaluation),
        subsets=subsets(evaluation),
        pictures=pictures(evaluation),
        settings=[{"setting": name, "value": value} for name, value in settings.items()],
    )


class Picture(NamedTuple):
    """A picture of the page."""

    title: str
    source: str
    sentence: str  # what it shows


def pictures(evaluation: Evaluation) -> list[Picture]:
    """The pictures with what they show in words."""
    bins = evaluation["calibration"]["bins"]
    points = [f"{row['accuracy']:.2f} at {row['confidence']:.2f}" for row in bins]
    margins = evaluation["pictures"]["margins"]
    lowest = margins["edges"][0]
    highest = margins["edges"][-1]
    correlation = evaluation["length"]["correlation_within_pairs"]
    lengths = "Reward by length of the response"
    if correlation is not None:
        lengths += f": correlation {correlation:.2f} within pairs"
    drawn = [
        ("Reliability", _reliability(bins), f"Accuracy by confidence: {', '.join(points)}."),
        (
            "Margins",
            _margins(margins),
            f"Pairs by margin, which goes from {lowest:.3g} to {highest:.3g}; "
            f"mean {number(evaluation['margin'])}.",
        ),
        ("Reward and length", _lengths(evaluation["pictures"]["points"]), f"{lengths}."),
    ]
    return [Picture(title, style.svg_source(chart), sentence) for title, chart, sentence in drawn]


def _chart(rows: Any) -> alt.Chart:
    """A chart of rows of equal keys, one picture wide; a text is faster than rows."""
    text = pd.DataFrame(rows).to_csv(index=False, float_format="%.4g")
    data = alt.InlineData(values=text, format=alt.CsvDataFormat(type="csv"))
    return alt.Chart(data, width=WIDTH, height=320)


def _reliability(bins: Sequence[Mapping[str, float]]) -> alt.TopLevelMixin:
    """The accuracy of pairs of like confidence, before the band of 95 % of exact models."""
    rows: list[plot.Row] = []
    for row in bins:
        confidence = row["confidence"]
        reach = 1.96 * math.sqrt(confidence * (1 - confidence) / row["pairs"])
        points = {
            "model": {"value": row["accuracy"]},
            "exact": {"value": confidence, "low": confidence - reach, "high": confidence + reach},
        }
        for series, point in points.items():
            at = {"quantity": "accuracy", "confidence": confidence, "series": series}
            rows.append({**at, **point})
    panels = {"accuracy": plot.Panel("Accuracy by confidence", "accuracy, share of pairs")}
    axis = plot.Axis("confidence", "confidence, sigmoid of |margin|")
    return picture(plot.draw(rows, panels, axis, line="series"), widths=(WIDTH,))


def _margins(margins: Mapping[str, Sequence[float]]) -> alt.TopLevelMixin:
    """How many pairs have which difference of rewards; a line stands at equal rewards."""
    edges = margins["edges"]
    bins = {
        "left": edges[:-1],
        "right": edges[1:],
        "pairs": margins["counts"],
    }
    bars = _chart(bins).mark_bar(binSpacing=0, color=style.BLUE)
    bars = bars.encode(
        x=alt.X("left:Q", title="margin, chosen minus rejected reward", axis=TICKS),
        x2="right:Q",
        y=alt.Y("pairs:Q", title="pairs"),
        y2=alt.datum(0),
    )
    equal = _chart([{"margin": 0}]).mark_rule(strokeDash=[5, 3], color=style.INK)
    return alt.layer(bars, equal.encode(x="margin:Q"))


def _lengths(points: Mapping[str, Mapping[str, Sequence[float]]]) -> alt.Chart:
    """The reward of each response over its length."""
    rows = []
    for side, shift in SIDES.items():
        for length, reward in zip(points[side]["lengths"], points[side]["rewards"], strict=True):
            rows.append({"side": side, "length": length + shift, "reward": reward})
    from_data = alt.Scale(zero=False)
    colours = alt.Scale(range=[style.BLUE, style.ORANGE])
    shapes = alt.Scale(range=["circle", style.SHAPES["X"]])
    return (
        _chart(rows)
        .mark_point(filled=True, size=12, opacity=0.6)
        .encode(
            x=alt.X("length:Q", title="length of the response, tokens", scale=from_data),
            y=alt.Y("reward:Q", title="reward", scale=from_data),
            color=alt.Color("side:N", scale=colours),
            shape=alt.Shape("side:N", scale=shapes),
        )
    )
