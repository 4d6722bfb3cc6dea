"""Maze: a way from S to E through a grid of walls, as a list of moves.

A set of cells is an integer with bit `row * width + column` for a cell: four shifts move it in all
directions, and the outer walls keep it from leaving a row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from openrlhf_js.tasks import base
from openrlhf_js.tasks.answers import plain, tagged_or_boxed
from openrlhf_js.tasks.base import Item, Message, Score, Split, Wording, scored

NAME = "maze"
answer_of = tagged_or_boxed
WALL_SHARE = 0.3  # of the inner cells, on average; long ways are most frequent near it
STARTS = 16  # tried with the same walls
TRIES = 10_000  # walls in a row without a new maze of a length
PROMPTS: dict[Wording, str] = {
    "own": "Find a way through the maze below, from S to E. You can walk on free cells (.) and not "
    "through walls (*). There are four moves: Left (L), Right (R), Up (U) and Down (D). Give all "
    "the moves in order inside <answer> </answer> tags, for example <answer> LLD </answer>.",
    "paper": "You need to solve the following maze. * denotes the wall that you cannot walk "
    "through, . denotes available area that you can walk through. S denotes the starting point, E "
    "denotes the destination. There are four movement actions: Left (L), Right (R), Up (U), Down "
    "(D). Write the final path in <answer> </answer>.",
}
MAX_CHARACTERS_PER_CELL = 40  # of an answer: four moves for every cell, written as ` -> Right`

_MOVE = re.compile("left|right|up|down|[lrud]")
_MOVES = re.compile(
    r"(?:(?:left|right|up|down)(?:\.\s)?|[lrud]|[\s,;*\[\]]|(?:then|move|go)\s(?=[lrudmg])"
    r"|->?|\u2192|(?:step\s)?[0-9]{1,3}[.):]\s)*",
    re.ASCII,
)
_ARROWS = str.maketrans("\u2190\u2192\u2191\u2193\u2b05\u27a1\u2b06\u2b07", "lrudlrud", "\ufe0f")


def generate(
    count: int,
    seed: int,
    split: Split = "train",
    size: int = 6,
    lengths: Sequence[int] = (4, 5, 6, 7, 8),
    wording: Wording = "own",
) -> Iterator[Item]:
    """Mazes {"rows": [...], "length": int}, all different, and equally many of each length.

    `size` counts rows and columns with the outer walls, a length the moves of the shortest way.
    Test gets one pattern of walls in 8, whichever way it is turned or mirrored. There are only so
    many: of size 6, 5,304 have length 8, of which 552 are in test.
    """
    random, seen, side = base.random_of(NAME, split, seed), set[int](), size - 2

    def draw(length: int) -> Item | None:
        inner = "".join(["*" if random.random() < WALL_SHARE else "." for _ in range(side * side)])
        if base.split_of(f"{NAME} {_canonical(inner, side)}") != split:
            return None
        middle = "".join([f"*{inner[i : i + side]}*" for i in range(0, side * side, side)])
        grid = [*"*" * size, *middle, *"*" * size]
        free = [at for at, cell in enumerate(grid) if cell == "."]
        open_cells = sum(1 << at for at in free)
        for start in random.sample(free, min(len(free), STARTS)):
            reached = _distances(open_cells, 1 << start, size)
            if len(reached) > length:
                grid[start] = "S"
                grid[random.choice([at for at in free if reached[length] >> at & 1])] = "E"
                cells = "".join(grid)
                rows = [cells[i : i + size] for i in range(0, size * size, size)]
                item = {"rows": rows, "length": length, "wording": wording}
                return item if base.is_new(seen, cells) else None
        return None

    what = f"{split} mazes of size {size} and length {{}}"
    yield from base.in_turn(draw, lengths, count, TRIES, what)


def _canonical(cells: str, side: int) -> str:
    """The least of the 8 forms that a square of cells takes when it is turned and mirrored."""
    mirrored = "".join([cells[i : i + side] for i in range(len(cells) - side, -1, -side)])
    a = "".join([cells[i::side] for i in range(side)])
    b = "".join([mirrored[i::side] for i in range(side)])
    return min(cells, mirrored, a, b, cells[::-1], mirrored[::-1], a[::-1], b[::-1])


def _distances(open_cells: int, start: int, width: int) -> list[int]:
    """The sets of open cells that are 0, 1, 2, ... moves away from the start, up to the last."""
    found, reached, front = [], start, start
    while front:
        found.append(front)
        front = (front << 1 | front >> 1 | front << width | front >> width) & open_cells & ~reached
        reached |= front
    return found


def prompt(item: Item) -> list[Message]:
    """Shows the maze and asks for the moves in `<answer>` tags."""
    parts = PROMPTS[item.get("wording", "own")], "", "## Maze", *item["rows"]
    return [{"role": "user", "content": "\n".join(parts)}]


def label(item: Item) -> str:
    """The grid, as JSON; ValueError if it is no maze or has no way from S to E."""
    text = json.dumps({"maze": list(item["rows"])})
    _shortest_way(*_maze(text))
    return text


@lru_cache(maxsize=4096)
def _maze(label: str) -> tuple[str, dict[str, int]]:
    """The cells of a maze, row after row, and how far each move goes."""

    def read(fields: Any) -> tuple[str, dict[str, int]]:
        rows = fields["maze"]
        cells, width = "".join(rows), len(rows[0])
        is_grid = isinstance(rows, list) and {len(row) for row in rows} == {width}
        has_ends = cells.count("S") == cells.count("E") == 1 and set(cells) <= set("*.SE")
        edge = cells[:width] + cells[-width:] + cells[::width] + cells[width - 1 :: width]
        if not is_grid or not has_ends or set(edge) != {"*"}:
            raise ValueError("no maze")
        return cells, {"L": -1, "R": 1, "U": -width, "D": width}

    grid = 'JSON like {"maze": ["*****", "*S.E*", "*****"]}'
    return base.read_label(label, read, f"{grid}, walls all around, with one S and one E")


def score(response: str, label: str) -> Score:
    """Grades the moves in the last `<answer>`, or without one in the last box, by walking them.

    Any way that ends at E counts, not only a shortest one. ValueError if the label is malformed.
    """
    cells, steps = _maze(label)
    answer = answer_of(response)
    if answer is None:
        return scored("no_answer", "nothing in <answer> tags")
    if len(answer) > MAX_CHARACTERS_PER_CELL * len(cells):
        return scored("malformed", f"{len(answer)} characters in <answer> tags")
    moves, unread = moves_of(answer)
    if unread or not moves:
        return scored("malformed", f"cannot read {(unread or answer)[:40]!r}")
    at = cells.index("S")
    for number, move in enumerate(moves, start=1):
        at += steps[move]
        if cells[at] == "*":
            return scored("wrong", f"move {number}, {move}, runs into a wall")
    if cells[at] != "E":
        return scored("wrong", f"its {len(moves)} moves do not end at E")
    return scored("correct", f"{len(moves)} moves to E")


def moves_of(answer: str) -> tuple[str, str]:
    """The moves of an answer, as letters, and the part from which it cannot be read.

    Moves are letters, words, in a list or in sentences such as "Then move up.", or arrows.
    """
    text = plain(answer).lower()
    if not text.isascii() and not re.search("[a-z]", text):  # else arrows are separators
        text = text.translate(_ARROWS)
    unread = _MOVES.sub("", text, count=1)  # the pattern begins where the text does
    return "".join(move[0].upper() for move in _MOVE.findall(text)), unread


def right_response(label: str) -> str:
    """A shortest way; ValueError if there is none."""
    return f"<answer> {_shortest_way(*_maze(label))} </answer>"


def wrong_response(label: str) -> str:
    """As many moves up as there are rows, which must run into a wall."""
    cells, steps = _maze(label)
    return f"<answer> {'U' * (len(cells) // steps['D'])} </answer>"


def _shortest_way(cells: str, steps: dict[str, int]) -> str:
    """The moves of one shortest way from S to E; ValueError if there is none."""
    open_cells = sum(1 << i for i, cell in enumerate(cells) if cell != "*")
    reached = _distances(open_cells, 1 << cells.index("S"), steps["D"])
    at, way = cells.index("E"), ""
    length = next((i for i, front in enumerate(reached) if front >> at & 1), None)
    if length is None:
        raise ValueError(f"no way leads from S to E in {cells!r}")
    for front in reversed(reached[:length]):
        move = next(move for move, step in steps.items() if front >> (at - step) & 1)
        at, way = at - steps[move], move + way
    return way
