"""Time the scoring of a pool of models with style control, from the files on.

A made-up pool: every model answers every question, with texts of a realistic length, and is judged
in two games against one baseline. Times are of the processor: run it with OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "evaluation"))
from judged_bench import random_rows, write_judged

from openrlhf_js.evaluation.arena.board import board
from openrlhf_js.evaluation.arena.data import Folder
from openrlhf_js.evaluation.arena.pool import load
from openrlhf_js.evaluation.arena.score import Plan, compare

MODELS, QUESTIONS = 20, 750
ANSWER_CHARACTERS, JUDGMENT_CHARACTERS = 4500, 3600
GOAL_SECONDS = 5


def main() -> None:
    rows = random_rows(MODELS, QUESTIONS, spread=0.1, judge="judge")
    prompt = [{"role": "user", "content": "word " * (2 * ANSWER_CHARACTERS // 5)}]
    for row in rows:
        for game in row["games"]:
            game["judgment"] = {"answer": "reason " * (JUDGMENT_CHARACTERS // 7)}
            game["prompt"] = prompt
    with tempfile.TemporaryDirectory() as place:
        folder = Folder(Path(place), "made-up")
        write_judged(folder.root.parent, rows, bench="made-up", characters=ANSWER_CHARACTERS)
        size = sum(path.stat().st_size for path in folder.root.rglob("*.jsonl"))
        began = time.process_time()
        (pool,) = load(folder, ["judge"])
        read = time.process_time()
        board(pool, ["judge"], Plan(style_control="all"))
        scored = time.process_time()
        compare(pool, ["judge"], Plan(), "m0", "m1")
        compared = time.process_time()
    print(f"{MODELS} models x {QUESTIONS} questions x 2 games, processor seconds\n")
    print("| what | seconds |\n|---|---:|")
    print(f"| reading {size / 1e6:.0f} MB of files | {read - began:.2f} |")
    print(f"| scoring, style controlled (goal: {GOAL_SECONDS}) | {scored - read:.2f} |")
    print(f"| a paired comparison, style controlled | {compared - scored:.2f} |")


if __name__ == "__main__":
    main()
