"""Distributions of values, and simulated errors against theory and the known reductions."""

import numpy as np
import pytest
import torch

from openrlhf_js.estimators import baseline
from openrlhf_js.lab import simulate as v
from openrlhf_js.lab.simulate import best_coefficient, draw, measure, names_of, simulate

SKEWED = v.gaussian_rewards(v.two_point(0, 2, 0.3), 1.5)
ARCSINE = v.beta(0.5, 0.5)
DRAWS = 200_000


def by_title(values):
    return values.title


@pytest.mark.parametrize(
    "values",
    [
        v.beta(5, 2),
        v.two_point(0.1, 0.9, 0.3),
        v.normal(2, 3),
    ],
    ids=by_title,
)
def test_the_moments_are_those_of_the_draws(values):
    drawn = values.draw(np.random.default_rng(0), (DRAWS // 2, 2))
    assert drawn.shape == (DRAWS // 2, 2)
    error = np.sqrt(values.s2 / DRAWS)
    assert drawn.mean() == pytest.approx(values.mean, abs=4 * error + 1e-12)
    squares = (drawn - values.mean) ** 2
    error = squares.std() / np.sqrt(DRAWS)
    assert squares.mean() == pytest.approx(values.s2, abs=4 * error + 1e-12)
    noise = (drawn * (1 - drawn)).mean()
    assert noise == pytest.approx(values.sigma2, abs=0.005 * (1 + abs(noise)))


def errors_of(found, name):
    return found[0][names_of(0).index(name)]


@pytest.mark.parametrize("values", [ARCSINE, SKEWED], ids=by_title)
@pytest.mark.parametrize(("n", "m"), [(2, 2), (5, 3)])
def test_errors_are_those_of_one_batch_after_the_other(values, n, m, monkeypatch):
    monkeypatch.setattr(v, "CHUNK_REWARDS", 3 * n * m)
    seen = []
    found = measure(values, n, m, 5, 7, advance=seen.append)
    assert seen == [3, 2]
    generator = np.random.default_rng([7, n, m])
    drawn = [draw(values, generator, n, m, size) for size in (3, 2)]
    value, rewards = (np.concatenate(each) for each in zip(*drawn, strict=True))
    for name in names_of(0):
        known = {"shrinkage": best_coefficient(values, n, m)} if name == "js_fixed" else {}
        for b in range(5):
            guess = baseline(name, torch.from_numpy(rewards[b]), **known).numpy()
            slow = np.mean([(guess[i, j] - value[b, i]) ** 2 for i in range(n) for j in range(m)])
            np.testing.assert_allclose(errors_of(found, name)[b], slow, atol=1e-14, err_msg=name)


def test_the_known_reductions_and_what_the_oracle_reaches():
    found = simulate(ARCSINE, 64, (2, 4, 8), 600, seed=0)
    rows = {(row["m"], row["estimator"], row["quantity"]): row for row in found.summary()["rows"]}
    for name, expected in {"js": (36.7, 21.7, 11.7), "js_plus": (47.4, 23.7, 11.9)}.items():
        for m, percent in zip((2, 4, 8), expected, strict=True):
            each = rows[m, name, "reduction_percent"]
            assert each["value"] == pytest.approx(percent, abs=1.0)
            assert each["low"] < each["value"] < each["high"] < each["low"] + 2
    for m in (2, 4, 8):
        best = best_coefficient(ARCSINE, 64, m)
        assert rows[m, "js_fixed", "shrinkage"]["value"] == pytest.approx(best)
        assert rows[m, "js_fixed", "reduction_percent"]["value"] == pytest.approx(
            100 * best, abs=1.0
        )
    assert rows[2, "rloo", "mse"]["value"] == pytest.approx(0.125, rel=0.02)
    assert found.arrays["squared_errors"].shape == (3, len(names_of(0)), 600)
    assert found.caption.startswith("Bernoulli, values Beta(0.5, 0.5): 600 batches of 64 prompts;")
    assert found.notes["gradients"]["js_fixed"] == "oracle"


def test_one_earlier_visit_tells_more_than_any_constant_coefficient():
    found = simulate(ARCSINE, 64, (2, 8), 200, seed=0, visits=1)
    rows = {(row["m"], row["estimator"]): row for row in found.summary()["rows"]
            if row["quantity"] == "reduction_percent"}  # fmt: skip
    for m, expected in ((2, 71), (8, 52)):
        assert rows[m, "js_memory"]["value"] == pytest.approx(expected, abs=2)
        assert rows[m, "js_memory"]["low"] > rows[m, "js_fixed"]["high"] + 15


@pytest.mark.parametrize(
    ("text", "title"),
    [("beta:1,1", "Beta(1, 1)"), ("two_point:0.1,0.9,0.3", "0.1 or 0.9 (share 0.3)")],
)
def test_a_flag_names_its_distribution(text, title):
    assert v.parse(text).title == f"Bernoulli, values {title}"


@pytest.mark.parametrize("text", ["gamma:1,2", "beta:1", "beta:1,inf", "normal:1,x"])
def test_values_that_do_not_exist(text):
    with pytest.raises(ValueError, match="give "):
        v.parse(text)


def test_what_cannot_be_simulated():
    with pytest.raises(ValueError, match="a value is a probability from 0 to 1; give --noise"):
        measure(v.two_point(0.5, 1.1, 0.5), 4, 2, 2, 0)
    with pytest.raises(ValueError, match="every reward equals its value"):
        measure(v.two_point(0, 1, 0.5), 4, 2, 2, 0)
