import itertools
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from openrlhf_js.evaluation.passk.summary import summarise, tries, values_of
from openrlhf_js.uncertainty import clustered_proportion

sys.path.insert(0, str(Path(__file__).parent))
from passk_kit import group, items

MARKS = ["rrrr", "rwwn", "nnnn", "rrwm"]
ITEMS = items(4)


@pytest.fixture
def found():
    return summarise(ITEMS, [group(i, marks) for i, marks in enumerate(MARKS)])


def test_by_hand(found):
    assert found["samples"] == 4
    assert found["mean_at_k"]["value"] == pytest.approx((4 + 1 + 0 + 2) / 16)
    # two of four: 1 for the first; 1 of 4 right: 3 of 6 pairs; none; 2 of 4: 5 of 6 pairs
    assert found["pass_at"]["2"]["value"] == pytest.approx((1 + 3 / 6 + 0 + 5 / 6) / 4)
    assert found["pass_at"]["4"]["value"] == pytest.approx(3 / 4)
    assert found["majority_at_k"]["value"] == pytest.approx((1 + 0 + 0 + 1) / 4)
    assert found["statuses"]["no_answer"]["value"] == pytest.approx(5 / 16)
    assert sum(each["value"] for each in found["statuses"].values()) == pytest.approx(1)
    assert found["tokens_per_second"] == pytest.approx(5 / 0.5)
    assert found["per_item"]["correct"] == [4, 1, 0, 2]
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("j", [1, 2, 3, 4])
def test_pass_at_j_is_the_share_of_subsets_with_a_right_one(found, j):
    shares = [
        np.mean(["r" in subset for subset in itertools.combinations(marks, j)]) for marks in MARKS
    ]
    assert values_of(found, f"pass@{j}") == pytest.approx(np.array(shares))


def test_the_interval_takes_items_as_draws(found):
    expected = clustered_proportion([1, 1 / 4, 0, 1 / 2])
    assert found["mean_at_k"] == pytest.approx(expected._asdict())


def test_repeated_items_are_one_draw():
    twice = [*ITEMS[:2], *ITEMS[:2]]
    found = summarise(twice, [group(i, MARKS[i % 2]) for i in range(4)])
    once = summarise(ITEMS[:2], [group(i, MARKS[i]) for i in range(2)])
    assert found["distinct_items"] == 2
    assert found["mean_at_k"] == pytest.approx(once["mean_at_k"])


def test_lengths_and_what_was_cut_off():
    made = [group(0, "rw", tokens=10), group(1, "rr", tokens=20)]
    made[0][1] = made[0][1]._replace(finish_reason="length", tokens=40)
    found = summarise(ITEMS[:2], made)
    assert found["tokens"]["all"]["value"] == pytest.approx((10 + 40 + 20 + 20) / 4)
    assert found["tokens"]["correct"]["value"] == pytest.approx(50 / 3)
    assert found["tokens"]["not_correct"]["value"] == 40
    assert found["truncated"]["value"] == pytest.approx(1 / 4)
    made[1][0] = made[1][0]._replace(tokens=None)
    found = summarise(ITEMS[:2], made)
    assert found["tokens"]["all"] is found["tokens"]["correct"] is None
    assert found["tokens_per_second"] is None
    assert summarise(ITEMS[:1], [group(0, "ww")])["tokens"]["correct"] is None


def test_which_tries_are_shown():
    assert tries(1) == [1]
    assert tries(10) == [1, 2, 4, 8, 10]
    assert tries(16) == [1, 2, 4, 8, 16]


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("pass@5", "pass@5 needs 5 samples of each item, and there are 4: take a smaller number"),
        ("pass@0", "pass@0 needs"),
        ("pass@x", "give mean, majority, or pass@4"),
        ("best", "no metric 'best'"),
    ],
)
def test_metrics_that_there_are_not(found, metric, message):
    with pytest.raises(ValueError, match=message):
        values_of(found, metric)
