"""js_memory: the regression against a slow oracle, what it may not depend on, and the memory."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from openrlhf_js.estimators import Memory, advantage, baseline, diagnostics
from openrlhf_js.estimators.group_stats import group_statistics
from openrlhf_js.estimators.memory import key_of
from openrlhf_js.estimators.regression import fit, remember

NAN = float("nan")


def made(n, m, k=1, seed=0, missing=0.0, noise=0.3):
    """Binary rewards (n, m), and covariates (n, k) of which the first is near the value."""
    rng = np.random.default_rng([n, m, k, seed])
    values = rng.beta(0.5, 0.5, n)
    covariates = rng.random((n, k))
    covariates[:, 0] = values + noise * rng.standard_normal(n)
    covariates[rng.random((n, k)) < missing] = NAN
    rewards = (rng.random((n, m)) < values[:, None]).astype(float)
    return torch.from_numpy(rewards), torch.from_numpy(covariates)


def slow_fit(rewards, covariates, i, earlier=()):
    """The prediction and the coefficient of prompt i, from the other prompts one after another.

    Earlier batches (rewards, covariates), the last one last, are rows of less weight.
    """
    r, z = rewards.numpy(), covariates.numpy()
    n, m = r.shape
    columns, spreads = [np.ones(n)], []
    known = np.isfinite(z)
    for k in range(z.shape[1]):
        own = z[known[:, k], k]
        spreads.append(own.std() or 1)
        columns.append(np.where(known[:, k], (z[:, k] - own.mean()) / spreads[-1], 0))
    for k in range(z.shape[1]):
        lacks = 1.0 - known[:, k]
        columns.append((lacks - lacks.mean()) / (lacks.std() or 1))
    x, means = np.stack(columns, 1), r.mean(1)
    others = [k for k in range(n) if k != i]
    a, y, p = x[others], means[others], n - 1
    free = np.diag([0.0] + [1.0] * (x.shape[1] - 1))
    variances = r[others].var(1, ddof=1)
    sigma2, v = variances.mean(), (variances / m).mean()
    lacks = ~known.all(1)
    weight, like, count = np.ones(p), lacks[others] == lacks[i], float(p)
    degrees_of_means, total = p - 1, ((y - y.mean()) ** 2).sum()

    def solved(alpha, a, y, weight, count):
        gram = (a * weight[:, None]).T @ a
        inverse = np.linalg.inv(gram + alpha * free)
        beta = inverse @ (a * weight[:, None]).T @ y
        return inverse, beta, count - np.trace(inverse @ gram), y - a @ beta

    _, _, degrees, today = solved(1e-6 * p, a, y, weight, count)
    found = [a, y, weight, count, sigma2 * p, v * p, total]
    for age, (before, then) in enumerate(reversed([(b.numpy(), t.numpy()) for b, t in earlier])):
        there, w = np.isfinite(then).all(1), 0.9**age
        zs, ys = then[there] - then[there].mean(0), before.mean(1)[there]
        rows = np.zeros((there.sum(), x.shape[1]))
        rows[:, 1 : 1 + z.shape[1]] = zs / spreads
        own = before.var(1, ddof=1).mean()
        found[0] = np.concatenate([found[0], rows])
        found[1] = np.concatenate([found[1], ys - ys.mean()])
        found[2] = np.concatenate([found[2], np.full(len(ys), w)])
        df = w * (len(ys) - 1)
        found[3] += df
        found[4] += df * own
        found[5] += df * own / before.shape[1]
        found[6] += w * ((ys - ys.mean()) ** 2).sum()
    beta = solved(1e-6 * p, *found[:4])[1]
    if ((y - a @ beta) ** 2).sum() - today @ today <= 9 * (today @ today) / max(degrees, 1):
        a, y, weight, count, sigma2, v, total = found
        sigma2, v, degrees_of_means = sigma2 / count, v / count, count - 1
        like = np.concatenate([like, np.full(len(y) - p, not lacks[i])])

    _, _, degrees, residual = solved(1e-6 * p, a, y, weight, count)
    noise = (weight * residual**2).sum() / max(degrees, 1)
    sure = 2 + 100 / max(degrees, 1) ** 2
    signal = total - degrees * noise - sure * (degrees_of_means - degrees) * noise
    alpha = 1e12 * p
    gram = (a * weight[:, None]).T @ a
    if signal > 0 and degrees >= 1:
        alpha = np.clip(noise * np.trace(gram[1:, 1:]) / signal, 1e-6 * p, 1e12 * p)
    inverse, beta, degrees, residual = solved(alpha, a, y, weight, count)
    pooled = (weight * residual**2).sum() / max(degrees, 1)
    b, w = a[like], weight[like]
    of_them = w.sum() + (0 if lacks[i] else count - weight.sum())
    own_degrees = max(of_them - np.trace(inverse @ (b * w[:, None]).T @ b), 0)
    own = ((w * residual[like] ** 2).sum() + 4 * pooled) / (own_degrees + 4)
    unexplained = min(1, pooled / (total / degrees_of_means))
    trust = 0 if lacks[i] else degrees / (degrees + 8)
    counted = degrees - (count - p) if lacks[i] else degrees
    guard = 1.2 / (1.2 + counted**0.5) * (1 - trust * (1 - unexplained))
    h = x[i] @ inverse @ x[i]
    distance = (max(0, own - v) + guard * sigma2) * (1 + h) + v * h
    v2 = sigma2 / (m - 1)
    return x[i] @ beta, v2 / (v2 + distance)


@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize(("n", "m", "k", "missing"), [(9, 2, 1, 0), (24, 4, 3, 0), (24, 3, 2, 0.3)])
def test_agrees_with_a_regression_for_each_prompt(n, m, k, missing, steps):
    rewards, covariates = made(n, m, k, missing=missing)
    batches = [made(n + 3, m + 1, k, seed=1 + step, missing=missing) for step in range(steps)]
    earlier = None
    for before, then in batches:
        earlier = remember(earlier, group_statistics(before), then)
    found = fit(group_statistics(rewards), covariates, earlier)
    for i in range(n):
        prediction, shrinkage = slow_fit(rewards, covariates, i, batches)
        assert found.prediction[i].item() == pytest.approx(prediction, abs=1e-9)
        assert found.shrinkage[i].item() == pytest.approx(shrinkage, abs=1e-9)


def test_what_earlier_steps_showed_helps_until_it_is_contradicted():
    rewards, covariates = made(16, 2, noise=0.1)
    earlier, jumped = None, None
    for seed in range(1, 9):
        before, then = made(16, 2, seed=seed, noise=0.1)
        earlier = remember(earlier, group_statistics(before), then)
        jumped = remember(jumped, group_statistics(before), 1 - then)
    alone, helped, misled = (
        fit(group_statistics(rewards), covariates, each) for each in (None, earlier, jumped)
    )
    value = covariates[:, 0]
    error, better = ((each.prediction - value).square().mean() for each in (alone, helped))
    assert better < 0.8 * error and helped.shrinkage.mean() > alone.shrinkage.mean()
    torch.testing.assert_close(misled.prediction, alone.prediction)  # slopes of the other sign
    torch.testing.assert_close(misled.shrinkage, alone.shrinkage)
    more = remember(earlier, group_statistics(rewards), covariates.expand(-1, 2))
    assert more.gram.shape == (2, 2) and more.number == 15  # other covariates begin anew
    other = fit(group_statistics(rewards), covariates, more)
    torch.testing.assert_close(other.prediction, alone.prediction)


@pytest.mark.parametrize("covariates", [None, torch.full((12, 2), NAN), torch.ones(12, 3)])
def test_is_js_plus_where_the_covariates_tell_nothing(covariates):
    rewards, _ = made(12, 4)
    ours = baseline("js_memory", rewards, covariates=covariates)
    torch.testing.assert_close(ours, baseline("js_plus", rewards), atol=1e-7, rtol=0)


def test_a_prompt_without_a_past_is_shrunk_like_its_kind():
    rewards, covariates = made(200, 4, noise=0.05)
    covariates[100:] = NAN
    shrinkage = fit(group_statistics(rewards), covariates).shrinkage
    assert shrinkage[:100].mean() > 2 * shrinkage[100:].mean()


def test_a_past_that_misleads_is_not_believed():
    rewards, covariates = made(64, 4, noise=0.05)
    other = covariates[torch.randperm(64, generator=torch.Generator().manual_seed(0))]
    ours = baseline("js_memory", rewards, covariates=other)
    assert (ours - baseline("js_plus", rewards)).abs().max() < 0.05
    assert (baseline("js_memory", rewards, covariates=1 - covariates) - rewards).var() < 0.2


@given(st.integers(2, 9), st.integers(1, 4), st.integers(0, 3), st.floats(0, 1), st.booleans())
@settings(max_examples=25)
def test_no_derivative_by_the_own_reward_and_always_finite(n, m, k, missing, ragged):
    rewards, covariates = made(n, m, max(k, 1), missing=missing)
    covariates = covariates[:, :k]
    earlier = remember(
        None, group_statistics(made(9, m, seed=1)[0]), made(9, m, max(k, 1), 1)[1][:, :k]
    )
    mask = torch.rand(n, m, generator=torch.Generator().manual_seed(n)) < 0.7 if ragged else None
    rewards = rewards.requires_grad_()

    def of(values):
        return baseline(
            "js_memory", values, mask=mask, covariates=covariates, earlier=earlier if k else None
        )

    assert of(rewards).isfinite().all()
    own = torch.autograd.functional.jacobian(of, rewards).reshape(n * m, n * m).diagonal()
    exists = torch.ones(n, m, dtype=torch.bool) if mask is None else mask
    if exists.any(1).sum() >= 2:  # else the baseline may be the reward itself
        assert (own[exists.flatten()] == 0).all()


def test_one_response_has_the_prediction_as_baseline():
    rewards, covariates = made(64, 1, noise=0.02)
    found = fit(group_statistics(rewards), covariates)
    torch.testing.assert_close(
        baseline("js_memory", rewards, covariates=covariates)[:, 0], found.prediction
    )
    assert advantage("js_memory", rewards, covariates=covariates).square().mean() < 0.7 * (
        advantage("bloo", rewards).square().mean()
    )


def test_covariates_of_another_batch_are_refused():
    with pytest.raises(ValueError, match=r"tensor \(6, k\); got \(5, 1\)"):
        baseline("js_memory", torch.zeros(6, 2), covariates=torch.zeros(5, 1))


def test_what_is_logged():
    rewards, covariates = made(64, 4, noise=0.05)
    covariates[:16] = NAN
    found = diagnostics("js_memory", rewards, covariates=covariates)
    assert found["js/memory_share"] == 0.75
    assert found["js/memory_slope"] > 0.2 and 0 < found["js/memory_error"] < 0.1
    assert found["js/baseline_mse"] < 0.9 * found["js/baseline_mse_js_plus"]


def keys(*names):
    return torch.tensor([key_of(name) for name in names])


def test_a_memory_of_one_half_life_is_a_discounted_mean():
    memory = Memory((10.0,))
    memory.update(keys("a", "b"), torch.tensor([[1.0, 1.0], [0.0, 1.0]]), None, 1)
    memory.update(keys("a", "a"), torch.tensor([[0.0, 1.0], [9.0, 1.0]]),
                  torch.tensor([[True, True], [False, True]]), 11)  # fmt: skip
    assert len(memory) == 2
    total = (0.5 * 3 + 2) / (0.5 * 4 + 3)
    past = memory._means(keys("b", "a", "new"), 21)[:, 0]
    # at step 21 what step 1 saw counts a quarter, and what step 11 saw a half
    assert past[0].item() == pytest.approx((0.25 * 1 + 2 * total) / (0.25 * 2 + 2))
    assert past[1].item() == pytest.approx((0.25 * 2 + 0.5 * 2 + 2 * total) / (0.5 + 1.5 + 2))
    assert past[2].isnan()


def test_the_half_lives_that_predict_get_the_weight():
    rng, found = np.random.default_rng(0), {}
    for name, drift in (("still", 0.0), ("moving", 0.3)):
        memory, values, every = Memory(), rng.standard_normal(64), torch.arange(64)
        for step in range(0, 800, 8):
            values = values * (1 - drift**2) ** 0.5 + drift * rng.standard_normal(64)
            rewards = values[:, None] + rng.standard_normal((64, 2))
            memory.update(every, torch.from_numpy(rewards), None, step)
        weights = memory.weights().abs()
        found[name] = float(weights[0] / weights.sum())
    assert found["moving"] > 0.7 > 0.4 > found["still"]


def test_a_prompt_takes_a_few_dozen_bytes():
    memory = Memory()
    for step in range(4):
        memory.update(torch.arange(step * 500, step * 500 + 700), torch.ones(700, 1), None, step)
    assert len(memory) == 2200
    held = sum(each.nbytes for each in memory.state().values() if each is not None)
    assert held < 36 * len(memory) + 400
    assert memory.keys.equal(torch.arange(2200)) and memory.last[:3].tolist() == [0, 0, 0]
    sums = memory.sums
    memory.update(torch.arange(700), torch.ones(700, 1), None, 4)
    assert memory.sums is sums  # a million prompts are not copied at every step


def test_a_restored_memory_goes_on_as_before():
    rng, memory = torch.Generator().manual_seed(0), Memory()
    for step in range(1, 9):
        some = torch.randint(0, 40, (16,), generator=rng)
        rewards, covariates = torch.rand(16, 3, generator=rng).split([2, 1], 1)
        memory.update(some, rewards, None, step, covariates)
    again = Memory.restored(copy.deepcopy(memory.state()))
    assert again.earlier.number > 9
    more = torch.rand(16, 2, generator=rng)
    for each in (memory, again):
        each.update(torch.arange(30, 46), more, None, 9)
    assert torch.equal(
        memory.covariate(torch.arange(50), 12).nan_to_num(-1),
        again.covariate(torch.arange(50), 12).nan_to_num(-1),
    )
