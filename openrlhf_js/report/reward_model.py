"""The page of `rm eval`: what was found about a reward model, in figures, words and pictures."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt
import pandas as pd

from openrlhf_js.report import style
from openrlhf_js.report.pages import render
from openrlhf_js.reward_model.preferences import LEAST_TO_NORMALISE

TICKS = alt.Axis(tickCount=6)
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


class Figure(NamedTuple):
    """A row of the table of figures."""

    figure: str
    value: str
    meaning: str


def figures(evaluation: Evaluation) -> list[dict[str, str]]:
    """The rows of the table: figure, value and meaning."""
    rows = _accuracy_figures(evaluation) + _length_figures(evaluation["length"])
    return [row._asdict() for row in rows]


def _accuracy_figures(evaluation: Evaluation) -> list[Figure]:
    """How often the preferred response gets the higher reward, and how rewards are spread."""
    calibration = evaluation["calibration"]
    reward = evaluation["reward"]
    normalise = "mean and std, to normalise with"
    if evaluation["pairs"] < LEAST_TO_NORMALISE:
        normalise = (
            f"mean and std, of too few pairs to normalise with ({LEAST_TO_NORMALISE} or more)"
        )
    return [
        Figure(
            figure="pairs",
            value=f"{evaluation['pairs']:,}",
            meaning=f"of {evaluation['prompts']:,} prompts",
        ),
        Figure(
            figure="accuracy",
            value=share(evaluation["accuracy"]),
            meaning="95 % interval by prompt; a tie counts half",
        ),
        Figure(
            figure="ties",
            value=f"{evaluation['ties']:.1%}",
            meaning="pairs whose rewards are equal",
        ),
        Figure(
            figure="mean margin",
            value=number(evaluation["margin"]),
            meaning="chosen minus rejected reward",
        ),
        Figure(
            figure="log loss",
            value=f"{calibration['log_loss']:.3f}",
            meaning="0.693 by chance",
        ),
        Figure(
            figure="calibration error",
            value=f"{calibration['error']:.3f}",
            meaning=f"ECE; exact confidences would show about {calibration['error_by_chance']:.3f}",
        ),
        Figure(
            figure="reward",
            value=f"{reward['mean']:.4g} ± {reward['std']:.4g}",
            meaning=normalise,
        ),
    ]


def _length_figures(length: dict[str, Any]) -> list[Figure]:
    """What longer responses have to do with the rewards."""
    correlation = length["correlation_within_pairs"]
    labels = share(length["longer_preferred_by_labels"])
    return [
        Figure(
            figure="length and reward",
            value="-" if correlation is None else f"{correlation:.2f}",
            meaning="correlation within pairs; length in tokens",
        ),
        Figure(
            figure="accuracy of length",
            value=share(length["accuracy_of_length_alone"]),
            meaning="by preferring the longer",
        ),
        Figure(
            figure="prefers the longer",
            value=share(length["longer_preferred_by_model"]),
            meaning=f"the labels: {labels}; where lengths differ",
        ),
        Figure(
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
    sources = {title: style.svg_source(figure) for title, figure in pictures(evaluation).items()}
    described = sentences(evaluation)
    return render(
        "reward_model.html",
        title=f"Reward model {evaluation['model']}",
        file=evaluation["file"],
        words=in_words(evaluation),
        figures=figures(evaluation),
        subsets=subsets(evaluation),
        pictures=sources,
        described=described,
        settings=[{"setting": name, "value": value} for name, value in settings.items()],
    )


def pictures(evaluation: Evaluation) -> dict[str, alt.TopLevelMixin]:
    """The pictures by title."""
    pictures = evaluation["pictures"]
    return {
        "Reliability": _reliability(evaluation["calibration"]["bins"]),
        "Margins": _margins(pictures["margins"]),
        "Reward and length": _lengths(pictures["points"]),
    }


def sentences(evaluation: Evaluation) -> dict[str, str]:
    """What each picture shows, in words."""
    bins = evaluation["calibration"]["bins"]
    points = [f"{row['accuracy']:.2f} at {row['confidence']:.2f}" for row in bins]
    edges = evaluation["pictures"]["margins"]["edges"]
    correlation = evaluation["length"]["correlation_within_pairs"]
    lengths = "Reward by length of the response"
    if correlation is not None:
        lengths += f": correlation {correlation:.2f} within pairs"
    return {
        "Reliability": f"Accuracy by confidence: {', '.join(points)}.",
        "Margins": f"Pairs by margin, which goes from {edges[0]:.3g} to {edges[-1]:.3g}; "
        f"mean {number(evaluation['margin'])}.",
        "Reward and length": f"{lengths}.",
    }


def _chart(rows: Any) -> alt.Chart:
    """A chart of rows of equal keys, one picture wide; a text is faster than rows."""
    text = pd.DataFrame(rows).to_csv(index=False, float_format="%.4g")
    data = alt.InlineData(values=text, format=alt.CsvDataFormat(type="csv"))
    return alt.Chart(data, width=440, height=320)


def _named(chart: alt.Chart, name: str, colours: alt.Scale) -> alt.Chart:
    """The layer with its name in the legend."""
    named = chart.transform_calculate(layer=json.dumps(name))
    return named.encode(color=alt.Color("layer:N", scale=colours))


def _reliability(bins: Sequence[Mapping[str, float]]) -> alt.TopLevelMixin:
    """The accuracy of pairs of like confidence, before the band of an exact model."""
    colours = alt.Scale(
        domain=["exact", "95 % of exact models", "model"],
        range=[style.INK, style.BAND, style.BLUE],
    )
    title = "accuracy, share of pairs"
    from_data = alt.Scale(zero=False)
    x = alt.X("confidence:Q", title="confidence, sigmoid of |margin|", scale=from_data, axis=TICKS)
    y = alt.Y("accuracy:Q", title=title, scale=from_data)
    chart = _chart(_with_exact_interval(bins)).encode(x=x)
    diagonal = _chart({"confidence": [0.5, 1], "accuracy": [0.5, 1]})

    band = chart.mark_area()
    band = band.encode(y=alt.Y("low:Q", title=title), y2="high:Q")
    exact = diagonal.mark_line(strokeDash=[5, 3], strokeWidth=1)
    exact = exact.encode(x=x, y=y)
    model = chart.mark_line(point={"size": 60, "opacity": 1})
    model = model.encode(y=y)
    return alt.layer(
        _named(band, "95 % of exact models", colours),
        _named(exact, "exact", colours),
        _named(model, "model", colours),
    )


def _with_exact_interval(bins: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    """The bins, each with the ends between which an exact model's accuracy is in 95 %."""
    rows = []
    for row in bins:
        confidence = row["confidence"]
        variance = confidence * (1 - confidence) / row["pairs"]
        reach = 1.96 * math.sqrt(variance)
        rows.append({**row, "low": confidence - reach, "high": confidence + reach})
    return rows


def _margins(margins: Mapping[str, Sequence[float]]) -> alt.TopLevelMixin:
    """How many pairs have which difference of rewards."""
    colours = alt.Scale(domain=["pairs", "equal rewards"], range=[style.BLUE, style.INK])
    edges = margins["edges"]
    bins = {
        "left": edges[:-1],
        "right": edges[1:],
        "pairs": margins["counts"],
    }
    bars = (
        _chart(bins)
        .mark_bar(binSpacing=0)
        .encode(
            x=alt.X("left:Q", title="margin, chosen minus rejected reward", axis=TICKS),
            x2="right:Q",
            y=alt.Y("pairs:Q", title="pairs"),
            y2=alt.datum(0),
        )
    )
    equal = _chart([{"margin": 0}]).mark_rule(strokeDash=[5, 3]).encode(x="margin:Q")
    return alt.layer(_named(bars, "pairs", colours), _named(equal, "equal rewards", colours))


def _lengths(points: Mapping[str, Mapping[str, Sequence[float]]]) -> alt.Chart:
    """The reward of each response over its length."""
    # lengths are whole numbers: shifted, neither side hides the other
    sides = [
        _points_of(points["chosen"], "chosen", shift=-0.1),
        _points_of(points["rejected"], "rejected", shift=0.1),
    ]
    from_data = alt.Scale(zero=False)
    colours = alt.Scale(range=[style.BLUE, style.ORANGE])
    shapes = alt.Scale(range=["circle", style.SHAPES["X"]])
    points_chart = _chart(pd.concat(sides)).mark_point(filled=True, size=12, opacity=0.6)
    return points_chart.encode(
        x=alt.X("length:Q", title="length of the response, tokens", scale=from_data),
        y=alt.Y("reward:Q", title="reward", scale=from_data),
        color=alt.Color("side:N", scale=colours),
        shape=alt.Shape("side:N", scale=shapes),
    )


def _points_of(points: Mapping[str, Sequence[float]], side: str, shift: float) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "side": side,
            "length": [length + shift for length in points["lengths"]],
            "reward": points["rewards"],
        }
    )
