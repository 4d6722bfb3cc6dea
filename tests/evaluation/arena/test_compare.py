"""Paired comparisons, against t tests by hand and a permutation of the models."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from openrlhf_js.evaluation.arena.compare import compare, compare_controlled
from openrlhf_js.evaluation.arena.records import Style
from openrlhf_js.evaluation.arena.rows import rows, table
from openrlhf_js.evaluation.arena.score import clustered, of_model
from openrlhf_js.uncertainty import clustered_mean

sys.path.insert(0, str(Path(__file__).parent))
from arena_pools import judgment, random_pool


def test_equal_weights_are_a_paired_t_test():
    a, b = [1, 1, -1, 1, 0, 1, 1, -1], [1, -1, -1, 0, 0, -1, 1, 1]
    judged = table(
        [judgment(f"q{n}", m, m, model="a") for n, m in enumerate(a)]
        + [judgment(f"q{n}", m, m, model="b") for n, m in enumerate(b)],
        "base",
    )
    found = compare(rows(judged), judged, "a", "b")
    points = [(np.sign(side) + 1) / 2 for side in (np.array(a), np.array(b))]
    expected = stats.ttest_rel(*points)
    assert found.questions == 8 and found.only_a == found.only_b == 0
    assert found.difference.value == pytest.approx(points[0].mean() - points[1].mean())
    assert found.difference.p_value == pytest.approx(expected.pvalue)
    assert found.difference.estimate[1:] == pytest.approx(tuple(expected.confidence_interval()))
    assert (found.score_a, found.score_b) == (points[0].mean(), points[1].mean())


def test_the_jackknife_by_question_with_weights():
    judged = table(random_pool(models=2, questions=25, seed=3), "base")
    of = rows(judged)
    found = compare(of, judged, "m1", "m0")

    def difference(of):
        one, zero = (clustered(of_model(of, place)).value for place in (1, 0))
        return one - zero

    left_out = [difference(of.only(of.question != question)) for question in range(25)]
    variance = 24 / 25 * np.square(np.array(left_out) - difference(of)).sum()
    assert found.difference.value == pytest.approx(difference(of))
    assert found.difference.standard_error == pytest.approx(math.sqrt(variance))
    turned = compare(of, judged, "m0", "m1")
    assert turned.difference.value == pytest.approx(-found.difference.value)
    assert turned.difference.p_value == pytest.approx(found.difference.p_value)


def test_pairing_sees_more_than_two_intervals_side_by_side():
    judged = table(random_pool(models=2, questions=200, seed=1), "base")
    of = rows(judged)
    found = compare(of, judged, "m1", "m0")
    alone = [of_model(of, place) for place in (1, 0)]
    widths = [clustered_mean(r.points, r.question, weights=r.weight).half_width for r in alone]
    assert found.difference.estimate.half_width < 0.85 * math.hypot(*widths)
    assert found.detectable == pytest.approx(2.8 * found.difference.standard_error, rel=0.02)


def test_questions_of_one_model_alone_are_left_out_and_counted():
    judged = table(
        [judgment(f"q{n}", m, m, model="a") for n, m in enumerate([1, 1, -1, 1, -1])]
        + [judgment(f"q{n}", m, m, model="b") for n, m in enumerate([1, -1, -1], start=1)]
        + [judgment("q9", 1, None, model="b"), judgment("q4", 2, None, model="b")],
        "base",
    )
    found = compare(rows(judged), judged, "a", "b")
    assert (found.questions, found.only_a, found.only_b) == (3, 2, 0)
    alone = judged.only(
        np.isin(judged.question, [judged.questions.index(f"q{n}") for n in (1, 2, 3)])
    )
    assert found._replace(only_a=0) == compare(rows(alone), alone, "a", "b")
    every = compare(rows(judged, both=False), judged, "a", "b")
    assert (every.questions, every.only_a, every.only_b) == (4, 1, 1)


def test_judges_are_pooled_within_a_question():
    one, two = (random_pool(models=2, questions=20, seed=s, judge=f"j{s}") for s in (1, 2))
    judged = table(one + two, "base")
    found = compare(rows(judged), judged, "m1", "m0")
    assert found.questions == 20
    by_hand = [clustered(of_model(rows(judged), place)).value for place in (1, 0)]
    assert found.difference.value == pytest.approx(by_hand[0] - by_hand[1])


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ("m0", "m0", "m0 cannot be compared with itself; name two models"),
        ("m0", "nobody", "nobody has no judgment that counts; there are m0, m1"),
        ("base", "m0", "It is the baseline, which scores 50 by definition: read the interval"),
    ],
)
def test_who_cannot_be_compared(a, b, said):
    judged = table(random_pool(models=2), "base")
    with pytest.raises(ValueError, match=said):
        compare(rows(judged), judged, a, b)


def test_no_question_in_common():
    judged = table([judgment("x", 1, 1, model="a"), judgment("y", 1, 1, model="b")], "base")
    with pytest.raises(ValueError, match="a and b were judged on no question in common"):
        compare(rows(judged), judged, "a", "b")


def test_one_question_in_common_says_nothing_and_does_not_fail():
    judged = table([judgment("x", 1, 1, model="a"), judgment("x", 1, -1, model="b")], "base")
    found = compare(rows(judged), judged, "a", "b")
    assert found.difference.p_value == 1 and math.isinf(found.detectable)


@pytest.fixture(scope="module")
def styled():
    judged = table(random_pool(models=3, questions=150, seed=4), "base")
    rng = np.random.default_rng(0)
    styles = {
        name: {u: Style(int(rng.integers(50, 500)), 0, 0, 0) for u in judged.questions}
        for name in ("base", *judged.models)
    }
    return judged, styles


def test_style_that_does_not_matter_leaves_the_paired_test_as_it_is(styled):
    judged, styles = styled
    of = rows(judged)
    plain = compare(of, judged, "m2", "m1")
    found = compare_controlled(of, judged, styles, ("length",), "m2", "m1", seed=0, rounds=2000)
    assert found.questions == 150
    assert found.difference.value == pytest.approx(plain.difference.value, abs=0.02)
    assert found.difference.standard_error == pytest.approx(
        plain.difference.standard_error, rel=0.1
    )
    assert found.difference.low == pytest.approx(plain.difference.low, abs=0.03)
    assert found.difference.p_value == 2 / 2001  # no resample on the other side


def test_controlled_differences_leave_out_what_is_not_shared(styled):
    judged, styles = styled
    without = {**styles, "m1": dict(list(styles["m1"].items())[10:])}
    found = compare_controlled(
        rows(judged), judged, without, ("length",), "m2", "m1", seed=0, rounds=50
    )
    assert (found.questions, found.only_a, found.only_b) == (140, 10, 0)
    # What m2 did where m1 cannot be compared does not matter.
    own = (judged.model == judged.models.index("m2")) & (judged.question < 10)
    others = judged._replace(margins=np.where(own[:, None], 2.0, judged.margins))
    assert found == compare_controlled(
        rows(others), others, without, ("length",), "m2", "m1", seed=0, rounds=50
    )


def test_a_difference_by_chance_has_a_large_p():
    rng = np.random.default_rng(8)
    draws = rng.choice([-1, 1], size=(2, 60))
    found = [
        judgment(f"q{n}", int(m), int(m), model=name)
        for name, margins in zip("ab", draws, strict=True)
        for n, m in enumerate(margins)
    ]
    judged = table(found, "base")
    styles = {
        name: {u: Style(int(rng.integers(50, 500)), 0, 0, 0) for u in judged.questions}
        for name in ("base", "a", "b")
    }
    plain = compare(rows(judged), judged, "a", "b").difference
    controlled = compare_controlled(
        rows(judged), judged, styles, ("length",), "a", "b", seed=0, rounds=2000
    ).difference
    assert plain.p_value > 0.2
    assert controlled.p_value == pytest.approx(plain.p_value, abs=0.1)
