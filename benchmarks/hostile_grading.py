"""What do responses cost that are made to hurt?

Every kind of `tests/tasks/hostile.py` goes through every task's scorer, as the whole response and
wherever the task looks for an answer. `own` is processor time of the calling thread, in which short
answers are graded. Exits with 1 if a response raises, scores, is an error, takes over the limit
+ 10 s or over 0.1 s of its own thread, or if this process has grown by over 50 MB.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "tasks"))
import hostile

from openrlhf_js.tasks import STATUSES, TASKS
from openrlhf_js.tasks import pool as pools

LIMIT, THREADS = 5.0, 8  # seconds for an answer


def checked(name: str, response: str, label: str) -> str:
    """The status of a response; AssertionError if it is no score that a response may have."""
    score = TASKS[name].score(response, label)
    assert score.status in STATUSES and score.status != "error", score
    assert score.status != "correct" and not score.value, score
    return score.status


def grade(kind: hostile.Kind) -> tuple[float, float, Counter[str], list[str]]:
    """The most seconds, and the most of its own thread, the statuses, and the defects of a kind."""
    seconds, owns, statuses, defects = [0.0], [0.0], Counter[str](), []
    for name in hostile.LABELS:
        for label in hostile.LABELS[name]:
            for response in hostile.responses(name, kind.text):
                began, own = time.perf_counter(), time.thread_time()
                try:
                    statuses[checked(name, response, label)] += 1
                except Exception as error:
                    defects.append(f"{kind}, {name}: {error!r:.200}")
                owns.append(time.thread_time() - own)
                seconds.append(time.perf_counter() - began)
    return max(seconds), max(owns), statuses, defects


def main() -> None:
    process, defects, slowest, most_own = psutil.Process(), [], 0.0, 0.0
    with pools.GradingPool(THREADS, LIMIT) as pool:
        pools._POOL = pool
        TASKS["math"].score(r"\boxed{x}", "y^{2}")
        before = process.memory_info().rss
        print("| family | kinds | slowest, seconds | own | statuses |\n|---|---:|---:|---:|---|")
        with ThreadPoolExecutor(THREADS) as threads:
            for family, members in groupby(hostile.kinds(), key=lambda kind: kind.family):
                seconds, owns, statuses, found = zip(*threads.map(grade, members), strict=True)
                total = sum(statuses, Counter[str]())
                row = f"{len(seconds)} | {max(seconds):.2f} | {max(owns):.3f} | {dict(total)}"
                print(f"| {family} | {row} |", flush=True)
                slowest, most_own = max(slowest, *seconds), max(most_own, *owns)
                defects += [defect for each in found for defect in each]
        growth = process.memory_info().rss - before
    print(f"\n{slowest:.2f} s at most, {most_own:.3f} s of its own; grown by {growth / 1e6:.1f} MB")
    print(*defects, sep="\n")
    sys.exit(bool(defects) or slowest > LIMIT + 10 or most_own > 0.1 or growth > 50 << 20)


if __name__ == "__main__":
    main()
