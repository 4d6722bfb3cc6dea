"""Which of two models is better, item by item, and what the test could have detected."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from openrlhf_js import stats
from openrlhf_js.evaluation.passk.evaluate import Results
from openrlhf_js.stats.estimate import t_difference, welch

# must be the same, where both have them: a server forms prompts itself
SETTINGS = ("temperature", "top_p", "max_new_tokens", "prompt_form")


def compare(a: Results, b: Results, metric: str = "mean") -> dict[str, Any]:
    """The differences B - A on every benchmark, and their mean: models, `rows`, and `notes`.

    ValueError if the two were not measured on the same items with the same settings.
    """
    if alone := {*a["tasks"]} ^ {*b["tasks"]}:
        raise ValueError(
            f"only one of the two has {', '.join(sorted(alone))}: leave out with --tasks"
        )
    found: list[stats.Difference] = []
    rows, notes, problems = [], [], []
    for name in a["tasks"]:
        first, second = a["tasks"][name], b["tasks"][name]
        problems += [f"  {name}: {each}" for each in _differences(first, second)]
        if problems:
            continue
        if first["graded_by"] != second["graded_by"]:
            notes.append(
                f"{name}: graded by {first['graded_by']} (A) and {second['graded_by']}; evaluate "
                "again to grade both alike."
            )
        values = values_of(first, metric), values_of(second, metric)
        found.append(stats.paired_difference(values[1], values[0]))
        means = [float(each.mean()) for each in values]
        rows.append(_row(name, len(values[0]), means, found[-1]))
    if problems:
        raise ValueError("\n".join(["no fair comparison:", *problems]))
    if len(rows) > 1:
        means = [sum(row[side] for row in rows) / len(rows) for side in ("a", "b")]
        items = sum(row["items"] for row in rows)
        rows.append(_row("mean", items, means, mean_difference(found, items)))
    return {"a": a["model"], "b": b["model"], "metric": metric, "rows": rows, "notes": notes}


def values_of(task: dict[str, Any], metric: str) -> np.ndarray:
    """What a metric gives each item, (n,) in [0, 1]: `mean`, `majority`, or such as `pass@4`."""
    per_item, k = task["per_item"], task["samples"]
    if metric == "majority":
        return np.array(per_item["majority"], dtype=float)
    name, _, number = ("pass@1" if metric == "mean" else metric).partition("@")
    if name != "pass" or not number.isdecimal() or not 1 <= int(number) <= k:
        raise ValueError(f"no metric {metric!r}; give mean, majority, or pass@1 to pass@{k}")
    return stats.pass_at_k(k, per_item["correct"], int(number))


def mean_difference(found: Sequence[stats.Difference], clusters: int) -> stats.Difference:
    """The mean of differences on benchmarks without common items, each with the same weight.

    Var = sum_t Var_t / T^2, with Welch and Satterthwaite's degrees of freedom.
    """
    value = sum(each.value for each in found) / len(found)
    variances = [(each.standard_error / len(found)) ** 2 for each in found]
    degrees = welch(variances, [each.degrees_of_freedom for each in found])
    return t_difference(value, math.sqrt(sum(variances)), degrees, clusters)


def _row(name: str, items: int, means: Sequence[float], found: stats.Difference) -> dict[str, Any]:
    # Items that all differ alike have no spread from which a detectable effect follows.
    error = found.standard_error if 0 < found.standard_error < math.inf else None
    seen = error and stats.detectable_effect(error, found.degrees_of_freedom)
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
    found = [
        f"{name} is {first[name]!r} and {second[name]!r}"
        for name in SETTINGS
        if name in first and name in second and first[name] != second[name]
    ]
    if a["samples"] != b["samples"]:
        found.append(f"samples are {a['samples']} and {b['samples']}")
    uids = [each["per_item"]["uid"] for each in (a, b)]
    if uids[0] != uids[1]:
        shared = len({*uids[0]} & {*uids[1]})
        found.append(f"{len(uids[0])} and {len(uids[1])} items, {shared} of them the same")
    return found
