"""Which of two models is better, item by item, and what the test could have seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from scipy import special

from openrlhf_js.evaluation.passk.pairing import paired
from openrlhf_js.evaluation.passk.summary import values_of
from openrlhf_js.uncertainty import (
    CONFIDENCE,
    Difference,
    detectable_effect,
    paired_difference,
)
from openrlhf_js.uncertainty.estimate import t_quantile
from openrlhf_js.uncertainty.intervals import welch

COARSE = 0.05  # a test that cannot see this much is too coarse for what training usually changes
ALPHA = 1 - CONFIDENCE


def compare(a: dict[str, Any], b: dict[str, Any], metric: str = "mean") -> dict[str, Any]:
    """The differences of b from a on every benchmark, and their mean.

    Args:
        a: of `results.read_results`.
        b: the other.
        metric: as `summary.values_of` takes it.

    Returns:
        For JSON: `a`, `b` (the models), `metric`, `rows` by benchmark (and `mean`, if there are
        several), `notes` on what they rest on, and `in_words`.

    Raises:
        ValueError: they were not measured on the same items with the same settings; says where.
    """
    a, b, notes = paired(a, b)
    found: dict[str, Difference] = {}
    rows = []
    for name, first in a["tasks"].items():
        second = b["tasks"][name]
        values = [values_of(task, metric) for task in (first, second)]
        found[name] = paired_difference(values[1], values[0], first["per_item"]["uid"])
        means = [float(each.mean()) for each in values]
        rows.append(_row(name, first["distinct_items"], means, found[name]))
    if len(rows) > 1:
        means = [sum(row[side] for row in rows) / len(rows) for side in ("a", "b")]
        items = sum(row["items"] for row in rows)
        rows.append(_row("mean", items, means, mean_difference([*found.values()])))
    return {
        "a": a["model"],
        "b": b["model"],
        "metric": metric,
        "rows": rows,
        "notes": notes,
        "in_words": [in_words(row) for row in rows],
    }


def mean_difference(found: Sequence[Difference]) -> Difference:
    """The mean of differences on benchmarks without common items, each counting alike.

    Var = sum_t Var_t / T^2, with Welch and Satterthwaite's degrees of freedom.
    """
    count = len(found)
    value = sum(each.value for each in found) / count
    variances = [(each.standard_error / count) ** 2 for each in found]
    error = math.sqrt(sum(variances))
    if not math.isfinite(error):
        return Difference(value, -math.inf, math.inf, 1.0, math.inf, 0.0)
    degrees = welch(variances, [each.degrees_of_freedom for each in found])
    half = float(t_quantile(degrees, CONFIDENCE)) * error
    if error > 0:
        p_value = float(2 * special.stdtr(degrees, -abs(value) / error))
    else:
        p_value = min(each.p_value for each in found)
    return Difference(value, value - half, value + half, p_value, error, degrees)


def _row(name: str, items: int, means: Sequence[float], found: Difference) -> dict[str, Any]:
    # Items that differ all alike show no spread, from which one could tell what would be seen.
    spread = 0 < found.standard_error < math.inf
    seen = detectable_effect(found.standard_error, found.degrees_of_freedom) if spread else None
    return {
        "task": name,
        "items": items,
        "a": means[0],
        "b": means[1],
        "difference": found.estimate.plain(),
        "p_value": found.p_value,
        "detectable": seen,
    }


def in_words(row: dict[str, Any]) -> str:
    """What a difference means, in one sentence or two, without a verdict that it cannot bear."""
    change, seen = row["difference"]["value"], row["detectable"]
    items = f"{row['items']:,} items"
    better = f"B is {'better' if change > 0 else 'worse'} by {_points(abs(change))}"
    if row["difference"]["low"] is None:
        return f"{row['task']}: {items} are too few for any test."
    if seen is None and change == 0:
        return f"{row['task']}: A and B score the same on every one of {items}."
    if seen is None:
        return f"{row['task']}: {better} on every one of {items} (p = {row['p_value']:.2g})."
    if row["p_value"] < ALPHA:
        said = f"{row['task']}: {better} (p = {row['p_value']:.2g}, {items})."
    else:
        said = (
            f"{row['task']}: no difference is shown ({_points(change, sign=True)}, "
            f"p = {row['p_value']:.2g}). A true one of {_points(seen)} would have been found 8 "
            f"times in 10; a smaller one may well have been missed."
        )
    if seen > COARSE:
        said += (
            f" {items} are too few to see less than {_points(seen)} reliably: for an effect of "
            f"{_points(COARSE)}, take about {_items_for(row):,} such items."
        )
    return said


def _items_for(row: dict[str, Any]) -> int:
    """How many items would see `COARSE`, since the detectable effect falls with their root."""
    exact = row["items"] * (row["detectable"] / COARSE) ** 2
    digits = 10 ** max(0, len(str(int(exact))) - 2)
    return math.ceil(exact / digits) * digits


def _points(share: float, sign: bool = False) -> str:
    return f"{100 * share:{'+' if sign else ''}.1f} points"
