"""The page of `rm eval`: what was found about a reward model, in figures, words and pictures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from openrlhf_js.report import style
from openrlhf_js.report.pages import render
from openrlhf_js.reward_model.preferences import LEAST_TO_NORMALISE

BLUE = "#0b6e99"
ORANGE = "#d9730d"
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


def figures(evaluation: Evaluation) -> list[dict[str, str]]:
    """The rows of the table: figure, value and meaning."""
    rows = _accuracy_figures(evaluation) + _length_figures(evaluation["length"])
    return [dict(zip(("figure", "value", "meaning"), row, strict=True)) for row in rows]


def _accuracy_figures(evaluation: Evaluation) -> list[tuple[str, str, str]]:
    calibration = evaluation["calibration"]
    reward = evaluation["reward"]
    pairs = evaluation["pairs"]
    by_chance = f"ECE; exact confidences would show about {calibration['error_by_chance']:.3f}"
    normalise = "mean and std, to normalise with"
    if pairs < LEAST_TO_NORMALISE:
        normalise = (
            f"mean and std, of too few pairs to normalise with ({LEAST_TO_NORMALISE} or more)"
        )
    return [
        ("pairs", f"{pairs:,}", f"of {evaluation['prompts']:,} prompts"),
        (
            "accuracy",
            share(evaluation["accuracy"]),
            "95 % interval by prompt; a tie counts half",
        ),
        ("ties", f"{evaluation['ties']:.1%}", "pairs whose rewards are equal"),
        ("mean margin", number(evaluation["margin"]), "chosen minus rejected reward"),
        ("log loss", f"{calibration['log_loss']:.3f}", "0.693 by chance"),
        ("calibration error", f"{calibration['error']:.3f}", by_chance),
        ("reward", f"{reward['mean']:.4g} ± {reward['std']:.4g}", normalise),
    ]


def _length_figures(length: dict[str, Any]) -> list[tuple[str, str, str]]:
    correlation = length["correlation_within_pairs"]
    labels = share(length["longer_preferred_by_labels"])
    return [
        (
            "length and reward",
            "-" if correlation is None else f"{correlation:.2f}",
            "correlation within pairs; length in tokens",
        ),
        (
            "accuracy of length",
            share(length["accuracy_of_length_alone"]),
            "by preferring the longer",
        ),
        (
            "prefers the longer",
            share(length["longer_preferred_by_model"]),
            f"the labels: {labels}; where lengths differ",
        ),
        (
            "accuracy, balanced",
            share(length["accuracy_balanced"]),
            "if the chosen response were as often the longer as the shorter one",
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
    return render(
        "reward_model.html",
        title=f"Reward model {evaluation['model']}",
        file=evaluation["file"],
        words=in_words(evaluation),
        figures=figures(evaluation),
        subsets=subsets(evaluation),
        pictures=sources,
        settings=list(settings.items()),
    )


def pictures(evaluation: Evaluation) -> dict[str, Figure]:
    """The pictures by title."""
    return {
        "Reliability": _reliability(evaluation),
        "Margins": _margins(evaluation),
        "Reward and length": _lengths(evaluation),
    }


@contextmanager
def _drawing(xlabel: str, ylabel: str) -> Iterator[Figure]:
    """A figure to draw in, whose axes get their legend afterwards."""
    with rc_context(style.HOUSE):
        figure = style.figure(height=4.4)
        yield figure
        (axes,) = figure.axes
        style.dress(axes, "", xlabel, ylabel)
        axes.legend(markerscale=2, ncols=3)


def _reliability(evaluation: Evaluation) -> Figure:
    bins = evaluation["calibration"]["bins"]
    confidence = np.array([row["confidence"] for row in bins])
    pairs = np.array([row["pairs"] for row in bins])
    accuracy = [row["accuracy"] for row in bins]
    reach = 1.96 * np.sqrt(confidence * (1 - confidence) / pairs)
    with _drawing("confidence, sigmoid of |margin|", "accuracy, share of pairs") as figure:
        (axes,) = figure.axes
        axes.plot([0.5, 1], [0.5, 1], "--", color=style.INK, linewidth=1, label="exact")
        axes.fill_between(
            confidence,
            confidence - reach,
            confidence + reach,
            color=style.INK,
            alpha=0.12,
            label="95 % of exact models",
        )
        axes.plot(confidence, accuracy, "o-", color=BLUE, label="model")
    return figure


def _margins(evaluation: Evaluation) -> Figure:
    margins = evaluation["pictures"]["margins"]
    with _drawing("margin, chosen minus rejected reward", "pairs") as figure:
        (axes,) = figure.axes
        axes.stairs(margins["counts"], margins["edges"], fill=True, color=BLUE, label="pairs")
        axes.axvline(0, color=style.INK, linestyle="--", linewidth=1, label="equal rewards")
    return figure


def _lengths(evaluation: Evaluation) -> Figure:
    points = evaluation["pictures"]["points"]
    with _drawing("length of the response, tokens", "reward") as figure:
        (axes,) = figure.axes
        # lengths are whole numbers: shifted, neither side hides the other
        _scatter(axes, points["chosen"], "chosen", BLUE, "o", -0.1)
        _scatter(axes, points["rejected"], "rejected", ORANGE, "x", 0.1)
    return figure


def _scatter(
    axes: Axes, points: dict[str, Any], label: str, colour: str, marker: str, shift: float
) -> None:
    axes.scatter(
        np.array(points["lengths"]) + shift,
        points["rewards"],
        s=9,
        color=colour,
        marker=marker,
        alpha=0.6,
        label=label,
        rasterized=True,  # thousands of points would make a page of megabytes
    )
