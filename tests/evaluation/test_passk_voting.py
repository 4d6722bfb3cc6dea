import itertools
import random

import pytest

from openrlhf_js.evaluation.passk.voting import majority

ANSWERS = {"correct": "gold", "no_answer": None, "malformed": "x ("}


def vote(*marks, same=lambda a, b: a == b):
    """Each mark is a status, or the text of a wrong answer."""
    statuses = [mark if mark in (*ANSWERS, "timeout") else "wrong" for mark in marks]
    answers = [ANSWERS.get(mark, mark) for mark in marks]
    return majority(statuses, answers, same)


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        (("correct", "correct", "a"), 1),
        (("correct", "a", "a"), 0),
        (("correct", "a"), 1 / 2),  # by lot
        (("correct", "a", "b"), 1 / 3),
        (("correct", "correct", "a", "a", "b"), 1 / 2),
        (("correct", "no_answer", "no_answer"), 1),  # who has no answer does not vote
        (("correct", "malformed", "malformed"), 1),
        (("no_answer", "no_answer"), 0),
        (("a", "b"), 0),
        (("correct", "timeout", "timeout"), 0),  # answers all the same
    ],
)
def test_by_hand(marks, expected):
    assert vote(*marks) == pytest.approx(expected)


def test_order_does_not_matter():
    for marks in itertools.permutations(("correct", "correct", "a", "a", "b", "no_answer")):
        assert vote(*marks) == 1 / 2


def test_spellings_of_one_answer_vote_together():
    marks = ("correct", "correct", "1/2", "0.5", "50 %", "3")
    assert vote(*marks) == 1
    halves = {"1/2", "0.5", "50 %"}
    assert vote(*marks, same=lambda a, b: {a, b} <= halves) == 0


def test_equivalence_is_asked_only_where_it_decides():
    def never(a, b):
        raise AssertionError("asked")

    assert vote("correct", "correct", "a", same=never) == 1
    assert vote("a", "b", "c", same=never) == 0


def test_against_drawing_lots():
    """The share of right answers when a tie is really decided by lot."""
    draws = random.Random(0)
    marks = ["correct"] * 3 + ["a"] * 3 + ["b"] * 3 + ["c"]
    wins = 0
    for _ in range(4000):
        most = {name: marks.count(name) for name in set(marks)}
        best = [name for name in sorted(most) if most[name] == max(most.values())]
        wins += draws.choice(best) == "correct"
    assert vote(*marks) == pytest.approx(wins / 4000, abs=0.03)
