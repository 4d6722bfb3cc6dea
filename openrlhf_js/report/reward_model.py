"""The page of `rm eval`: what was found about a reward model, in figures, words and pictures."""

from __future__ import annotations

import itertools
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from openrlhf_js.report import style
from openrlhf_js.report.pages import render
from openrlhf_js.reward_model.preferences import LEAST_TO_NORMALISE

BLUE, ORANGE = "#0b6e99", "#d9730d"
SHOWN_SUBSETS = 30
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
    over, under = length["share_chosen_longer"], length["share_chosen_shorter"]
    enough = "to normalise with"
    if found["pairs"] < LEAST_TO_NORMALISE:
        enough = f"of too few pairs to normalise with ({LEAST_TO_NORMALISE} or more)"
    rows = {
        "pairs": (f"{found['pairs']:,}", f"of {found['prompts']:,} prompts"),
        "accuracy": (share(found["accuracy"]), "95 % interval by prompt; a tie counts half"),
        "ties": (f"{found['ties']:.1%}", "pairs whose rewards are equal"),
        "mean margin": (number(found["margin"]), "chosen minus rejected reward"),
        "log loss": (f"{calibration['log_loss']:.3f}", "0.693 by chance"),
        "calibration error": (f"{calibration['error']:.3f}", exact),
        "reward": (f"{reward['mean']:.4g} ± {reward['std']:.4g}", f"mean and std, {enough}"),
        "length and reward": (
            "-" if within is None else f"{within:.2f}",
            "correlation within pairs; length in tokens",
        ),
        "accuracy of length": (
            share(length["accuracy_of_length_alone"]),
            "of preferring the longer response, without a model",
        ),
        "prefers the longer": (
            share(length["longer_preferred_by_model"]),
            f"the labels: {share(length['longer_preferred_by_labels'])}; where lengths differ",
        ),
        "accuracy, balanced": (
            share(length["accuracy_balanced"]),
            "if the chosen response were as often the longer as the shorter one",
        ),
        "chosen is longer": (
            share(length["accuracy_where_chosen_is_longer"]),
            f"accuracy there, {over:.0%} of pairs",
        ),
        "chosen is shorter": (
            share(length["accuracy_where_chosen_is_shorter"]),
            f"accuracy there, {under:.0%} of pairs",
        ),
    }
    return [{"figure": k, "value": v, "meaning": meaning} for k, (v, meaning) in rows.items()]


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
        said.append(
            f"It favours {'longer' if more['value'] > 0 else 'shorter'} responses more than the "
            "labels do: where lengths differ it prefers the longer one in "
            f"{share(length['longer_preferred_by_model'])} of the pairs, and they do in "
            f"{share(length['longer_preferred_by_labels'])}."
        )
    error, chance = calibration["error"], calibration["error_by_chance"]
    if error > 2 * chance:
        mean = calibration["mean_confidence"]
        low, high = (accuracy[end] or accuracy["value"] for end in ("low", "high"))
        off = "too high" if mean > high else "too low" if mean < low else "off"
        said.append(
            f"Its confidences are {off}: {mean:.1%} on average, calibration error {error:.3f}, "
            f"against {chance:.3f} by chance."
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
    if found["subsets"]:
        drawn["Accuracy by subset"] = _subsets
    shown, figures = min(len(found["subsets"]), SHOWN_SUBSETS), {}
    for title, draw in drawn.items():
        with rc_context(style.HOUSE):
            figure = style.figure(height=1.4 + 0.32 * shown if draw is _subsets else 4.4)
            (axes,) = figure.axes
            draw(axes, found)
            style.dress(axes, "", axes.get_xlabel(), axes.get_ylabel())
            for handle in axes.legend(frameon=False, markerscale=2, ncols=3).legend_handles:
                if isinstance(handle, PathCollection):  # as faint as the points, it is hard to read
                    handle.set_alpha(1)
        figures[title] = figure
    return figures


def _reliability(axes: Axes, found: Found) -> None:
    bins = found["calibration"]["bins"]
    x = [each["confidence"] for each in bins]
    spread = [1.96 * (c * (1 - c) / b["pairs"]) ** 0.5 for c, b in zip(x, bins, strict=True)]
    low, high = ([c + sign * s for c, s in zip(x, spread, strict=True)] for sign in (-1, 1))
    axes.plot([0.5, 1], [0.5, 1], "--", color=style.INK, linewidth=1, label="exact")
    axes.fill_between(x, low, high, color=style.INK, alpha=0.12, label="95 % of exact models")
    axes.plot(x, [each["accuracy"] for each in bins], "o-", color=BLUE, label="model")
    axes.set(xlabel="confidence, sigmoid of |margin|", ylabel="accuracy, share of pairs")


def _margins(axes: Axes, found: Found) -> None:
    counts, edges = (found["pictures"]["margins"][key] for key in ("counts", "edges"))
    bars = [((a + b) / 2, n) for (a, b), n in zip(itertools.pairwise(edges), counts, strict=True)]
    for name, colour, sign in (("0 or more", BLUE, 1), ("below 0", ORANGE, -1)):
        x, heights = zip(*[bar for bar in bars if bar[0] * sign > 0] or [(0, 0)], strict=True)
        width = 0.9 * (edges[1] - edges[0])
        axes.bar(x, heights, width, color=colour, hatch="" if sign > 0 else "////", label=name)
    axes.set(xlabel="margin, chosen minus rejected reward", ylabel="pairs")


def _lengths(axes: Axes, found: Found) -> None:
    # lengths are whole numbers: shifted, neither side hides the other
    sides = ("chosen", BLUE, "o", -0.1), ("rejected", ORANGE, "x", 0.1)
    for side, colour, marker, shift in sides:
        points = found["pictures"]["points"][side]
        x = [length + shift for length in points["lengths"]]
        look: dict[str, Any] = {"s": 9, "alpha": 0.45, "linewidths": 0.7, "label": side}
        axes.scatter(  # rasterized, since thousands of points would make a page of megabytes
            x, points["rewards"], color=colour, marker=marker, rasterized=True, **look
        )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="length of the response, tokens", ylabel="reward")


def _subsets(axes: Axes, found: Found) -> None:
    parts = sorted(found["subsets"].items(), key=lambda each: -each[1]["pairs"])[:SHOWN_SUBSETS]
    names = [style.printable(name[:39] + "…" * (len(name) > 39)) for name, _ in parts[::-1]]
    accuracies = [part["accuracy"] for _, part in parts[::-1]]
    values = [each["value"] for each in accuracies]
    reach = [[abs(each["value"] - each[end]) for each in accuracies] for end in ("low", "high")]
    axes.errorbar(values, range(len(values)), xerr=reach, fmt="o", color=BLUE, capsize=3)
    every = found["accuracy"]["value"]
    axes.axvline(every, color=style.INK, linestyle="--", linewidth=1, label="all")
    axes.margins(y=0.15)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="accuracy, with its 95 % interval")
