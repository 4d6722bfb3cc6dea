"""Puzzles made and answers graded per second on one core, and memory while many go to disk.

Generating counts every check of a puzzle: one solution for Knights and Knaves, a solution and no
shorter one for Countdown, the length of the shortest way for Maze. In the test split it counts too
what is drawn and belongs to train; half as many are made there, as there are fewer. Answers are
right, wrong, malformed and missing, a quarter each, after a thousand characters of reasoning, and
every label is new to the grader. Times are of the processor, so that other programs matter little;
rounds go through all tasks. Memory is the most that a process of its own has held.
"""

from __future__ import annotations

import argparse
import multiprocessing
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

from openrlhf_js.tasks.prompt_files import write
from openrlhf_js.tasks import Item, countdown, knights_knaves, maze
from openrlhf_js.tasks.base import Split

REASONING = ("Suppose that this holds; then the next step follows from it. " * 20)[:1000]
LABELS = 5_000  # more than any grader remembers
SCORES_PER_SECOND = 20_000


class Puzzle(NamedTuple):
    """What to measure: options of `generate`, how many to make, and the goal per second."""

    task: Any  # the module
    options: dict[str, Any]
    batch: int
    goal: int


PUZZLES = {
    "knights_knaves, 6 people": Puzzle(knights_knaves, {"people": (6,)}, 2_000, 500),
    "knights_knaves, 9 people": Puzzle(knights_knaves, {"people": (9,)}, 1_000, 100),
    "countdown, 3 and 4 numbers": Puzzle(countdown, {"numbers": (3, 4)}, 2_000, 2_000),
    "maze, 6 x 6": Puzzle(maze, {}, 2_000, 2_000),
}
MALFORMED = {
    "knights_knaves": "\\boxed{Owen is not the sage, or Liam is}",
    "countdown": "<answer> twelve times four </answer>",
    "maze": "<answer> forward, then left </answer>",
}
EXPECTED = ("correct", "wrong", "malformed", "no_answer")


def per_second(work: Callable[[], int]) -> float:
    """How many of the things that `work` says it did it does in a second of processor time."""
    start = time.process_time()
    return work() / (time.process_time() - start)


def generated(puzzle: Puzzle, split: Split, seed: int) -> int:
    """Makes a round's puzzles."""
    count = puzzle.batch if split == "train" else puzzle.batch // 2
    return sum(1 for _ in puzzle.task.generate(count, seed, split, **puzzle.options))


def answers(puzzle: Puzzle) -> list[tuple[str, str]]:
    """Pairs of response and label: all the right ones, then all the wrong ones, and so on."""
    task = puzzle.task
    labels = [task.label(item) for item in task.generate(LABELS, 0, **puzzle.options)]
    kinds = (task.right_response, task.wrong_response, lambda _: MALFORMED[task.NAME], lambda _: "")
    return [(REASONING + respond(label), label) for respond in kinds for label in labels]


def graded(task: Any, pairs: list[tuple[str, str]]) -> int:
    """Grades all pairs."""
    for response, label in pairs:
        task.score(response, label)
    return len(pairs)


def check(task: Any, pairs: list[tuple[str, str]]) -> None:
    """Stops if an answer is not graded as it is meant; it is the warm-up too."""
    for number, (response, label) in enumerate(pairs):
        status = task.score(response, label).status
        assert status == EXPECTED[number // LABELS], (status, response[len(REASONING) :], label)


def peak_megabytes() -> float:
    """The most memory that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def streamed(name: str, count: int) -> tuple[float, list[float], float]:
    """Writes a data set; seconds it took, the peak at a hundredth, a tenth and the end, and MB."""
    puzzle = PUZZLES[name]
    peaks: list[float] = []

    def watched() -> Iterator[Item]:
        for number, item in enumerate(puzzle.task.generate(count, 0, **puzzle.options), start=1):
            yield item
            if number in (count // 100, count // 10, count):
                peaks.append(peak_megabytes())

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.jsonl"
        start = time.process_time()
        write(path, puzzle.task, watched(), {})
        return time.process_time() - start, peaks, path.stat().st_size / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7, help="default: 7")
    parser.add_argument("--stream", type=int, default=100_000, help="puzzles; default: 100000")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.stream < 100:
        parser.error("--rounds must be 1 or more, --stream 100 or more")

    # First, while this process is small: what a parent holds counts in the peak of its child.
    streams = {}
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for name in PUZZLES:
            print(f"streaming {name}", file=sys.stderr, flush=True)
            streams[name] = pool.apply(streamed, (name, arguments.stream))

    pairs = {name: answers(puzzle) for name, puzzle in PUZZLES.items()}
    for name, puzzle in PUZZLES.items():
        check(puzzle.task, pairs[name])
    rates: dict[tuple[str, str], list[float]] = {}
    for number in range(arguments.rounds):
        print(f"round {number + 1}/{arguments.rounds}", file=sys.stderr, flush=True)
        for name, puzzle in PUZZLES.items():
            for split in get_args(Split):
                made = per_second(partial(generated, puzzle, split, number))
                rates.setdefault((f"generate {split}", name), []).append(made)
            scored = per_second(partial(graded, puzzle.task, pairs[name]))
            rates.setdefault(("score", name), []).append(scored)

    print(f"Python {platform.python_version()}, one core; per second of processor time\n")
    print("| what | task | goal | median | lowest to highest | median / goal |")
    print("|---|---|---:|---:|---:|---:|")
    for (what, name), found in sorted(rates.items()):
        goal = SCORES_PER_SECOND if what == "score" else PUZZLES[name].goal
        middle = statistics.median(found)
        spread = f"{min(found):,.0f} to {max(found):,.0f}"
        print(f"| {what} | {name} | {goal:,} | {middle:,.0f} | {spread} | {middle / goal:.1f} |")

    count = arguments.stream
    print(f"\n{count:,} puzzles to a file of JSON lines; peak memory in MB\n")
    counts = " | ".join(f"{number:,}" for number in (count // 100, count // 10, count))
    print(f"| task | s | file, MB | after {counts} | growth |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, (seconds, peaks, size) in streams.items():
        after = " | ".join(f"{peak:.1f}" for peak in peaks)
        print(f"| {name} | {seconds:.1f} | {size:.0f} | {after} | {peaks[-1] - peaks[0]:.1f} |")


if __name__ == "__main__":
    main()
