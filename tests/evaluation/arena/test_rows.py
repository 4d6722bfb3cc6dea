"""Judgments as weighted rows."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from openrlhf_js.evaluation.arena.records import Game, Judgment
from openrlhf_js.evaluation.arena.rows import rows, table, tally
from openrlhf_js.evaluation.arena.score import of_model
from openrlhf_js.evaluation.arena.verdict import VERDICTS

sys.path.insert(0, str(Path(__file__).parent))
from arena_pools import judgment, random_pool, with_rows

# How upstream's table has it: rows of the model in game 1 (A is the baseline) and in game 2.
GAME_1 = {"A>>B": [0, 0, 0], "A>B": [0], "A=B": [0.5], "B>A": [1], "B>>A": [1, 1, 1]}
GAME_2 = {"A>>B": [1, 1, 1], "A>B": [1], "A=B": [0.5], "B>A": [0], "B>>A": [0, 0, 0]}


def expanded(of):
    """One number a weighted row."""
    return np.repeat(of.points, of.weight.astype(int)).tolist()


@pytest.mark.parametrize("first", VERDICTS)
@pytest.mark.parametrize("second", VERDICTS)
def test_each_pair_of_verdicts_has_its_rows(first, second):
    games = (Game(first, ""), Game(second, ""))
    of = rows(table([Judgment("q", "c", "j", "m", "base", games)], "base"))
    assert expanded(of) == GAME_1[first] + GAME_2[second]


def test_the_mean_of_the_rows_is_the_tally_s_score():
    judged = table([judgment("a", 2, 1), judgment("b", 0, -2), judgment("c", -1, -1)], "base")
    of = rows(judged)
    assert tally(of) == (4, 5, 1)
    assert tally(of).score == pytest.approx(np.mean(expanded(of))) == pytest.approx(0.45)


def test_another_weight_of_much_better():
    of = rows(table([judgment("a", 2, 1)], "base"), much_weight=2)
    assert tally(of) == (3, 0, 0)


def test_a_judgment_with_one_verdict_counts_not_at_all_or_by_its_one_game():
    judged = table(
        [judgment("a", 1, None), judgment("b", "failed", -2), judgment("c", 1, 1)], "base"
    )
    assert tally(rows(judged)) == (2, 0, 0)
    assert tally(rows(judged, both=False)) == (3, 3, 0)
    assert judged.complete.tolist() == [False, False, True]
    assert judged.failed.tolist() == [[False, False], [True, False], [False, False]]


def test_rows_keep_model_and_question():
    judged = table([judgment("a", 1, 2, model="z"), judgment("b", 0, None, model="y")], "base")
    assert judged.models == ("y", "z")
    of = rows(judged, both=False)
    assert [judged.models[place] for place in of.model] == ["z", "z", "y"]
    assert [judged.questions[place] for place in of.question] == ["a", "a", "b"]
    assert tally(of_model(of, 0)) == (0, 0, 1)


def test_a_table_of_some_judges_is_the_table_of_their_judgments():
    one, two = random_pool(seed=1, judge="one"), random_pool(seed=2, judge="two", models=2)
    both = table(one + two, "base")
    alone = both.of_judges(["two"])
    assert alone.judged_models() == ["m0", "m1"]
    direct = table(two, "base")
    for name in direct.models:
        assert tally(rows(alone.of_model(name))) == tally(rows(direct.of_model(name)))
    assert tally(rows(both)).rows == sum(tally(rows(both.of_judges([j]))).rows for j in both.judges)


def test_known_rows_can_be_made():
    of = rows(table(with_rows(258, 1012, 144, 500), "base"))
    assert tally(of) == (258, 1012, 144)
    assert len(np.unique(of.question)) == 500


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (judgment("q7", 1, 1, baseline="other"), "q7: m was judged against other, not base"),
        (judgment("q7", 1, 1, model="base"), "q7: base was judged against itself"),
        (
            Judgment("q", "c", "j", "m", "base", (Game("A", ""), None)),
            "'A' is none of A>>B, A>B, A=B, B>A, B>>A; judge the game again",
        ),
    ],
)
def test_what_is_no_judgment_of_the_table_is_refused(bad, said):
    with pytest.raises(ValueError, match=said):
        table([bad], "base")


def test_an_unknown_model_is_refused_with_those_known():
    judged = table(random_pool(models=12), "base")
    with pytest.raises(ValueError, match=r"no judgment of 'nobody'; j judged m0.* and 2 more"):
        judged.of_model("nobody")


def test_no_judgments_make_an_empty_table():
    judged = table([], "base")
    assert judged.models == () and judged.margins.shape == (0, 2)
    assert len(rows(judged).model) == 0
