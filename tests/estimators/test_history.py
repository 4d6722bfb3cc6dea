"""js_plus with a history: against a slow oracle, its limits, and what today's response leaves."""

import itertools
import json
import math
import random
from statistics import fmean as mean
from statistics import variance

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from openrlhf_js.estimators import (
    RunningStatistics,
    advantage,
    baseline,
    diagnostics,
    group_statistics,
    start_history,
    update_history,
)
from openrlhf_js.estimators.history import rule_weights, running_coefficient

OPTIONS = settings(max_examples=10, deadline=None)


def history_of(batches, half_life=3.0):
    history = start_history(half_life)
    for rewards in batches:
        history = update_history(history, rewards)
    return history


@pytest.fixture
def earlier(batch):
    return [batch(5, 3, seed) for seed in range(6)]


# the slow oracle: lists of earlier batches, and a numerical optimiser for the weights


def slow_coefficients(others, m, older):
    """lambda of the three rules from the other groups of a batch and [(weight, batch), ...]."""
    p = len(others)
    sigma2 = mean(map(variance, others))
    v, s = sigma2 / m, variance(list(map(mean, others)))
    paper = p / (p + 1) * v / (v + s * (p - 1) / p)

    def corrected(sigma2, net, guard):
        s2 = max(0.0, net) + guard * sigma2
        v2 = sigma2 / (m - 1)
        return v2 / (v2 + s2 * (1 + 1 / p) + v / p)

    today = corrected(sigma2, s - v, 1.2 / (1.2 + math.sqrt(p - 1)))
    degrees = sum(w * (len(b) - 1) for w, b in older)
    nets = [
        (w * (len(b) - 1), variance(list(map(mean, b))) - mean(map(variance, b)) / m)
        for w, b in older
    ]
    net = ((p - 1) * (s - v) + sum(d * x for d, x in nets)) / (p - 1 + degrees)
    net = max(net, s / (1 + 4 * math.sqrt(2 / (p - 1))) - v)
    noise = p * sigma2 + sum(w * sum(map(variance, b)) for w, b in older)
    noise /= p + sum(w * len(b) for w, b in older)
    pooled = corrected(noise, net, 1.2 / (1.2 + math.sqrt(p - 1 + degrees**2)))
    return pooled, paper, today


def slow_weights(batches, half_life, m):
    """Best weights of the rules on the earlier batches, each with the history it then had."""
    terms = []
    for t, groups in enumerate(batches):
        older = [(0.5 ** ((t - k) / half_life), b) for k, b in enumerate(batches[:t])]
        weight = 0.5 ** ((len(batches) - t) / half_life)
        for i, group in enumerate(groups):
            others = groups[:i] + groups[i + 1 :]
            rules = slow_coefficients(others, m, older)
            distance = (mean(group) - mean(map(mean, others))) ** 2 - variance(group) / m
            terms.append((weight, rules, variance(group) / (m - 1), distance))
    total = sum(0.5 ** ((len(batches) - t) / half_life) for t in range(len(batches)))
    apart = [sum(w * (r[0] - r[k]) ** 2 * (v2 + d) for w, r, v2, d in terms) for k in (1, 2)]

    def error(x):
        a = (1 - x[0] - x[1], x[0], x[1])
        shrunk = [(w, sum(q * y for q, y in zip(a, r, strict=True)), v, d) for w, r, v, d in terms]
        prior = sum(apart) / 2 / total * (x[0] ** 2 + x[1] ** 2)
        return sum(w * ((1 - y) ** 2 * v + y**2 * d) for w, y, v, d in shrunk) + prior

    found = optimize.minimize(
        error,
        [0.3, 0.3],
        bounds=[(0, 1)] * 2,
        constraints={"type": "ineq", "fun": lambda x: 1 - x[0] - x[1]},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )
    return (1 - sum(found.x), *found.x)


@pytest.mark.parametrize("kind", ["alike", "apart", "in turns"])
def test_against_the_slow_oracle(kind):
    n, m, half_life = 4, 3, 2.5
    draw = random.Random(kind)

    def make(t):
        spread = {"alike": 0.0, "apart": 2.0, "in turns": 3.0 * (t % 2)}[kind]
        values = [draw.gauss(0, spread) for _ in range(n)]
        return [[draw.gauss(value, 1) for _ in range(m)] for value in values]

    batches = [make(t) for t in range(7)]
    history = history_of(map(torch.tensor, batches[:6]), half_life)
    weights = slow_weights(batches[:6], half_life, m)
    assert rule_weights(history) == pytest.approx(weights, abs=1e-4)
    today = batches[6]
    older = [(0.5 ** ((6 - k) / half_life), b) for k, b in enumerate(batches[:6])]
    for i in range(n):
        rules = slow_coefficients(today[:i] + today[i + 1 :], m, older)
        expected = sum(a * rule for a, rule in zip(rule_weights(history), rules, strict=True))
        stats = group_statistics(torch.tensor(today, dtype=torch.float64))
        assert running_coefficient(stats, history)[i].item() == pytest.approx(expected, abs=1e-6)


# by hand


@pytest.mark.parametrize(
    ("gain", "expected"),
    [
        ((0.0, -1.0, -1.0), (1, 0, 0)),  # both others err
        ((0.0, 9.0, -9.0), (0, 1, 0)),
        ((0.0, 2.0, 2.0), (0, 0.5, 0.5)),
        ((0.0, 1.0, -1.0), (0.5, 0.5, 0)),
    ],
)
def test_weights_on_the_edges(gain, expected):
    cost = (0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)  # and 1 more from the prior
    history = RunningStatistics(5.0, batches=1.0, gain=gain, cost=cost)
    assert rule_weights(history) == pytest.approx(expected)


# reduces to


@pytest.mark.parametrize(("half_life", "batches"), [(1e-4, 6), (0.02, 6), (20, 0)])
def test_a_half_life_near_zero_and_a_first_batch_are_js_plus(half_life, batches, batch, earlier):
    rewards = batch(6, 4)
    history = history_of(earlier[:batches], half_life)
    torch.testing.assert_close(
        advantage("js_plus", rewards, history=history), advantage("js_plus", rewards)
    )


def test_it_comes_near_the_best_coefficient_on_a_stationary_stream():
    """Values N(0, 1/2), rewards N(value, 1), n = 6, m = 4: lambda* by the formula."""
    generator = torch.Generator().manual_seed(0)

    def draw():
        values = torch.randn(6, 1, generator=generator, dtype=torch.float64) * 0.5**0.5
        return values + torch.randn(6, 4, generator=generator, dtype=torch.float64)

    history = history_of((draw() for _ in range(150)), half_life=100)
    v2, distance = 1 / 3, 0.5 * (1 + 1 / 5) + 1 / 4 / 5
    found = running_coefficient(group_statistics(draw()), history)
    assert found.mean().item() == pytest.approx(v2 / (v2 + distance), abs=0.05)
    alone = running_coefficient(group_statistics(draw()), start_history(100))
    assert found.std() < alone.std() / 3


# what must hold for every batch


@st.composite
def streams(draw):
    """A few batches of small multiples of 1/8, ties and zeros common; the last is today's."""
    n, m = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    one = st.lists(st.integers(-8, 8), min_size=n * m, max_size=n * m)
    return [
        torch.tensor(draw(one), dtype=torch.float64).view(n, m) / 8
        for _ in range(draw(st.integers(1, 4)))
    ]


@OPTIONS
@given(
    stream=streams().filter(lambda stream: stream[-1].numel() >= 2),
    own=st.sampled_from([-1e6, 0.37, 1e9]),
)
def test_own_reward_leaves_no_trace(stream, own):
    history, today = history_of(stream[:-1]), stream[-1]
    before = baseline("js_plus", today, history=history)
    for i, j in itertools.product(*map(range, today.shape)):
        changed = today.clone()
        changed[i, j] = own
        after = baseline("js_plus", changed, history=history)
        assert torch.equal(after[i, j], before[i, j])


@OPTIONS
@given(
    stream=streams().filter(lambda stream: stream[-1].numel() >= 2),
    factor=st.sampled_from([0.25, 2.0, 64.0]),
    shift=st.integers(-50, 50),
)
def test_units_and_zero_of_the_rewards_do_not_matter(stream, factor, shift):
    moved = [factor * rewards + shift for rewards in stream]
    plain = advantage("js_plus", stream[-1], history=history_of(stream[:-1]))
    torch.testing.assert_close(
        advantage("js_plus", moved[-1], history=history_of(moved[:-1])),
        factor * plain,
        rtol=1e-6,
        atol=1e-6,
    )


@OPTIONS
@given(stream=streams().filter(lambda stream: stream[-1].numel() >= 2), data=st.data())
def test_masks_of_any_kind_give_finite_numbers(stream, data):
    history = start_history(2)
    for rewards in stream:
        flags = st.lists(st.booleans(), min_size=rewards.numel(), max_size=rewards.numel())
        mask = torch.tensor(data.draw(flags)).view_as(rewards)
        rewards = rewards.masked_fill(~mask, math.nan)
        assert advantage("js_plus", rewards, mask=mask, history=history).isfinite().all()
        shown = diagnostics("js_plus", rewards, mask=mask, history=history)
        assert all(map(math.isfinite, shown.values()))
        weights = rule_weights(history)
        assert min(weights) >= 0 and sum(weights) == pytest.approx(1)
        history = update_history(history, rewards, mask)


@OPTIONS
@given(stream=streams())
def test_a_masked_prompt_and_response_equal_deletion(stream):
    history, with_holes = start_history(2), start_history(2)
    for rewards in stream:
        n, m = rewards.shape
        wide = torch.full((n + 1, m + 1), math.nan, dtype=torch.float64)
        wide[1:, :m] = rewards
        history = update_history(history, rewards)
        with_holes = update_history(with_holes, wide, wide.isfinite())
    flat = [*history[:6], *history.gain, *history.cost]
    assert [*with_holes[:6], *with_holes.gain, *with_holes.cost] == pytest.approx(flat, abs=1e-9)


# degenerate batches


def test_a_batch_without_a_variance_only_ages_the_history(earlier):
    history = history_of(earlier, half_life=1)
    single = update_history(history, torch.rand(4, 1))
    assert single.variance == history.variance / 2 and single.batches == history.batches / 2
    assert single.cost == tuple(total / 2 for total in history.cost)


def test_equal_rewards_have_no_advantage_and_leave_the_ratio(earlier):
    history = history_of(earlier)
    equal = torch.full((5, 3), 0.7)
    assert not advantage("js_plus", equal, history=history).any()
    after = update_history(history, equal)
    assert after.variance / after.net == pytest.approx(history.variance / history.net)
    assert after.prompts > history.prompts * 0.5 ** (1 / 3)


def test_where_others_show_nothing_the_history_speaks(earlier):
    """All others equal: today's batch alone shrinks nothing, since it sees no noise."""
    today = torch.tensor([[0.0, 1.0, 0.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    alone = baseline("js_plus", today)
    torch.testing.assert_close(alone[0], torch.tensor([0.5, 0.0, 0.5]))
    with_history = baseline("js_plus", today, history=history_of(earlier))
    assert (with_history[0] > alone[0]).all()


def test_much_smaller_rewards_bring_the_history_into_their_units(earlier):
    """As if the earlier rewards had had today's units; larger rewards, and 1/3, need no help."""
    history = history_of(earlier)
    stream = torch.cat(earlier)
    after = update_history(history, stream / 100)
    assert after.variance < history.variance / 1000
    kept = history.variance / history.net
    assert after.variance / after.net == pytest.approx(kept, rel=0.5)
    assert update_history(history, stream / 3).variance > history.variance / 2
    assert update_history(history, 100 * stream).net > 1000 * history.net


# for checkpoints, and bad input


@pytest.mark.parametrize("half_life", [0, -1, math.inf, math.nan])
def test_a_half_life_that_is_none(half_life):
    with pytest.raises(ValueError, match="finite number of batches above 0"):
        start_history(half_life)


def test_what_is_logged_and_saved(batch, earlier):
    shown = diagnostics("js_plus", batch(5, 3), history=history_of(earlier))
    running = {key: value for key, value in shown.items() if key.startswith("js/running_")}
    assert running.keys() == {
        *("js/running_prompts", "js/running_reward_variance", "js/running_value_variance"),
        *("js/running_weight_running", "js/running_weight_js", "js/running_weight_js_plus"),
    }
    history = history_of(earlier)
    saved = json.loads(json.dumps(history._asdict()))  # as a checkpoint does
    tuples = {
        key: tuple(value) if isinstance(value, list) else value for key, value in saved.items()
    }
    assert RunningStatistics(**tuples) == history
