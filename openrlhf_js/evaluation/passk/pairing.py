"""Two results made fit to be compared, item by item, or the reasons why they cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from openrlhf_js.evaluation.passk.summary import UNKNOWN

COMPARED = ("temperature", "top_p", "max_new_tokens")  # settings that must be the same
OWN = ("prompt_form",)  # likewise, where both have them: a server forms prompts itself

Results = dict[str, Any]


def paired(a: Results, b: Results) -> tuple[Results, Results, list[str]]:
    """Both with the items that neither of them leaves out, and what a reader should know of it.

    Args:
        a: of `results.read_results`.
        b: the other.

    Raises:
        ValueError: they were not measured on the same items with the same settings; says where.
    """
    if alone := {*a["tasks"]} ^ {*b["tasks"]}:
        has = "; ".join(f"{each['model']} has {', '.join(each['tasks'])}" for each in (a, b))
        raise ValueError(
            f"only one of the two has {', '.join(sorted(alone))} ({has}): name with --tasks those "
            "that both have, or evaluate the other on the rest"
        )
    notes = []
    for name in a["tasks"]:
        pair = [each["tasks"][name] for each in (a, b)]
        if gone := {uid for task in pair for uid in task.get("left_out", ())}:
            a, b = (_without(each, name, gone) for each in (a, b))
            notes.append(
                f"{name}: {len(gone):,} items, which a server refused A or B, are left out of the "
                "comparison."
            )
    _check_same(a, b)
    return a, b, notes + _graders(a, b)


def _without(found: Results, name: str, gone: set[str]) -> Results:
    """Results whose items of one benchmark are fewer; its other figures stay as they are."""
    task = found["tasks"][name]
    of = task["per_item"]
    stay = [place for place, uid in enumerate(of["uid"]) if uid not in gone]
    if not stay:
        raise ValueError(f"{name}: there is no item that neither of the two leaves out")
    per_item = {key: [values[place] for place in stay] for key, values in of.items()}
    fewer = {**task, "per_item": per_item, "distinct_items": len({*per_item["uid"]})}
    return {**found, "tasks": {**found["tasks"], name: fewer}}


def _check_same(a: Results, b: Results) -> None:
    """Raises ValueError unless both were measured on the same items with the same settings."""
    problems = []
    for name, first in a["tasks"].items():
        second = b["tasks"][name]
        both = [each for each in OWN if each in first["settings"] and each in second["settings"]]
        for setting in (*COMPARED, *both):
            pair = [task["settings"][setting] for task in (first, second)]
            if pair[0] != pair[1]:
                problems.append(f"{name}: {setting} is {pair[0]!r} and {pair[1]!r}")
        if first["samples"] != second["samples"]:
            problems.append(f"{name}: samples are {first['samples']} and {second['samples']}")
        problems += _other_items(name, first["per_item"]["uid"], second["per_item"]["uid"])
    if problems:
        raise ValueError("no fair comparison:\n" + "\n".join(f"  {each}" for each in problems))


def _other_items(name: str, first: Sequence[str], second: Sequence[str]) -> list[str]:
    if first == second:
        return []
    shared = len({*first} & {*second})
    place = next((i for i, pair in enumerate(zip(first, second)) if pair[0] != pair[1]), None)  # noqa: B905
    where = "" if place is None else f"; the first that differs is number {place + 1}"
    return [f"{name}: {len(first)} and {len(second)} items, {shared} of them the same{where}"]


def _graders(a: Results, b: Results) -> list[str]:
    """A sentence on the benchmarks that two versions graded, if there are any."""
    said = []
    for name in a["tasks"]:
        first, second = (each["tasks"][name].get("graded_by", UNKNOWN) for each in (a, b))
        if first != second:
            said.append(f"{name} by {first} and {second}")
    if not said:
        return []
    return [
        f"Other versions of openrlhf_js graded A than B ({'; '.join(said)}): to be sure, grade "
        "both with --grade_again."
    ]
