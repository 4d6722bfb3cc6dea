"""The page of `rm eval`: figures, sentences that follow from them, pictures."""

import json
from pathlib import Path

import numpy as np
import pytest
from chromium import check_shown

from openrlhf_js.report import reward_model
from openrlhf_js.reward_model.evaluate import evaluate


def interval(value, low=None, high=None):
    return {"value": value, "low": low, "high": high}


@pytest.fixture
def found():
    """A real evaluation, in which the figures that tests look at are set."""
    draw = np.random.default_rng(0)
    rewards, lengths = draw.normal(size=(60, 2)), draw.integers(1, 9, (60, 2)).astype(float)
    made = evaluate(rewards, lengths, [str(i) for i in range(60)], ["chat", "code"] * 30)
    known = json.loads(Path(__file__).with_name("evaluation.json").read_text())
    for part in ("calibration", "length"):
        known[part] = made[part] | known[part]
    return made | known


def table(found):
    return {row["figure"]: row["value"] for row in reward_model.figure_rows(found)}


def test_figures(found):
    rows = table(found)
    assert rows["accuracy"] == "75.0 % (70.0 to 79.0)"
    assert rows["mean margin"] == "1.25 (1 to 1.5)"
    assert rows["ties"] == "2.0%"
    assert rows["length and reward"] == "-0.12"
    assert rows["reward"] == "0.5 ± 2.25"
    assert [row["subset"] for row in reward_model.subset_rows(found)] == ["chat", "code"]
    found["accuracy"] = interval(0.75)
    found["length"]["correlation_within_pairs"] = None
    rows = table(found)
    assert rows["accuracy"] == "75.0 %"
    assert rows["length and reward"] == "-"
    assert reward_model.page(found)


MORE = "length.longer_preferred_more_by_model"
OFF = "are off: 77.0% on average, calibration error 0.100, against 0.018 by chance"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"accuracy": interval(0.56, 0.49, 0.63)}, "not clearly better than chance"),
        ({"prompts": 5}, "5 prompts are few"),
        ({"length.accuracy_of_length_alone": interval(0.76)}, "longer response would do as well"),
        ({MORE: interval(0.05, 0.01, 0.09)}, "favours longer responses more than"),
        ({MORE: interval(-0.05, -0.09, -0.01)}, "favours shorter responses more than"),
        ({"calibration.error": 0.1}, OFF),
        (
            {"repetitions": {"repeated": 3, "reversed": 1}},
            "Of these, 3 repeat an earlier pair and 1 are one with its sides swapped: each counts.",
        ),
    ],
)
def test_sentences_follow_from_figures(found, changes, sentence):
    for name, value in changes.items():
        part, _, figure = name.rpartition(".")
        (found[part] if part else found)[figure] = value
    said = reward_model.in_words(found)
    assert len(said) == 2 and sentence in said[1]


def test_few_pairs_do_not_normalise(found):
    for pairs, said in ((300, "to"), (6, "of too few pairs to")):
        found["pairs"] = pairs
        (row,) = [row for row in reward_model.figure_rows(found) if row["figure"] == "reward"]
        assert row["meaning"].startswith(f"mean and std, {said} normalise with")


def test_a_browser_shows_the_page_at_both_widths(found, tmp_path):
    page = reward_model.page(found)
    assert "Accuracy by confidence, accuracy, share of pairs, by confidence, sigmoid" in page
    for shown in check_shown(page, tmp_path, charts=1):
        for text in ("75.0 % (70.0 to 79.0)", "ckpt/rm", "held_out.jsonl", "Qwen2Model", "2048"):
            assert text in shown


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "\x00é"])
def test_names_from_files_are_text(found, name):
    found["subsets"][name] = found["subsets"]["chat"]
    found["model"] = found["file"] = name
    page = reward_model.page(found)
    assert "<script>alert" not in page and "\x00" not in page
