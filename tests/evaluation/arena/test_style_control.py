"""Style control against a slow fit on single rows, hand-computed differences, and its purpose."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, special

from openrlhf_js.evaluation.arena.records import Style
from openrlhf_js.evaluation.arena.rows import Rows, rows, table
from openrlhf_js.evaluation.arena.score import clustered, of_model
from openrlhf_js.evaluation.arena.style_control import (
    CONTROLS,
    FEATURES,
    control,
    differences,
    features_of,
)

sys.path.insert(0, str(Path(__file__).parent))
from arena_pools import judgment, random_pool


def random_styles(judged, seed=0):
    """Counts of every answer of a table."""
    rng = np.random.default_rng(seed)
    return {
        name: {
            uid: Style(int(rng.integers(20, 900)), *rng.integers(0, 12, 3).tolist())
            for uid in judged.questions
        }
        for name in (judged.baseline, *judged.models)
    }


@pytest.fixture(scope="module")
def pool():
    judged = table(random_pool(models=3, questions=40, missing=0.05), "base")
    return judged, rows(judged), random_styles(judged)


def test_differences_by_hand():
    judged = table([judgment("q", 1, 1)], "base")
    styles = {"m": {"q": Style(299, 3, 6, 0)}, "base": {"q": Style(99, 1, 0, 5)}}
    found = differences(rows(judged), judged, styles).values
    expected = [
        200 / 398,
        0,  # 3 / 300 and 1 / 100 are the same density
        0.02 / 1.02,
        -0.05 / 1.05,
    ]
    assert found.tolist() == [pytest.approx(expected)] * 2


def test_empty_answers_have_no_difference():
    judged = table([judgment("q", 1, 1)], "base")
    styles = {name: {"q": Style(0, 0, 0, 0)} for name in ("m", "base")}
    assert differences(rows(judged), judged, styles).values.tolist() == [[0, 0, 0, 0]] * 2


def slow_fit(judged, of, styles, features, centred=True):
    """As the official script sets it up: one row a weighted game, z-scored columns, one fit.

    Args:
        centred: whether the columns' means are taken away, so that 0 is not equal style.

    Returns:
        Strengths by model (the baseline's is 0) and coefficients.
    """
    design, outcomes = [], []
    for model, question, points, weight in zip(*of, strict=True):
        ours = styles[judged.models[model]][judged.questions[question]]
        theirs = styles[judged.baseline][judged.questions[question]]
        row = [(ours.tokens - theirs.tokens) / (ours.tokens + theirs.tokens)]
        for name in ("headers", "lists", "bold"):
            a = getattr(ours, name) / (ours.tokens + 1)
            b = getattr(theirs, name) / (theirs.tokens + 1)
            row.append((a - b) / (a + b + 1))
        kept = [value for value, name in zip(row, FEATURES, strict=True) if name in features]
        one_hot = [float(model == place) for place in range(len(judged.models))]
        design += [one_hot + kept] * int(weight)
        outcomes += [points] * int(weight)
    x, y = np.array(design), np.array(outcomes)
    style = slice(len(judged.models), None)
    x[:, style] = (x[:, style] - centred * x[:, style].mean(0)) / x[:, style].std(0, ddof=1)

    def loss(at):
        return np.logaddexp(0, x @ at).sum() - y @ (x @ at)

    found = optimize.minimize(
        loss,
        np.zeros(x.shape[1]),
        jac=lambda at: x.T @ (special.expit(x @ at) - y),
        tol=1e-12,
    ).x
    return found[: len(judged.models)], found[style]


@pytest.mark.parametrize("name", [*list(CONTROLS)[1:], "length+bold"])
def test_each_control_is_the_fit_on_single_rows(pool, name):
    judged, of, styles = pool
    features = features_of(name)
    counted = differences(of, judged, styles, features)
    found = control(counted, judged, features, seed=0, rounds=2)
    strengths, coefficients = slow_fit(judged, of, styles, features)
    for model, strength in zip(judged.models, strengths, strict=True):
        assert found.score(model).value == pytest.approx(special.expit(strength), abs=2e-5)
    equal, same = slow_fit(judged, of, styles, features, centred=False)
    assert same == pytest.approx(coefficients, abs=2e-4)
    for model, strength in zip(judged.models, equal, strict=True):
        at_equal = found.score_at_equal_style(model).value
        assert at_equal == pytest.approx(special.expit(strength), abs=2e-5)
    for feature, coefficient in zip(features, coefficients, strict=True):
        assert found.coefficient(feature).value == pytest.approx(coefficient, abs=2e-4)
    assert found.bootstrap.fit.models == ("base", *judged.models)


def test_official_resamples_have_the_same_fit_and_narrower_intervals(pool):
    judged, of, styles = pool
    counted = differences(of, judged, styles)
    whole = control(counted, judged, FEATURES, seed=0, rounds=300)
    single = control(counted, judged, FEATURES, seed=0, rounds=300, by_row=True)
    for model in judged.models:
        assert single.score(model).value == pytest.approx(whole.score(model).value, abs=1e-6)
        low, high = whole.score(model)[1:]
        median, *ends = single.official(model, (0.025, 0.975))
        assert median == pytest.approx(whole.score(model).value, abs=0.02)
        assert ends[1] - ends[0] < 0.9 * (high - low)


def test_style_that_is_always_the_same_changes_nothing(pool):
    judged, of, _ = pool
    styles = {
        name: dict.fromkeys(judged.questions, Style(200, 1, 2, 3))
        for name in ("base", *judged.models)
    }
    found = control(differences(of, judged, styles), judged, FEATURES, seed=0, rounds=2)
    assert found.constant == FEATURES
    for place, model in enumerate(judged.models):
        plain = clustered(of_model(of, place)).value
        assert found.score(model).value == pytest.approx(plain, abs=1e-5)
        assert found.score_at_equal_style(model).value == pytest.approx(plain, abs=1e-5)


@pytest.fixture(scope="module")
def lovers_of_length():
    """Two models as good as the baseline, the second one much longer, and a judge who likes that.

    Log-odds to win: 3 times the difference of length.
    """
    rng = np.random.default_rng(2)
    found, styles = [], {"base": {}, "long": {}, "same": {}}
    for number in range(1500):
        uid = f"q{number}"
        styles["base"][uid] = Style(400, 0, 0, 0)
        for name, most in (("same", 800), ("long", 2000)):
            tokens = int(rng.integers(100, most))
            styles[name][uid] = Style(tokens, 0, 0, 0)
            chance = special.expit(3 * (tokens - 400) / (tokens + 400))
            margins = [1 if rng.random() < chance else -1 for _ in range(2)]
            found.append(judgment(uid, *margins, model=name))
    return table(found, "base"), styles


def test_length_that_a_judge_likes_is_taken_out(lovers_of_length):
    judged, styles = lovers_of_length
    of = rows(judged)
    assert clustered(of_model(of, judged.models.index("long"))).low > 0.6
    found = control(
        differences(of, judged, styles, ("length",)), judged, ("length",), seed=0, rounds=300
    )
    for name in judged.models:
        low, high = found.score_at_equal_style(name)[1:]
        assert low < 0.5 < high and high - low < 0.1
    # Per standard deviation, and that of the differences is known.
    x = differences(of, judged, styles, ("length",)).values[:, 0]
    low, high = found.coefficient("length")[1:]
    assert low < 3 * x.std() < high
    # At the pool's mean difference both would win more, and alike.
    mean = special.expit(3 * x.mean())
    assert [found.score(name).value for name in judged.models] == pytest.approx(
        [mean] * 2, abs=0.03
    )


def test_the_whole_pool_says_what_length_is_worth(lovers_of_length):
    judged, styles = lovers_of_length
    of = rows(judged)
    alone = of_model(of, judged.models.index("same"))
    few = differences(Rows(*(c[:40] for c in alone)), judged, styles, ("length",))
    whole = differences(of, judged, styles, ("length",))
    widths = []
    for each in (few, whole):
        found = control(each, judged, ("length",), seed=0, rounds=200)
        widths.append(found.coefficient("length").half_width)
    assert widths[0] > 3 * widths[1]


def test_models_without_counts_are_named_and_left_out(pool):
    judged, of, styles = pool
    some = dict(list(styles["m1"].items())[5:])
    found = differences(of, judged, {**styles, "m0": {}, "m1": some})
    assert set(found.without_style) == {"m0", "m1"}
    assert found.without_style["m0"] == len(np.unique(of.question[of.model == 0]))
    assert found.without_style["m1"] <= 5
    assert 0 not in found.rows.model
    fitted = control(found, judged, FEATURES, seed=0, rounds=2)
    assert fitted.bootstrap.fit.models == ("base", "m1", "m2")


def test_without_counts_it_says_what_to_do(pool):
    judged, of, styles = pool
    without = {name: counts for name, counts in styles.items() if name != "base"}
    with pytest.raises(ValueError, match=r"the baseline base have none.*--style_control none"):
        differences(of, judged, without)
    with pytest.raises(ValueError, match="the models' answers have none"):
        differences(of, judged, {"base": styles["base"]})


def test_controls_have_names():
    assert features_of("none") == ()
    assert features_of("bold+length") == ("length", "bold")
    for wrong in ("style", "length+", "none+length", ""):
        with pytest.raises(ValueError, match=r"there are none, all, length.*sums such as length"):
            features_of(wrong)
