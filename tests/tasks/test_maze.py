"""Mazes can be solved in just the moves they say, and a path is right if it leads to E."""

import hashlib
import itertools
import json
import random
import time
from collections import Counter, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openrlhf_js.tasks import maze

PAPER = json.dumps({"maze": ["******", "*.*.E*", "*....*", "**.*.*", "**.S.*", "******"]})
MOVES = {"L": (0, -1), "R": (0, 1), "U": (-1, 0), "D": (1, 0)}


def score(answer, label=PAPER):
    return maze.score(f"Down (D) is a wall. <answer> {answer} </answer>", label)


def distance(rows):
    """The number of moves from S to E, or None: cell by cell, from a queue of coordinates."""
    cells = {(r, c): cell for r, row in enumerate(rows) for c, cell in enumerate(row)}
    (start,) = [at for at, cell in cells.items() if cell == "S"]
    moves, queue = {start: 0}, deque([start])
    while queue:
        r, c = queue.popleft()
        if cells[r, c] == "E":
            return moves[r, c]
        for down, right in MOVES.values():
            to = (r + down, c + right)
            if cells[to] != "*" and to not in moves:
                moves[to] = moves[r, c] + 1
                queue.append(to)
    return None


def arrives(rows, path):
    """Whether a path of letters leads from S to E and through no wall."""
    (at,) = [(r, row.index("S")) for r, row in enumerate(rows) if "S" in row]
    for move in path:
        at = (at[0] + MOVES[move][0], at[1] + MOVES[move][1])
        if rows[at[0]][at[1]] == "*":
            return False
    return rows[at[0]][at[1]] == "E"


@pytest.mark.parametrize(
    ("count", "split", "options"),
    [
        (2000, "train", {}),
        (100, "test", {}),
        (200, "train", {"size": 5, "lengths": (1, 2, 3, 4)}),
        (50, "train", {"size": 12, "lengths": (9, 20)}),
    ],
)
def test_every_maze_is_well_formed_and_as_long_as_it_says(count, split, options):
    size, lengths = options.get("size", 6), options.get("lengths", (4, 5, 6, 7, 8))
    items = list(maze.generate(count, 2, split, **options))
    assert Counter(item["length"] for item in items) == dict.fromkeys(lengths, count / len(lengths))
    assert len({tuple(item["rows"]) for item in items}) == count
    for item in items:
        rows = item["rows"]
        assert [len(row) for row in rows] == [size] * size
        assert "".join(rows).count("S") == "".join(rows).count("E") == 1
        assert (
            set(rows[0] + rows[-1]) == {row[0] for row in rows} | {row[-1] for row in rows} == {"*"}
        )
        assert distance(rows) == item["length"]
        label = maze.label(item)
        assert maze.score(maze.right_response(label), label).status == "correct"
        assert maze.score(maze.wrong_response(label), label).status == "wrong"
        assert len(maze.right_response(label).split()[1]) == item["length"]


def forms(rows):
    """A grid in all ways to turn and mirror it."""
    for _ in range(4):
        rows = tuple("".join(column) for column in zip(*rows[::-1], strict=True))
        yield from (rows, rows[::-1])


def without_ends(rows):
    return tuple(row.replace("S", ".").replace("E", ".") for row in rows)


@pytest.mark.parametrize(
    ("options", "train", "test"),
    [({}, 2500, 200), ({"size": 5, "lengths": (1, 2)}, 200, 50)],
)
def test_no_test_maze_has_a_twin_in_train_whatever_the_seeds(options, train, test):
    grids, walls = set(), set()
    for seed in range(4):
        for item in maze.generate(train, seed, "train", **options):
            grids.add(tuple(item["rows"]))
            walls.add(without_ends(item["rows"]))
    assert len(grids) > 2 * train
    backwards = str.maketrans("SE", "ES")
    for seed in range(4):
        for item in maze.generate(test, seed, "test", **options):
            for rows in forms(item["rows"]):
                assert rows not in grids
                assert tuple(row.translate(backwards) for row in rows) not in grids
                assert without_ends(rows) not in walls  # nor with any other ends


@pytest.mark.parametrize(("side", "classes"), [(1, 2), (2, 6), (3, 102)])
def test_squares_have_one_canonical_form_for_all_ways_to_turn_and_mirror_them(side, classes):
    found = set()  # how many there are is known from Burnside's lemma
    for drawn in itertools.product("*.", repeat=side * side):
        rows = tuple("".join(drawn[i : i + side]) for i in range(0, side * side, side))
        canonical = {maze._canonical("".join(form), side) for form in forms(rows)}
        assert canonical == {min("".join(form) for form in forms(rows))}
        found |= canonical
    assert len(found) == classes


def until_none_is_left(*arguments, **options):
    found = []
    with pytest.raises(ValueError, match="different mazes") as raised:
        for item in maze.generate(*arguments, **options):
            found.append(item)
    return found, str(raised.value)


def test_both_splits_together_hold_every_maze_there_is():
    every = set()
    for inner in itertools.product(".*SE", repeat=4):
        rows = ("****", f"*{inner[0]}{inner[1]}*", f"*{inner[2]}{inner[3]}*", "****")
        if inner.count("S") == inner.count("E") == 1 and distance(rows):
            every.add(rows)
    train, _ = until_none_is_left(100, 0, "train", size=4, lengths=(1, 2))
    test, _ = until_none_is_left(100, 1, "test", size=4, lengths=(1, 2))
    assert {tuple(item["rows"]) for item in train + test} == every
    assert len(train) + len(test) == len(every) == 44


def test_a_length_that_is_used_up_leaves_the_rest_to_the_others():
    items = list(maze.generate(60, 0, size=5, lengths=(6, 1)))
    lengths = Counter(item["length"] for item in items)
    assert 12 <= lengths[6] <= 16 and lengths[1] == 60 - lengths[6]


def test_it_says_when_there_are_no_such_mazes():
    _, message = until_none_is_left(10, 0, size=4, lengths=(1, 3))
    assert message.startswith("only 0 different mazes of size 4 and length 3 were found in train")


def test_a_seed_gives_the_same_bytes_on_every_python():
    items = [list(maze.generate(100, 7, split)) for split in ("train", "test")]
    assert (
        hashlib.sha256(json.dumps(items).encode()).hexdigest()
        == "0d426ab0cce388ed23fbafd8230cdea9ae9a52a6e1d97cbb90310f78db0703b2"
    )


def test_a_larger_count_goes_on_and_another_seed_differs():
    items = list(maze.generate(40, 7))
    assert items[:20] == list(maze.generate(20, 7))
    assert items != list(maze.generate(40, 8))
    assert list(maze.generate(0, 7)) == []


@pytest.mark.parametrize(
    "options", [{"split": "dev"}, {"size": 3}, {"size": 65}, {"lengths": ()}, {"lengths": (0, 4)}]
)
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ValueError, match=r"must be .* got"):
        next(maze.generate(1, 0, **options))


def test_the_prompt_shows_the_grid():
    (message,) = maze.prompt({"rows": json.loads(PAPER)["maze"], "length": 4})
    grid = "## Maze\n******\n*.*.E*\n*....*\n**.*.*\n**.S.*\n******"
    assert message["role"] == "user" and message["content"].endswith(grid)
    assert "<answer>" in message["content"]


@pytest.mark.parametrize(
    "answer",
    [
        *("RUUU", "R U U U", "r, u, u, u", "R->U -> U\u2192U", "R;U;U;U"),
        *("Right, Up, Up, Up", "RIGHT\nup\nUU", "rightUpUup"),
        *("RUUU.", "**RUUU**", '"RUUU"', "`RUUU`", "$RUUU$", r"\text{RUUU}", r"$\boxed{RUUU}$."),
        *("R-U-U-U", "[R, U, U, U]", "['R','U','U','U']", '["Right", "Up", "Up", "Up"]'),
        *("RLRUUU", "LRRUUU", "RUUUDU", "RUUDUU"),
    ],
)
def test_right_answers(answer):
    assert score(answer).status == "correct"


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ("UUU", "wrong"),
        ("RUU", "wrong"),
        ("RUUUU", "wrong"),  # through the outer wall
        ("RUUUD", "wrong"),  # crosses E and goes on
        ("RUUUL", "wrong"),
        ("RRUUUL", "wrong"),  # back out of a wall
        ("LLUUURRRR", "wrong"),
        ("D" * 30, "wrong"),
        ("RUUU..", "malformed"),
        (r"RUUU\left", "malformed"),  # a move, or a delimiter of LaTeX
        ("UUU and so on", "malformed"),  # not wrong: it cannot be read
        ("R U U U E", "malformed"),
        ("(R, U, U, U)", "malformed"),
        ('Ri"ght"UUU', "malformed"),
        ("3 up", "malformed"),
        ("EAST", "malformed"),
        ("\u2192\u2191\u2191\u2191", "malformed"),
        ("\uff32UUU", "malformed"),
        (", ,", "malformed"),
        ("RL" * 2000 + "RUUU", "malformed"),
        ("", "no_answer"),
        ("\t\n", "no_answer"),
    ],
)
def test_near_misses(answer, status):
    assert score(answer)[:2] == (0.0, status)


def test_the_detail_says_which_move_fails():
    assert score("RUUR").detail == "move 4, R, runs into a wall"
    assert score("RU").detail == "its 2 moves do not end at E"
    assert score("RU north").detail.startswith("cannot read 'north")


def test_only_the_last_complete_answer_of_the_response_counts():
    right, wrong = "<answer> RUUU </answer>", "<answer> R </answer>"
    assert maze.score(wrong + right + "<answer> R", PAPER).status == "correct"
    assert maze.score(right + wrong, PAPER).status == "wrong"
    assert maze.score("RUUU", PAPER).status == "no_answer"


def test_random_paths_are_graded_as_walked():
    draw = random.Random(0)
    for item in maze.generate(200, 9):
        label = maze.label(item)
        right = maze.right_response(label).split()[1]
        for _ in range(10):
            path = list(right)
            path[draw.randrange(len(path))] = draw.choice("LRUD")
            assert score("".join(path), label).value == arrives(item["rows"], path)


def test_a_grid_need_not_be_square():
    label = json.dumps({"maze": ["*******", "*S...E*", "*******"]})
    assert maze.right_response(label) == "<answer> RRRR </answer>"
    assert score("RRRR", label).status == "correct"
    assert maze.score(maze.wrong_response(label), label).status == "wrong"


@pytest.mark.parametrize(
    "label",
    ["", "[]", "{}", "null", '"*S.E*"', '{"maze": []}', '{"maze": [""]}', '{"maze": "*S.E*"}']
    + [json.dumps({"maze": ["*****", *rows, "*****"]}) for rows in (["*S..*"], ["*..E*"], ["*SE*"])]
    + [
        json.dumps({"maze": ["*****", *rows, "*****"]})
        for rows in (["*SEE*"], ["*SSE*"], ["*S E*"])
    ]
    + [json.dumps({"maze": ["*****", row, "*****"]}) for row in ("S..E*", "*S.E.", 5, ["*S.E*"])]
    + [json.dumps({"maze": ["*****", "*S.E*", row]}) for row in ("**.**", "*", "*****\n")]
    + [json.dumps({"maze": {"0": "*****"}}), json.dumps({"grid": ["*****", "*S.E*", "*****"]})],
)
def test_malformed_labels_are_errors(label):
    for grade in (lambda: maze.score("", label), lambda: maze.right_response(label)):
        with pytest.raises(ValueError, match=r"a label is JSON like|walls all around"):
            grade()


def test_items_without_a_way_are_errors():
    with pytest.raises(ValueError, match="no way leads from S to E"):
        maze.label({"rows": ["*****", "*S*E*", "*****"]})


@given(st.text("LRUDlrud ,->\u2192leftrightupdown\ud800\x00</answer>", max_size=40) | st.text())
def test_no_answer_makes_it_raise(text):
    assert score(text).status in {"correct", "wrong", "malformed", "no_answer"}


@pytest.mark.parametrize(
    "piece", ["U", "Right, ", "->", "-", " ", "<answer>", "rightu", "\x00", "9"]
)
def test_a_megabyte_of_anything_takes_no_time(piece):
    began = time.process_time()
    assert score(piece * (1_000_000 // len(piece))).value == 0.0
    assert time.process_time() - began < 2
