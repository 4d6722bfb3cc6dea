"""Rates and lengths of graded samples, with intervals by item, and the file that holds them.

A sample that the model or its endpoint refused (too long, filtered) has no grade, and counts only
in the rate `refused`. An item's figures come from its answered samples. Items without any are left
out, and pass@j leaves out items with fewer than j.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from answer_graders.prompt_files import Example
from answer_graders.tasks import STATUSES
from paired_eval.passk import grading
from paired_eval.sampling.complete import REFUSED, Sample
from paired_eval.stats import Estimate, clustered_mean, clustered_proportion, pass_at_k

FILE = "results.json"
FORMAT = "openrlhf_js passk 3"

Results = dict[str, Any]
Row = dict[str, Any]  # quantity, j (of pass@j, else None), value, low, high
Group = Sequence[Sample]  # of one item


def summarise(items: Mapping[str, Example], groups: Sequence[Group]) -> dict[str, Any]:
    """Rates and lengths with intervals by item, for JSON.

    `groups` are the samples of each item: k, or fewer if they were recorded. `rows` has one row for
    each figure, and `per_item` what comparisons need; its `majority` is None for an item without an
    answered sample.
    """
    answered = [[sample for sample in group if sample.refused is None] for group in groups]
    samples = [sample for group in answered for sample in group]
    if not samples:
        raise ValueError(f"the model refuses every item; the first: {groups[0][0].refused}")
    correct = [_count(group, "status", "correct") for group in answered]
    votes = _votes(items, answered)
    k = max(map(len, groups))
    per_item: dict[str, Any] = {
        "uid": list(items),
        "answered": [len(group) for group in answered],
        "correct": correct,
        "majority": votes,
    }
    majority = clustered_proportion([vote for vote in votes if vote is not None])
    rows = _pass_rows(k, per_item["answered"], correct)
    rows.append(_row("majority_at_k", majority))
    rows += _share_rows(answered)
    rows.append(_row(REFUSED, _share(groups, "finish_reason", REFUSED)))
    rows += _length_rows(samples)
    graders = sorted({sample.graded_by for sample in samples})
    return {
        "items": len(items),
        "samples": k,
        "graded_by": ", ".join(graders),
        "rows": rows,
        "per_item": per_item,
    }


def _count(group: Group, field: str, value: str) -> int:
    """How many samples have this value."""
    return sum(getattr(sample, field) == value for sample in group)


def _row(quantity: str, estimate: Estimate, j: int | None = None) -> Row:
    """A figure with its interval, for JSON."""
    return {"quantity": quantity, "j": j, **estimate.plain()}


def _votes(items: Mapping[str, Example], groups: Sequence[Group]) -> list[float | None]:
    """The probability that a majority vote is right, by item; None without an answered sample."""

    def vote(item: Example, group: Group) -> float | None:
        """The same for one item."""
        if not group:
            return None
        return grading.majority(
            statuses=[sample.status for sample in group],
            answers=[sample.answer for sample in group],
            same=item.task.same_answer,
        )

    with ThreadPoolExecutor(grading.THREADS) as threads:  # comparing answers may take a while
        return list(threads.map(vote, items.values(), groups))


def _pass_rows(k: int, answered: Sequence[int], correct: Sequence[int]) -> list[Row]:
    """mean@k, and pass@j for j = 1, 2, 4, ... and k."""
    counts = np.array(answered)
    correct_counts = np.array(correct)
    powers_of_two = {1 << bit for bit in range(k.bit_length())}
    rows = []
    for j in sorted(powers_of_two | {k}):
        enough = counts >= j
        if enough.any():
            shares = pass_at_k(counts[enough], correct_counts[enough], j)
            rows.append(_row("pass_at", clustered_proportion(shares), j))
    pass_at_1 = rows[0]
    mean_at_k = {**pass_at_1, "quantity": "mean_at_k", "j": None}
    return [mean_at_k, *rows]


def items_with(task: Mapping[str, Any], j: int) -> int:
    """How many items of results on one benchmark have j answered samples: those of pass@j."""
    return sum(count >= j for count in task["per_item"]["answered"])


def is_recorded(task: Mapping[str, Any]) -> bool:
    """Whether results on a benchmark are of recorded responses (`--responses`)."""
    return "responses_sha256" in task["settings"]


def responses_per_item(task: Mapping[str, Any]) -> str:
    """The number of responses per item: k, or such as "2 to 8" if recorded ones are uneven."""
    most = task["samples"]
    fewest = min(task["per_item"]["answered"]) if is_recorded(task) else most
    return str(most) if fewest == most else f"{fewest} to {most}"


def _share_rows(groups: Sequence[Group]) -> list[Row]:
    """The shares of each status, and of truncated samples if it is known why they ended."""
    rows = [_row(status, _share(groups, "status", status)) for status in STATUSES]
    if any(sample.finish_reason for group in groups for sample in group):
        rows.append(_row("truncated", _share(groups, "finish_reason", "length")))
    return rows


def _share(groups: Sequence[Group], field: str, value: str) -> Estimate:
    """The share of samples with this value, each item with the same weight."""
    return clustered_proportion(
        [_count(group, field, value) / len(group) for group in groups if group]
    )


def _length_rows(samples: Group) -> list[Row]:
    """Mean lengths of all and of the correct samples; none where the endpoint counts no tokens."""
    if any(sample.tokens is None for sample in samples):
        return []
    correct = [sample for sample in samples if sample.status == "correct"]
    rows = [_row("tokens", _mean_length(samples))]
    if correct:
        rows.append(_row("tokens_correct", _mean_length(correct)))
    return rows


def _mean_length(samples: Group) -> Estimate:
    """The mean length in tokens, with an interval by item."""
    tokens = [float(sample.tokens or 0) for sample in samples]
    uids = [sample.uid for sample in samples]
    return clustered_mean(tokens, uids)


def read_results(folder: Path, tasks: Sequence[str] = ()) -> Results:
    """The results in a folder, of these benchmarks or all."""
    path = folder / FILE
    if not path.is_file():
        raise ValueError(f"{folder} holds no {FILE}: give the --out of a finished evaluation")
    try:
        results: Results = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: {error}: delete it, and evaluate again") from None
    if not isinstance(results, dict) or results.get("format") != FORMAT:
        raise ValueError(
            f"{path} does not hold results of this version of `eval passk`: delete it, and the "
            "same evaluation makes it anew from samples/"
        )
    missing = [name for name in tasks if name not in results["tasks"]]
    if missing:
        present = ", ".join(results["tasks"])
        raise ValueError(f"{folder} has no {', '.join(missing)}; it has {present}")
    chosen = {name: results["tasks"][name] for name in tasks or results["tasks"]}
    return {**results, "tasks": chosen}
