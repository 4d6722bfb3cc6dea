"""Maze: a path from S to E through a grid of walls, as a list of moves.

A set of cells is an integer: bit `row * width + column` stands for a cell. Four shifts move the set
in all directions, and the outer walls keep cells from wrapping into another row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from random import Random
from typing import Any, NamedTuple

from answer_graders.answers import plain, tagged_or_boxed
from answer_graders.record import (
    WORDING,
    BenchmarkRecord,
    GeneratedProblems,
    Item,
    Message,
    Option,
    Score,
    Split,
    Task,
    Wording,
    in_turn,
    is_new,
    random_of,
    read_label,
    scored,
    split_of,
    with_text_label,
)

NAME = "maze"
answer_of = tagged_or_boxed
WALL_SHARE = 0.3  # of the inner cells, on average; long paths are most frequent near it
STARTS = 16  # places for S tried with the same walls
TRIES = 10_000  # sets of walls in a row without a new maze of a length
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
_LATEX_ARROW = re.compile(r"\\(?:long)?(left|right|up|down)arrow(?![a-z])|\\to(?![a-z])")
_SIGNS = {"left": "\u2190", "right": "\u2192", "up": "\u2191", "down": "\u2193", None: "->"}
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

    `size` is the number of rows and of columns, outer walls included; a length is the number of
    moves of the shortest path. Test gets one pattern of walls in 8, counting rotations and
    reflections as one. Mazes are limited: 5,304 of size 6 have length 8, of which 552 are in test.
    """
    random = random_of(NAME, split, seed)
    seen = set[int]()

    def draw(length: int) -> Item | None:
        inner = _drawn_walls(random, size - 2)
        if split_of(f"{NAME} {_canonical(inner, size - 2)}") != split:
            return None
        grid = _with_ends(random, _walled(inner, size), size, length)
        if grid is None or not is_new(seen, grid):
            return None
        return {"rows": _rows(grid, size), "length": length, "wording": wording}

    name = f"{split} mazes of size {size} and length {{}}"
    yield from in_turn(draw, lengths, count, TRIES, name)


def _drawn_walls(random: Random, side: int) -> str:
    """A random square of inner cells, row by row."""
    return "".join(["*" if random.random() < WALL_SHARE else "." for _ in range(side * side)])


def _walled(inner: str, size: int) -> str:
    """The cells of a grid: a square of inner cells with walls around it."""
    edge = "*" * size
    middle = "".join([f"*{row}*" for row in _rows(inner, size - 2)])
    return edge + middle + edge


def _rows(cells: str, width: int) -> list[str]:
    return [cells[start : start + width] for start in range(0, len(cells), width)]


def _with_ends(random: Random, cells: str, size: int, length: int) -> str | None:
    """Adds S, and E `length` moves away; None if `STARTS` places for S allow no such E."""
    free = [place for place, cell in enumerate(cells) if cell == "."]
    open_cells = _cell_set(free)
    for start in random.sample(free, min(len(free), STARTS)):
        distances = _distances(open_cells, 1 << start, size)
        if len(distances) > length:
            end = random.choice([place for place in free if distances[length] >> place & 1])
            grid = list(cells)
            grid[start] = "S"
            grid[end] = "E"
            return "".join(grid)
    return None


def _canonical(cells: str, side: int) -> str:
    """The least of the 8 rotations and reflections of a square of cells."""
    mirrored = "".join(reversed(_rows(cells, side)))
    forms = [cells, mirrored, _transposed(cells, side), _transposed(mirrored, side)]
    return min(forms + [form[::-1] for form in forms])


def _transposed(cells: str, side: int) -> str:
    return "".join([cells[column::side] for column in range(side)])


def _cell_set(places: Sequence[int]) -> int:
    return sum(1 << place for place in places)


def _distances(open_cells: int, start: int, width: int) -> list[int]:
    """The sets of open cells that are 0, 1, 2, ... moves away from the start, up to the last."""
    distances = []
    reached = start
    front = start
    while front:
        distances.append(front)
        neighbours = front << 1 | front >> 1 | front << width | front >> width
        front = neighbours & open_cells & ~reached
        reached |= front
    return distances


def prompt(item: Item) -> list[Message]:
    """Shows the maze and asks for the moves in `<answer>` tags."""
    request = PROMPTS[item.get("wording", "own")]
    grid = "\n".join(item["rows"])
    return [{"role": "user", "content": f"{request}\n\n## Maze\n{grid}"}]


def label(item: Item) -> str:
    """The grid, as JSON; ValueError if it is no maze or has no path from S to E."""
    text = json.dumps({"maze": list(item["rows"])})
    _shortest_way(_maze(text))
    return text


class Maze(NamedTuple):
    """The maze of a label."""

    cells: str  # row by row
    width: int

    @property
    def steps(self) -> dict[str, int]:
        """The change of position in `cells` for each move."""
        return {"L": -1, "R": 1, "U": -self.width, "D": self.width}


@lru_cache(maxsize=4096)
def _maze(label: str) -> Maze:
    def read(fields: Any) -> Maze:
        rows = fields["maze"]
        maze = Maze("".join(rows), len(rows[0]))
        is_grid = isinstance(rows, list) and all(len(row) == maze.width for row in rows)
        if not is_grid or not _is_well_formed(maze):
            raise ValueError("no maze")
        return maze

    grid = 'JSON like {"maze": ["*****", "*S.E*", "*****"]}'
    return read_label(label, read, f"{grid}, walls all around, with one S and one E")


def _is_well_formed(maze: Maze) -> bool:
    """Whether a grid has walls all around, one S and one E, and no other characters."""
    cells = maze.cells
    first_and_last_row = cells[: maze.width] + cells[-maze.width :]
    first_and_last_column = cells[:: maze.width] + cells[maze.width - 1 :: maze.width]
    is_walled = set(first_and_last_row + first_and_last_column) == {"*"}
    return is_walled and cells.count("S") == cells.count("E") == 1 and set(cells) <= set("*.SE")


@with_text_label
def score(response: str, label: str) -> Score:
    """Follows the moves in the last `<answer>`, or in the last box if there is no tag.

    Any path that ends at E is correct, not just a shortest one. ValueError if the label is
    malformed.
    """
    maze = _maze(label)
    answer = answer_of(response)
    if answer is None:
        return scored("no_answer", "nothing in <answer> tags")
    if len(answer) > MAX_CHARACTERS_PER_CELL * len(maze.cells):
        return scored("malformed", f"{len(answer)} characters in <answer> tags")
    moves, unread = moves_of(answer)
    if unread or not moves:
        return scored("malformed", f"cannot read {(unread or answer)[:40]!r}")
    steps = maze.steps
    place = maze.cells.index("S")
    for number, move in enumerate(moves, start=1):
        place += steps[move]
        if maze.cells[place] == "*":
            return scored("wrong", f"move {number}, {move}, runs into a wall")
    if maze.cells[place] != "E":
        return scored("wrong", f"it does not end at E, after {len(moves)} moves")
    return scored("correct", f"{len(moves)} moves to E")


def moves_of(answer: str) -> tuple[str, str]:
    """The moves of an answer, as letters, and the rest of the text, which cannot be read.

    Moves are letters, arrows, or words in a list or in sentences such as "Then move up.".
    """
    text = _LATEX_ARROW.sub(lambda arrow: _SIGNS[arrow[1]], plain(answer).lower())
    if not text.isascii() and not re.search("[a-z]", text):  # with words, arrows are separators
        text = text.translate(_ARROWS)
    unread = _MOVES.sub("", text, count=1)  # the pattern matches at the start
    return "".join(move[0].upper() for move in _MOVE.findall(text)), unread


def right_response(label: str) -> str:
    """A shortest path; ValueError if there is none."""
    return f"<answer> {_shortest_way(_maze(label))} </answer>"


def wrong_response(label: str) -> str:
    """As many moves up as there are rows, so that one runs into a wall."""
    maze = _maze(label)
    rows = len(maze.cells) // maze.width
    return f"<answer> {'U' * rows} </answer>"


def _shortest_way(maze: Maze) -> str:
    """The moves of one shortest path from S to E; ValueError if there is none."""
    cells = maze.cells
    open_cells = _cell_set([place for place, cell in enumerate(cells) if cell != "*"])
    distances = _distances(open_cells, 1 << cells.index("S"), maze.width)
    place = cells.index("E")
    lengths = [length for length, reached in enumerate(distances) if reached >> place & 1]
    if not lengths:
        raise ValueError(f"no way leads from S to E in {cells!r}")
    moves: list[str] = []  # from E back to S
    for cells_before in reversed(distances[: lengths[0]]):
        for move, step in maze.steps.items():
            if cells_before >> (place - step) & 1:
                moves.append(move)
                place -= step
                break
    return "".join(reversed(moves))


TASK = Task(
    name=NAME,
    summary="Maze: a way from S to E through a grid of walls, as a list of moves",
    right_if="its last `<answer>` (without one: its last box) leads from S to E without running "
    "into a wall",
    label_form="JSON: the grid",
    problems=GeneratedProblems(
        generate=generate,
        default_counts={"train": 20_000, "test": 200},
        options={
            "size": Option(int, "number of rows and of columns, walls included"),
            "lengths": Option(
                tuple[int, ...], "numbers of moves of the shortest way; equally many mazes of each"
            ),
            "wording": WORDING,
        },
    ),
    prompt=prompt,
    label=label,
    score=score,
    right_response=right_response,
    wrong_response=wrong_response,
    kind=lambda item: f"{len(item['rows'])}x{len(item['rows'][0])}",
    reward_file="maze.py",
    voted_answer=lambda response: moves_of(answer_of(response) or "")[0],
    benchmarks={
        # 200 mazes, 40 of each length
        "maze": BenchmarkRecord(count=200, options={"size": 6, "lengths": (4, 5, 6, 7, 8)}),
    },
)
