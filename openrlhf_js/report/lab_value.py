"""The picture of `lab value`: every prompt's value with its interval, and how many have which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from openrlhf_js.report import style

NORMAL_95 = 1.96
BINS = 20
SHOWN_GROUPS = 6
LOOKS = ("js", "js_plus", "bloo", "js1", "rloo", "remax")  # one for each group


def draw(summary: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Figure:
    """Two axes: the values in ascending order with their errors, and their distribution.

    Args:
        summary: of `openrlhf-js lab value`.
        arrays: `values`, `standard_errors` and `groups`, each (n,), and `rewards` (n, m).
    """
    figure = style.figure(1, 2, height=4.2)
    ascending, distribution = figure.axes
    row = summary["rows"][0]
    _ascending(ascending, arrays)
    style.dress(
        ascending,
        "The value of each prompt",
        "prompts, by their value",
        "mean reward, with 1.96 standard errors",
        f"{row['prompts']} prompts, {row['responses']} responses to each; "
        f"{row['all_rewards_equal']:.0%} have equal rewards throughout",
    )
    _distribution(distribution, arrays["values"], row)
    style.dress(
        distribution,
        "How the values are distributed",
        "mean reward",
        "prompts",
        "dashed: their mean, with its 95 % interval in grey",
    )
    return figure


def _ascending(axes: Axes, arrays: Mapping[str, np.ndarray]) -> None:
    order = np.argsort(arrays["values"], kind="stable")
    values, errors = arrays["values"][order], np.nan_to_num(arrays["standard_errors"][order])
    groups = arrays["groups"][order]
    names = sorted(set(groups.tolist()))
    shown = names if len(names) <= SHOWN_GROUPS else []
    place = np.arange(1, len(values) + 1)
    least, most = arrays["rewards"].min(), arrays["rewards"].max()  # no value lies beyond them
    reach = np.stack(
        [
            values - (values - NORMAL_95 * errors).clip(least, most),
            (values + NORMAL_95 * errors).clip(least, most) - values,
        ]
    )
    for number, name in enumerate(shown or [""]):
        own = groups == name if shown else np.ones(len(values), dtype=bool)
        look = style.series_style(LOOKS[number], number)
        axes.errorbar(
            place[own],
            values[own],
            reach[:, own],
            linestyle="none",
            marker=look["marker"],
            markersize=3.5,
            color=look["color"],
            elinewidth=0.8,
            label=style.printable(name),
        )
    if len(shown) > 1:
        axes.legend(frameon=False, loc="upper left")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _distribution(axes: Axes, values: np.ndarray, row: Mapping[str, Any]) -> None:
    axes.hist(values, bins=BINS, color=style.LOOKS["js"][0], edgecolor="white", linewidth=0.6)
    if row["low"] is not None and row["high"] is not None:
        axes.axvspan(row["low"], row["high"], color=style.INK, alpha=0.15, linewidth=0)
    axes.axvline(row["mean_value"], color=style.INK, linestyle="--")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
