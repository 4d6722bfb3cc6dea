"""What a judge's two games say of the judge."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from openrlhf_js.evaluation.arena.judging import judging
from openrlhf_js.evaluation.arena.rows import table

sys.path.insert(0, str(Path(__file__).parent))
from arena_pools import judgment, random_pool


def test_by_hand():
    # Margins of the model; in the first game it is B, in the second A.
    judged = table(
        [
            judgment("1", 1, 1),  # the same
            judgment("2", -2, 1),  # the winner changes, A wins twice
            judgment("3", 2, 1),  # the same winner, another strength
            judgment("4", 0, -1),  # a tie and a winner
            judgment("5", 0, 0),
            judgment("6", None, 1),
            judgment("7", "failed", None),
        ],
        "base",
    )
    found = judging(judged)
    assert (found.judgments, found.complete) == (7, 5)
    assert (found.games_failed, found.games_without_verdict) == (1, 2)
    assert found.share_without_verdict == pytest.approx(3 / 14)
    assert found.contradictions.value == pytest.approx(1 / 5)
    assert found.tie_and_winner == pytest.approx(1 / 5)
    assert found.other_strength == pytest.approx(1 / 5)
    # Points of A: 0 + 1, 1 + 1, 0 + 1, 1/2 + 0, 1/2 + 1/2 of ten.
    assert found.side_a.value == pytest.approx(5.5 / 10)


def test_a_judge_that_always_takes_the_first_answer():
    found = judging(table([judgment(f"q{n}", -1, 1) for n in range(30)], "base"))
    assert found.side_a.value == 1 and found.contradictions.value == 1
    assert found.side_a.low > 0.8


def test_a_strong_model_is_no_bias():
    found = judging(table([judgment(f"q{n}", 2, 2) for n in range(30)], "base"))
    assert found.side_a == (0.5, 0.5, 0.5)
    assert found.contradictions.value == 0


def test_a_fair_judge_is_fair_with_an_interval_that_holds_it():
    held = 0
    for seed in range(60):
        found = judging(table(random_pool(models=3, questions=30, seed=seed), "base"))
        held += found.side_a.low <= 0.5 <= found.side_a.high
    assert held >= 53


def test_intervals_are_by_question():
    one = [judgment(f"q{n}", -1, int(m)) for n, m in enumerate(np.resize([1, -1, -1], 40))]
    many = one + [each._replace(model=f"m{k}") for k in range(5) for each in one]
    alone, together = (judging(table(each, "base")) for each in (one, many))
    assert together.side_a == pytest.approx(alone.side_a)
    assert together.contradictions == pytest.approx(alone.contradictions)


@pytest.mark.parametrize("judgments", [[], [judgment("q", None, "failed")]])
def test_without_a_complete_judgment_there_is_nothing_to_say(judgments):
    found = judging(table(judgments, "base"))
    assert found.complete == 0
    assert found.side_a is None and found.contradictions is None and found.tie_and_winner is None
    assert found.share_without_verdict == float(bool(judgments))
