import json
import math

import numpy as np
import pytest

from openrlhf_js.reward_model.evaluate import ScoredPairs, evaluate
from openrlhf_js.uncertainty import clustered_proportion


def scored(chosen, rejected, *, lengths=None, prompts=None, subsets=None):
    count = len(chosen)
    chosen_lengths, rejected_lengths = lengths or ([10] * count, [10] * count)
    return ScoredPairs(
        np.array(chosen, dtype=float),
        np.array(rejected, dtype=float),
        np.array(chosen_lengths, dtype=float),
        np.array(rejected_lengths, dtype=float),
        prompts or [f"prompt {i}" for i in range(count)],
        subsets or [""] * count,
        "tokens",
    )


def random_pairs(count=400, seed=0):
    generator = np.random.default_rng(seed)
    chosen, rejected = generator.normal(1, 1, count), generator.normal(0, 1, count)
    lengths = generator.integers(5, 50, (2, count)).tolist()
    prompts = [f"p{i // 4}" for i in range(count)]
    subsets = ["ab"[i % 2] for i in range(count)]
    return scored(chosen, rejected, lengths=lengths, prompts=prompts, subsets=subsets)


def test_figures_by_hand():
    found = evaluate(scored([3.0, 1.0, 2.0, 0.0], [1.0, 2.0, 2.0, -4.0]))
    assert found["pairs"] == found["prompts"] == 4
    assert found["accuracy"]["value"] == 0.625  # two right, one wrong, one tie
    assert found["ties"] == 0.25
    assert found["margin"]["value"] == 1.25
    assert found["reward"]["mean"] == pytest.approx(7 / 8)
    # As torch.std of all rewards, which OpenRLHF normalises with.
    assert found["reward"]["std"] == pytest.approx(np.std([3, 1, 2, 0, 1, 2, 2, -4], ddof=1))
    assert found["reward"]["chosen_mean"] == 1.5
    assert found["reward"]["rejected_mean"] == 0.25
    assert (found["reward"]["least"], found["reward"]["greatest"]) == (-4, 3)


def test_the_interval_takes_each_prompt_as_one_draw():
    chosen, prompts = [1.0, 1.0, 0.0, 1.0], ["a", "b", "c", "d"]
    once = evaluate(scored(chosen, [0.5] * 4, prompts=prompts))
    copies = evaluate(scored(chosen * 5, [0.5] * 20, prompts=prompts * 5))
    assert copies["accuracy"] == pytest.approx(once["accuracy"])
    expected = clustered_proportion([1, 1, 0, 1])
    assert once["accuracy"] == pytest.approx(expected._asdict())


def test_one_prompt_alone_bounds_nothing():
    found = evaluate(scored([1.0, 2.0], [0.0, 3.0], prompts=["a", "a"]))
    assert found["margin"] == {"value": 0.0, "low": None, "high": None}
    assert found["accuracy"]["value"] == 0.5


def test_subsets_are_reported_where_there_are_several():
    pairs = scored([1.0, 0.0, 1.0], [0.0, 1.0, 1.0], subsets=["x", "y", "y"])
    found = evaluate(pairs)["subsets"]
    assert {name: part["pairs"] for name, part in found.items()} == {"x": 1, "y": 2}
    assert found["x"]["accuracy"]["value"] == 1
    assert found["y"]["accuracy"]["value"] == 0.25
    assert found["y"]["ties"] == 0.5
    assert evaluate(scored([1.0], [0.0], subsets=["x"]))["subsets"] == {}


def test_a_model_that_only_counts_tokens_is_a_coin_once_length_is_balanced():
    generator = np.random.default_rng(0)
    chosen_lengths = generator.integers(1, 100, 500) + 10  # the chosen ones are longer, mostly
    rejected_lengths = generator.integers(1, 100, 500)
    lengths = chosen_lengths.tolist(), rejected_lengths.tolist()
    found = evaluate(scored(chosen_lengths, rejected_lengths, lengths=lengths))["length"]
    assert found["accuracy_of_length_alone"]["value"] > 0.55
    assert found["accuracy_where_chosen_is_longer"]["value"] == 1
    assert found["accuracy_where_chosen_is_shorter"]["value"] == 0
    assert found["accuracy_balanced"]["value"] == 0.5
    assert found["accuracy_without_linear_part"]["value"] == 0.5  # nothing is left: all ties
    assert found["correlation"] == pytest.approx({"value": 1, "low": 1, "high": 1})
    assert found["regression"] is None


def test_a_model_that_knows_better_than_length_keeps_its_accuracy():
    chosen_lengths, rejected_lengths = [5, 9, 5, 9], [9, 5, 9, 5]
    found = evaluate(scored([1.0] * 4, [0.0] * 4, lengths=(chosen_lengths, rejected_lengths)))
    assert found["length"]["accuracy_balanced"]["value"] == 1
    assert found["length"]["accuracy_of_length_alone"]["value"] == 0.5


def test_balanced_accuracy_weighs_both_sides_alike():
    lengths = [2, 2, 2, 1, 3], [1, 1, 1, 2, 3]  # three longer, one shorter, one equal
    found = evaluate(scored([1, 1, 0, 0, 1], [0, 0, 1, 1, 0], lengths=lengths))["length"]
    assert found["accuracy_balanced"]["value"] == pytest.approx((2 / 3 + 0) / 2)
    assert found["share_of_matched_length"] == 0.2


def test_length_without_a_difference_says_nothing():
    found = evaluate(scored([1.0, 2.0], [0.0, 3.0]))["length"]
    for name in ("accuracy_balanced", "accuracy_where_chosen_is_longer", "correlation"):
        assert found[name] is None
    assert found["accuracy_of_length_alone"]["value"] == 0.5
    assert found["accuracy_at_matched_length"]["value"] == 0.5


def test_which_response_was_longer_by_how_much_is_all_that_counts():
    """A prompt that is part of both sides makes both longer, and changes nothing but shares."""
    pairs = random_pairs()
    longer = ScoredPairs(
        pairs.chosen,
        pairs.rejected,
        pairs.chosen_lengths + 1000,
        pairs.rejected_lengths + 1000,
        pairs.prompts,
        pairs.subsets,
        "tokens",
    )
    here, there = evaluate(pairs)["length"], evaluate(longer)["length"]
    for name in ("accuracy_balanced", "accuracy_without_linear_part", "regression"):
        assert here[name] == there[name]


def test_swapping_all_labels_turns_accuracy_over():
    pairs = random_pairs()
    swapped = ScoredPairs(
        pairs.rejected,
        pairs.chosen,
        pairs.rejected_lengths,
        pairs.chosen_lengths,
        pairs.prompts,
        pairs.subsets,
        "tokens",
    )
    here, there = evaluate(pairs), evaluate(swapped)
    assert there["accuracy"]["value"] == pytest.approx(1 - here["accuracy"]["value"])
    assert there["margin"]["value"] == pytest.approx(-here["margin"]["value"])
    assert there["length"]["correlation_within_pairs"] == pytest.approx(
        here["length"]["correlation_within_pairs"]
    )
    assert there["calibration"]["temperature"] is None


def test_a_shift_of_all_rewards_changes_only_their_mean():
    pairs = random_pairs()
    shifted = ScoredPairs(
        pairs.chosen + 64,
        pairs.rejected + 64,
        pairs.chosen_lengths,
        pairs.rejected_lengths,
        pairs.prompts,
        pairs.subsets,
        "tokens",
    )
    here, there = evaluate(pairs), evaluate(shifted)
    assert there["reward"]["mean"] == pytest.approx(here["reward"]["mean"] + 64)
    assert there["reward"]["std"] == pytest.approx(here["reward"]["std"])
    assert there["accuracy"] == here["accuracy"]
    assert there["calibration"]["error"] == pytest.approx(here["calibration"]["error"])


@pytest.mark.parametrize("count", [1, 2, 30, 4001])
def test_everything_is_plain_json_and_finite(count):
    found = json.loads(json.dumps(evaluate(random_pairs(count)), allow_nan=False))
    points = found["pictures"]["points"]
    assert 0 < len(points["chosen"]) == len(points["rejected_lengths"]) <= 2000
    assert sum(found["pictures"]["margins"]["counts"]) == count


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_no_figure_is_made_of_a_reward_that_is_none(value):
    with pytest.raises(ValueError, match=r"the rejected reward of pair 2 is (nan|inf|-inf)"):
        scored([1.0, 1.0], [0.0, value])


def test_counts_must_agree():
    with pytest.raises(ValueError, match="2 chosen rewards, but 1 rejected"):
        scored([1.0, 1.0], [0.0])
    with pytest.raises(ValueError, match="no pair"):
        scored([], [])
