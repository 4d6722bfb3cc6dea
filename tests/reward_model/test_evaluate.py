"""Figures by hand, by independent computations, and on data whose truth is known."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit, logit

from answer_graders.programs.store import Store
from openrlhf_js.common.intervals import share_interval
from openrlhf_js.reward_model import evaluate as ev
from openrlhf_js.reward_model.preferences import PreferencePair

IDENTITY = {"texts": "a", "model": "b"}
TEXTS = [(f"chosen {i}", f"rejected {i}") for i in range(10)]


def evaluated(chosen, rejected, *, lengths=None, prompts=None, subsets=None):
    count = len(chosen)
    return ev.evaluate(
        np.array([chosen, rejected], dtype=float).T,
        np.array(lengths or [[10] * count] * 2, dtype=float).T,
        prompts or [f"prompt {i}" for i in range(count)],
        subsets or [""] * count,
    )


def random_pairs(count=400, seed=0):
    """Rewards, lengths, prompts and subsets."""
    generator = np.random.default_rng(seed)
    rewards = generator.normal([1, 0], 1, (count, 2))
    lengths = generator.integers(5, 50, (count, 2)).astype(float)
    return (
        rewards,
        lengths,
        [f"p{i // 4}" for i in range(count)],
        ["ab"[i % 2] for i in range(count)],
    )


def exact_margins(count, spread=2.0, seed=0):
    """Margins whose signs are drawn with exactly the probability that they stand for."""
    generator = np.random.default_rng(seed)
    size = np.abs(generator.normal(0, spread, count))
    return np.where(generator.random(count) < expit(size), size, -size)


def test_figures_by_hand():
    found = evaluated([3.0, 1.0, 2.0, 0.0], [1.0, 2.0, 2.0, -4.0])
    assert found["pairs"] == found["prompts"] == 4
    assert found["accuracy"]["value"] == 0.625  # two right, one wrong, one tie
    assert found["ties"] == 0.25
    assert found["margin"]["value"] == 1.25
    reward = found["reward"]
    assert reward["mean"] == pytest.approx(7 / 8)
    # torch.std of all rewards, which OpenRLHF normalises with
    assert reward["std"] == pytest.approx(np.std([3, 1, 2, 0, 1, 2, 2, -4], ddof=1))
    with pytest.raises(ValueError, match="no pair"):
        evaluated([], [])


def test_intervals_are_clustered_by_prompt():
    chosen = [1.0, 1.0, 0.0, 1.0]
    prompts = ["a", "b", "c", "d"]
    once = evaluated(chosen, [0.5] * 4, prompts=prompts)
    copies = evaluated(chosen * 5, [0.5] * 20, prompts=prompts * 5)
    assert copies["accuracy"] == pytest.approx(once["accuracy"])
    assert once["accuracy"] == pytest.approx(share_interval([1, 1, 0, 1])._asdict())
    alone = evaluated([1.0, 2.0], [0.0, 3.0], prompts=["a", "a"])
    assert alone["margin"] == {"value": 0.0, "low": None, "high": None}


def test_equal_shares_leave_an_interval_with_a_width():
    half_right = share_interval([1, 0] * 5, np.repeat(np.arange(5), 2))
    assert half_right.value == 0.5
    assert (half_right.low, half_right.high) == pytest.approx((0.1704, 0.8296), abs=1e-4)


def test_repeated_and_reversed_pairs_are_counted():
    texts = [("a", "b"), ("b", "a"), ("a", "b"), ("c", "b")]
    assert ev.repetitions(texts) == {"repeated": 1, "reversed": 1}


@pytest.mark.parametrize("count", [1, 2, 30])
def test_everything_is_json_and_finite(count):
    assert json.dumps(ev.evaluate(*random_pairs(count)), allow_nan=False)


# Calibration


def test_calibration_error_of_bins_with_as_many_pairs_each():
    size = logit([0.9] * 40 + [0.6] * 40)
    margins = np.where([True] * 30 + [False] * 10 + [True] * 40, size, -size)
    error = ev.calibration_error(margins, bins=2)
    assert error == pytest.approx((abs(0.6 - 1) + abs(0.9 - 0.75)) / 2)


def test_error_by_chance_is_the_mean_error_of_exact_models():
    errors = [ev.calibration_error(exact_margins(600, seed=seed)) for seed in range(300)]
    assert np.mean(errors) == pytest.approx(ev.error_by_chance(exact_margins(600)), rel=0.06)


def test_margins_of_any_size_have_a_loss():
    """Three right and one wrong at margin log 3: -log(3/4) three times, and -log(1/4)."""
    margins = np.log(3) * np.array([1.0, 1.0, 1.0, -1.0])
    assert ev.log_loss(margins) == pytest.approx(np.log(4) - 0.75 * np.log(3))
    huge = np.array([1e30, 1e30, -1e30])
    assert np.isfinite(ev.log_loss(huge))


# Length


def test_the_longer_response_by_hand():
    """Three pairs differ in length: the model prefers the longer one in all, the labels in two."""
    chosen = [1, 1, 0, 1]
    rejected = [0, 0, 1, 0]
    found = evaluated(chosen, rejected, lengths=[[2, 2, 1, 1], [1, 1, 2, 1]])["length"]
    assert found["longer_preferred_by_model"]["value"] == 1
    assert found["longer_preferred_by_labels"]["value"] == pytest.approx(2 / 3)
    assert found["accuracy_of_length_alone"]["value"] == pytest.approx((2 + 1 / 2) / 4)


# Held-out pairs and their scores


def test_what_tells_prompts_apart():
    def turn(role, content):
        return {"role": role, "content": content}

    def template(messages, tokenize, add_generation_prompt=False):
        return "".join(each["content"] for each in messages)

    texts = [PreferencePair("q", "a", "b", "line 1", "s"), PreferencePair("q", "c", "d", "line 2")]
    assert ev.texts_of(texts) == [("qa", "qb"), ("qc", "qd")]
    assert len(set(map(ev.prompt_of, texts))) == 1
    whole = [PreferencePair(None, "qa", "qb", f"line {n}") for n in (1, 2)]
    assert len(set(map(ev.prompt_of, whole))) == 2
    chats = [
        PreferencePair(
            None, [turn("user", "q"), turn("assistant", x)], [turn("assistant", "b")], "line 1"
        )
        for x in "ac"
    ]
    assert ev.texts_of(chats, template) == [("qa", "b"), ("qc", "b")]
    assert len(set(map(ev.prompt_of, chats))) == 1
    with pytest.raises(ValueError, match=r"line 1: .*messages"):
        ev.texts_of([texts[0], chats[0]])


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_a_reward_that_is_not_finite_is_refused(tmp_path: Path, value):
    def score(texts):
        return [value if text == "rejected 6" else 1.0 for text in texts]

    with Store(tmp_path / "scores.jsonl", IDENTITY, ("pair",)) as store:
        with pytest.raises(ValueError, match="the sides of pair 7 got the rewards"):
            ev.score_pairs(TEXTS, score, store, 4)
        assert sorted(store.records) == [(i,) for i in range(4)]
