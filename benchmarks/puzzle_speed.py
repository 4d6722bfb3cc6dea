"""Puzzles generated and answers graded per second on one core, and memory while many go to disk.

Generating includes every check of a puzzle: one solution for Knights and Knaves, a solution and no
shorter one for Countdown, the length of the shortest way for Maze. A quarter each of the answers is
right, wrong, malformed and missing, after a thousand characters of reasoning. Times are of the
processor, so that other programs matter little.
"""

from __future__ import annotations

import multiprocessing
import platform
import resource
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from openrlhf_js.common.console import table
from openrlhf_js.tasks import Item, countdown, knights_knaves, maze
from openrlhf_js.tasks.prompt_files import write

REASONING = ("Suppose that this holds; then the next step follows from it. " * 20)[:1000]
ROUNDS, STREAMED = 7, 100_000
LABELS = 5_000  # more than any grader remembers
EXPECTED = ("correct", "wrong", "malformed", "no_answer")
MALFORMED = {
    "knights_knaves": "\\boxed{Owen is not the sage, or Liam is}",
    "countdown": "<answer> twelve times four </answer>",
    "maze": "<answer> forward, then left </answer>",
}
PUZZLES: dict[str, tuple[Any, dict[str, Any], int]] = {  # task, options, how many in a round
    "knights_knaves, 6 people": (knights_knaves, {"people": (6,)}, 2_000),
    "knights_knaves, 9 people": (knights_knaves, {"people": (9,)}, 1_000),
    "countdown, 3 and 4 numbers": (countdown, {"numbers": (3, 4)}, 2_000),
    "maze, 6 x 6": (maze, {}, 2_000),
}


def per_second(work: Callable[..., int], *given: Any) -> float:
    """How many of the things that `work` says it did it does in a second of processor time."""
    start = time.process_time()
    return work(*given) / (time.process_time() - start)


def generated(name: str, split: str, seed: int) -> int:
    """Generates a round's puzzles; half as many for test, of which there are fewer."""
    task, options, count = PUZZLES[name]
    return sum(1 for _ in task.generate(count // (1 + (split == "test")), seed, split, **options))


def answers(name: str) -> list[tuple[str, str]]:
    """Pairs of response and label: all the right ones, then all the wrong ones, and so on."""
    task, options, _ = PUZZLES[name]
    labels = [task.label(item) for item in task.generate(LABELS, 0, **options)]
    kinds = (task.right_response, task.wrong_response, lambda _: MALFORMED[task.NAME], lambda _: "")
    return [(REASONING + respond(label), label) for respond in kinds for label in labels]


def graded(task: Any, pairs: list[tuple[str, str]]) -> int:
    """Grades all pairs; stops if an answer is not graded as it is meant."""
    for number, (response, label) in enumerate(pairs):
        status = task.score(response, label).status
        assert status == EXPECTED[number // LABELS], (status, label)
    return len(pairs)


def streamed(name: str) -> dict[str, float]:
    """Writes a data set: seconds, and the peak of memory at a hundredth, a tenth and the end."""
    (task, options, _), made = PUZZLES[name], dict[str, float]()

    def watched() -> Iterator[Item]:
        for number, item in enumerate(task.generate(STREAMED, 0, **options), start=1):
            yield item
            if number in (STREAMED // 100, STREAMED // 10, STREAMED):
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
                made[f"MB_after_{number:,}"] = round(peak, 1)

    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        write(Path(folder) / "train.jsonl", task, watched(), {})
        return {"seconds": time.process_time() - start, **made}


def main() -> None:
    # First, while this process is small: what a parent holds counts in the peak of its child.
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        streams = [{"task": name, **pool.apply(streamed, (name,))} for name in PUZZLES]
    rates: dict[tuple[str, str], list[float]] = defaultdict(list)
    for name, (task, _, _) in PUZZLES.items():
        pairs = answers(name)
        graded(task, pairs)  # the warm-up
        for seed in range(ROUNDS):
            for split in ("train", "test"):
                rates[f"generate {split}", name].append(per_second(generated, name, split, seed))
            rates["score", name].append(per_second(graded, task, pairs))
    print(f"Python {platform.python_version()}, one core; per second of processor time\n")
    figures = {"median": statistics.median, "lowest": min, "highest": max}
    table(
        [
            {"what": what, "task": name, **{k: round(f(found)) for k, f in figures.items()}}
            for (what, name), found in sorted(rates.items())
        ]
    )
    print(f"\n{STREAMED:,} puzzles to a file of JSON lines; peak memory in MB\n")
    table(streams)


if __name__ == "__main__":
    main()
