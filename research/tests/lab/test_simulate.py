"""Distributions of values, and simulated errors against theory and the known reductions."""

import numpy as np
import pytest

from baseline_research.lab import simulate as v
from baseline_research.lab.simulate import best_coefficient, draw, measure, simulate
from openrlhf_js.estimators import ESTIMATORS, baseline

NAMES = tuple(ESTIMATORS.keys() - {"dbb", "spo", "opo", "remax"})
SKEWED = v.two_point(0.05, 0.9, 0.3)
ARCSINE = v.beta(0.5, 0.5)
DRAWS = 200_000


def by_title(values):
    return values.title


@pytest.mark.parametrize(
    "values",
    [
        v.beta(5, 2),
        v.two_point(0.1, 0.9, 0.3),
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


def test_batches_are_drawn_in_chunks(monkeypatch):
    monkeypatch.setattr(v, "CHUNK_REWARDS", 3 * 5 * 2)
    chunk_sizes = []
    simulated = measure(SKEWED, 5, 2, 5, 7, NAMES, advance=chunk_sizes.append)
    assert chunk_sizes == [3, 2]
    generator = np.random.default_rng([7, 5, 2])
    chunks = [draw(SKEWED, generator, 5, 2, size) for size in chunk_sizes]
    errors = [
        (baseline("js", rewards).sub(values[:, None]).square().mean().item())
        for known in chunks
        for rewards, values in zip(known.rewards, known.values, strict=True)
    ]
    assert simulated.errors[NAMES.index("js")] == pytest.approx(errors, abs=1e-14)


# m -> the percentages by which js and js_grad reduce the error of rloo, for values Beta(1/2, 1/2)
KNOWN_REDUCTIONS = {
    2: {"js": 37.0, "js_grad": 47.3},
    4: {"js": 21.6, "js_grad": 23.3},
    8: {"js": 11.6, "js_grad": 11.8},
}


def rows_by_settings(result):
    """The rows by m, estimator and quantity."""
    rows = {}
    for row in result.summary()["rows"]:
        rows[row["m"], row["estimator"], row["quantity"]] = row
    return rows


def test_the_known_reductions_and_what_the_oracle_reaches():
    names = ("rloo", "js", "js_grad", "js_fixed")
    result = simulate(ARCSINE, 64, (2, 4, 8), names, rounds=600, seed=0)
    rows = rows_by_settings(result)
    for m, reductions in KNOWN_REDUCTIONS.items():
        for name, percent in reductions.items():
            reduction = rows[m, name, "reduction_percent"]
            assert reduction["value"] == pytest.approx(percent, abs=1.0)
            assert reduction["low"] < reduction["value"] < reduction["high"]
            assert reduction["high"] < reduction["low"] + 2
        best = best_coefficient(ARCSINE, 64, m)
        oracle = rows[m, "js_fixed", "reduction_percent"]
        assert oracle["value"] == pytest.approx(100 * best, abs=1.0)
        assert rows[m, "js_fixed", "shrinkage"]["value"] == pytest.approx(best)
    assert rows[2, "rloo", "mse"]["value"] == pytest.approx(0.125, rel=0.02)
    assert result.arrays["squared_errors"].shape == (3, 4, 600)
    assert result.caption.startswith("values Beta(0.5, 0.5): 600 batches of 64 prompts;")
    assert result.notes["gradients"]["js_fixed"] == "oracle"
