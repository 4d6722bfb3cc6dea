"""Claim: an answer that never ends costs the grading pool its time limit and a restart, no more.

    python benchmarks/grading_pool.py --limit 2        # half a minute

1,000 answers for the numeric grader, with and without 10 in their midst that never end. It is
compared to a goal: exits with 1 if another answer's status changes, or if the ten cost more than
each its time limit and a restart.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count, cycle, islice

from openrlhf_js.tasks.pool import GradingPool

PAIRS = (
    (r"\frac{%d}{7}+\sqrt{3}", r"\sqrt{3}+\frac{%d}{7}"),
    (r"x^2+%dx", r"x(x+%d)"),
    (r"\sqrt{%d}+1", r"\sqrt{%d}+2"),
    (r"\sin^2 %d", r"1-\cos^2 %d"),
    (r"(%d, \pi]", r"[%d, \pi]"),
    (r"\int_0^{%d} x dx", r"\int_0^{%d} y dy"),
)
ANSWERS = 1000
ENDLESS_ANSWERS = 10
WORKERS = 2
RESTART_SECONDS = 2  # at most, of a worker
GRADER = "grading_pool:numeric"  # as the pool's workers import it

Pair = tuple[str, str]  # an answer and its label


def numeric(answer: str, label: str) -> Pair:
    """Grades as the mathematics task does; or never ends."""
    from openrlhf_js.tasks.equivalence.numeric import compare

    if answer in ENDLESS:
        ENDLESS[answer]()
    return compare(answer, label)


def loop() -> None:
    """Runs in Python for ever."""
    while True:
        pass


ENDLESS: dict[str, Callable[[], object]] = {
    "loop": loop,
    "tower": lambda: 9**9**9,
    "sleep": lambda: time.sleep(1e6),
}


def answer_pairs() -> Iterator[Pair]:
    """Answers and labels without end; no answer comes twice."""
    for number, (answer, label) in zip(count(2), cycle(PAIRS), strict=False):
        yield answer % number, label % number


# --- answers that never end --------------------------------------------------------------------


def grade_batch(pairs: Sequence[Pair], limit_seconds: float) -> tuple[float, list[str]]:
    """The seconds of a batch in a new pool, and the statuses."""
    with (
        GradingPool(WORKERS, limit_seconds) as pool,
        ThreadPoolExecutor(WORKERS) as threads,
    ):
        starts = threads.map(lambda number: pool.grade(GRADER, str(number), "x"), range(WORKERS))
        list(starts)
        began = time.perf_counter()
        scores = list(threads.map(lambda pair: pool.grade(GRADER, *pair), pairs))
        seconds = time.perf_counter() - began
    return seconds, [score.status for score in scores]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--limit", type=float, default=5.0, help="seconds; default: 5")
    limit_seconds = parser.parse_args().limit

    pairs = list(islice(answer_pairs(), ANSWERS))
    endless_places = random.Random(0).sample(range(ANSWERS), ENDLESS_ANSWERS)
    mixed = list(pairs)
    for place, answer in zip(endless_places, cycle(ENDLESS), strict=False):
        mixed[place] = (answer, str(place))

    seconds_without, statuses_without = grade_batch(pairs, limit_seconds)
    seconds_with, statuses_with = grade_batch(mixed, limit_seconds)
    others = set(range(ANSWERS)) - set(endless_places)
    changed = sum(statuses_without[place] != statuses_with[place] for place in others)
    extra_seconds = seconds_with - seconds_without
    goal_seconds = (ENDLESS_ANSWERS / WORKERS + 1) * (limit_seconds + RESTART_SECONDS)

    print(f"{ANSWERS} answers on {WORKERS} workers: {seconds_without:.2f} s")
    print(
        f"with {ENDLESS_ANSWERS} that never end: {extra_seconds:.2f} s more "
        f"(goal: {goal_seconds:g} s)"
    )
    print(f"{statuses_with.count('timeout')} timeouts; {changed} other statuses changed")
    sys.exit(changed > 0 or extra_seconds > goal_seconds)


if __name__ == "__main__":
    main()
