"""Time the grading pool: what it adds to a trivial answer, and what hostile answers cost a batch.

Overhead: answers that take no time to grade, by the pool, from its memory, by the standard
library's ProcessPoolExecutor, which has no limits, and in this process. Batch: 1,000 answers for
the symbolic grader, with and without 10 in their midst that never end, spread at random or all last
or all first; the extra seconds against the limit + 2.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import cycle

from openrlhf_js.tasks.grading_pool import GradingPool

TRIVIAL = "grading_pool:trivial"
SYMBOLIC = "grading_pool:symbolic"
PAIRS = (  # about 8 ms of a core on average, most of it for the integral
    (r"\frac{%d}{7}+\sqrt{3}", r"\sqrt{3}+\frac{%d}{7}"),
    (r"x^2+%dx", r"x(x+%d)"),
    (r"\sqrt{%d}+1", r"\sqrt{%d}+2"),
    (r"\sin^2 %d", r"1-\cos^2 %d"),
    (r"(%d, \pi]", r"[%d, \pi]"),
    (r"\frac{x+%d}{2}", r"\frac{x}{2}+\frac{%d}{2}"),
    (r"\binom{%d}{2}", r"%d"),
    (r"\int_0^{%d} x dx", r"\int_0^{%d} y dy"),
)
ANSWERS, HOSTILE = 1000, 10
EXTRA_SECONDS = 2.0  # beside the limit: the goal


def trivial(answer: str, label: str) -> tuple[str, str]:
    """Grade in no time."""
    return ("correct" if answer == label else "wrong"), ""


def symbolic(answer: str, label: str) -> tuple[str, str]:
    """Grade as the mathematics task does; or never end."""
    from openrlhf_js.tasks.equivalence.symbolic import compare

    if answer in DEEDS:
        DEEDS[answer]()
    return compare(answer, label)


def warm_up() -> None:
    """Fill the caches of the symbolic grader, once for all workers."""
    for answer, label in PAIRS:
        symbolic(answer % 2, label % 3)


def loop() -> None:
    """Run in Python for ever."""
    while True:
        pass


def fill_memory() -> None:
    """Take more and more memory, again and again."""
    while True:
        try:
            blocks: list[bytearray] = []
            while True:
                blocks.append(bytearray(1 << 24))
        except MemoryError:
            pass


DEEDS: dict[str, Callable[[], object]] = {
    "loop": loop,
    "tower": lambda: 9**9**9,
    "sleep": lambda: time.sleep(1e6),
    "memory": fill_memory,
}


def per_second(grade: Callable[[str], object], count: int, threads: int) -> float:
    """Return how many distinct answers are graded per second."""
    answers = [str(number) for number in range(count)]
    with ThreadPoolExecutor(threads) as executor:
        began = time.perf_counter()
        if threads == 1:
            for answer in answers:
                grade(answer)
        else:
            list(executor.map(grade, answers))
        return count / (time.perf_counter() - began)


def overhead(rounds: int, count: int) -> None:
    """Print the speed of each way to grade trivial answers; rounds alternate."""
    speeds: dict[tuple[str, int], list[float]] = {}
    with ProcessPoolExecutor(2) as executor:
        executor.submit(trivial, "", "").result()
        for number in range(rounds):
            label = str(number)
            with GradingPool(workers=2) as pool:
                pool.grade(TRIVIAL, "", "")
                ways: list[tuple[str, Callable[[str], object]]] = [
                    ("grading pool", lambda answer: pool.grade(TRIVIAL, answer, label)),  # noqa: B023
                    ("from its memory", lambda answer: pool.grade(TRIVIAL, answer, label)),  # noqa: B023
                    (
                        "ProcessPoolExecutor",
                        lambda answer: executor.submit(trivial, answer, label).result(),  # noqa: B023
                    ),
                    ("in this process", lambda answer: trivial(answer, label)),  # noqa: B023
                ]
                for threads in (1, 8):
                    label = f"{number}, {threads} threads"
                    for name, way in ways:
                        speeds.setdefault((name, threads), []).append(
                            per_second(way, count, threads)
                        )
    print(f"Trivial answers, {count} a round, 2 workers; medians of {rounds} rounds\n")
    print("| way | threads | answers/s | microseconds | times the pool's speed |")
    print("|---|---:|---:|---:|---:|")
    for (name, threads), each in speeds.items():
        speed = statistics.median(each)
        ratio = speed / statistics.median(speeds["grading pool", threads])
        print(f"| {name} | {threads} | {speed:,.0f} | {1e6 / speed:,.1f} | {ratio:.2f} |")


def graded(
    pairs: list[tuple[str, str]], workers: int, limit_seconds: float
) -> tuple[float, list[str]]:
    """Return how long a batch takes in a new pool, and the statuses."""
    with (
        GradingPool(workers, limit_seconds) as pool,
        ThreadPoolExecutor(pool.concurrency) as threads,
    ):
        pool.grade(SYMBOLIC, "0", "1")
        began = time.perf_counter()
        scores = list(threads.map(lambda pair: pool.grade(SYMBOLIC, *pair), pairs))
        return time.perf_counter() - began, [score.status for score in scores]


def batches(rounds: int, workers: int, limit_seconds: float, seed: int) -> float:
    """Print what hostile answers cost a batch; return the most that they cost."""
    draws = random.Random(seed)
    print(f"\n{ANSWERS} answers on {workers} workers, limit {limit_seconds:g} s\n")
    print("| hostile ones | harmless, s | with hostile, s | extra, s | timeouts | others changed |")
    print("|---|---:|---:|---:|---:|---:|")
    extras = []
    harmless = [
        (answer % number, label % number)
        for number, (answer, label) in zip(range(2, 2 + ANSWERS), cycle(PAIRS), strict=False)
    ]
    for _ in range(rounds):
        places = {
            "spread": sorted(draws.sample(range(ANSWERS), HOSTILE)),
            "last": range(ANSWERS - HOSTILE, ANSWERS),
            "first": range(HOSTILE),
        }
        for where, chosen in places.items():
            mixed = list(harmless)
            for place, deed in zip(chosen, cycle(DEEDS), strict=False):
                mixed[place] = deed, str(place)  # no two are equal: those are graded once
            alone_seconds, alone = graded(harmless, workers, limit_seconds)
            seconds, together = graded(mixed, workers, limit_seconds)
            extras.append(seconds - alone_seconds)
            changed = sum(
                alone[place] != together[place] for place in {*range(ANSWERS)} - {*chosen}
            )
            row = f"| {where} | {alone_seconds:.2f} | {seconds:.2f} | {extras[-1]:.2f} "
            print(f"{row}| {together.count('timeout')} | {changed} |", flush=True)
    return max(extras)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--count", type=int, default=5000, help="trivial answers; default: 5000")
    parser.add_argument("--workers", type=int, default=2, help="default: 2")
    parser.add_argument("--limit", type=float, default=5.0, help="seconds; default: 5")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    arguments = parser.parse_args()
    overhead(arguments.rounds, arguments.count)
    most = batches(arguments.rounds, arguments.workers, arguments.limit, arguments.seed)
    goal = arguments.limit + EXTRA_SECONDS
    print(f"\nThe hostile answers cost at most {most:.2f} s (goal: at most {goal:g} s).")
    sys.exit(most > goal)


if __name__ == "__main__":
    main()
