"""Prompts that are chosen: with the probabilities that are claimed, and as before once resumed."""

import pytest
import torch

from openrlhf_js.plugin.selection import (
    PRIOR_RESPONSES,
    UNIFORM_SHARE,
    PromptSelector,
    inclusion_probabilities,
    systematic_sample,
)
from openrlhf_js.plugin.upstream import BadInput

DRAWS = 5_000
REWARDS = [[1.0, 1.0], [1.0, 0.0], [0.0, 0.0], [0.0, 1.0], [1.0, 1.0]]


def learn(selector, keys, rewards):
    rewards = torch.as_tensor(rewards)
    selector.learn(keys, rewards, rewards.isfinite())


def selector_of(rewards, batch_size, seed=0):
    """A selector of as many prompts as there are rows, which has learnt their rewards."""
    keys = torch.arange(100, 100 + len(rewards))
    selector = PromptSelector(keys, batch_size, seed)
    learn(selector, keys, rewards)
    return selector


def test_prompts_come_with_the_probabilities_claimed():
    for batch_size in (1, 2, 3, 5):
        probabilities = selector_of(REWARDS, batch_size).probabilities()
        assert float(probabilities.sum()) == pytest.approx(batch_size)
        generator = torch.Generator().manual_seed(0)
        counts = torch.zeros(5)
        for _ in range(DRAWS):
            places = systematic_sample(probabilities, generator)
            assert len(places.unique()) == batch_size
            counts[places] += 1
        torch.testing.assert_close(counts.double() / DRAWS, probabilities, atol=0.02, rtol=0)


def test_the_variance_of_binary_rewards_is_that_of_a_shrunken_rate():
    selector = selector_of(REWARDS, 2)
    count = 2 * 0.5 ** (1 / selector.half_life)
    rates = [
        (count * sum(rewards) / 2 + PRIOR_RESPONSES * 6 / 10) / (count + PRIOR_RESPONSES)
        for rewards in REWARDS
    ]
    variances = torch.tensor([rate * (1 - rate) for rate in rates], dtype=torch.float64)
    shares = (1 - UNIFORM_SHARE) * variances / variances.sum() + UNIFORM_SHARE / 5
    torch.testing.assert_close(selector.probabilities(), inclusion_probabilities(shares, 2))
    scaled = selector_of([[-40 + 100 * reward for reward in row] for row in REWARDS], 2)
    torch.testing.assert_close(scaled.probabilities(), selector.probabilities())


def test_rewards_that_are_all_equal_or_unknown_choose_uniformly():
    uniform = torch.full((4,), 0.5, dtype=torch.float64)
    torch.testing.assert_close(selector_of([[1.0, 1.0]] * 4, 2).probabilities(), uniform)
    new = PromptSelector(torch.arange(4), batch_size=2, seed=0)
    torch.testing.assert_close(new.probabilities(), uniform)


def test_a_certain_prompt_leaves_the_rest_to_the_others():
    shares = torch.tensor([0.7, 0.2, 0.05, 0.05]).double()
    expected = torch.tensor([1, 2 / 3, 1 / 6, 1 / 6]).double()
    torch.testing.assert_close(inclusion_probabilities(shares, 2), expected)
    assert inclusion_probabilities(shares, 4).tolist() == [1.0] * 4


def test_a_prompt_that_is_there_twice_counts_once_and_a_masked_response_not_at_all():
    keys = torch.tensor([7, 5, 7, 5, 9])
    selector = PromptSelector(keys, batch_size=3, seed=0)
    assert sorted(selector.choose().tolist()) == [0, 1, 4]
    masked = PromptSelector(keys, batch_size=3, seed=0)
    learn(selector, keys[:2], [[1.0], [0.0]])
    learn(masked, keys[:2], [[1.0, torch.nan], [0.0, torch.nan]])
    assert torch.equal(masked.sums, selector.sums)


def test_a_resumed_run_draws_what_the_first_would_have(tmp_path):
    selector = PromptSelector(torch.arange(8), batch_size=4, seed=0)
    learn(selector, selector.keys[:4], torch.rand(4, 2))
    with pytest.raises(ValueError, match="not among those to choose from"):
        learn(selector, torch.arange(8, 12), torch.rand(4, 2))
    torch.save(selector.state_dict(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    resumed = PromptSelector(torch.arange(8), batch_size=4, seed=0)
    resumed.load_state_dict(state)
    for _ in range(5):
        assert torch.equal(resumed.choose(), selector.choose())
        for each in (resumed, selector):
            learn(each, each.keys[:4], [[1.0, 0.0]] * 4)
    assert resumed.next_step == selector.next_step == 6
    of_other_prompts = PromptSelector(torch.arange(1, 9), batch_size=4, seed=0)
    of_other_prompts.load_state_dict(state)
    assert of_other_prompts.next_step == 0
    with pytest.raises(BadInput, match="a batch of 4 prompts cannot be drawn from 1"):
        PromptSelector(torch.ones(8), batch_size=4, seed=0)
