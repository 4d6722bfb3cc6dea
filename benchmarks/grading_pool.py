"""What do answers that never end cost a batch of the grading pool?

1,000 answers for the numeric grader, with and without 10 in their midst that never end. Exits with
1 if another answer's status changes, or if they cost more than each its time limit and a restart.
"""

from __future__ import annotations

import argparse
import heapq
import random
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count, cycle, islice
from statistics import median

from openrlhf_js.tasks.pool import GradingPool

PAIRS = (
    (r"\frac{%d}{7}+\sqrt{3}", r"\sqrt{3}+\frac{%d}{7}"),
    (r"x^2+%dx", r"x(x+%d)"),
    (r"\sqrt{%d}+1", r"\sqrt{%d}+2"),
    (r"\sin^2 %d", r"1-\cos^2 %d"),
    (r"(%d, \pi]", r"[%d, \pi]"),
    (r"\int_0^{%d} x dx", r"\int_0^{%d} y dy"),
)
ANSWERS, HOSTILE, WORKERS = 1000, 10, 2


def numeric(answer: str, label: str) -> tuple[str, str]:
    """Grade as the mathematics task does; or never end."""
    from openrlhf_js.tasks.equivalence.numeric import compare

    if answer in DEEDS:
        DEEDS[answer]()
    return compare(answer, label)


def loop() -> None:
    """Run in Python for ever."""
    while True:
        pass


DEEDS: dict[str, Callable[[], object]] = {
    "loop": loop,
    "tower": lambda: 9**9**9,
    "sleep": lambda: time.sleep(1e6),
}


def batch(pairs: list[tuple[str, str]], limit_seconds: float) -> tuple[float, list[str]]:
    """The seconds of a batch in a new pool, and the statuses."""
    function = "grading_pool:numeric"
    with GradingPool(WORKERS, limit_seconds) as pool, ThreadPoolExecutor(WORKERS) as threads:
        list(threads.map(lambda n: pool.grade(function, str(n), "x"), range(WORKERS)))
        began = time.perf_counter()
        scores = list(threads.map(lambda pair: pool.grade(function, *pair), pairs))
        return time.perf_counter() - began, [score.status for score in scores]


def makespan(service: Sequence[float], workers: int, own: float) -> float:
    """The queue model: seconds of a pool whose caller spends `own` seconds on one after the other.

    An answer of so many seconds of service goes to the worker that is free first.
    """
    free, caller = [0.0] * workers, 0.0
    for seconds in service:
        caller = max(heapq.heappop(free), caller) + own
        heapq.heappush(free, caller + seconds)
    return max(free)


def against_model(answers: int, rounds: int) -> tuple[list[float], float, dict[int, list[float]]]:
    """Service seconds and the caller's own for an answer, in CPU time; and real over model time."""
    texts = zip(count(2), cycle(PAIRS), strict=False)  # no answer comes twice
    service: list[float] = []
    owns: list[float] = []
    ratios: dict[int, list[float]] = {1: [], 2: []}
    with GradingPool(1) as one, GradingPool(2) as two:
        for place in range(rounds + 1):  # before the first the workers start
            pairs = [(a % n, b % n) for n, (a, b) in islice(texts, answers)]
            alone = [_seconds(partial(numeric, *pair)) for pair in pairs]
            service += [cpu for _, cpu in alone] * bool(place)
            for pool in (one, two):
                grade = partial(pool.grade, "grading_pool:numeric")
                with ThreadPoolExecutor(pool.workers) as threads:
                    batch = partial(threads.map, grade, *zip(*pairs, strict=True))
                    real, cpu = _seconds(lambda batch=batch: list(batch()))
                model = makespan([wall for wall, _ in alone], pool.workers, cpu / answers)
                owns += [cpu / answers] * bool(place)
                ratios[pool.workers] += [real / model] * bool(place)
    return service, median(owns), ratios


def _seconds(call: Callable[[], object]) -> tuple[float, float]:
    """Of the clock, and of this process's CPU time."""
    began, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - began, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--limit", type=float, default=5.0, help="seconds; default: 5")
    limit = parser.parse_args().limit
    pairs = [(a % n, b % n) for n, (a, b) in zip(range(2, 2 + ANSWERS), cycle(PAIRS), strict=False)]
    mixed = list(pairs)
    chosen = random.Random(0).sample(range(ANSWERS), HOSTILE)
    for place, deed in zip(chosen, cycle(DEEDS), strict=False):
        mixed[place] = deed, str(place)
    alone_seconds, alone = batch(pairs, limit)
    seconds, together = batch(mixed, limit)
    changed = sum(alone[i] != together[i] for i in {*range(ANSWERS)} - {*chosen})
    goal = (HOSTILE / WORKERS + 1) * (limit + 2)
    print(f"{ANSWERS} answers on {WORKERS} workers: {alone_seconds:.2f} s")
    print(f"with {HOSTILE} that never end: {seconds - alone_seconds:.2f} s more (goal: {goal:g} s)")
    print(f"{together.count('timeout')} timeouts; {changed} other statuses changed")
    sys.exit(changed or seconds - alone_seconds > goal)


if __name__ == "__main__":
    main()
