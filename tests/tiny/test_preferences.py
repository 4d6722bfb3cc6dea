"""Preferences with a known truth, and what a small run with a reward model begins with."""

import json
import math
import re
from collections import defaultdict

import pytest

from openrlhf_js.tiny import preferences
from openrlhf_js.tiny.preferences import (
    ASKED,
    HELD_OUT_PROMPTS,
    LETTERS,
    LONGEST,
    SCALE,
    TASK,
    true_score,
)
from openrlhf_js.tiny.tasks import END, write_lines

SIDES = ("train", "held_out")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("preferences")
    split = preferences.split(3, HELD_OUT_PROMPTS)
    prompts = {"train": split.train, "held_out": [split.held_out]}
    for name in SIDES:
        write_lines(folder / f"{name}.jsonl", preferences.preferences(prompts[name], 4000, seed=3))
    return folder


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("response", "score"),
    [  # b is next to a, and order counts
        ("hbea", 4),
        ("hbeb", 3.5),
        ("abea", 4 - 7 / 2),
        ("hbe", 3 - 1),
        ("hbeaa", 4 - 1),
        ("abeh", -2.5 + 1 + 1 - 2.5),
        ("", -4),
        ("(bea", 4 - 7 / 2),
        ("hbea<pad>", 4 - 5),
    ],
)
def test_true_scores_by_hand(response, score):
    expected = pytest.approx(SCALE * score)
    assert true_score("hbea", response) == expected
    assert true_score("hbea", response + END) == expected
    assert TASK.score(response + END, TASK.label("hbea")).value == expected


def test_split_divides_all_prompts():
    (train,), held_out = preferences.split(1, 128)
    assert len(held_out) == len(set(held_out)) == 128
    assert set(train).isdisjoint(held_out)
    assert len(set(train)) + 128 == len(LETTERS) ** ASKED
    assert preferences.split(1, 5).held_out == held_out[:5]


def test_rows_hold_new_pairs_with_their_true_scores_and_no_prompt_on_both_sides(folder):
    train, held_out = (rows(folder / f"{name}.jsonl") for name in SIDES)
    for row in train:
        assert re.fullmatch(f"[{LETTERS}]{{{ASKED}}}=", row["prompt"])
        assert row["chosen"] != row["rejected"]
        letters = row["prompt"][:-1]
        assert row["subset"].startswith(f"{len(set(letters))} different")
        for side in ("chosen", "rejected"):
            assert re.fullmatch(f"[{LETTERS}]{{1,{LONGEST}}}{END}", row[side])
            assert row[f"{side}_score"] == true_score(letters, row[side])
    pairs = {(row["prompt"], frozenset((row["chosen"], row["rejected"]))) for row in train}
    assert len(pairs) == len(train) == 4000  # in either order: `rm train` would find it
    assert {row["prompt"] for row in train}.isdisjoint(row["prompt"] for row in held_out)


def test_labels_follow_bradley_and_terry(folder):
    """By the gap of true scores: how often is the better one chosen?"""
    better_chosen = defaultdict(list)
    for row in rows(folder / "train.jsonl"):
        gap = row["chosen_score"] - row["rejected_score"]
        better_chosen[round(abs(gap), 3)].append(gap > 0)
    common = {gap: hits for gap, hits in better_chosen.items() if len(hits) > 100 and gap > 0}
    assert len(common) >= 5
    for gap, hits in common.items():
        expected = 1 / (1 + math.exp(-gap))
        error = math.sqrt(expected * (1 - expected) / len(hits))
        assert abs(sum(hits) / len(hits) - expected) < 4 * error
