"""What `rm eval` prints: figures, and sentences that follow from them."""

import numpy as np
import pytest

from openrlhf_js.reward_model import page as reward_model
from openrlhf_js.reward_model.evaluate import evaluate


def interval(value, low=None, high=None):
    return {"value": value, "low": low, "high": high}


@pytest.fixture
def found():
    """A real evaluation, in which the figures that tests look at are set."""
    draw = np.random.default_rng(0)
    rewards, lengths = draw.normal(size=(60, 2)), draw.integers(1, 9, (60, 2)).astype(float)
    made = evaluate(rewards, lengths, [str(i) for i in range(60)], ["chat", "code"] * 30)
    known = {
        "accuracy": interval(0.75, 0.7, 0.79),
        "margin": interval(1.25, 1.0, 1.5),
        "ties": 0.02,
        "reward": {"mean": 0.5, "std": 2.25},
        "repetitions": {"repeated": 0, "reversed": 0},
        "calibration": {"error": 0.02, "error_by_chance": 0.018, "log_loss": 0.5},
    }
    made["length"]["accuracy_of_length_alone"] = interval(0.5)
    return made | known


def test_figures(found):
    rows = {row["figure"]: row for row in reward_model.figure_rows(found)}
    assert rows["accuracy"]["value"] == "75.0 % (70.0 to 79.0)"
    assert rows["mean margin"]["value"] == "1.25 (1 to 1.5)"
    assert rows["ties"]["value"] == "2.0%"
    assert rows["reward"]["value"] == "0.5 ± 2.25"
    assert rows["reward"]["meaning"] == "mean and std, to normalise with"
    assert [row["subset"] for row in reward_model.subset_rows(found)] == ["chat", "code"]
    found |= {"accuracy": interval(0.75), "pairs": 6}
    rows = {row["figure"]: row for row in reward_model.figure_rows(found)}
    assert rows["accuracy"]["value"] == "75.0 %"
    assert rows["reward"]["meaning"].startswith("mean and std, of too few pairs to normalise")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"accuracy": interval(0.56, 0.49, 0.63)}, "not clearly better than chance"),
        ({"prompts": 5}, "5 prompts are few"),
        ({"length.accuracy_of_length_alone": interval(0.76)}, "longer response would do as well"),
        (
            {"repetitions": {"repeated": 3, "reversed": 1}},
            "Of these, 3 repeat an earlier pair and 1 are one with its sides swapped: each counts.",
        ),
        ({"calibration.error": 0.1}, "are off: calibration error 0.100, against 0.018 by chance"),
    ],
)
def test_sentences_follow_from_figures(found, changes, sentence):
    for name, value in changes.items():
        part, _, figure = name.rpartition(".")
        (found[part] if part else found)[figure] = value
    said = reward_model.in_words(found)
    assert len(said) == 2 and sentence in said[1]
