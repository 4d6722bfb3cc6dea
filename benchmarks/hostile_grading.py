"""What do responses that are made to hurt cost, and does a fuzzer find one that does?

Every kind of `tests/tasks/hostile.py` goes through every task's scorer, as the whole response and
wherever the task looks for an answer, against each of the task's labels; the table says what came
of it by family. `own` is processor time of the calling thread, in which short answers are graded;
`seconds` are by the clock and end, for an answer that hangs, at the limit. With `--minutes`, the
tasks are then fuzzed, for so long together: by hypothesis or, where atheris is installed, by both,
led by coverage.

Exits with 1 if a response raises, scores, is an error, takes over the limit + 1 s or over 0.1 s
where no worker is asked, if this process has grown by over 50 MB, or if the fuzzer finds anything.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path

import psutil
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from rich.progress import track

try:  # before what it shall follow
    import atheris
except ImportError:
    from contextlib import nullcontext as instrumented
else:
    instrumented = partial(atheris.instrument_imports, include=["openrlhf_js.tasks"])

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "tasks"))
with instrumented():
    from openrlhf_js.tasks import STATUSES, TASKS, Score, grading_pool

import hostile
import hostile_strategies

MOST_SECONDS_OVER_LIMIT = 1.0
MOST_OWN_SECONDS = 0.1
MOST_GROWTH = 50 << 20  # bytes


@dataclass
class Outcome:
    """What came of some responses."""

    seconds: float = 0.0  # of the slowest
    own_seconds: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)
    defects: list[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        self.seconds = max(self.seconds, other.seconds)
        self.own_seconds = max(self.own_seconds, other.own_seconds)
        self.statuses += other.statuses
        self.defects += other.defects

    def row(self, family: str, kinds: int, growth: int) -> str:
        statuses = ", ".join(f"{status} {count}" for status, count in self.statuses.items())
        return (
            f"| {family} | {kinds} | {self.seconds:.2f} | {self.own_seconds:.3f} | "
            f"{growth / 1e6:.1f} | {statuses} |"
        )


def grade(kind: hostile.Kind) -> Outcome:
    """Grade one kind in all ways."""
    outcome = Outcome()
    for name, task in TASKS.items():
        for label in hostile.LABELS[name]:
            for response in hostile.responses(name, kind.text):
                defects = []
                began, own = time.perf_counter(), time.thread_time()
                try:
                    status = checked(task.score(response, label))
                except Exception as error:
                    status = "defect"
                    defects.append(f"{kind}, {name}: {error!r:.200}")
                own, seconds = time.thread_time() - own, time.perf_counter() - began
                outcome.add(Outcome(seconds, own, Counter([status]), defects))
    return outcome


def checked(score: Score, may_score: bool = False) -> str:
    """Return a score's status; AssertionError if it is no score that a response may have."""
    assert type(score) is Score and score.status in STATUSES, score
    assert score.status != "error" and score.value == (score.status == "correct"), score
    assert may_score or score.value == 0.0, score
    return score.status


def resident_bytes() -> int:
    return psutil.Process().memory_info().rss


def table(limit_seconds: float, threads: int) -> list[str]:
    """Print what came of every family; return what is wrong with it."""
    kinds = list(hostile.kinds())
    total, start = Outcome(), resident_bytes()
    print(f"{len(kinds)} kinds by {len(TASKS)} tasks, limit {limit_seconds:g} s\n")
    print("| family | kinds | slowest, seconds | own | growth, MB | statuses |")
    print("|---|---:|---:|---:|---:|---|")
    with ThreadPoolExecutor(threads) as executor:
        for name, members in groupby(kinds, key=lambda kind: kind.family):
            family, before = Outcome(), resident_bytes()
            outcomes = list(executor.map(grade, members))
            for outcome in outcomes:
                family.add(outcome)
            print(family.row(name, len(outcomes), resident_bytes() - before), flush=True)
            total.add(family)
    growth = resident_bytes() - start
    print(total.row("all", len(kinds), growth))
    defects = total.defects
    if total.seconds > limit_seconds + MOST_SECONDS_OVER_LIMIT:
        defects.append(f"the slowest took {total.seconds:.2f} s")
    if total.own_seconds > MOST_OWN_SECONDS:
        defects.append(f"the slowest took {total.own_seconds:.3f} s of its own thread")
    if growth > MOST_GROWTH:
        defects.append(f"this process has grown by {growth / 1e6:.1f} MB")
    return defects


def fuzz(name: str, seconds: float) -> None:
    """Look for a response of one task that raises, or whose score changes; AssertionError if so."""
    task, count, end = TASKS[name], 0, time.monotonic() + seconds

    @settings(max_examples=1000, deadline=None, database=None, suppress_health_check=[*HealthCheck])
    @given(hostile_strategies.responses(name), st.sampled_from(hostile.LABELS[name]))
    def same_score_each_time(response: str, label: str) -> None:
        nonlocal count
        count += 1
        score = task.score(response, label)
        checked(score, may_score=True)
        assert task.score(response, label) == score

    if "atheris" in sys.modules:
        options = {"max_total_time": int(seconds), "max_len": 4096, "len_control": 0}
        options |= {"timeout": 60, "verbosity": 0, "print_final_stats": 1}
        arguments = [name, *(f"-{option}={value}" for option, value in options.items())]
        atheris.Setup(arguments, same_score_each_time.hypothesis.fuzz_one_input)
        atheris.Fuzz()  # which ends the process
    run = 0
    while time.monotonic() < end:
        seed(run)(same_score_each_time)()
        run += 1
    print(f"{name}: {count} responses")


def campaign(minutes: float) -> list[str]:
    """Fuzz every task in a process of its own; return the names of those where it found a fault."""
    share = 60 * minutes / len(TASKS)
    command = [sys.executable, __file__, "--seconds", str(share), "--fuzz"]
    return [
        f"the fuzzer found a fault in {name}"
        for name in track(TASKS, "Fuzzing")
        if subprocess.run([*command, name]).returncode
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--limit", type=float, default=5.0, help="seconds; default: 5")
    parser.add_argument("--threads", type=int, default=8, help="default: 8")
    parser.add_argument("--minutes", type=float, default=0.0, help="of fuzzing; default: 0")
    parser.add_argument("--fuzz", choices=TASKS, help="only fuzz one task, for --seconds")
    parser.add_argument("--seconds", type=float, default=60.0, help="default: 60")
    arguments = parser.parse_args()
    # As many workers as threads, lest the seconds be those of waiting for one.
    with grading_pool.GradingPool(arguments.threads, arguments.limit) as pool:
        grading_pool._POOL = pool
        if arguments.fuzz:
            fuzz(arguments.fuzz, arguments.seconds)
            return
        TASKS["math"].score(r"\boxed{x}", "y^{2}")  # starts the pool
        defects = table(arguments.limit, arguments.threads)
    if arguments.minutes:
        defects += campaign(arguments.minutes)
    print("", *(defects or ["No response has hurt."]), sep="\n")
    sys.exit(bool(defects))


if __name__ == "__main__":
    main()
