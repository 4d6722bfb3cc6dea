"""Which of two models is better, item by item, and what the test could have detected."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paired_eval import stats
from paired_eval.passk.summary import Results, is_recorded, responses_per_item
from paired_eval.stats.estimate import ROUNDING, t_difference, welch

TaskResults = Mapping[str, Any]  # the results on one benchmark
Row = dict[str, Any]

# must be the same, if both have them: a served model has no `prompt_form`
SETTINGS = ("temperature", "top_p", "max_new_tokens", "prompt_form")


def compare(a: Results, b: Results, metric: str = "mean") -> dict[str, Any]:
    """The differences B - A on every benchmark, and their mean: models, `rows`, and `notes`.

    ValueError if the two were not measured on the same items with the same settings. Recorded
    responses may differ in their items and in their number per item: the shared items are compared,
    and the notes say what is left out.
    """
    _check_comparable(a["tasks"], b["tasks"])
    differences: list[stats.Difference] = []
    rows: list[Row] = []
    notes: list[str] = []
    for name in a["tasks"]:
        task_a = a["tasks"][name]
        task_b = b["tasks"][name]
        row, difference, left_out = _compared(
            name=name,
            task_a=task_a,
            task_b=task_b,
            metric=metric,
        )
        rows.append(row)
        differences.append(difference)
        graders = (task_a["graded_by"], task_b["graded_by"])
        if graders[0] != graders[1]:
            notes.append(
                f"{name}: graded by {graders[0]} (A) and {graders[1]}; evaluate again to grade "
                "both alike."
            )
        if left_out:
            notes.append(
                f"{name}: {left_out} items are left out, which have too few responses for {metric}."
            )
        notes += _notes_of_recorded(name, task_a, task_b)
    if len(rows) > 1:
        items = sum(row["items"] for row in rows)
        clusters = _clusters_of_sign_test(rows, differences)
        mean_row = _row(
            name="mean",
            items=items,
            mean_a=sum(row["a"] for row in rows) / len(rows),
            mean_b=sum(row["b"] for row in rows) / len(rows),
            difference=mean_difference(differences, clusters),
        )
        rows.append(mean_row)
    return {
        "a": a["model"],
        "b": b["model"],
        "metric": metric,
        "rows": rows,
        "notes": notes,
    }


def _clusters_of_sign_test(rows: Sequence[Row], differences: Sequence[stats.Difference]) -> int:
    """The items of the benchmarks that differ; 1, so no sign, where not all in one direction."""
    items = 0
    signs = set()
    for row, difference in zip(rows, differences, strict=True):
        if abs(difference.value) > ROUNDING:
            items += row["items"]
            signs.add(difference.value > 0)
    return items if len(signs) == 1 else 1


def _compared(
    name: str, task_a: TaskResults, task_b: TaskResults, metric: str
) -> tuple[Row, stats.Difference, int]:
    """The row of a benchmark, its difference, and how many shared items have too few samples."""
    places_a, places_b = _places_of_shared(task_a, task_b)
    if metric == "majority":
        _check_equal_votes(name, task_a, task_b)
    values_a = values_of(task_a, metric)[places_a]
    values_b = values_of(task_b, metric)[places_b]
    both = np.isfinite(values_a) & np.isfinite(values_b)
    if not both.any():
        raise ValueError(f"{name}: no item has enough answered samples of both")
    values_a = values_a[both]
    values_b = values_b[both]
    difference = stats.paired_difference(values_b, values_a)
    row = _row(
        name=name,
        items=len(values_a),
        mean_a=values_a.mean(),
        mean_b=values_b.mean(),
        difference=difference,
    )
    return row, difference, int((~both).sum())


def _places_of_shared(a: TaskResults, b: TaskResults) -> tuple[list[int], list[int]]:
    """The positions of the shared items in the results of A and of B, in the order of A."""
    places = {uid: place for place, uid in enumerate(b["per_item"]["uid"])}
    shared = [
        (place, places[uid]) for place, uid in enumerate(a["per_item"]["uid"]) if uid in places
    ]
    return [place for place, _ in shared], [place for _, place in shared]


def _check_equal_votes(name: str, a: TaskResults, b: TaskResults) -> None:
    """ValueError if one has more responses to an item: more votes win more often."""
    answered_a = a["per_item"]["answered"]
    answered_b = b["per_item"]["answered"]
    uneven = sum(
        answered_a[place_a] != answered_b[place_b]
        for place_a, place_b in zip(*_places_of_shared(a, b), strict=True)
    )
    if uneven:
        raise ValueError(
            f"{name}: {uneven:,} items have more responses in one of the two, and more votes win "
            "more often: compare with --metric mean, or such as pass@2"
        )


def _any_recorded(a: TaskResults, b: TaskResults) -> bool:
    """Whether one of the two has recorded responses."""
    return is_recorded(a) or is_recorded(b)


def _notes_of_recorded(name: str, a: TaskResults, b: TaskResults) -> list[str]:
    """How recorded responses differ in their items and in their number per item."""
    shared = len(_places_of_shared(a, b)[0])
    only_a = a["items"] - shared
    only_b = b["items"] - shared
    notes = []
    if only_a or only_b:
        notes.append(
            f"{name}: {shared:,} items are in both. Left out are {only_a:,} that only A has, and "
            f"{only_b:,} that A lacks: their prompt, or its label, is not in the other."
        )
    if responses_per_item(a) != responses_per_item(b):
        notes.append(
            f"{name}: {responses_per_item(a)} responses to an item in A, and "
            f"{responses_per_item(b)}; every item has the same weight."
        )
    return notes


def values_of(task: TaskResults, metric: str) -> np.ndarray:
    """A metric's value of each item, (n,) in [0, 1]: `mean`, `majority`, or such as `pass@4`.

    NaN for an item with too few answered samples.
    """
    per_item = task["per_item"]
    if metric == "majority":
        return np.array(per_item["majority"], dtype=float)
    j = _j_of(metric, task["samples"])
    answered = np.array(per_item["answered"])
    correct = np.array(per_item["correct"])
    values = np.full(len(answered), math.nan)
    enough = answered >= j
    if enough.any():
        values[enough] = stats.pass_at_k(answered[enough], correct[enough], j)
    return values


def _j_of(metric: str, samples: int) -> int:
    """The j of a metric that is pass@j."""
    if metric == "mean":
        return 1
    name, _, number = metric.partition("@")
    if name == "pass" and number.isdecimal() and 1 <= int(number) <= samples:
        return int(number)
    raise ValueError(f"no metric {metric!r}; give mean, majority, or pass@1 to pass@{samples}")


def mean_difference(differences: Sequence[stats.Difference], clusters: int) -> stats.Difference:
    """The mean of differences on benchmarks without common items, each with the same weight.

    Var = sum_t Var_t / T^2, with Welch and Satterthwaite's degrees of freedom.
    """
    count = len(differences)
    variances = [(difference.standard_error / count) ** 2 for difference in differences]
    return t_difference(
        value=sum(difference.value for difference in differences) / count,
        error=math.sqrt(sum(variances)),
        degrees=welch(variances, [difference.degrees_of_freedom for difference in differences]),
        clusters=clusters,
    )


def _row(name: str, items: int, mean_a: float, mean_b: float, difference: stats.Difference) -> Row:
    """A row of a comparison, for JSON."""
    detectable = None
    # If all items differ by the same amount, no spread tells what could be detected.
    if 0 < difference.standard_error < math.inf:
        detectable = stats.detectable_effect(
            difference.standard_error, difference.degrees_of_freedom
        )
    return {
        "task": name,
        "items": items,
        "a": float(mean_a),
        "b": float(mean_b),
        **difference.estimate.plain(),
        "p_value": difference.p_value,
        "detectable": detectable,
    }


def _check_comparable(
    tasks_a: Mapping[str, TaskResults], tasks_b: Mapping[str, TaskResults]
) -> None:
    """ValueError if two results are of different benchmarks, items or settings."""
    unshared = sorted(tasks_a.keys() ^ tasks_b.keys())
    if unshared:
        names = ", ".join(unshared)
        raise ValueError(f"only one of the two has {names}: leave out with --tasks")
    lines = ["no fair comparison:"]
    for name in tasks_a:
        problems = _problems(tasks_a[name], tasks_b[name])
        lines += [f"  {name}: {problem}" for problem in problems]
    if len(lines) > 1:
        raise ValueError("\n".join(lines))


def _problems(a: TaskResults, b: TaskResults) -> list[str]:
    """Why two results on a benchmark cannot be compared."""
    of_a = a["settings"]
    of_b = b["settings"]
    problems = [
        f"{name} is {of_a[name]!r} and {of_b[name]!r}"
        for name in SETTINGS
        if name in of_a and name in of_b and of_a[name] != of_b[name]
    ]
    omitted = [sorted({*settings.get("omitted", [])} - {"seed"}) for settings in (of_a, of_b)]
    if omitted[0] != omitted[1]:
        problems.append(f"--omit is {omitted[0]} and {omitted[1]}")
    if a["samples"] != b["samples"] and not _any_recorded(a, b):
        problems.append(f"samples are {a['samples']} and {b['samples']}")
    uids_a = a["per_item"]["uid"]
    uids_b = b["per_item"]["uid"]
    shared = len(set(uids_a) & set(uids_b))
    if uids_a != uids_b and not (shared and _any_recorded(a, b)):
        problems.append(f"{len(uids_a)} and {len(uids_b)} items, {shared} of them the same")
    return problems
