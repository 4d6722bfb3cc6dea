"""Maze: find the moves from S to E, `S..|.*.|..E:` -> `<answer> DDRR </answer>`.

The problems, their split and the grader are those of `openrlhf_js.tasks.maze`, on small grids. A
prompt leaves out the outer walls, which are always there.
"""

from __future__ import annotations

from functools import partial

from openrlhf_js.tasks import maze
from openrlhf_js.tasks.base import Item
from openrlhf_js.tiny.tasks.base import Split, TinyTask

LENGTHS = (1, 2, 3, 4)  # moves of the shortest way
TRAINING_ITEMS = 4000
generate = partial(maze.generate, size=5, lengths=LENGTHS)  # 5 with the outer walls
MOVES = ("L", "R", "U", "D")


def prompt(item: Item) -> str:
    """The rows between the outer walls, one after the other."""
    return "|".join(row[1:-1] for row in item["rows"][1:-1]) + ":"


def split(seed: int, held_out: int) -> Split:
    """Mazes of every length, the longest being few; ValueError if too many are to be held out."""
    train: dict[int, list[Item]] = {length: [] for length in LENGTHS}
    for item in generate(TRAINING_ITEMS, seed, "train"):
        train[item["length"]].append(item)
    return Split(list(train.values()), list(generate(held_out, seed, "test")))


TASK = TinyTask(
    tokens=(*".*SE|:", *MOVES, "<answer> ", " </answer>"),
    slips=MOVES,
    slip=0.3,
    warm_start_steps=400,
    max_prompt_tokens=len("S..|.*.|..E:"),
    max_new_tokens=len("<DDRR>") + 1,
    grader="maze.py",
    split=split,
    prompt=prompt,
    label=maze.label,
    right_response=maze.right_response,
    score=maze.score,
)
