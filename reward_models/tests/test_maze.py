"""Mazes can be solved in just the moves they say, and a path is right if it leads to E."""

import itertools
import json
import random
from collections import Counter, deque

import pytest

from answer_graders.tasks import maze

PAPER = json.dumps({"maze": ["******", "*.*.E*", "*....*", "**.*.*", "**.S.*", "******"]})
MOVES = {"L": (0, -1), "R": (0, 1), "U": (-1, 0), "D": (1, 0)}


def score(answer, label=PAPER):
    return maze.score(f"Down (D) is a wall. <answer> {answer} </answer>", label)


def distance(rows):
    """The number of moves from S to E, or None: cell by cell, from a queue of coordinates."""
    cells = {(r, c): cell for r, row in enumerate(rows) for c, cell in enumerate(row)}
    (start,) = [place for place, cell in cells.items() if cell == "S"]
    distances = {start: 0}
    queue = deque([start])
    while queue:
        place = queue.popleft()
        if cells[place] == "E":
            return distances[place]
        for down, right in MOVES.values():
            neighbour = (place[0] + down, place[1] + right)
            if cells[neighbour] != "*" and neighbour not in distances:
                distances[neighbour] = distances[place] + 1
                queue.append(neighbour)
    return None


def arrives(rows, path):
    """Whether a path of letters leads from S to E and through no wall."""
    ((row, column),) = [(r, cells.index("S")) for r, cells in enumerate(rows) if "S" in cells]
    for move in path:
        down, right = MOVES[move]
        row += down
        column += right
        if rows[row][column] == "*":
            return False
    return rows[row][column] == "E"


def forms(rows):
    """A grid in all ways to turn and mirror it."""
    for _ in range(4):
        rows = tuple("".join(column) for column in zip(*rows[::-1], strict=True))
        yield rows
        yield rows[::-1]


@pytest.mark.parametrize(
    ("count", "split", "options"),
    [
        (1000, "train", {}),
        (100, "test", {}),
        (200, "train", {"size": 5, "lengths": (1, 2, 3, 4)}),
        (50, "train", {"size": 12, "lengths": (9, 20)}),
    ],
)
def test_every_maze_is_well_formed_and_as_long_as_it_says(count, split, options):
    size = options.get("size", 6)
    lengths = options.get("lengths", (4, 5, 6, 7, 8))
    items = list(maze.generate(count, 2, split, **options))
    assert items[:20] == list(maze.generate(20, 2, split, **options))
    assert Counter(item["length"] for item in items) == dict.fromkeys(lengths, count / len(lengths))
    assert len({tuple(item["rows"]) for item in items}) == count
    for item in items:
        assert_is_walled(item["rows"], size)
        assert distance(item["rows"]) == item["length"]
        label = maze.label(item)
        right_response = maze.right_response(label)
        assert maze.score(right_response, label).status == "correct"
        assert len(right_response.split()[1]) == item["length"]
        assert maze.score(maze.wrong_response(label), label).status == "wrong"


def assert_is_walled(rows, size):
    assert [len(row) for row in rows] == [size] * size
    assert set(rows[0] + rows[-1]) == {"*"}
    assert all(row[0] == row[-1] == "*" for row in rows)


@pytest.mark.parametrize(
    ("options", "train", "test"), [({}, 800, 80), ({"size": 5, "lengths": (1, 2)}, 200, 50)]
)
def test_no_test_maze_has_a_twin_in_train_whatever_the_seeds(options, train, test):
    def without_ends(rows):
        return tuple(row.replace("S", ".").replace("E", ".") for row in rows)

    walls = {
        without_ends(item["rows"])
        for seed in range(3)
        for item in maze.generate(train, seed, "train", **options)
    }
    for seed in range(3):
        for item in maze.generate(test, seed, "test", **options):
            assert not {without_ends(rows) for rows in forms(item["rows"])} & walls


def until_none_is_left(seed, split):
    """The rows of all small mazes of a split."""
    mazes = []
    with pytest.raises(ValueError, match=r"only \d+ different \w+ mazes"):
        for item in maze.generate(100, seed, split, size=4, lengths=(1, 2)):
            mazes.append(tuple(item["rows"]))
    return mazes


def test_both_splits_together_hold_every_maze_there_is():
    every_maze = set()
    for a, b, c, d in itertools.product(".*SE", repeat=4):
        rows = ("****", f"*{a}{b}*", f"*{c}{d}*", "****")
        cells = a + b + c + d
        if cells.count("S") == cells.count("E") == 1 and distance(rows):
            every_maze.add(rows)
    mazes = until_none_is_left(0, "train") + until_none_is_left(1, "test")
    assert len(mazes) == len(every_maze) == 44
    assert set(mazes) == every_maze


def test_the_papers_wording_is_an_option():
    (item,) = maze.generate(1, 0, wording="paper")
    [message] = maze.prompt(item)
    request, grid = message["content"].split("\n\n## Maze\n")
    assert request.startswith("You need to solve the following maze. * denotes the wall")
    assert request.endswith("Write the final path in <answer> </answer>.")
    assert grid == "\n".join(item["rows"])


def test_grids_that_are_not_square_or_have_no_way():
    label = json.dumps({"maze": ["*******", "*S...E*", "*******"]})
    assert maze.right_response(label) == "<answer> RRRR </answer>"
    assert maze.score(maze.wrong_response(label), label).status == "wrong"
    with pytest.raises(ValueError, match="no way leads from S to E"):
        maze.label({"rows": ["*****", "*S*E*", "*****"]})


def test_random_paths_are_graded_as_walked():
    draw = random.Random(0)
    for item in maze.generate(200, 9):
        label = maze.label(item)
        right = maze.right_response(label).split()[1]
        for _ in range(10):
            path = list(right)
            path[draw.randrange(len(path))] = draw.choice("LRUD")
            assert score("".join(path), label).value == arrives(item["rows"], path)
