"""Claim: scoring a whole Arena-Hard pool with style control takes seconds.

    OMP_NUM_THREADS=1 python research/benchmarks/arena_scoring.py        # a quarter of a minute

In a made-up pool, 20 models answer 750 questions with texts of realistic length, and each answer is
judged in two games against one baseline. The time is this process's processor time, reading the
files included. It is compared only to a goal of 5 seconds for the scores.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from baseline_research.markdown_table import print_table

sys.path.insert(0, str(Path(__file__).parents[2] / "eval" / "tests"))
from judged_bench import random_rows, write_judged

from paired_eval.arena.board import board
from paired_eval.arena.data import Folder
from paired_eval.arena.pool import load
from paired_eval.arena.score import compare

MODELS = 20
QUESTIONS = 750
ANSWER_CHARACTERS = 4500
JUDGMENT_CHARACTERS = 3600
BENCH = "made-up"
JUDGES = ["judge"]
GOAL_SECONDS = 5


class Seconds(NamedTuple):
    """Processor time of each stage."""

    reading: float
    scoring: float
    comparison: float


def write_pool(data: Path) -> Folder:
    """Writes questions, answers and judgments."""
    rows = random_rows(MODELS, QUESTIONS, spread=0.1, judge=JUDGES[0])
    prompt_text = "word " * (2 * ANSWER_CHARACTERS // 5)
    judgment_text = "reason " * (JUDGMENT_CHARACTERS // 7)
    for row in rows:
        for game in row["games"]:
            game["prompt"] = [{"role": "user", "content": prompt_text}]
            verdict = f"My final verdict is: [[{game['score']}]]"
            game["judgment"] = {"answer": judgment_text + verdict}
    write_judged(data, rows, bench=BENCH, characters=ANSWER_CHARACTERS)
    return Folder(data, BENCH)


def measure(folder: Folder) -> Seconds:
    """Times reading, scoring and comparing the pool of a folder."""
    began = time.process_time()
    (pool,) = load(folder, JUDGES, baseline="base")
    read = time.process_time()
    board(pool, JUDGES, "equal style")
    scored = time.process_time()
    compare(pool, JUDGES, "m0", "m1")
    compared = time.process_time()
    return Seconds(
        reading=read - began,
        scoring=scored - read,
        comparison=compared - scored,
    )


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    with tempfile.TemporaryDirectory() as data:
        folder = write_pool(Path(data))
        size_bytes = sum(path.stat().st_size for path in folder.root.rglob("*.jsonl"))
        seconds = measure(folder)

    print(f"{MODELS} models x {QUESTIONS} questions x 2 games, processor seconds\n")
    rows = [
        (f"reading {size_bytes / 1e6:.0f} MB of files", seconds.reading),
        (f"scoring, style controlled (goal: {GOAL_SECONDS})", seconds.scoring),
        ("a paired comparison", seconds.comparison),
    ]
    print_table(
        columns=["what", "seconds"],
        rows=[(what, f"{stage_seconds:.2f}") for what, stage_seconds in rows],
    )


if __name__ == "__main__":
    main()
