"""What the runs of a study show: means, paired differences by seed, and regret."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from openrlhf_js.estimators import ESTIMATORS
from openrlhf_js.stats import clustered_mean, holm, paired_difference
from openrlhf_js.study.design import OWN, TRACKER

CELL = ["task", "mix", "prompts", "responses", "vary", "cell"]  # the same for what is compared
SHARE_OF_RISE = 0.8  # of the reference's rise in reward: the target of `steps_to_target`
TESTED = {"pass1": "pass@1", "reward": "reward", "steps_to_target": "steps", "any_rate": "any rate"}
CAUSES = {
    "baseline_error": "error of the baseline / rloo's",
    "gradient_variance": "gradient variance",
    "gradient_snr": "gradient signal / noise",
    "dead": "groups with equal rewards",
    "spread": "spread of values, late",
}
# Their advantages and gradients are divided by a standard deviation, so in other units.
SCALED = {name for name, estimator in ESTIMATORS.items() if estimator.scale} | {TRACKER}


class Findings(NamedTuple):
    """Tidy rows of all cells: settings, quantity, value, low, high, seeds."""

    means: pd.DataFrame
    """For each cell, estimator, learning rate and quantity; `best` is the rate with the highest
    pass@1, and `any_rate` is pass@1 averaged over the rates."""
    differences: pd.DataFrame
    """To the reference, each estimator at its own best learning rate, with p and p_holm."""
    at_each_rate: pd.DataFrame
    """The same at equal learning rates."""
    regret: pd.DataFrame
    """How far each estimator's pass@1 is below that of the cell's best one. Since the best is
    picked by the same noisy means, even equal estimators show some."""
    curves: pd.DataFrame
    """The training reward by step, each estimator at its best learning rate."""


def analyse(records: Iterable[Mapping[str, Any]], reference: str) -> Findings:
    """All tables of a study.

    p-values are Holm's, corrected for all comparisons of one quantity in the study. A run that
    never reaches the target counts with all its steps, so such means are lower bounds.
    """
    runs = pd.DataFrame(records)
    runs["cell"] = [
        f"{f'{task}, {mix}, ' * (task != OWN)}{prompts} x {responses} {vary}".strip()
        for task, mix, prompts, responses, vary in runs[CELL[:-1]].itertuples(index=False)
    ]
    runs.loc[runs.estimator.isin(SCALED), "gradient_variance"] = None
    by = [*CELL, "estimator"]
    order = runs.groupby(by, sort=False).ngroup().argsort(kind="stable")
    runs = runs.iloc[order].reset_index(drop=True)
    runs["final"] = runs.pass1.astype(float).fillna(runs.reward)  # what was measured
    means = runs.groupby([*by, "learning_rate"]).final.transform("mean")
    highest = means.groupby([runs[name] for name in by]).transform("idxmax")
    runs["best"] = runs.learning_rate == runs.learning_rate[highest].to_numpy()
    runs["steps_to_target"] = np.nan
    for _, own in runs.groupby("cell"):
        reward = target(own.curve[own.best & (own.estimator == reference)])
        if reward is not None:
            shares = [steps_to(reward, curve) for curve in own.curve]
            runs.loc[own.index, "steps_to_target"] = own.steps * shares
    quantities = ["pass1", "reward", "steps_to_target", *CAUSES]
    tidy = runs.melt([*by, "learning_rate", "best", "seed"], quantities, "quantity")
    tidy = tidy.astype({"value": float})
    at_each_rate = _differences(tidy, reference, ["learning_rate"])
    several = runs[runs.groupby(by).learning_rate.transform("nunique") > 1]
    average = several.groupby([*by, "seed"], sort=False, as_index=False).final.mean()
    average = average.rename(columns={"final": "value"}).assign(quantity="any_rate", best=True)
    tidy = pd.concat([tidy, average])
    differences = _differences(tidy[tidy.best], reference)
    for _, family in differences.groupby("quantity"):
        differences.loc[family.index, "p_holm"] = holm(family.p.tolist())
    found = _means(tidy, [*by, "learning_rate", "best", "quantity"])
    finals = found[found.best & (found.quantity == "pass1")]
    below = finals.groupby("cell").value.transform("max") - finals.value
    curves = runs[runs.best].explode("curve").astype({"curve": float})
    points = curves.groupby(level=0).curve
    curves["step"] = curves.steps * (points.cumcount() + 0.5) / points.transform("size")
    curves = _means(curves.rename(columns={"curve": "value"}), ["cell", "estimator", "step"])
    return Findings(found, differences, at_each_rate, finals.assign(value=below), curves)


def target(curves: Sequence[Sequence[float]]) -> float | None:
    """The reward at `SHARE_OF_RISE` of the mean rise from first to last point, if any."""
    first, last = (fmean(curve[place] for curve in curves) for place in (0, -1))
    return first + SHARE_OF_RISE * (last - first) if last > first else None


def steps_to(reward: float, curve: Sequence[float]) -> float:
    """The share of training until a curve, averaged over three points, reaches a reward."""
    smooth = [fmean(curve[max(0, i - 1) : i + 2]) for i in range(len(curve))]
    for i, value in enumerate(smooth):
        if value >= reward:
            before = smooth[i - 1] if i else value
            part = (reward - before) / (value - before) if value > before else 0.0
            return (max(i - 1, 0) + part + 0.5) / len(curve)
    return 1.0


def _means(tidy: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    rows = []
    known = tidy.dropna(subset="value").groupby(keys, sort=False, dropna=False)
    for key, values in known.value:
        row = dict(zip(keys, key, strict=True)) | clustered_mean(values)._asdict()
        rows.append(row | {"seeds": len(values)})
    return pd.DataFrame(rows)


def _differences(tidy: pd.DataFrame, reference: str, same: Sequence[str] = ()) -> pd.DataFrame:
    """Paired by seed, between values of which these settings are the same, too."""
    keys = [*CELL, "estimator", "learning_rate", "quantity"]
    ours, theirs = (tidy[(tidy.estimator == reference) == is_it] for is_it in (False, True))
    on = ["cell", "quantity", "seed", *same]
    pairs = ours.merge(theirs[[*on, "value"]], on=on, suffixes=("", "_of_reference"))
    known = pairs.dropna(subset=["value", "value_of_reference"])
    rows = []
    for key, own in known.groupby(keys, sort=False, dropna=False):
        if len(own) > 1:  # one pair has no interval
            of = paired_difference(own.value, own.value_of_reference)
            row = dict(zip(keys, key, strict=True)) | of.estimate._asdict()
            rows.append(row | {"seeds": len(own), "p": of.p_value})
    return pd.DataFrame(rows, columns=[*keys, "value", "low", "high", "seeds", "p"])


def in_words(findings: Findings, reference: str) -> list[str]:
    """The paired difference of pass@1, in points, for each cell and estimator."""
    said = []
    for row in findings.differences.query("quantity == 'pass1'").itertuples():
        value, low, high = (100 * end for end in (row.value, row.low, row.high))
        said.append(
            f"{row.cell}: {row.estimator} {value:+.1f} points of pass@1 over {reference} "
            f"({low:+.1f} to {high:+.1f}, paired over {row.seeds} seeds)"
        )
    return said
