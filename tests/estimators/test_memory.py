"""js_memory: the regression against a slow oracle, what it may not depend on, and the memory."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from openrlhf_js.estimators import (
    ESTIMATORS,
    LiveEstimator,
    Past,
    PromptMemory,
    advantage,
    baseline,
    diagnostics,
    key_of,
    make_batch,
)
from openrlhf_js.estimators.baselines.memory import memory_shrinkage

NAN = float("nan")


def made(n, m, seed=0, missing=0.0, noise=0.3):
    """Binary rewards (n, m), and a past (n,) near the prompts' values; NaN where it is missing."""
    rng = np.random.default_rng([n, m, seed])
    values = rng.beta(0.5, 0.5, n)
    past = values + noise * rng.standard_normal(n)
    past[rng.random(n) < missing] = NAN
    rewards = (rng.random((n, m)) < values[:, None]).astype(float)
    return torch.from_numpy(rewards), torch.from_numpy(past)


def visit(keys, rewards, step, mask=None):
    """A step's batch, to learn from."""
    return make_batch(rewards, mask=mask, keys=keys, step=step)


def recall(memory, keys, step):
    """What a memory tells of these prompts before a step."""
    return memory.recall(visit(keys, torch.zeros(len(keys), 1), step))


def shrunk(rewards, past):
    return memory_shrinkage(make_batch(rewards, past=past))


def slow_sums(x, y, variances, m):
    """Of one step's prompts, in the order of `Evidence`."""
    xx = math.fsum((a - np.mean(x)) ** 2 for a in x)
    xy = math.fsum((a - np.mean(x)) * (b - np.mean(y)) for a, b in zip(x, y, strict=True))
    yy = math.fsum((b - np.mean(y)) ** 2 for b in y)
    return np.array([len(x) - 1, xx, xy, yy, np.mean(variances) / m, np.mean(variances)])


def with_earlier_steps(today, earlier):
    """The sums of all steps, or of today alone where its slope contradicts the others'."""
    degrees, xx, xy, yy, _, _ = today
    slope = xy / xx
    slope_of_all = (xy + earlier[2]) / (xx + earlier[1])
    residual_variance = (yy - slope * xy) / (degrees - 1)
    if xx * (slope_of_all - slope) ** 2 <= 9 * residual_variance:
        return today + earlier
    return today


def kept_share(degrees, xx, xy, yy):
    """How much of the slope xy / xx counts: the positive-part factor of James and Stein."""
    slope = xy / xx
    if slope <= 0:
        return 0.0
    by_chance = 2 * (yy - slope * xy) / (degrees - 1)
    return max(0.0, 1 - by_chance / (slope * xy))


def slow_shrinkage(rewards, past, i, earlier):
    """Target of prompt i, and the coefficient of each response, with loops over other prompts.

    `earlier` holds the sums of `slow_sums` over earlier steps.
    """
    table = rewards.numpy()
    m = table.shape[1]
    others = [k for k in range(len(past)) if k != i]
    x = past.numpy()[others]
    y = table.mean(1)[others]
    today = slow_sums(x, y, table[others].var(1, ddof=1), m)
    today[4:] *= len(x)
    degrees, xx, xy, yy, noise, variance = with_earlier_steps(today, earlier)

    kept = kept_share(degrees, xx, xy, yy)
    beta = kept * min(max(xy / xx, 0), 1)
    distance = past[i].item() - np.mean(x)
    target = np.mean(y) + beta * distance

    v = noise / (degrees + 1)
    sigma2 = variance / (degrees + 1)
    v2 = sigma2 / (m - 1)
    residual = (yy - 2 * beta * xy + beta**2 * xx) / (degrees - kept)
    unexplained = min(1, residual / (yy / degrees))
    guard = unexplained * sigma2 / (1 + (m - 1) * math.sqrt(degrees))
    leverage = 1 / len(x) + kept * distance**2 / xx
    error = (max(0, residual - v) + guard) * (1 + leverage) + v * leverage
    coefficients = []
    for j in range(m):
        mean_of_others = np.delete(table[i], j).mean()
        contradiction = (mean_of_others - target) ** 2 * (m - 1) / m / (degrees + 2)
        coefficients.append(v2 / (v2 + error + contradiction))
    return target, coefficients


@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize(("n", "m", "noise"), [(9, 2, 0.3), (24, 4, 0.1), (24, 3, 3.0)])
def test_agrees_with_a_regression_for_each_prompt(n, m, noise, steps):
    rewards, past = made(n, m, noise=noise)
    memory = PromptMemory((1e9,))
    earlier = np.zeros(6)
    keys = torch.arange(n)
    memory.learn(visit(keys, made(n, m, seed=10)[0], step=0))
    for step in range(1, steps + 1):
        before = recall(memory, keys, step).means.numpy()
        rewards_then = made(n, m, seed=step)[0]
        means = rewards_then.numpy().mean(1)
        variances = rewards_then.numpy().var(1, ddof=1)
        sums = slow_sums(before, means, variances, m)
        sums[4:] *= n - 1
        earlier = 0.9 * earlier + sums
        memory.learn(visit(keys, rewards_then, step))
    known = Past(past, recall(memory, keys, steps + 1).earlier)
    earlier *= 0.9  # as of the step after the last
    result = shrunk(rewards, known)
    for i in range(n):
        target, coefficients = slow_shrinkage(rewards, past, i, earlier)
        assert result.target[i].item() == pytest.approx(target, abs=1e-6)
        assert result.coefficient[i].tolist() == pytest.approx(coefficients, abs=1e-6)


def test_earlier_steps_help_until_today_contradicts_them():
    """Eight steps say what a past is worth, and are not believed where today says the opposite."""
    draw = torch.Generator().manual_seed(0)
    keys = torch.arange(12)
    errors = []
    for seed in range(40):
        values = torch.from_numpy(np.random.default_rng(seed).beta(0.5, 0.5, 12))
        chances = values[:, None].expand(-1, 4)
        memory = PromptMemory()
        for step in range(8):
            memory.learn(visit(keys, torch.bernoulli(chances, generator=draw), step))
        told = recall(memory, keys, 8)
        today = torch.bernoulli(chances[:, :2], generator=draw)
        pasts = told._replace(earlier=None), told
        errors.append([(shrunk(today, past).target - values).square().mean() for past in pasts])
    alone, helped = np.mean(errors, 0)
    assert helped < 0.8 * alone
    turned = (told.means < 0.5).double()[:, None].expand(-1, 2)
    for field in ("target", "coefficient"):
        expected = getattr(shrunk(turned, told._replace(earlier=None)), field)
        assert torch.equal(getattr(shrunk(turned, told), field), expected)


@pytest.mark.parametrize("means", [None, torch.full((12,), NAN), torch.ones(12)])
def test_is_js_plus_where_the_past_tells_nothing(means):
    rewards, _ = made(12, 4)
    past = None if means is None else Past(means)
    ours = baseline("js_memory", rewards, past=past)
    torch.testing.assert_close(ours, baseline("js_plus", rewards), atol=1e-7, rtol=0)


def test_a_prompt_without_a_past_is_shrunk_as_by_js_plus():
    rewards, past = made(200, 4, noise=0.05)
    past[100:] = NAN
    result = shrunk(rewards, Past(past))
    assert result.coefficient[:100].mean() > 2 * result.coefficient[100:].mean()
    plus = baseline("js_plus", rewards)
    assert torch.equal(baseline("js_memory", rewards, past=Past(past))[100:], plus[100:])


def test_a_past_that_misleads_is_not_believed():
    rewards, past = made(64, 4, noise=0.05)
    plus = baseline("js_plus", rewards)
    for misleading in (past[torch.randperm(64, generator=torch.Generator().manual_seed(0))], -past):
        ours = baseline("js_memory", rewards, past=Past(misleading))
        assert (ours - plus).abs().max() < 0.05


@given(st.integers(2, 9), st.integers(1, 4), st.floats(0, 1), st.booleans(), st.booleans())
@settings(max_examples=25)
def test_no_derivative_by_the_own_reward_and_always_finite(n, m, missing, ragged, remembers):
    rewards, means = made(n, m, missing=missing)
    keys = torch.arange(n)
    memory = PromptMemory()
    for step in range(3 * remembers):
        memory.learn(visit(keys, made(n, m, seed=step)[0], step))
    past = Past(means, recall(memory, keys, 3).earlier)
    mask = torch.rand(n, m, generator=torch.Generator().manual_seed(n)) < 0.7 if ragged else None
    rewards = rewards.requires_grad_()

    def baseline_of(values):
        return baseline("js_memory", values, mask=mask, past=past)

    assert baseline_of(rewards).isfinite().all()
    jacobian = torch.autograd.functional.jacobian(baseline_of, rewards)
    own = jacobian.reshape(n * m, n * m).diagonal()
    exists = torch.ones(n, m, dtype=torch.bool) if mask is None else mask
    if exists.any(1).sum() >= 2:  # else the baseline may be the reward itself
        assert (own[exists.flatten()] == 0).all()


def test_one_response_has_the_prediction_as_baseline():
    rewards, past = made(64, 1, noise=0.02)
    target = shrunk(rewards, Past(past)).target
    torch.testing.assert_close(baseline("js_memory", rewards, past=Past(past))[:, 0], target)
    ours = advantage("js_memory", rewards, past=Past(past)).square().mean()
    assert ours < 0.7 * advantage("bloo", rewards).square().mean()


def test_the_past_of_another_batch_is_refused():
    with pytest.raises(ValueError, match=r"past must be a tensor \(6,\), one a prompt; got \(5,\)"):
        baseline("js_memory", torch.zeros(6, 2), past=Past(torch.zeros(5)))


@pytest.mark.parametrize("name", ["keys", "drift"])
def test_what_is_not_one_number_a_prompt_is_refused(name):
    with pytest.raises(
        ValueError, match=rf"{name} must be a tensor \(6,\), one a prompt; got \(12"
    ):
        make_batch(torch.zeros(6, 2), **{name: torch.arange(12)})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", [name for name, one in ESTIMATORS.items() if one.remembers])
def test_a_batch_on_a_gpu_has_the_advantages_of_one_on_the_cpu(name):
    advantages = {}
    for device in ("cpu", "cuda"):
        live = LiveEstimator(name)
        generator = torch.Generator().manual_seed(0)
        for step in (1, 2, 3):
            rewards = (torch.rand(6, 3, generator=generator) < 0.5).double().to(device)
            mask = torch.ones(6, 3, dtype=torch.bool)
            mask[0, step - 1] = False
            batch = live.batch(
                rewards, mask=mask, drift=torch.full((6,), 0.01), keys=torch.arange(6), step=step
            )
            advantages[device, step] = live.estimate(batch).advantages.cpu()
            live.learn(batch)
            live.load_state_dict(live.state_dict())
    for step in (1, 2, 3):
        torch.testing.assert_close(advantages["cuda", step], advantages["cpu", step])


def test_an_estimator_that_remembers_wants_keys():
    with pytest.raises(ValueError, match="js_memory needs the keys"):
        LiveEstimator("js_memory").batch(torch.zeros(6, 2))


def test_what_is_logged():
    rewards, past = made(64, 4, noise=0.05)
    past[:16] = NAN
    logged = diagnostics("js_memory", rewards, past=Past(past))
    assert logged["js/memory_share"] == 0.75
    assert 0 < logged["js/memory_error"] < 0.1
    assert logged["js/baseline_mse"] < 0.9 * logged["js/baseline_mse_js_plus"]


def keys(*names):
    return torch.tensor([key_of(name) for name in names])


def test_a_past_is_a_discounted_mean():
    memory = PromptMemory((10.0,))
    memory.learn(visit(keys("a", "b"), torch.tensor([[1.0, 1.0], [0.0, 1.0]]), step=1))
    again = torch.tensor([[0.0, 1.0], [9.0, 1.0]])
    valid = torch.tensor([[True, True], [False, True]])
    memory.learn(visit(keys("a", "a"), again, step=11, mask=valid))
    assert len(memory) == 2
    past = recall(memory, keys("b", "a", "new"), 21).means
    # of "a", what step 1 saw counts half of what step 11 saw
    assert past[:2].tolist() == pytest.approx([0.5, (0.5 * 2 + 2) / (0.5 * 2 + 3)])
    assert past[2].isnan()


@pytest.mark.parametrize(("drift", "half_life"), [(0.0, 1024.0), (0.5, 4.0)])
def test_the_half_life_that_predicts_best_is_taken(drift, half_life):
    rng = np.random.default_rng(0)
    memory = PromptMemory()
    values = rng.standard_normal(64)
    prompts = torch.arange(64)
    for step in range(0, 800, 8):
        values = values * (1 - drift**2) ** 0.5 + drift * rng.standard_normal(64)
        rewards = values[:, None] + rng.standard_normal((64, 2))
        memory.learn(visit(prompts, torch.from_numpy(rewards), step))
    place = memory.half_lives.tolist().index(half_life)
    sums = memory.table.columns["sums"]
    counts = memory.table.columns["counts"]
    expected = (sums[:, place] / counts[:, place]).double()
    assert torch.equal(recall(memory, prompts, 800).means, expected)


def test_a_prompt_takes_a_few_dozen_bytes():
    memory = PromptMemory()
    for step in range(4):
        memory.learn(visit(torch.arange(step * 500, step * 500 + 700), torch.ones(700, 1), step))
    assert len(memory) == 2200
    held = sum(each.nbytes for each in memory.state_dict().values())
    assert held < 36 * len(memory) + 400
    assert memory.table.keys.equal(torch.arange(2200))
    assert memory.table.columns["last"][:3].tolist() == [0, 0, 0]
    sums = memory.table.columns["sums"]
    memory.learn(visit(torch.arange(700), torch.ones(700, 1), 4))
    assert memory.table.columns["sums"] is sums  # a million prompts are not copied at every step


def test_a_resumed_estimator_goes_on_as_before():
    draw = torch.Generator().manual_seed(0)
    live = LiveEstimator("js_memory")

    def step(estimators, number):
        some = torch.randint(0, 40, (16,), generator=draw)
        rewards = torch.rand(16, 2, generator=draw)
        advantages = []
        for estimator in estimators:
            batch = estimator.batch(rewards, keys=some, step=number)
            advantages.append(estimator.estimate(batch).advantages)
            estimator.learn(batch)
        return advantages

    for number in range(1, 9):
        step([live], number)
    resumed = LiveEstimator("js_memory")
    resumed.load_state_dict(copy.deepcopy(live.state_dict()))
    assert resumed.memory.evidence[0].max() > 4
    for number in (9, 12):
        expected, result = step([live, resumed], number)
        assert torch.equal(result, expected)
