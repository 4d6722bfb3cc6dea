from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openrlhf_js.plugin.gradient_moments import HALF_LIFE, GradientMoments, GradientSums, NoiseScale


def sums_of(contributions, sizes) -> GradientSums:
    h, n = np.asarray(contributions, float), np.asarray(sizes)
    return GradientSums((h**2).sum(), (h.sum(0) ** 2).sum(), int(n.sum()), int((n**2).sum()))


def test_three_equal_micro_batches_by_hand():
    # g_i = 3 h_i = (3, 0), (0, 3), (6, 3); their mean (3, 2); squared distances 4, 10, 10
    moments = sums_of([(1, 0), (0, 1), (2, 1)], [4, 4, 4]).moments()
    assert moments.variance == pytest.approx((4 + 10 + 10) / (3 * 2))
    assert moments.mean_square == pytest.approx(9 + 4 - 4)


def test_one_micro_batch_has_no_variance():
    assert sums_of([(1, 2)], [8]).moments() is None


@given(st.lists(st.tuples(*[st.floats(-9, 9)] * 3), min_size=2, max_size=6), st.integers(1, 5))
def test_equal_micro_batches_give_the_papers_estimator(contributions, size):
    m = len(contributions)
    g = m * np.array(contributions)
    centred = sum(((g_i - g.mean(0)) ** 2).sum() for g_i in g) / (m * (m - 1))
    moments = sums_of(contributions, [size] * m).moments()
    assert moments.variance == pytest.approx(centred, abs=1e-9)
    # and E |g|^2 = Var(g) + |E g|^2 holds for what is estimated, too
    assert sum(moments) == pytest.approx((g.mean(0) ** 2).sum(), abs=1e-9)


# --- a policy small enough to enumerate ---------------------------------------------------------

LOGITS = np.array([[0.3, -0.5, 0.9], [1.2, 0.1, -0.4]])  # (prompts, actions)
REWARDS = np.array([[1.0, 0.0, 0.2], [0.0, 1.0, 0.5]])
POLICY = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)


def score(prompt: int, action: int) -> np.ndarray:
    """d log pi(action | prompt) / d logits, flat."""
    gradient = np.zeros_like(LOGITS)
    gradient[prompt] = np.eye(3)[action] - POLICY[prompt]
    return gradient.ravel()


def prompt_groups(responses: int):
    """Every prompt group with its probability and its gradient with leave-one-out baselines."""
    for prompt in range(2):
        for actions in itertools.product(range(3), repeat=responses):
            rewards = REWARDS[prompt, list(actions)]
            baselines = (rewards.sum() - rewards) / max(responses - 1, 1) * (responses > 1)
            gradients = [
                (r - b) * score(prompt, a)
                for r, b, a in zip(rewards, baselines, actions, strict=True)
            ]
            yield 0.5 * POLICY[prompt, list(actions)].prod(), np.mean(gradients, axis=0)


def exactly(batches):
    """Var(g), |E g|^2 and the expectations of their estimates, over (probability, h, sizes)."""
    batches = list(batches)
    p = np.array([probability for probability, *_ in batches])
    g = np.array([np.sum(h, axis=0) for _, h, _ in batches])
    assert p.sum() == pytest.approx(1)
    mean = p @ g
    found = np.array([sums_of(h, sizes).moments() for _, h, sizes in batches])
    return (p @ ((g - mean) ** 2).sum(1), (mean**2).sum()), p @ found


@pytest.mark.parametrize("micro_batches", [2, 3])
def test_unbiased_over_all_batches_of_whole_prompt_groups(micro_batches):
    def batches():
        for groups in itertools.product(prompt_groups(2), repeat=micro_batches):
            probability = np.prod([p for p, _ in groups])
            yield probability, [g / micro_batches for _, g in groups], [2] * micro_batches

    exact, expected = exactly(batches())
    assert exact[0] > 0.01 and exact[1] > 0.01
    np.testing.assert_allclose(expected, exact, rtol=1e-12)


def test_unbiased_over_all_batches_whose_micro_batches_differ_in_size():
    sizes = (1, 3)

    def batches():
        for drawn in itertools.product(prompt_groups(1), repeat=sum(sizes)):
            probability = np.prod([p for p, _ in drawn])
            gradients = np.array([g for _, g in drawn]) / sum(sizes)
            yield probability, [gradients[:1].sum(0), gradients[1:].sum(0)], sizes

    exact, expected = exactly(batches())
    np.testing.assert_allclose(expected, exact, rtol=1e-12)


def test_responses_of_a_prompt_in_two_micro_batches_hide_variance_between_prompts():
    # 2 prompt groups of 2 independent responses, shuffled into 2 micro-batches of 2: the variance
    # between prompts, t, counts as docs/gradient_variance.md says
    n = m = b = 2
    total = n * m
    by_prompt = [[(POLICY[i, a], REWARDS[i, a] * score(i, a)) for a in range(3)] for i in (0, 1)]
    means = np.array([sum(p * g for p, g in actions) for actions in by_prompt])
    between = ((means - means.mean(0)) ** 2).sum(1).mean()
    within = np.mean(
        [
            sum(p * ((g - mu) ** 2).sum() for p, g in a)
            for a, mu in zip(by_prompt, means, strict=True)
        ]
    )
    splits = [split for split in itertools.permutations(range(total)) if split[0] < split[1]]

    def batches():
        for prompts in itertools.product(range(2), repeat=n):
            drawn = itertools.product(*[by_prompt[i] for i in prompts for _ in range(m)])
            for responses in drawn:
                probability = 0.5**n * np.prod([p for p, _ in responses]) / len(splits)
                s = np.array([g for _, g in responses]) / total
                for split in splits:
                    yield (
                        probability,
                        [s[list(split[:b])].sum(0), s[list(split[b:])].sum(0)],
                        [b, b],
                    )

    (variance, _), (expected, _) = exactly(batches())
    assert variance == pytest.approx(between / n + within / total)
    together = (b - 1) / (total - 1)  # the chance that two responses share a micro-batch
    share = (1 + together * (m - 1) - b * m / total) / (1 - b / total)
    assert expected == pytest.approx(share * between / total + within / total)
    assert expected < variance


def test_the_noise_scale_divides_running_means():
    scale = NoiseScale()
    steady = GradientMoments(variance=0.5, mean_square=0.25)
    assert scale.update(steady, 16) == pytest.approx(16 * 0.5 / 0.25)
    assert scale.update(steady, 16) == pytest.approx(32)
    for _ in range(HALF_LIFE):
        after = scale.update(GradientMoments(0.5, 0.75), 16)
    weight = 0.5  # of all that came before, one half-life ago
    old = 1 - 0.5 ** (2 / HALF_LIFE)  # the weight that two measurements had by then
    expected = 16 * 0.5 * (weight * old + 1 - weight) / (weight * old * 0.25 + (1 - weight) * 0.75)
    assert after == pytest.approx(expected)


def test_there_is_no_noise_scale_without_a_mean_or_without_noise():
    assert NoiseScale().update(GradientMoments(1.0, -0.1), 8) is None
    assert NoiseScale().update(GradientMoments(0.0, 1.0), 8) is None
    assert NoiseScale().update(GradientMoments(0.0, 0.0), 8) is None
