"""Prompts that are chosen: with the probabilities that are claimed, and as before once resumed."""

import itertools
from types import SimpleNamespace

import pytest
import torch
from kit import upstream_args

from openrlhf_js.plugin.selection import (
    PRIOR_RESPONSES,
    UNIFORM_SHARE,
    PromptSelector,
    inclusion_probabilities,
    keep_selection,
    resume_selection,
    start_selection,
    systematic_sample,
)
from openrlhf_js.plugin.upstream import BadInput

DRAWS = 20_000
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


@pytest.mark.parametrize("batch_size", [1, 2, 3, 5])
def test_prompts_come_with_the_probabilities_claimed(batch_size):
    probabilities = selector_of(REWARDS, batch_size).probabilities()
    assert float(probabilities.sum()) == pytest.approx(batch_size)
    included = [0.0] * 5
    for batch, probability in enumerated(probabilities.tolist()).items():
        assert len(set(batch)) == len(batch) == batch_size
        for place in batch:
            included[place] += probability
    assert included == pytest.approx(probabilities.tolist())


def test_draws_are_those_of_the_enumeration():
    probabilities = selector_of(REWARDS, 2).probabilities()
    generator = torch.Generator().manual_seed(0)
    counts = torch.zeros(5)
    for _ in range(DRAWS):
        counts[systematic_sample(probabilities, generator)] += 1
    torch.testing.assert_close(counts.double() / DRAWS, probabilities, atol=0.012, rtol=0)


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


def test_a_prompt_that_is_forgotten_comes_back():
    keys = torch.arange(8)
    selector = PromptSelector(keys, batch_size=2, seed=0)
    learn(selector, keys, [[1.0, 0.0]] * 7 + [[1.0, 1.0]])
    soon = float(selector.probabilities()[7])
    assert soon >= UNIFORM_SHARE * 2 / 8
    chosen = []
    for _ in range(200):
        learn(selector, keys[:7], [[1.0, 0.0]] * 7)
        chosen += selector.choose().tolist()
    assert float(selector.probabilities()[7]) > soon
    assert chosen.count(7) > 5


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


def selector_of_run(keys, batch_size):
    """What chooses the prompts of a run with these."""
    args = upstream_args(js__prompt_selection="informative", rollout__batch_size=batch_size)
    return start_selection(args, SimpleNamespace(keys=lambda: torch.tensor(keys)))


def test_a_resumed_run_draws_what_the_first_would_have(tmp_path):
    selector = selector_of_run(range(8), 4)
    with pytest.raises(ValueError, match="not among those to choose from"):
        learn(selector, torch.arange(8, 12), torch.rand(4, 2))
    learn(selector, selector.keys[:4], torch.rand(4, 2))
    states = {"global_step": 1}
    keep_selection(states, selector)
    torch.save(states, tmp_path / "states.pt")
    loaded = torch.load(tmp_path / "states.pt", weights_only=True)

    resumed = selector_of_run(range(8), 4)
    resume_selection(loaded, resumed)
    for _ in range(5):
        assert torch.equal(resumed.choose(), selector.choose())
        for each in (resumed, selector):
            learn(each, each.keys[:4], [[1.0, 0.0]] * 4)
    assert resumed.next_step == selector.next_step == 6


def test_what_is_known_of_other_prompts_is_not_taken():
    states = {}
    keep_selection(states, None)
    others = selector_of_run(range(6), 4)
    resume_selection(states, others)
    keep_selection(states, selector_of_run(range(1, 7), 4))
    resume_selection(states, others)
    assert others.next_step == 0
    with pytest.raises(BadInput, match="a batch of 4 prompts cannot be drawn from 1"):
        selector_of_run([1] * 8, 4)
