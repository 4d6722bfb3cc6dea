import math
import time

import numpy as np
import pytest
from scipy import optimize, special

from openrlhf_js.stats.bootstrap import counts
from openrlhf_js.stats.bradley_terry import bootstrap_fit, fit
from openrlhf_js.stats.games import games


def simulated(seed, models=3, questions=40, covariates=0, rounds_robin=False):
    """Two games of every model (or pair) on every question; questions differ in difficulty."""
    rng = np.random.default_rng(seed)
    names = [f"m{number}" for number in range(models)]
    pairs = [(name, "base") for name in names]
    if rounds_robin:
        pairs += [(a, b) for a in names for b in names if a < b]
    strength = dict(zip(["base", *names], np.linspace(0, 1, models + 1), strict=True))
    first, second, question = [], [], []
    for a, b in pairs:
        for q in range(questions):
            first += [a, b]
            second += [b, a]
            question += [q, q]
    style = rng.normal(size=(len(first), covariates))
    hard = rng.normal(size=questions)[question] * np.where(np.array(second) == "base", 1, -1)
    eta = np.array([strength[a] - strength[b] for a, b in zip(first, second, strict=True)])
    eta = eta + hard / 2 + style @ np.array([0.8, -0.5, 0.3, 0.1])[:covariates]
    draw = rng.random(len(first))
    results = np.where(draw < 0.1, 0.5, (rng.random(len(first)) < special.expit(eta)).astype(float))
    return {
        "first": first,
        "second": second,
        "results": results,
        "clusters": question,
        "weights": rng.choice([1, 3], len(first)),
        "covariates": style if covariates else None,
    }


def row_by_row(data, anchor, ridge=1e-6):
    """The same fit from the rows themselves, by a general optimiser."""
    models = sorted({*data["first"], *data["second"]})
    design = np.zeros((len(data["first"]), len(models)))
    for row, (a, b) in enumerate(zip(data["first"], data["second"], strict=True)):
        design[row, models.index(a)] += 1
        design[row, models.index(b)] -= 1
    design = np.delete(design, models.index(anchor), 1)
    if data["covariates"] is not None:
        design = np.column_stack([design, data["covariates"]])
    weights, results = data["weights"], data["results"]

    def loss(at):
        eta = design @ at
        return weights @ (np.logaddexp(0, eta) - results * eta) + ridge / 2 * at @ at

    def gradient(at):
        return design.T @ (weights * (special.expit(design @ at) - results)) + ridge * at

    found = optimize.minimize(loss, np.zeros(design.shape[1]), jac=gradient, tol=1e-10).x
    return np.insert(found, models.index(anchor), 0)


@pytest.mark.parametrize("covariates", [0, 1, 4])
@pytest.mark.parametrize("rounds_robin", [False, True])
def test_the_fit_is_logistic_regression_on_rows(covariates, rounds_robin):
    data = simulated(0, covariates=covariates, rounds_robin=rounds_robin)
    found = fit(games(**data, anchor="base"))
    expected = row_by_row(data, "base")
    assert np.concatenate([found.strengths, found.coefficients]) == pytest.approx(
        expected, abs=1e-5
    )
    assert found.models == ("base", "m0", "m1", "m2")
    assert found.strengths[0] == 0
    assert found.unbounded == ()


def test_against_one_baseline_the_score_is_the_share_of_wins():
    # Arena-Hard v0.1, gpt-3.5-turbo-0125: 258 wins, 1012 losses and 144 ties score 23.34.
    results = np.repeat([1.0, 0.0, 0.5], [258, 1012, 144])
    found = fit(games(["gpt-3.5"] * 1414, ["gpt-4"] * 1414, results, anchor="gpt-4"))
    assert found.scores["gpt-3.5"] == pytest.approx((258 + 72) / 1414, abs=1e-8)
    assert found.scores["gpt-4"] == 0.5
    three = fit(
        games(["gpt-3.5"] * 3, ["gpt-4"] * 3, [1, 0, 0.5], weights=[258, 1012, 144], anchor="gpt-4")
    )
    assert three.strengths == pytest.approx(found.strengths)


def test_three_models_by_hand():
    # a : b = 3 : 1 and b : c = 2 : 1 with no game of a and c: the log-odds add up.
    found = fit(games("aaaabbb", "bbbbccc", [1, 1, 1, 0, 1, 1, 0], anchor="c"), ridge=1e-9)
    assert found.strengths == pytest.approx([math.log(6), math.log(2), 0], abs=1e-6)
    circle = fit(games("abc", "bca", [1, 1, 1], anchor="a"))
    assert circle.strengths == pytest.approx([0, 0, 0], abs=1e-9)


def test_the_order_of_a_game_is_nothing():
    data = simulated(1, covariates=2)
    turned = data | {
        "first": data["second"],
        "second": data["first"],
        "results": 1 - data["results"],
        "covariates": -data["covariates"],
    }
    one, two = (fit(games(**each, anchor="m1")) for each in (data, turned))
    assert one.strengths == pytest.approx(two.strengths)
    assert one.coefficients == pytest.approx(two.coefficients)


@pytest.mark.parametrize("covariates", [0, 2])
def test_each_resample_is_a_fit_of_repeated_rows(covariates):
    data = simulated(2, questions=15, covariates=covariates)
    found = bootstrap_fit(games(**data, anchor="base"), seed=5, rounds=6)
    drawn = next(counts(15, 6, 5))
    for row, (strengths, coefficients) in enumerate(
        zip(found.strengths, found.coefficients, strict=True)
    ):
        weights = data["weights"] * drawn[row][data["clusters"]]
        expected = row_by_row(data | {"weights": weights}, "base")
        assert np.concatenate([strengths, coefficients]) == pytest.approx(expected, abs=1e-5)


def test_differences_are_paired_by_question():
    data = simulated(3, models=2, questions=300)
    hard = np.random.default_rng(0).normal(size=300)[data["clusters"]] > 0
    away = np.where(np.array(data["second"]) == "base", 1.0, 0.0)
    data["results"] = np.where(hard, 1 - away, data["results"])
    found = bootstrap_fit(games(**data, anchor="base"), seed=0, rounds=1000)
    difference = found.score_difference("m1", "m0")
    assert difference.value == pytest.approx(found.fit.scores["m1"] - found.fit.scores["m0"])
    apart = math.hypot(*(found.score(name).half_width for name in ("m0", "m1")))
    assert 0 < difference.half_width < 0.9 * apart
    assert found.score("base") == (0.5, 0.5, 0.5)
    assert found.strength("m1").low < found.fit.strengths[2] < found.strength("m1").high


def test_the_seed_decides():
    data = games(**simulated(4, covariates=1), anchor="base")
    one, two, three = (bootstrap_fit(data, seed=seed, rounds=20) for seed in (0, 0, 1))
    assert (one.strengths == two.strengths).all()
    assert (one.strengths != three.strengths).any()
    assert one.coefficient(0).low < one.fit.coefficients[0] < one.coefficient(0).high


@pytest.mark.parametrize("style", [None, [[0.3], [-0.2], [0.1], [0.0], [0.5], [0.2]]])
def test_a_model_that_won_everything_is_named(style):
    found = fit(
        games(
            ["best", "best", "mid", "mid", "worst", "worst"],
            ["base"] * 6,
            [1, 1, 1, 0, 0, 0],
            covariates=style,
            anchor="base",
        )
    )
    assert found.unbounded == ("best", "worst")
    assert np.isfinite(found.strengths).all()
    assert found.scores["best"] > 1 - 1e-4
    assert found.scores["worst"] < 1e-4
    if style is None:
        assert found.scores["mid"] == pytest.approx(0.5, abs=1e-4)


def test_a_covariate_that_never_differs_has_no_coefficient():
    data = simulated(5)
    plain = fit(games(**data, anchor="base"))
    found = fit(games(**data | {"covariates": np.zeros((240, 2))}, anchor="base"))
    assert found.coefficients == pytest.approx([0, 0], abs=1e-9)
    assert found.strengths == pytest.approx(plain.strengths, abs=1e-6)


def test_a_covariate_that_decides_every_game_stays_finite():
    style = np.array([1.0, -1.0, 2.0, -0.5] * 10)
    found = fit(games(["a"] * 40, ["b"] * 40, style > 0, covariates=style[:, None], anchor="b"))
    assert 10 < found.coefficients[0] < 1000


def test_whatever_the_data_the_fit_is_its_minimum():
    # Few rows, most of them separable, covariates from 1e-4 to 1e3, weights from 1e-3 to 300.
    rng = np.random.default_rng(6)
    for _ in range(100):
        models, rows = rng.integers(1, 5), rng.integers(5, 30)
        data = {
            "first": [f"m{m}" for m in [*range(models), *rng.integers(0, models, rows - models)]],
            "second": ["base"] * rows,
            "results": rng.choice([0, 0.5, 1], rows, p=rng.dirichlet([0.5] * 3)),
            "weights": rng.choice([1, 3], rows) * 10.0 ** rng.integers(-3, 3),
            "covariates": rng.normal(size=(rows, 2)) * 10.0 ** rng.integers(-4, 4, 2),
            "clusters": rng.integers(0, 6, rows),
        }
        found = bootstrap_fit(games(**data, anchor="base"), seed=rng, rounds=20)
        assert np.isfinite(found.coefficients).all()
        wins = np.array(data["results"])
        eta = found.fit.strengths[[found.fit.models.index(name) for name in data["first"]]]
        eta = eta + data["covariates"] @ found.fit.coefficients
        slope = data["weights"] * (special.expit(eta) - wins)
        gradient = data["covariates"].T @ slope + 1e-6 * found.fit.coefficients
        size = np.abs(data["covariates"]).T @ data["weights"]
        assert (np.abs(gradient) < 1e-6 * size).all()


def test_a_leaderboards_pool_is_fast():
    rng = np.random.default_rng(7)
    model, question = (axis.ravel() for axis in np.indices((20, 750)))
    data = games(
        [f"m{number}" for number in model],
        ["base"] * len(model),
        rng.choice([0, 0.5, 1], len(model)),
        anchor="base",
        clusters=question,
        covariates=rng.normal(size=(len(model), 4)),
    )
    start = time.process_time()
    found = bootstrap_fit(data, seed=0, rounds=200)
    assert found.strengths.shape == (200, 21)
    assert time.process_time() - start < 5  # a fifth of the resamples: it takes 0.2 s


def test_what_is_not_in_a_resample_is_not_made_up():
    data = games(
        ["a", "a", "a", "b"], ["base"] * 4, [1, 0, 1, 0.5], clusters=[0, 1, 2, 2], anchor="base"
    )
    found = bootstrap_fit(data, seed=0, rounds=200)
    b = found.strengths[:, found.fit.models.index("b")]
    assert 0 < np.isnan(b).mean() < 0.5
    assert b[~np.isnan(b)] == pytest.approx(0)
    assert found.score("b") == pytest.approx((0.5, 0.5, 0.5))


def test_one_question_bounds_nothing():
    found = bootstrap_fit(games("aa", "bb", [1, 0], clusters=[0, 0], anchor="b"), seed=0, rounds=5)
    assert found.score("a")[1:] == (-math.inf, math.inf)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: games("ab", "bc", [1, 2], anchor="a"), r"lies in \[0, 1\]"),
        (lambda: games("ab", "bc", [1, math.nan], anchor="a"), "must be finite"),
        (lambda: games("", "", [], anchor="a"), "not empty"),
        (lambda: games("ab", "bc", [1], anchor="a"), "1 results for 2 first"),
        (lambda: games("ab", "bb", [1, 0], anchor="a"), "game 1 is b against itself"),
        (lambda: games("ab", "bc", [1, 0], anchor="z"), "anchor 'z' has no game"),
        (lambda: games("ac", "bd", [1, 0], anchor="a"), "connects c, d with the anchor a"),
        (lambda: games("ac", "ba", [1, 0], weights=[1, 0], anchor="a"), "connects c with"),
        (lambda: games("ab", "bc", [1, 0], covariates=[1, 2], anchor="a"), "2 games, K"),
        (lambda: games("ab", "bc", [1, 0], covariates=[[1], [math.inf]], anchor="a"), "game 1"),
        (lambda: fit(games("a", "b", [1], anchor="a"), ridge=0), "ridge must be positive"),
        (
            lambda: bootstrap_fit(games("a", "b", [1], anchor="a"), seed=0, rounds=2).score("z"),
            "no model 'z'",
        ),
    ],
)
def test_games_that_cannot_be_compared_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
