"""What the samples of one benchmark say, with intervals by item."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from openrlhf_js.evaluation.passk.grading import FORMS, THREADS
from openrlhf_js.evaluation.passk.items import Item
from openrlhf_js.evaluation.passk.samples import LENGTH, Sample
from openrlhf_js.evaluation.passk.voting import majority
from openrlhf_js.tasks import STATUSES
from openrlhf_js.uncertainty import (
    Estimate,
    clustered_mean,
    clustered_proportion,
    mean_pass_at_k,
    pass_at_k,
)

UNKNOWN = "an unknown version"
Groups = Sequence[Sequence[Sample]]


def tries(samples: int) -> list[int]:
    """The j of pass@j that are shown: 1, 2, 4, ... and k itself."""
    return sorted({samples} | {1 << bit for bit in range(samples.bit_length())})


def summarise(items: Sequence[Item], groups: Groups) -> dict[str, Any]:
    """Rates, lengths and speed.

    Args:
        items: n of them; equal ones are one cluster.
        groups: n lists of k samples.

    Returns:
        For JSON. Every estimate is `{"value", "low", "high"}`, with None for an end that the data
        do not bound: `mean_at_k`, `pass_at` (by j as text), `majority_at_k`, `statuses`,
        `truncated`; `tokens` of `all`, `correct` and `not_correct` samples, None where there are
        none or nobody counted them; `tokens_per_second`; `graded_by`, the package's version or
        versions; and `per_item` with `uid`, `correct` and
        `majority`, from which comparisons are made.
    """
    k = len(groups[0])
    uids = [item.uid for item in items]
    own = {group[0].item: uid for group, uid in zip(groups, uids, strict=True)}
    correct = np.array([[each.status == "correct" for each in group] for group in groups])
    counts = correct.sum(1)
    with ThreadPoolExecutor(THREADS) as threads:  # whether answers are the same may take a while
        votes = list(threads.map(_majority, items, groups))

    def rate(values: Sequence[float] | np.ndarray) -> dict[str, float | None]:
        return clustered_proportion(values, uids).plain()

    def status_rate(status: str) -> dict[str, float | None]:
        return rate([sum(each.status == status for each in group) / k for group in groups])

    flat = [each for group in groups for each in group]
    return {
        "items": len(items),
        "distinct_items": len(set(uids)),
        "samples": k,
        "mean_at_k": mean_pass_at_k(k, counts, 1, clusters=uids).plain(),
        "pass_at": {str(j): mean_pass_at_k(k, counts, j, clusters=uids).plain() for j in tries(k)},
        "majority_at_k": rate(votes),
        "statuses": {status: status_rate(status) for status in STATUSES},
        "truncated": rate(
            [sum(each.finish_reason == LENGTH for each in group) / k for group in groups]
        ),
        "tokens": {
            "all": _tokens(flat, own),
            "correct": _tokens([each for each in flat if each.status == "correct"], own),
            "not_correct": _tokens([each for each in flat if each.status != "correct"], own),
        },
        "tokens_per_second": _speed(flat),
        "graded_by": ", ".join(sorted({each.graded_by or UNKNOWN for each in flat})),
        "per_item": {"uid": uids, "correct": counts.tolist(), "majority": votes},
    }


def values_of(task: dict[str, Any], metric: str) -> np.ndarray:
    """What a metric gives each item, (n,) in [0, 1].

    Args:
        task: a summary.
        metric: `mean`, `majority`, or a j of pass@j such as `pass@4`.

    Raises:
        ValueError: there is no such metric, or fewer samples than j.
    """
    of = task["per_item"]
    if metric == "majority":
        return np.array(of["majority"], dtype=float)
    if metric == "mean":
        return pass_at_k(task["samples"], of["correct"], 1)
    name, _, number = metric.partition("@")
    if name != "pass" or not number.isdecimal():
        raise ValueError(f"no metric {metric!r}; give mean, majority, or pass@4 with any number")
    if not 1 <= int(number) <= task["samples"]:
        raise ValueError(
            f"{metric} needs {number} samples of each item, and there are {task['samples']}: take "
            "a smaller number, or sample more with --samples"
        )
    return pass_at_k(task["samples"], of["correct"], int(number))


def _majority(item: Item, group: Sequence[Sample]) -> float:
    same = FORMS[item.task.NAME].same
    return majority([each.status for each in group], [each.answer for each in group], same)


def _tokens(samples: Sequence[Sample], uids: Mapping[int, str]) -> dict[str, float | None] | None:
    """Mean length of responses, each of which counts alike."""
    if not samples or any(each.tokens is None for each in samples):
        return None
    lengths = [float(each.tokens or 0) for each in samples]
    found: Estimate = clustered_mean(lengths, [uids[each.item] for each in samples])
    return found.plain()


def _speed(samples: Sequence[Sample]) -> float | None:
    seconds = sum(each.seconds for each in samples)
    if any(each.tokens is None for each in samples) or seconds <= 0:
        return None
    return sum(each.tokens or 0 for each in samples) / seconds


def counted(groups: Groups) -> Counter[str]:
    """How many samples have which status."""
    return Counter(each.status for group in groups for each in group)
