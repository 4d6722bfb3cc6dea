"""Preferences of a recipe that is tried: what a small run with a reward model begins with."""

import re

import pytest

from baseline_research.tiny.preferences import ASKED, LETTERS, LONGEST, pairs
from baseline_research.tiny.tasks import END


@pytest.mark.parametrize("held_out", [False, True])
def test_the_response_with_more_right_places_is_chosen_and_no_pair_comes_twice(held_out):
    rows = list(pairs(600, held_out))
    for row in rows:
        letters = re.fullmatch(f"([{LETTERS}]{{{ASKED}}})=", row["prompt"])[1]
        right = {}
        for side in ("chosen", "rejected"):
            response = re.fullmatch(f"([{LETTERS}]{{1,{LONGEST}}}){END}", row[side])[1]
            right[side] = [a == b for a, b in zip(letters, response, strict=False)].count(True)
        assert right["chosen"] > right["rejected"]
    distinct = {(row["prompt"], row["chosen"], row["rejected"]) for row in rows}
    assert len(distinct) == 600  # `rm train` would find a repeated one
    assert list(pairs(100, held_out)) == rows[:100]
    others = {row["prompt"] for row in pairs(600, not held_out)}
    assert others.isdisjoint(row["prompt"] for row in rows)
