"""js_grad: against a slow second implementation, unbiased, and defined wherever it is asked."""

import itertools
import math

import pytest
import torch
from scipy.optimize import lsq_linear

from openrlhf_js.estimators import (
    LiveEstimator,
    advantage,
    baseline,
    squared_score_norms,
)
from openrlhf_js.estimators.baselines import grad
from openrlhf_js.estimators.baselines.grad import Earlier, Moments


def draw(n, m, seed=0, prompts=3):
    """Rewards of 0 and 1 and weights (n, m), the right responses with the smaller ones."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(n, 1, generator=generator, dtype=torch.float64)
    rewards = (torch.rand(n, m, generator=generator, dtype=torch.float64) < values).double()
    weights = torch.rand(n, m, generator=generator, dtype=torch.float64) * (1.2 - rewards)
    return rewards, weights


# --- a slow second implementation -----------------------------------------------------------------


def slow(rewards, weights, past=None, mask=None):
    """The baseline of every response as the module's docstring says, one number at a time.

    `past` holds what earlier steps leave: rows (w, x, z, r) that count as `prompts` prompts, the
    mean weight, t, and each prompt's sums of w and w r.
    """
    n, m = rewards.shape
    there = torch.ones(n, m, dtype=torch.bool) if mask is None else mask

    def x_of(i, j):
        others = [k for k in range(m) if k != j and there[i, k]]
        weight = sum(weights[i, k].item() for k in others)
        total = sum((weights[i, k] * rewards[i, k]).item() for k in others)
        if past is not None:
            kappa = grad.PRIOR * past["mean_weight"]
            return (total + kappa * past["t"]) / (weight + kappa)
        if not others:
            return None
        return total / weight if weight else math.fsum(rewards[i, others].tolist()) / len(others)

    def z_of(i, j):
        if past is None:
            return x_of(i, j)
        prior = grad.PRIOR
        return (past["sum_wr"][i] + prior * x_of(i, j)) / (past["sum_w"][i] + prior)

    result = torch.zeros(n, m, dtype=torch.float64)
    for i, j in itertools.product(range(n), range(m)):
        if not there[i, j]:
            continue
        rows = []
        for k in range(n):
            row = [(k, x_of(k, h), z_of(k, h), h) for h in range(m) if there[k, h] and k != i]
            rows += [(weights[k, h].item(), x, z, rewards[k, h].item(), k) for k, x, z, h in row]
        own = [weights[i, k].item() for k in range(m) if k != j and there[i, k]]
        mean_own = mean_of_positive(own)
        mean_weight = mean_of_positive([row[0] for row in rows])
        if past is not None:
            mean_weight = past["mean_weight"]
        relative = mean_own / mean_weight if mean_weight else 0.0
        result[i, j] = _slow_one(rows, x_of(i, j), z_of(i, j), past, rewards[i, j].item(), relative)
    return result


def mean_of_positive(weights):
    positive = [weight for weight in weights if weight > 0]
    return sum(positive) / len(positive) if positive else 0.0


def _slow_one(rows, x, z, past, own, relative_weight):
    everything = rows
    rows = [row for row in rows if row[1] is not None]
    of_prompt = {}
    for w, *_, k in rows:
        of_prompt[k] = of_prompt.get(k, 0.0) + w
    squares = sum(w * w for w in of_prompt.values())
    known = [(w, *row) for w, *row, _ in rows]
    if past is not None:
        known += past["rows"]
        squares += sum(row[0] ** 2 for row in past["rows"])
    total = sum(row[0] for row in known)
    scaled = [(w * total / squares, *row) for w, *row in known] if squares else []
    count = sum(w for w, *_ in scaled)
    if x is None:
        weight = sum(w for w, *_ in everything)
        if weight:
            return sum(w * r for w, _, _, r, _ in everything) / weight
        means = {}
        for _, _, _, r, k in everything:
            means.setdefault(k, []).append(r)
        return sum(sum(v) / len(v) for v in means.values()) / len(means) if means else own
    if not count:
        return x
    mean = [sum(row[0] * row[c] for row in scaled) / count for c in (1, 2, 3)]

    def sum_of(a, b):
        """Of products of two columns about their means."""
        return sum(row[0] * (row[a] - mean[a - 1]) * (row[b] - mean[b - 1]) for row in scaled)

    left = torch.tensor([[sum_of(a, b) for b in (1, 2)] for a in (1, 2)], dtype=torch.float64)
    right = torch.tensor([sum_of(a, 3) for a in (1, 2)], dtype=torch.float64)
    distances = torch.tensor([x - mean[0], z - mean[1]], dtype=torch.float64)
    rloo_prompts = grad.RLOO_PROMPTS * relative_weight
    left += rloo_prompts * torch.outer(distances, distances)
    right += rloo_prompts * distances * (x - mean[0])
    varies = left.diagonal() > 1e-12
    varies[1] &= torch.linalg.det(left) > 1e-9 * left.diagonal().prod()
    slopes = torch.tensor([1.0, 0.0], dtype=torch.float64)
    if varies.any():
        root = torch.linalg.cholesky(left[varies][:, varies])
        target = torch.linalg.solve(root, right[varies])
        fitted = lsq_linear(root.T.numpy(), target.numpy(), bounds=(0, 1), method="bvls", tol=1e-14)
        slopes[varies] = torch.from_numpy(fitted.x)
    return mean[2] + slopes[0].item() * (x - mean[0]) + slopes[1].item() * (z - mean[1])


HOLES = torch.tensor([[0, 0, 0], [0, 1, 0], [1, 1, 0], [0, 1, 1], [1, 1, 1]], dtype=torch.bool)


ROWS = [(4.0, 0.2, 0.1, 0.0), (3.0, 0.9, 0.4, 1.0), (5.0, 0.4, 0.9, 0.5)]  # w, x, z, r


def earlier(n, seed=0, rows=ROWS):
    """What earlier steps tell, as js_grad takes it and as the slow implementation does."""
    generator = torch.Generator().manual_seed(seed)
    sum_w = torch.rand(n, generator=generator, dtype=torch.float64) * 3
    sum_wr = sum_w * torch.rand(n, generator=generator, dtype=torch.float64)
    origin = 0.3
    moments = torch.zeros(4, 4, dtype=torch.float64)
    for w, x, z, r in rows:
        row = torch.tensor([1.0, x - origin, z - origin, r - origin], dtype=torch.float64)
        moments += w * row[:, None] * row
    past = Earlier(
        origin=torch.tensor(origin, dtype=torch.float64),
        moments=Moments(moments, torch.tensor(sum(row[0] ** 2 for row in rows)).double()),
        mean_weight=torch.tensor(0.7, dtype=torch.float64),
        past_weight=sum_w,
        past_reward=sum_wr,
    )
    weight = sum(row[0] for row in rows)
    t = sum(row[0] * row[3] for row in rows) / weight
    known = dict(rows=rows, mean_weight=0.7, t=t, sum_w=sum_w.tolist(), sum_wr=sum_wr.tolist())
    return past, known


FIRST_STEPS = [(1, 3, None), (2, 2, None), (3, 5, None), (12, 2, None), (9, 1, None), (5, 3, HOLES)]
LATER_STEPS = [(1, 1), (1, 3), (2, 2), (8, 1), (6, 4)]


@pytest.mark.parametrize(("n", "m", "mask"), FIRST_STEPS)
def test_agrees_with_the_slow_oracle(n, m, mask):
    for seed in range(3):
        rewards, weights = draw(n, m, seed)
        got = baseline("js_grad", rewards, squared_score_norms=weights, mask=mask)
        seen = weights if mask is None else weights * mask
        torch.testing.assert_close(got, slow(rewards, seen, mask=mask), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("n", "m"), LATER_STEPS)
def test_agrees_with_the_slow_oracle_after_earlier_steps(n, m):
    for seed in range(3):
        rewards, weights = draw(n, m, seed)
        past, known = earlier(n, seed)
        got = baseline("js_grad", rewards, squared_score_norms=weights, past=past)
        torch.testing.assert_close(got, slow(rewards, weights, known), rtol=0, atol=1e-12)


# --- what it is for -------------------------------------------------------------------------------


def logged(live, rewards, **inputs):
    batch = live.batch(rewards, **inputs)
    return live.describe(batch, live.estimate(batch))


def test_with_equal_weights_its_slope_is_one_minus_the_shrinkage_coefficient():
    """alpha estimates s2 / (s2 + v2): of values with variance 1 and rewards with variance 2."""
    generator = torch.Generator().manual_seed(1)
    noise = 2**0.5 * torch.randn(4000, 5, generator=generator, dtype=torch.float64)
    rewards = torch.randn(4000, 1, generator=generator, dtype=torch.float64) + noise
    slope = logged(LiveEstimator("js_grad"), rewards)["js/slope_group"]
    assert slope == pytest.approx(1 / (1 + 2 / 4), abs=0.03)


@pytest.mark.parametrize("returning", [0, 1, 4])
def test_a_few_prompts_that_come_again_do_not_make_the_others_noisy(returning):
    """All pass at one rate, so that the best baseline is 1/2 for all."""
    errors = []
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        live = LiveEstimator("js_grad")
        for step in range(4):
            keys = torch.arange(32) + 32 * step
            if step == 3:
                keys[:returning] = torch.arange(returning)
            rewards = (torch.rand(32, 2, generator=generator) < 0.5).double()
            weights = torch.ones(32, 2)
            batch = live.batch(rewards, squared_score_norms=weights, keys=keys, step=step)
            if step == 3:
                errors.append(live.estimate(batch).baseline[returning:] - 0.5)
            live.learn(batch)
    assert torch.cat(errors).square().mean() < 0.01  # rloo's is 0.25


@pytest.mark.parametrize("m", [1, 2])
def test_the_past_of_a_prompt_is_used_as_far_as_it_tells(m):
    values = torch.linspace(0, 1, 64, dtype=torch.float64)
    keys = torch.arange(64)
    useful, useless = LiveEstimator("js_grad"), LiveEstimator("js_grad")
    generator = torch.Generator().manual_seed(3)
    for step in range(12):
        uniform = torch.rand(64, m, generator=generator, dtype=torch.float64)
        rewards = (uniform < values[:, None]).double()
        last = useful.batch(rewards, keys=keys, step=step), rewards
        useful.learn(last[0])
        shuffled = keys[torch.randperm(64, generator=generator)]
        unhelped = useless.batch(rewards, keys=shuffled, step=step)
        useless.learn(unhelped)
    batch, rewards = last
    error = (useful.estimate(batch).baseline - values[:, None]).square().mean()
    worst = (useless.estimate(unhelped).baseline - values[:, None]).square().mean()
    without = values.var(unbiased=False) if m == 1 else 0.05
    assert error < 0.03
    assert worst < 1.25 * without


# --- unbiased -------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [2, 3])
def test_the_gradient_is_exactly_unbiased_with_a_past(m, gradient_error):
    """test_estimators_unbiased.py has the first step."""
    assert gradient_error("js_grad", m, earlier(3)[0]) < 1e-12


@pytest.mark.parametrize("mask", [torch.ones_like(HOLES), HOLES], ids=["whole", "masked"])
@pytest.mark.parametrize("steps", ["first step", "with a past"])
def test_nothing_of_the_own_response_leaves_a_trace_in_floating_point(steps, mask):
    past = None if steps == "first step" else earlier(5)[0]
    rewards, weights = (values.float() for values in draw(5, 3))

    def baselines(rewards, weights):
        return baseline("js_grad", rewards, squared_score_norms=weights, mask=mask, past=past)

    before = baselines(rewards, weights)
    for i, j in mask.nonzero().tolist():
        other_rewards, other_weights = rewards.clone(), weights.clone()
        other_rewards[i, j] = 1e6
        other_weights[i, j] = 1e3
        assert torch.equal(baselines(other_rewards, other_weights)[i, j], before[i, j])


def test_the_enumeration_sees_a_bias(monkeypatch, gradient_error):
    """Means and slopes of all prompts, in place of the others', are found out."""
    of_others = grad.sum_of_others

    def of_all_prompts(values, dim):
        return values.sum(0, keepdim=True).expand_as(values) if dim == 0 else of_others(values, dim)

    monkeypatch.setattr(grad, "sum_of_others", of_all_prompts)
    assert gradient_error("js_grad", 2) > 1e-3


# --- rewards and weights on other scales ----------------------------------------------------------


def stream(steps, n=6, m=3, scale=1.0, shift=0.0, factor=1.0, keys=True):
    """The last step's baselines after a few steps, and what is remembered."""
    live = LiveEstimator("js_grad")
    for step in range(steps):
        rewards, weights = draw(n, m, step)
        batch = live.batch(
            scale * rewards + shift,
            squared_score_norms=factor * weights,
            keys=torch.arange(n) + 2 * (step % 2) if keys else None,
            step=step,
        )
        last = live.estimate(batch).baseline
        live.learn(batch)
    return last


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_rewards_on_another_scale_and_a_common_factor_of_the_weights(steps):
    plain = stream(steps)
    moved = stream(steps, scale=3.5, shift=-1e6)
    torch.testing.assert_close(moved, 3.5 * plain - 1e6, rtol=0, atol=1e-8)
    torch.testing.assert_close(stream(steps, scale=-2), -2 * plain, rtol=0, atol=1e-12)
    for factor in (1e-9, 7e8):
        torch.testing.assert_close(stream(steps, factor=factor), plain, rtol=0, atol=1e-9)


# --- odd batches ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rewards", "norms", "expected"),
    [
        # one prompt: the weighted mean of its other responses
        ([[1.0, 0.0, 1.0]], [[1.0, 3.0, 2.0]], [[0.4, 1.0, 0.25]]),
        # one response a prompt: the weighted mean of the other prompts
        ([[1.0], [0.0], [1.0]], [[1.0], [3.0], [2.0]], [[0.4], [1.0], [0.25]]),
        # alone: its own reward
        ([[0.7]], [[2.0]], [[0.7]]),
    ],
)
def test_a_small_first_batch(rewards, norms, expected):
    got = baseline("js_grad", rewards, squared_score_norms=norms)
    torch.testing.assert_close(got, torch.tensor(expected))


def test_weights_of_0_are_as_if_the_response_were_not_there():
    rewards, weights = draw(5, 4)
    weights[:, 3] = 0
    got = baseline("js_grad", rewards, squared_score_norms=weights)[:, :3]
    want = baseline("js_grad", rewards[:, :3], squared_score_norms=weights[:, :3])
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("steps", [1, 3])
def test_a_batch_of_weights_of_0_is_defined(m, steps):
    live = LiveEstimator("js_grad")
    for step in range(steps):
        rewards = draw(5, m, step)[0]
        batch = live.batch(rewards, squared_score_norms=torch.zeros(5, m), step=step)
        assert live.estimate(batch).advantages.isfinite().all()
        live.learn(batch)
    if m == 3:
        want = baseline("rloo", rewards)
        torch.testing.assert_close(live.estimate(batch).baseline, want, rtol=0, atol=1e-12)


def test_groups_of_different_sizes_and_masked_responses_after_earlier_steps():
    live = LiveEstimator("js_grad")
    generator = torch.Generator().manual_seed(5)
    for step in range(20):
        rewards, weights = draw(5, 3, step)
        mask = torch.rand(5, 3, generator=generator) < 0.6
        batch = live.batch(rewards, squared_score_norms=weights, mask=mask, step=step)
        result = live.estimate(batch)
        assert result.advantages.isfinite().all()
        assert (result.advantages[~mask] == 0).all()
        live.learn(batch)


def test_nothing_valid_teaches_nothing():
    live = LiveEstimator("js_grad")
    nothing = live.batch(torch.ones(3, 2), mask=torch.zeros(3, 2, dtype=torch.bool))
    live.learn(nothing)
    assert live.batch(torch.ones(3, 2)).past is None


@pytest.mark.parametrize(("n", "m"), [(1, 1), (16, 2)])
def test_steps_of_few_prompts_are_weighed_against_one_another(n, m):
    """Right responses of weight 1, wrong ones of weight 9, even odds: the best constant is 0.1."""
    live = LiveEstimator("js_grad")
    generator = torch.Generator().manual_seed(9)
    baselines = []
    for step in range(1200 // n):
        rewards = torch.randint(0, 2, (n, m), generator=generator).double()
        batch = live.batch(rewards, squared_score_norms=9 - 8 * rewards, step=step)
        baselines.append(live.estimate(batch).baseline.mean())
        live.learn(batch)
    assert torch.stack(baselines[20:]).mean().item() == pytest.approx(0.1, abs=0.02)


def test_the_order_of_prompts_does_not_matter():
    """Without keys z is x, and tells nothing, whatever the rounding."""
    order = torch.tensor([1, 2, 0])
    for seed in range(50):
        live, reordered = LiveEstimator("js_grad"), LiveEstimator("js_grad")
        for step in range(2):
            generator = torch.Generator().manual_seed(10 * seed + step)
            rewards, weights = torch.rand(2, 3, 2, generator=generator, dtype=torch.float64)
            batch = live.batch(rewards, squared_score_norms=weights)
            other = reordered.batch(rewards[order], squared_score_norms=weights[order])
            expected = live.estimate(batch).baseline[order]
            torch.testing.assert_close(reordered.estimate(other).baseline, expected)
            live.learn(batch)
            reordered.learn(other)


def test_batches_may_be_learnt_later_than_others_are_estimated():
    """As asynchronous trainers do: three batches are recalled before the first is learnt."""
    live = LiveEstimator("js_grad")
    waiting = []
    for step in range(12):
        rewards, weights = draw(6, 2, step)
        batch = live.batch(100 + rewards, squared_score_norms=weights, step=step)
        before = live.estimate(batch).baseline
        waiting.append((batch, before))
        if len(waiting) > 3:
            learnt, estimated = waiting.pop(0)
            live.learn(learnt)
            assert torch.equal(live.estimate(learnt).baseline, estimated)
    assert (before > 99).all()
    assert (before < 102).all()


# --- what a run keeps -----------------------------------------------------------------------------


def test_a_prompt_twice_in_a_batch_adds_both_groups_to_its_past():
    live = LiveEstimator("js_grad")
    keys = torch.tensor([5, 5])
    live.learn(live.batch([[1.0, 0.0], [1.0, 1.0]], keys=keys, step=0))
    past = live.batch([[0.0, 0.0], [0.0, 0.0]], keys=keys, step=1).past
    assert past.past_weight.tolist() == [4, 4]
    assert past.past_reward.tolist() == [3, 3]


# --- its inputs -----------------------------------------------------------------------------------


def test_no_gradient_flows_through_an_advantage():
    log_probs = torch.tensor([[-0.1, -0.2], [-0.3, -2.0]], requires_grad=True)
    rewards = torch.tensor([1.0, 0.0], requires_grad=True)
    norms = squared_score_norms(log_probs, torch.ones(2, 2))
    own_norms = (log_probs**2).sum(1)
    for weights in (norms, own_norms):
        found = advantage("js_grad", rewards, groups=[0, 0], squared_score_norms=weights)
        assert not found.requires_grad
    live = LiveEstimator("js_grad")
    live.learn(live.batch(rewards[None], squared_score_norms=own_norms[None]))
    assert not live.state_dict()["moments"].requires_grad


def test_squared_score_norms_by_hand():
    log_probs = torch.tensor([[0.5, 0.25, 0.1], [1.0, 0.5, 0.5]]).log()
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    got = squared_score_norms(log_probs, mask)
    torch.testing.assert_close(got, torch.tensor([0.8125, 0.5]).double())
    mean = squared_score_norms(log_probs, mask, mean_over_tokens=True)
    torch.testing.assert_close(mean, torch.tensor([0.8125 / 4, 0.5 / 9]).double())
    assert squared_score_norms(torch.full((1, 2), math.nan), torch.zeros(1, 2)).tolist() == [0.0]


@pytest.mark.parametrize(
    ("norms", "message"),
    [
        ([[1.0, 2.0]], "have the rewards' shape"),
        ([[1.0, -1.0], [1.0, 1.0]], "finite and not negative"),
        ([[1.0, math.nan], [1.0, 1.0]], "finite and not negative"),
    ],
)
def test_norms_and_lengths_that_do_not_fit_are_refused(norms, message):
    for name, inputs in (("js_grad", "squared_score_norms"), ("opo", "lengths")):
        with pytest.raises(ValueError, match=f"{inputs} must .*{message}"):
            baseline(name, [[1.0, 0.0], [0.0, 0.0]], **{inputs: norms})


def test_masked_norms_may_be_anything():
    masked = dict(squared_score_norms=[[1.0, math.nan], [1.0, 2.0]])
    masked["mask"] = torch.tensor([[True, False], [True, True]])
    assert baseline("js_grad", [[1.0, math.nan], [0.0, 1.0]], **masked).isfinite().all()


def test_flat_rewards_take_flat_norms():
    got = baseline(
        "js_grad", [1, 0, 0, 1], groups=["a", "b", "a", "b"], squared_score_norms=[1, 2, 3, 4]
    )
    want = baseline("js_grad", [[1, 0], [0, 1]], squared_score_norms=[[1, 3], [2, 4]])
    torch.testing.assert_close(got, torch.stack([want[0, 0], want[1, 0], want[0, 1], want[1, 1]]))


def test_gradient_noise_by_hand():
    """rloo: advantages 1, -1 and 0, 0; no baseline: the rewards."""
    rewards = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    norms = torch.tensor([[1.0, 3.0], [2.0, 2.0]])
    live = LiveEstimator("no_baseline")
    values = logged(live, rewards, squared_score_norms=norms)
    assert values["js/gradient_noise_vs_rloo"] == pytest.approx(5 / 4)
    assert values["js/weight_right_over_wrong"] == pytest.approx((5 / 3) / 3)
    assert logged(LiveEstimator("rloo"), rewards, squared_score_norms=norms)[
        "js/gradient_noise_vs_rloo"
    ] == pytest.approx(1)
    assert "js/gradient_noise_vs_rloo" not in logged(live, rewards)


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([[1.0, 0.0], [0.0, 0.0]], 1 / ((3 + 2 + 2) / 3)),
        ([[5.0, -1.0], [-1.0, -1.0]], 1 / ((3 + 2 + 2) / 3)),  # any two values
        ([[1.0, 0.25], [0.0, 0.0]], None),  # graded: nothing says what is right
        ([[0.3, -1.2], [2.5, 0.7]], None),  # a reward model's
        ([[1.0, 1.0], [1.0, 1.0]], None),
    ],
)
def test_right_and_wrong_are_told_apart_where_rewards_have_two_values(rewards, expected):
    norms = torch.tensor([[1.0, 3.0], [2.0, 2.0]])
    values = logged(LiveEstimator("rloo"), torch.tensor(rewards), squared_score_norms=norms)
    ratio = values.get("js/weight_right_over_wrong")
    assert ratio == (expected and pytest.approx(expected))
