"""Maze: find the moves from S to E, `S..*|.*..|..E*|....:` -> `<answer> DDRR </answer>`.

A prompt leaves out the outer walls, which are always there. Smaller grids have so few patterns of
walls that the held-out ones would be a handful.
"""

from __future__ import annotations

from openrlhf_js.tasks import maze
from openrlhf_js.tasks.base import Item
from openrlhf_js.tiny.tasks.puzzle import small_case

MOVES = ("L", "R", "U", "D")


def prompt(item: Item) -> str:
    """The rows between the outer walls, one after the other."""
    return "|".join(row[1:-1] for row in item["rows"][1:-1]) + ":"


TASK = small_case(
    maze,
    {"size": 6, "lengths": (1, 2, 3, 4)},
    training_items=8000,
    kind=lambda item: item["length"],
    tokens=(*".*SE|:", *MOVES),
    max_answer_tokens=len("DDRR"),
    slips=MOVES,
    slip=0.3,
    warm_start_steps=400,
    max_prompt_tokens=len("S..*|.*..|..E*|....:"),
    prompt=prompt,
)
