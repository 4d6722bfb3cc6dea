"""Selection of prompts: the probabilities are what is claimed, and weights undo them."""

import itertools

import pytest
import torch

from openrlhf_js.estimators.selection import (
    PRIOR_RESPONSES,
    UNIFORM_SHARE,
    PromptSelector,
    inclusion_probabilities,
    reliability,
    systematic_sample,
)

DRAWS = 20_000


def selector_of(rewards, batch_size, seed=0):
    """A selector of as many prompts as there are rows, which has learnt their rewards."""
    keys = torch.arange(100, 100 + len(rewards))
    selector = PromptSelector(keys, batch_size, seed)
    selector.learn(keys, torch.tensor(rewards), step=0)
    return selector


def enumerated(probabilities):
    """Every batch with its probability, given each order, without a random number.

    Between two neighbouring fractional parts of the intervals' ends all starts U give one batch.
    """
    orders = list(itertools.permutations(range(len(probabilities))))
    batches = {}
    for order in orders:
        ends = list(itertools.accumulate(probabilities[place] for place in order))
        cuts = sorted({0.0, 1.0, *(end % 1 for end in ends)})
        for low, high in itertools.pairwise(cuts):
            start = (low + high) / 2
            points = [start + k for k in range(round(ends[-1]))]
            chosen = tuple(
                order[next(place for place, end in enumerate(ends) if end > point)]
                for point in points
            )
            batches[chosen] = batches.get(chosen, 0.0) + (high - low) / len(orders)
    return batches


REWARDS = [[1.0, 1.0], [1.0, 0.0], [0.0, 0.0], [0.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize("batch_size", [1, 2, 3, 5])
def test_prompts_come_with_the_probabilities_claimed_and_weights_undo_them(batch_size):
    selector = selector_of(REWARDS, batch_size)
    probabilities = selector.probabilities(step=1)
    assert float(probabilities.sum()) == pytest.approx(batch_size)
    weights = selector.weights(selector.keys, step=1)
    assert float(weights.max()) <= 1 / UNIFORM_SHARE
    values = [3.0, -1.0, 7.0, 0.5, 11.0]
    included = [0.0] * 5
    estimate = 0.0
    for batch, probability in enumerated(probabilities.tolist()).items():
        assert len(set(batch)) == len(batch) == batch_size
        weighted = [float(weights[place]) * values[place] for place in batch]
        estimate += probability * sum(weighted) / batch_size
        for place in batch:
            included[place] += probability
    assert included == pytest.approx(probabilities.tolist())
    assert estimate == pytest.approx(sum(values) / 5)


def test_draws_are_those_of_the_enumeration():
    selector = selector_of(REWARDS, 2)
    probabilities = selector.probabilities(step=1)
    generator = torch.Generator().manual_seed(0)
    counts = torch.zeros(5)
    for _ in range(DRAWS):
        counts[systematic_sample(probabilities, generator)] += 1
    torch.testing.assert_close(counts.double() / DRAWS, probabilities, atol=0.012, rtol=0)
    chosen = selector.choose(step=1)
    assert len(chosen.unique()) == 2


def test_the_variance_of_binary_rewards_is_that_of_a_shrunken_rate():
    selector = selector_of(REWARDS, 2)
    discount = 0.5 ** (1 / selector.half_life)
    usual = 6 / 10
    for rewards, variance in zip(REWARDS, selector.variances(step=1).tolist(), strict=True):
        count = 2 * discount + PRIOR_RESPONSES
        rate = (discount * sum(rewards) + PRIOR_RESPONSES * usual) / count
        assert variance == pytest.approx(rate * (1 - rate))


def test_probabilities_do_not_depend_on_the_unit_of_the_rewards():
    scaled = [[-40 + 100 * reward for reward in row] for row in REWARDS]
    torch.testing.assert_close(
        selector_of(scaled, 2).probabilities(step=3), selector_of(REWARDS, 2).probabilities(step=3)
    )


def test_rewards_that_are_all_equal_or_unknown_choose_uniformly():
    uniform = torch.full((4,), 0.5, dtype=torch.float64)
    torch.testing.assert_close(selector_of([[1.0, 1.0]] * 4, 2).probabilities(step=1), uniform)
    new = PromptSelector(torch.arange(4), batch_size=2)
    torch.testing.assert_close(new.probabilities(step=0), uniform)
    assert new.describe(step=0)["js/effective_prompts"] == pytest.approx(4)


def test_spo_draws_by_the_standard_deviation():
    keys = torch.arange(4)
    selector = PromptSelector(keys, batch_size=1, rule="spo")
    rewards = torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    selector.learn(keys, rewards, step=0)
    worth = selector.variances(step=1).sqrt() + 0.05
    torch.testing.assert_close(selector.probabilities(step=1), worth / worth.sum())


def test_a_prompt_that_is_forgotten_comes_back():
    keys = torch.arange(8)
    selector = PromptSelector(keys, batch_size=2)
    varied = torch.tensor([[1.0, 0.0]])
    solved = torch.tensor([[1.0, 1.0]])
    for step in range(20):
        selector.learn(keys[:7], varied.expand(7, 2), step)
        if step < 5:
            selector.learn(keys[7:], solved, step)
    least = UNIFORM_SHARE * 2 / 8
    soon = float(selector.probabilities(step=5)[7])
    later = float(selector.probabilities(step=60)[7])
    assert least <= soon < later
    assert selector.describe(step=60)["js/oldest_prompt"] == 60 - 4
    visits = [step for step in range(5, 200) if 7 in selector.choose(step)]
    assert len(visits) > 5


def test_a_certain_prompt_leaves_the_rest_to_the_others():
    probabilities = inclusion_probabilities(torch.tensor([0.7, 0.2, 0.05, 0.05]).double(), 2)
    torch.testing.assert_close(probabilities, torch.tensor([1, 2 / 3, 1 / 6, 1 / 6]).double())
    everything = inclusion_probabilities(torch.tensor([0.7, 0.2, 0.05, 0.05]).double(), 4)
    assert everything.tolist() == [1.0] * 4


def test_a_prompt_that_is_there_twice_counts_once():
    keys = torch.tensor([7, 5, 7, 5, 9])
    selector = PromptSelector(keys, batch_size=2)
    assert len(selector) == 3
    rows = {int(row) for step in range(50) for row in selector.choose(step)}
    assert rows == {0, 1, 4}


def test_masked_responses_are_not_learnt():
    keys = torch.arange(4)
    rewards = torch.tensor(REWARDS[:4])
    masked = PromptSelector(keys, batch_size=2)
    extra = torch.cat([rewards, torch.full((4, 1), torch.nan)], 1)
    masked.learn(keys, extra, step=0, mask=extra.isfinite())
    plain = PromptSelector(keys, batch_size=2)
    plain.learn(keys, rewards, step=0)
    assert torch.equal(masked.sums, plain.sums)


def test_a_resumed_selector_draws_what_the_first_would_have():
    first = selector_of(REWARDS, 2, seed=3)
    resumed = PromptSelector(first.keys, batch_size=2, seed=3)
    resumed.load_state_dict(first.state_dict())
    for step in range(1, 20):
        chosen = first.choose(step)
        assert torch.equal(resumed.choose(step), chosen)
        for selector in (first, resumed):
            selector.learn(selector.keys[chosen], torch.tensor(REWARDS)[chosen], step)
    assert torch.equal(first.sums, resumed.sums)
    assert first.next_step == resumed.next_step == 20
    others = selector_of(REWARDS, 2, seed=4)
    assert any(not torch.equal(others.choose(s), first.choose(s)) for s in range(20, 30))


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="3 prompts cannot be drawn from 2 different"):
        PromptSelector(torch.tensor([1, 2, 2]), batch_size=3)
    selector = PromptSelector(torch.arange(4), batch_size=2)
    with pytest.raises(ValueError, match="does not know"):
        selector.learn(torch.tensor([9]), torch.ones(1, 2), step=0)
    with pytest.raises(ValueError, match="what was known of 5 prompts is not of these 4"):
        selector.load_state_dict(selector_of(REWARDS, 2).state_dict())


def test_a_choice_says_what_is_known_before_the_step():
    selector = selector_of(REWARDS, 2)
    choice = selector.choice(step=1)
    assert torch.equal(choice.rows, selector.choose(step=1))
    keys = selector.keys[choice.rows]
    assert torch.equal(choice.weights, selector.weights(keys, step=1))
    assert choice.logged == selector.describe(step=1)
    discounted = 2 * 0.5 ** (1 / selector.half_life)  # responses to each prompt
    usual = 6 / 10
    for row, predicted in zip(choice.rows.tolist(), choice.predicted.tolist(), strict=True):
        total = sum(REWARDS[row]) / 2 * discounted
        expected = (total + PRIOR_RESPONSES * usual) / (discounted + PRIOR_RESPONSES)
        assert predicted == pytest.approx(expected)


def test_reliability_compares_predictions_with_what_came():
    predicted = torch.tensor([0.1, 0.15, 0.5, 1.0], dtype=torch.float64)
    rewards = torch.tensor([[0.0, 1.0], [0.0, 0.0], [1.0, 1.0], [1.0, 0.0]])
    mask = torch.tensor([[True, True], [True, False], [True, True], [False, True]])
    logged = reliability(predicted, rewards, mask)
    assert logged == pytest.approx(
        {
            "js/predicted_rate_0": (0.1 + 0.1 + 0.15) / 3,
            "js/observed_rate_0": 1 / 3,
            "js/rated_responses_0": 3,
            "js/predicted_rate_2": 0.5,
            "js/observed_rate_2": 1.0,
            "js/rated_responses_2": 2,
            "js/predicted_rate_4": 1.0,
            "js/observed_rate_4": 0.0,
            "js/rated_responses_4": 1,
        }
    )
    assert reliability(predicted.new_full((4,), torch.nan), rewards, mask) == {}
    assert reliability(predicted, 3 * rewards, mask) == {}
    assert reliability(predicted, rewards, torch.zeros_like(mask)) == {}
