"""The page of `rm eval`: what was found about a reward model, in figures, words and pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from openrlhf_js.report import style
from openrlhf_js.report.pages import render
from openrlhf_js.reward_model.preferences import LEAST_TO_NORMALISE

BLUE, ORANGE = "#0b6e99", "#d9730d"
FEW_PROMPTS = 20  # too few clusters for an interval

Found = dict[str, Any]  # the content of evaluation.json
Interval = dict[str, float | None]


def share(of: Interval | None) -> str:
    """An interval of a share, such as `84.2 % (82.9 to 85.5)`; "-" where there is none."""
    return number(of, 100, ".1f", " %")


def number(of: Interval | None, scale: float = 1, form: str = ".3g", unit: str = "") -> str:
    """An interval of a number, such as `1.84 (1.7 to 1.98)`; "-" where there is none."""
    return style.interval(of["value"], of["low"], of["high"], form, scale, unit) if of else "-"


def figures(found: Found) -> list[dict[str, str]]:
    """The rows of the table: figure, value and meaning."""
    calibration, length, reward = found["calibration"], found["length"], found["reward"]
    within = length["correlation_within_pairs"]
    exact = f"ECE; exact confidences would show about {calibration['error_by_chance']:.3f}"
    labels = f"the labels: {share(length['longer_preferred_by_labels'])}; where lengths differ"
    enough = "to normalise with"
    if found["pairs"] < LEAST_TO_NORMALISE:
        enough = f"of too few pairs to normalise with ({LEAST_TO_NORMALISE} or more)"
    rows = {
        "pairs": (f"{found['pairs']:,}", f"of {found['prompts']:,} prompts"),
        "accuracy": (found["accuracy"], "95 % interval by prompt; a tie counts half"),
        "ties": (f"{found['ties']:.1%}", "pairs whose rewards are equal"),
        "mean margin": (number(found["margin"]), "chosen minus rejected reward"),
        "log loss": (f"{calibration['log_loss']:.3f}", "0.693 by chance"),
        "calibration error": (f"{calibration['error']:.3f}", exact),
        "reward": (f"{reward['mean']:.4g} ± {reward['std']:.4g}", f"mean and std, {enough}"),
        "length and reward": (
            "-" if within is None else f"{within:.2f}",
            "correlation within pairs; length in tokens",
        ),
        "accuracy of length": (length["accuracy_of_length_alone"], "by preferring the longer"),
        "prefers the longer": (length["longer_preferred_by_model"], labels),
        "accuracy, balanced": (
            length["accuracy_balanced"],
            "if the chosen response were as often the longer as the shorter one",
        ),
    }
    return [
        {"figure": name, "value": of if isinstance(of, str) else share(of), "meaning": meaning}
        for name, (of, meaning) in rows.items()
    ]


def subsets(found: Found) -> list[dict[str, str]]:
    """One row for each subset."""
    return [
        {
            "subset": name or "(none)",
            "pairs": f"{part['pairs']:,}",
            "prompts": f"{part['prompts']:,}",
            "accuracy": share(part["accuracy"]),
            "mean margin": number(part["margin"]),
            "ties": f"{part['ties']:.1%}",
        }
        for name, part in found["subsets"].items()
    ]


def in_words(found: Found) -> list[str]:
    """What the figures say, one sentence each."""
    accuracy, length, calibration = found["accuracy"], found["length"], found["calibration"]
    count = found["pairs"]
    said = [f"The model prefers the chosen response in {share(accuracy)} of {count:,} pairs."]
    if accuracy["low"] is not None and accuracy["low"] <= 0.5:
        said.append("That is not clearly better than chance.")
    if found["prompts"] < FEW_PROMPTS:
        said.append(f"{found['prompts']} prompts are few for an interval: do not rely on it.")
    alone, more = length["accuracy_of_length_alone"], length["longer_preferred_more_by_model"]
    if alone["value"] >= accuracy["value"]:
        said.append(f"Preferring the longer response would do as well: {share(alone)}.")
    if more and more["low"] is not None and not more["low"] <= 0 <= more["high"]:
        kind = "longer" if more["value"] > 0 else "shorter"
        said.append(f"It favours {kind} responses more than the labels do, where lengths differ.")
    error, chance = calibration["error"], calibration["error_by_chance"]
    if error > 2 * chance:
        said.append(
            f"Its confidences are off: {calibration['mean_confidence']:.1%} on average, "
            f"calibration error {error:.3f}, against {chance:.3f} by chance."
        )
    return said


def page(found: Found) -> str:
    """The evaluation as one HTML file that needs no other."""
    identity = {f"sha256 of {name}": found["identity"][name] for name in ("model", "texts")}
    return render(
        "reward_model.html",
        title=f"Reward model {found['model']}",
        file=found["file"],
        words=in_words(found),
        figures=figures(found),
        subsets=subsets(found),
        pictures={title: style.svg_source(drawn) for title, drawn in pictures(found).items()},
        settings=list({**found["description"], **identity}.items()),
    )


def pictures(found: Found) -> dict[str, Figure]:
    """The pictures by title."""
    drawn = {"Reliability": _reliability, "Margins": _margins, "Reward and length": _lengths}
    figures = {}
    for title, draw in drawn.items():
        with rc_context(style.HOUSE):
            figures[title] = style.figure(height=4.4)
            (axes,) = figures[title].axes
            draw(axes, found)
            style.dress(axes, "", axes.get_xlabel(), axes.get_ylabel())
            axes.legend(markerscale=2, ncols=3)
    return figures


def _reliability(axes: Axes, found: Found) -> None:
    bins = found["calibration"]["bins"]
    x, pairs, accuracy = np.array([(b["confidence"], b["pairs"], b["accuracy"]) for b in bins]).T
    spread = 1.96 * np.sqrt(x * (1 - x) / pairs)
    low, high = x - spread, x + spread
    axes.plot([0.5, 1], [0.5, 1], "--", color=style.INK, linewidth=1, label="exact")
    axes.fill_between(x, low, high, color=style.INK, alpha=0.12, label="95 % of exact models")
    axes.plot(x, accuracy, "o-", color=BLUE, label="model")
    axes.set(xlabel="confidence, sigmoid of |margin|", ylabel="accuracy, share of pairs")


def _margins(axes: Axes, found: Found) -> None:
    counts, edges = (found["pictures"]["margins"][key] for key in ("counts", "edges"))
    axes.stairs(counts, edges, fill=True, color=BLUE, label="pairs")
    axes.axvline(0, color=style.INK, linestyle="--", linewidth=1, label="equal rewards")
    axes.set(xlabel="margin, chosen minus rejected reward", ylabel="pairs")


def _lengths(axes: Axes, found: Found) -> None:
    # lengths are whole numbers: shifted, neither side hides the other
    sides = ("chosen", BLUE, "o", -0.1), ("rejected", ORANGE, "x", 0.1)
    for side, colour, marker, shift in sides:
        points = found["pictures"]["points"][side]
        # rasterized, since thousands of points would make a page of megabytes
        look: dict[str, Any] = {"color": colour, "marker": marker, "rasterized": True}
        x = np.array(points["lengths"]) + shift
        axes.scatter(x, points["rewards"], 9, alpha=0.6, label=side, **look)
    axes.set(xlabel="length of the response, tokens", ylabel="reward")
