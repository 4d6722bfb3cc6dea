"""Tokens, money, and a budget that is never passed."""

from __future__ import annotations

import asyncio
import random

import pytest

from openrlhf_js.evaluation.arena.prices import Bill, Budget, Estimate, dollars, estimate
from openrlhf_js.evaluation.arena.settings import Price
from openrlhf_js.evaluation.replies import Reply

PRICE = Price(input=2.0, output=8.0)


def test_prices_are_for_a_million_tokens():
    assert dollars(PRICE, 1_000_000, 0) == 2.0
    assert dollars(PRICE, 2_800_000, 900_000) == pytest.approx(12.8)
    assert Bill(1, 500_000, 250_000).dollars(PRICE) == 3.0
    assert Bill(1, 5, 5).dollars(None) is None
    assert Bill(1, 5, 5).dollars(Price(0, 0)) == 0.0


def test_replies_without_a_count_count_by_their_bytes():
    bill = Bill()
    bill.add(Reply("text", "", "", 100, 10), prompt_bytes=400)
    bill.add(Reply("tex\u00e9", "hm", "", None, None), prompt_bytes=30)
    bill.add(Reply("text", "", "", 7, None), prompt_bytes=30)
    assert bill == Bill(3, 100 + 30 + 7, 10 + (5 + 2) + 4, 1, 400, 100, 10)
    assert bill - Bill(1, 37, 11) + Bill(1, 37, 11) == bill


def test_an_endpoint_that_counts_nothing_is_not_believed():
    bill = Bill()
    bill.add(Reply("text", "", "", 0, 0), prompt_bytes=400)
    bill.add(Reply("", "", "", 7, 0), prompt_bytes=30)  # nothing was said
    assert bill == Bill(2, 400 + 7, 4 + 0, 1, 30, 7, 0)


def test_an_estimate_without_replies_and_with_some():
    assert estimate(3, 4000, Bill()) == Estimate(1000, 2700, 0)
    seen = Bill(
        4, 999, 999, counted=2, counted_bytes=600, counted_prompt=200, counted_completion=50
    )
    assert estimate(3, 4500, seen) == Estimate(pytest.approx(1500), 75, 2)
    assert estimate(0, 0, seen)[:2] == (0, 0)
    strange = Bill(1, 9, 9, counted=1, counted_bytes=0, counted_prompt=0, counted_completion=0)
    assert estimate(1, 100, strange) == Estimate(0, 0, 1)


def play(most, costs, worst, seed=0):
    """Games of these costs, many at a time: what was spent at most, in the end, and how many."""
    spent, played = [0.0], []
    chance = random.Random(seed)

    async def run():
        budget = Budget(most, lambda: spent[0])

        async def work(own):
            for cost in own:
                if not await budget.begin(worst):
                    return
                for _ in range(chance.randint(0, 4)):
                    await asyncio.sleep(0)
                spent[0] += cost
                played.append(cost)
                budget.end(worst)

        own = iter(costs)
        await asyncio.wait_for(asyncio.gather(*(work(own) for _ in range(8))), 10)
        return budget.used_up

    return asyncio.run(run()), spent[0], len(played)


@pytest.mark.parametrize("seed", range(10))
def test_a_budget_is_never_passed_and_nearly_used_up(seed):
    chance = random.Random(seed)
    costs = [chance.uniform(0, 1) for _ in range(200)]
    used_up, spent, played = play(20.0, costs, worst=1.0, seed=seed)
    assert used_up
    assert 20.0 - 1.0 <= spent <= 20.0
    assert played < 200


def test_a_budget_that_is_large_enough_stops_nobody():
    assert play(200.0, [1.0] * 200, worst=1.0) == (False, 200.0, 200)
    assert play(float("inf"), [1.0] * 50, worst=0.0) == (False, 50.0, 50)


def test_a_budget_that_is_too_small_for_one_game():
    assert play(0.5, [0.1] * 20, worst=1.0) == (True, 0.0, 0)


def test_games_of_different_sizes_are_all_given_back():
    async def run():
        budget = Budget(1.0, lambda: 0.0)
        assert all([await budget.begin(worst) for worst in (0.1, 0.2, 0.7)])
        for worst in (0.7, 0.1, 0.2):
            budget.end(worst)
        assert await budget.begin(1.0)

    asyncio.run(run())


def test_a_closed_budget_lets_those_go_who_wait():
    async def run():
        budget = Budget(1.0, lambda: 0.0)
        assert await budget.begin(1.0)
        waiting = asyncio.create_task(budget.begin(1.0))
        await asyncio.sleep(0)
        budget.close()
        assert not await waiting
        assert not budget.used_up

    asyncio.run(run())
