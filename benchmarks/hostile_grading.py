"""Claim: responses that are made to hurt cost little, and no response earns a reward by it.

    python benchmarks/hostile_grading.py               # some minutes

Every kind of `tests/tasks/hostile.py` goes through every task's scorer, as the whole response and
wherever the task looks for an answer. "own" is processor time of the calling thread, in which short
answers are graded. It is compared to limits: exits with 1 if a response raises, scores, is an
error, takes over the limit + 10 s or over 0.1 s of its own thread, or if this process has grown by
over 50 MB.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import psutil
from markdown_table import print_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "tasks"))
import hostile

from openrlhf_js.tasks import STATUSES, TASKS
from openrlhf_js.tasks import pool as pools

LIMIT_SECONDS = 5.0  # for an answer
THREADS = 8
MOST_SECONDS = LIMIT_SECONDS + 10
MOST_OWN_SECONDS = 0.1
MOST_GROWTH_BYTES = 50 << 20


class Costs(NamedTuple):
    """What the responses of a kind or of a family have cost at most, and what became of them."""

    kinds: int
    seconds: float
    own_seconds: float
    statuses: Counter[str]
    defects: list[str]


def together(costs: Sequence[Costs]) -> Costs:
    """The costs of several kinds as those of one family."""
    statuses: Counter[str] = Counter()
    defects: list[str] = []
    for kind in costs:
        statuses += kind.statuses
        defects += kind.defects
    return Costs(
        kinds=sum(kind.kinds for kind in costs),
        seconds=max(kind.seconds for kind in costs),
        own_seconds=max(kind.own_seconds for kind in costs),
        statuses=statuses,
        defects=defects,
    )


def checked_status(task: str, response: str, label: str) -> str:
    """The status of a response; AssertionError if it is no score that a response may have."""
    score = TASKS[task].score(response, label)
    assert score.status in STATUSES, score
    assert score.status not in ("error", "correct"), score
    assert not score.value, score
    return score.status


def grade_once(kind: hostile.Kind, task: str, response: str, label: str) -> Costs:
    """Grades one response."""
    statuses: Counter[str] = Counter()
    defects = []
    began = time.perf_counter()
    own_began = time.thread_time()
    try:
        statuses[checked_status(task, response, label)] += 1
    except Exception as error:
        defects.append(f"{kind}, {task}: {error!r:.200}")
    return Costs(
        kinds=0,
        seconds=time.perf_counter() - began,
        own_seconds=time.thread_time() - own_began,
        statuses=statuses,
        defects=defects,
    )


def grade(kind: hostile.Kind) -> Costs:
    """Grades a kind in all places of all tasks, against all labels."""
    costs = [
        grade_once(kind, task, response, label)
        for task, labels in hostile.LABELS.items()
        for label in labels
        for response in hostile.responses(task, kind.text)
    ]
    return together(costs)._replace(kinds=1)


def graded_families() -> list[Costs]:
    """Grades everything, and prints a row of the table for each family as it is done."""
    families = []

    def rows():
        with ThreadPoolExecutor(THREADS) as threads:
            for family, kinds in groupby(hostile.kinds(), key=lambda kind: kind.family):
                costs = together(list(threads.map(grade, kinds)))
                families.append(costs)
                yield (
                    family,
                    costs.kinds,
                    f"{costs.seconds:.2f}",
                    f"{costs.own_seconds:.3f}",
                    dict(costs.statuses),
                )

    print_table(columns=["family", "kinds", "slowest, seconds", "own", "statuses"], rows=rows())
    return families


def main() -> None:
    process = psutil.Process()
    with pools.GradingPool(THREADS, LIMIT_SECONDS) as pool:
        pools._POOL = pool
        TASKS["math"].score(r"\boxed{x}", "y^{2}")  # starts a worker
        memory_before = process.memory_info().rss
        costs = together(graded_families())
        growth_bytes = process.memory_info().rss - memory_before

    print(
        f"\n{costs.seconds:.2f} s at most, {costs.own_seconds:.3f} s of its own; "
        f"grown by {growth_bytes / 1e6:.1f} MB"
    )
    for defect in costs.defects:
        print(defect)
    failed = (
        bool(costs.defects)
        or costs.seconds > MOST_SECONDS
        or costs.own_seconds > MOST_OWN_SECONDS
        or growth_bytes > MOST_GROWTH_BYTES
    )
    sys.exit(failed)


if __name__ == "__main__":
    main()
