"""Judgments of answers that have changed since: `score` is told of them as `judge` is."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest

from openrlhf_js.evaluation.arena import pool, stale
from openrlhf_js.evaluation.arena.files import Folder

sys.path.insert(0, str(Path(__file__).parents[1]))
from judged_bench import answer_row, read_lines, write_bench, write_lines


def row(uid, model="m", *, shown=None, games=2):
    """A line of a judge; both games show what `write_bench` writes, or what is given."""
    told = [
        {"role": "system", "content": "Judge."},
        {
            "role": "user",
            "content": shown or f"What is {uid}?\nbase says {uid}. \n{model} says {uid}. ",
        },
    ]
    game = {"score": "A>B", "judgment": {"answer": "[[A>B]]"}, "prompt": told}
    base = {"uid": uid, "category": "all", "judge": "j", "model": model, "baseline": "base"}
    return {**base, "games": [game if number < games else None for number in (0, 1)]}


@pytest.fixture
def root(tmp_path):
    found = write_bench(tmp_path, 4, ("m", "n"))
    for model in ("m", "n"):
        write_lines(
            found / "model_judgment" / "j" / f"{model}.jsonl",
            (row(f"q{i}", model) for i in range(4)),
        )
    return found


def told(root, **options):
    """The lines about old texts that reading for a score gives."""
    said = []
    pools = pool.load(Folder(root.parent, "own"), ["j"], warn=said.append, **options)
    assert [sorted(each.judged.models) for each in pools] == [["m", "n"]]
    return [line for line in said if "than those of now" in line]


def change(root, model, *uids):
    path = root / "model_answer" / f"{model}.jsonl"
    rows = [
        answer_row(each["uid"], model, "new") if each["uid"] in uids else each
        for each in read_lines(path)
    ]
    write_lines(path, rows)


def test_nothing_is_said_while_nothing_has_changed(root):
    assert told(root) == []


def test_one_line_for_each_model_says_what_to_do(root):
    change(root, "m", "q1", "q3")
    (line,) = told(root)
    assert line.startswith(f"{root}/model_judgment/j/m.jsonl: 2 judgments are of other answers")
    assert "the first is 'q1'" in line
    assert "move this file away and judge again" in line
    change(root, "base", "q1")
    assert [line.split(": ")[1][:11] for line in told(root)] == ["2 judgments", "1 judgments"]


def test_a_question_that_has_changed(root):
    rows = read_lines(root / "question.jsonl")
    write_lines(root / "question.jsonl", [{**rows[0], "prompt": "And now?"}, *rows[1:]])
    assert len(told(root)) == 2


def test_what_cannot_be_known_is_not_told_of(root):
    """No prompts in the lines, no such answers, or a judgment that does not count."""
    change(root, "m", "q0", "q1", "q2", "q3")
    rows = [row(f"q{i}") for i in range(4)]
    for game in itertools.chain.from_iterable(each["games"] for each in rows[:2]):
        game.pop("prompt", None)
    rows[2] = row("q2", games=1)
    rows[3:] = [row("q3"), row("q3", shown="What is q3?\nbase says q3. \nnew")]
    write_lines(root / "model_judgment" / "j" / "m.jsonl", rows)
    assert told(root) == []
    (root / "model_answer" / "n.jsonl").unlink()
    assert told(root) == []


def test_finding_a_text_by_its_head_is_finding_it(monkeypatch):
    """Against Python's own `in`, for all short texts; the bounds are made as small."""
    monkeypatch.setattr(stale, "HEAD_CHARACTERS", 2)
    monkeypatch.setattr(stale, "MOST_PLACES", 2)
    words = [
        "".join(letters) for size in range(5) for letters in itertools.product("ab", repeat=size)
    ]
    shown = ["".join(letters) for letters in itertools.product("ab", repeat=7)]
    for text in words:
        for whole in shown:
            assert stale._is_in(text, whole) == (text in whole), (text, whole)
