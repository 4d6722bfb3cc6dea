"""Which of two models is better, item by item, and what the test could have detected."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from openrlhf_js.evaluation.passk.benchmarks import cluster_of
from openrlhf_js.evaluation.passk.evaluate import Results
from openrlhf_js.stats import (
    CONFIDENCE,
    Difference,
    detectable_effect,
    paired_difference,
    pass_at_k,
)
from openrlhf_js.stats.estimate import t_difference, welch

COARSE = 0.05  # a test that cannot detect this much is too coarse for what training usually changes
SETTINGS = ("temperature", "top_p", "max_new_tokens")  # must be the same
LOCAL_SETTINGS = ("prompt_form",)  # likewise where both have them: a server forms prompts itself


def compare(a: Results, b: Results, metric: str = "mean") -> dict[str, Any]:
    """The differences B - A on every benchmark, and their mean: models, `rows`, and `notes`.

    ValueError if the two were not measured on the same items with the same settings.
    """
    if alone := {*a["tasks"]} ^ {*b["tasks"]}:
        raise ValueError(
            f"only one of the two has {', '.join(sorted(alone))}: leave out with --tasks"
        )
    found: list[Difference] = []
    rows, notes, problems = [], [], []
    for name in a["tasks"]:
        first, second = a["tasks"][name], b["tasks"][name]
        problems += [f"  {name}: {each}" for each in _differences(first, second)]
        if problems:
            continue
        gone = {*first["left_out"], *second["left_out"]}
        places = [i for i, uid in enumerate(first["per_item"]["uid"]) if uid not in gone]
        kept = [i for i, uid in enumerate(second["per_item"]["uid"]) if uid not in gone]
        if gone:
            notes.append(f"{name}: {len(gone):,} items that A or B refused are left out.")
        if first["graded_by"] != second["graded_by"]:
            notes.append(f"{name}: graded by {first['graded_by']} (A) and {second['graded_by']}; "
                         "evaluate again to grade both alike.")  # fmt: skip
        clusters = [cluster_of(first["per_item"]["uid"][i]) for i in places]
        values = values_of(first, metric)[places], values_of(second, metric)[kept]
        found.append(paired_difference(values[1], values[0], clusters))
        means = [float(each.mean()) for each in values]
        rows.append(_row(name, len({*clusters}), means, found[-1]))
    if problems:
        raise ValueError("\n".join(["no fair comparison:", *problems]))
    if len(rows) > 1:
        means = [sum(row[side] for row in rows) / len(rows) for side in ("a", "b")]
        items = sum(row["items"] for row in rows)
        rows.append(_row("mean", items, means, mean_difference(found, items)))
    notes += [in_words(row) for row in rows]
    return {"a": a["model"], "b": b["model"], "metric": metric, "rows": rows, "notes": notes}


def values_of(task: dict[str, Any], metric: str) -> np.ndarray:
    """What a metric gives each item, (n,) in [0, 1]: `mean`, `majority`, or such as `pass@4`."""
    per_item, k = task["per_item"], task["samples"]
    if metric == "majority":
        return np.array(per_item["majority"], dtype=float)
    name, _, number = ("pass@1" if metric == "mean" else metric).partition("@")
    if name != "pass" or not number.isdecimal() or not 1 <= int(number) <= k:
        raise ValueError(f"no metric {metric!r}; give mean, majority, or pass@1 to pass@{k}")
    return pass_at_k(k, per_item["correct"], int(number))


def mean_difference(found: Sequence[Difference], clusters: int) -> Difference:
    """The mean of differences on benchmarks without common items, each with the same weight.

    Var = sum_t Var_t / T^2, with Welch and Satterthwaite's degrees of freedom.
    """
    value = sum(each.value for each in found) / len(found)
    variances = [(each.standard_error / len(found)) ** 2 for each in found]
    degrees = welch(variances, [each.degrees_of_freedom for each in found])
    return t_difference(value, math.sqrt(sum(variances)), degrees, clusters)


def in_words(row: dict[str, Any]) -> str:
    """What a difference means, in a sentence or two."""
    change, seen, items = row["value"], row["detectable"], f"{row['items']:,} items"
    better = f"B is {'better' if change > 0 else 'worse'} by {_points(abs(change))}"
    if row["low"] is None:
        return f"{row['task']}: {items} are too few for any test."
    if seen is None and change == 0:
        return f"{row['task']}: A and B score the same on every one of {items}."
    if seen is None:
        return f"{row['task']}: {better} on every one of {items} (p = {row['p_value']:.2g})."
    if row["p_value"] < 1 - CONFIDENCE:
        said = f"{row['task']}: {better} (p = {row['p_value']:.2g}, {items})."
    else:
        said = (
            f"{row['task']}: no difference is shown ({_points(change, '+')}, p = "
            f"{row['p_value']:.2g}); a true one of {_points(seen)} would be detected 8 times in 10."
        )
    if seen > COARSE:
        needed = float(f"{row['items'] * (seen / COARSE) ** 2:.2g}")  # its root halves the effect
        said += f" To detect {_points(COARSE)}, take about {needed:,.0f} such items."
    return said


def _row(name: str, items: int, means: Sequence[float], found: Difference) -> dict[str, Any]:
    # Items that all differ alike have no spread from which a detectable effect follows.
    spread = 0 < found.standard_error < math.inf
    seen = detectable_effect(found.standard_error, found.degrees_of_freedom) if spread else None
    return {
        "task": name,
        "items": items,
        "a": means[0],
        "b": means[1],
        **found.estimate.plain(),
        "p_value": found.p_value,
        "detectable": seen,
    }


def _differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """Why two results on a benchmark cannot be compared."""
    first, second = a["settings"], b["settings"]
    local = [each for each in LOCAL_SETTINGS if each in first and each in second]
    found = [
        f"{name} is {first[name]!r} and {second[name]!r}"
        for name in (*SETTINGS, *local)
        if first[name] != second[name]
    ]
    if a["samples"] != b["samples"]:
        found.append(f"samples are {a['samples']} and {b['samples']}")
    gone = {*a["left_out"], *b["left_out"]}
    uids = [[uid for uid in each["per_item"]["uid"] if uid not in gone] for each in (a, b)]
    if uids[0] != uids[1]:
        shared = len({*uids[0]} & {*uids[1]})
        found.append(f"{len(uids[0])} and {len(uids[1])} items, {shared} of them the same")
    elif not uids[0]:
        found.append("there is no item that neither leaves out")
    return found


def _points(share: float, sign: str = "") -> str:
    return f"{100 * share:{sign}.1f} points"
