import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from openrlhf_js.estimators import ESTIMATORS, baseline
from openrlhf_js.lab import simulate as module
from openrlhf_js.lab import values as v
from openrlhf_js.lab.simulate import BATCH_ORACLE, LEFT_OUT, NAMES, best_coefficient, draw, simulate

SKEWED = v.gaussian_rewards(v.two_point(0, 2, 0.3), 1.5, 0.4)
ARCSINE = v.beta(0.5, 0.5)


def errors_of(found, name):
    return found.squared_errors[NAMES.index(name)]


def test_every_estimator_is_there_or_it_is_said_why():
    assert set(ESTIMATORS) == set(NAMES) - {BATCH_ORACLE} | set(LEFT_OUT)
    assert list(LEFT_OUT) == ["remax"]


def test_by_hand(monkeypatch):
    rewards = np.array([[[1.0, 0.0], [1.0, 1.0]]])
    monkeypatch.setattr(module, "draw", lambda *_: (np.array([[0.5, 0.75]]), rewards))
    monkeypatch.setattr(module, "CHUNK_REWARDS", 1)  # one batch at a time
    monkeypatch.setattr(module, "best_coefficient", lambda *_: 0.25)
    found = simulate(ARCSINE, 2, 2, 2, 0)
    expected = {
        "reinforce": (0.5**2 + 0.75**2) / 2,
        "rloo": (0.5**2 + 0.25**2) / 2,  # 0 and 1; 1 and 1
        "bloo": (0.5**2 + 0.25**2) / 2,  # 1; 0.5
        "dr_grpo": (0 + 0.25**2) / 2,
        "grpo": (0 + 0.25**2) / 2,
        "reinforce++": (0.25**2 + 0) / 2,
        "js_fixed": ((0.25**2 + 0.5**2) / 2 + 0.125**2) / 2,  # 0.25 and 1; 0.875 and 0.875
    }
    for name, error in expected.items():
        np.testing.assert_allclose(errors_of(found, name), [error, error], err_msg=name)
    # rloo - value: -0.5, 0.5, 0.25, 0.25; bloo - rloo: 1, 0, -0.5, -0.5.
    best = (0.5 + 2 * 0.125) / (1 + 2 * 0.25)
    np.testing.assert_allclose(found.shrinkage[NAMES.index(BATCH_ORACLE)], best)
    np.testing.assert_allclose(found.shrinkage[NAMES.index("js_fixed")], 0.25)
    assert np.isnan(found.shrinkage[NAMES.index("rloo")]).all()


@pytest.mark.parametrize("values", [ARCSINE, SKEWED], ids=lambda values: values.title)
@pytest.mark.parametrize(("n", "m"), [(2, 2), (5, 3), (16, 4)])
def test_errors_are_those_of_one_batch_after_the_other(values, n, m, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_REWARDS", 3 * n * m)
    found = simulate(values, n, m, 5, seed=7)
    generator = np.random.default_rng([7, n, m])
    drawn = [draw(values, generator, n, m, size) for size in (3, 2)]
    value, rewards = (np.concatenate(each) for each in zip(*drawn, strict=True))
    for name in set(NAMES) - {BATCH_ORACLE}:
        known = {"shrinkage": best_coefficient(values, n, m)} if name == "js_fixed" else {}
        for b in range(5):
            guess = baseline(name, torch.from_numpy(rewards[b]), **known).numpy()
            slow = np.mean([(guess[i, j] - value[b, i]) ** 2 for i in range(n) for j in range(m)])
            np.testing.assert_allclose(errors_of(found, name)[b], slow, atol=1e-14, err_msg=name)


@pytest.mark.parametrize(
    "values", [ARCSINE, v.logit_normal(-1, 1.5), SKEWED], ids=lambda values: values.title
)
def test_errors_without_shrinkage_are_those_of_theory(values):
    n, m, rounds = 8, 4, 3000
    found = simulate(values, n, m, rounds, seed=0)
    expected = {
        "reinforce": values.s2 + values.mean**2,
        "rloo": values.sigma2 / (m - 1),
        "bloo": values.s2 * (1 + 1 / (n - 1)) + values.sigma2 / m / (n - 1),
        "dr_grpo": values.sigma2 / m,
        "reinforce++": ((n - 1) * values.s2 + values.sigma2 / m) / n,
    }
    best = best_coefficient(values, n, m)
    expected["js_fixed"] = (1 - best) ** 2 * expected["rloo"] + best**2 * expected["bloo"]
    for name, error in expected.items():
        measured = errors_of(found, name)
        assert measured.mean() == pytest.approx(error, abs=4 * measured.std() / rounds**0.5), name


@settings(deadline=None)
@given(st.floats(0, 2), st.floats(0.01, 2), st.integers(2, 50), st.integers(2, 20))
def test_the_error_rises_alike_on_both_sides_of_the_best_coefficient(s2, sigma2, n, m):
    values = v.gaussian_rewards(v.normal(0, s2**0.5), sigma2**0.5)

    def error(weight):
        batch = s2 * n / (n - 1) + sigma2 / m / (n - 1)
        return (1 - weight) ** 2 * sigma2 / (m - 1) + weight**2 * batch

    best = best_coefficient(values, n, m)
    assert 0 <= best <= 1
    assert error(best) < error(best + 0.1) == pytest.approx(error(best - 0.1))


def test_the_oracle_of_the_batch_is_never_beaten_by_a_constant():
    found = simulate(ARCSINE, 8, 2, 200, seed=0)
    least = errors_of(found, BATCH_ORACLE)
    for name in ("rloo", "bloo", "js_fixed"):
        assert (least <= errors_of(found, name) + 1e-12).all()
    weight = found.shrinkage[NAMES.index(BATCH_ORACLE)]
    assert (weight >= 0).all() and (weight <= 1).all()
    assert weight.std() > 0.01


def test_the_seed_decides_the_draws():
    first, again, other = (simulate(ARCSINE, 6, 2, 6, seed).squared_errors for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_progress_counts_batches(monkeypatch):
    monkeypatch.setattr(module, "CHUNK_REWARDS", 4 * 6 * 2)
    seen = []
    simulate(ARCSINE, 6, 2, 10, 0, seen.append)
    assert seen == [4, 8, 10]


@pytest.mark.parametrize(
    ("n", "m", "rounds", "message"),
    [
        (1, 2, 2, "at least 2 prompts in a batch"),
        (2, 1, 2, "at least 2 responses to a prompt"),
        (2, 2, 1, "at least 2 rounds"),
    ],
)
def test_too_few_of_anything_is_refused(n, m, rounds, message):
    with pytest.raises(ValueError, match=message):
        simulate(ARCSINE, n, m, rounds, 0)


def test_values_without_noise_are_refused():
    with pytest.raises(ValueError, match="every reward equals its value"):
        simulate(v.two_point(0, 1, 0.5), 4, 2, 2, 0)
