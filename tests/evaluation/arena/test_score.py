"""Scores and their intervals, against published figures, slow loops and a simulation."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from openrlhf_js.evaluation.arena.rows import Tally, rows, table, tally
from openrlhf_js.evaluation.arena.score import clustered, of_model, official, tallies
from openrlhf_js.uncertainty.bradley_terry import fit
from openrlhf_js.uncertainty.games import games

sys.path.insert(0, str(Path(__file__).parent))
from arena_pools import judgment, random_pool, with_rows

GPT_35 = Tally(wins=258, losses=1012, ties=144)  # gpt-3.5-turbo-0125 on v0.1, as published


def test_the_published_score_of_gpt_3_5_is_found():
    of = rows(table(with_rows(*GPT_35, questions=500), "base"))
    assert round(100 * clustered(of).value, 2) == 23.34
    assert round(100 * tally(of).score, 2) == 23.34


def test_the_published_interval_of_gpt_3_5_is_found_up_to_the_chance_of_a_bootstrap():
    for seed in range(5):  # published, of 100 rounds without a seed: 21.7 to 25.3
        found = official({"gpt": GPT_35}, "v0.1", seed=seed)["gpt"].estimate
        assert 100 * found.low == pytest.approx(21.5, abs=0.5)
        assert 100 * found.high == pytest.approx(25.4, abs=0.6)
    sure = official({"gpt": GPT_35}, "v0.1", seed=0, rounds=100_000)["gpt"].estimate
    # What the percentiles tend to: 23.34 -+ 1.96 standard errors of 1,414 rows.
    assert 100 * np.array(sure) == pytest.approx([23.34, 21.32, 25.39], abs=0.03)


def by_rows(own, rule, rounds, seed):
    """The official rules on one row after the other, for one model alone."""
    rng = np.random.default_rng(seed)
    outcomes = np.array([1.0] * own.wins + [0.0] * own.losses + [0.5] * own.ties)
    means = [rng.choice(outcomes, len(outcomes)).mean() for _ in range(rounds)]
    ends = (0.025, 0.975) if rule == "v0.1" else (0.05, 0.95)
    return *np.quantile(means, ends), np.mean(means)


@pytest.mark.parametrize("rule", ["v0.1", "v2.0"])
def test_official_intervals_are_those_of_rows_drawn_one_by_one(rule):
    own = Tally(300, 500, 110)
    slow = by_rows(own, rule, 4000, seed=1)
    found = official({"m": own}, rule, seed=2, rounds=20_000)["m"]
    assert [found.estimate.low, found.estimate.high] == pytest.approx(slow[:2], abs=0.004)
    assert found.bootstrap_mean == pytest.approx(slow[2], abs=0.001)
    assert found.estimate.value == own.score


def test_v0_1_resamples_the_pool_together_and_fits_it_again():
    """Slowly: all rows drawn together, a Bradley-Terry fit of each resample."""
    pool = {"a": Tally(20, 10, 4), "b": Tally(5, 9, 2)}
    rows_of = [(name, 1.0) for name, t in pool.items() for _ in range(t.wins)]
    rows_of += [(name, 0.0) for name, t in pool.items() for _ in range(t.losses)]
    rows_of += [(name, 0.5) for name, t in pool.items() for _ in range(t.ties)]
    rng, scores = np.random.default_rng(0), []
    for _ in range(400):
        drawn = [rows_of[place] for place in rng.integers(len(rows_of), size=len(rows_of))]
        models, points = zip(*drawn, strict=True)
        scores.append(fit(games(models, ["base"] * len(models), points, anchor="base")).scores)
    found = official(pool, "v0.1", seed=0, rounds=20_000)
    for name in pool:
        ends = np.quantile([each[name] for each in scores], [0.025, 0.975])
        assert [found[name].estimate.low, found[name].estimate.high] == pytest.approx(
            ends, abs=0.03
        )


def test_only_v0_1_draws_other_numbers_of_a_model_s_rows():
    pool = {"big": Tally(50, 50, 0), "two": Tally(1, 1, 0)}
    for rule, varies in (("v0.1", True), ("v2.0", False)):
        drawn = [official(pool, rule, seed, rounds=1)["two"] for seed in range(60)]
        assert (not {each.bootstrap_mean for each in drawn} <= {0.0, 0.5, 1.0}) == varies
        # A resample may have no row of a model at all.
        assert any(each.estimate == (0.5, -np.inf, np.inf) for each in drawn) == varies


def test_a_model_that_a_joint_resample_misses_keeps_an_interval():
    pool = {"big": Tally(50, 50, 0), "tiny": Tally(1, 0, 0)}
    assert official(pool, "v0.1", seed=0)["tiny"].estimate == (1.0, 1.0, 1.0)


def test_the_score_is_the_bradley_terry_fit_of_the_rows():
    judged = table(random_pool(missing=0.1), "base")
    of = rows(judged)
    names = [judged.models[place] for place in of.model]
    fitted = fit(games(names, ["base"] * len(names), of.points, anchor="base", weights=of.weight))
    for place, name in enumerate(judged.models):
        assert clustered(of_model(of, place)).value == pytest.approx(fitted.scores[name], abs=1e-6)
        assert tallies(of, judged.models)[name].score == pytest.approx(
            fitted.scores[name], abs=1e-6
        )


def test_same_seed_same_interval_other_seed_another():
    first, again, other = (official({"m": GPT_35}, "v2.0", seed=seed)["m"] for seed in (3, 3, 4))
    assert first == again != other


def test_clustered_intervals_are_by_question():
    # 40 questions with both games alike: 40 draws, not 80 rows.
    alike = [judgment(f"q{n}", margin, margin) for n, margin in enumerate([1, -1] * 20)]
    of = rows(table(alike, "base"))
    found = clustered(of)
    assert found.value == 0.5
    # Wilson with t of 39 degrees of freedom and 40 * 39 / 40 trials, by hand.
    t, trials = special.stdtrit(39, 0.975), 39.0
    half = np.sqrt(t**2 / trials * (0.25 + t**2 / trials / 4)) / (1 + t**2 / trials)
    assert [found.low, found.high] == pytest.approx([0.5 - half, 0.5 + half])
    rowwise = official({"m": tally(of)}, "v0.1", seed=0, rounds=10_000)["m"].estimate
    assert found.high - found.low > 1.35 * (rowwise.high - rowwise.low)


def test_two_judges_of_a_question_are_one_cluster():
    one = [judgment(f"q{n}", margin, margin, judge="one") for n, margin in enumerate([1, -1] * 9)]
    both = one + [each._replace(judge="two") for each in one]
    assert clustered(rows(table(both, "base"))) == pytest.approx(
        clustered(rows(table(one, "base")))
    )


def test_all_lost_has_a_width():
    found = clustered(rows(table([judgment(f"q{n}", -2, -2) for n in range(20)], "base")))
    assert found.value == found.low == 0 and 0.1 < found.high < 0.2


def test_clustered_intervals_hold_the_truth_where_official_ones_do_not():
    """30 questions, two correlated games each, 400 sets; the truth from many games."""
    rng = np.random.default_rng(5)

    def drawn(questions):
        ease = rng.normal(size=(questions, 1)) * 0.85 - 0.8
        noise = rng.normal(size=(questions, 2)) * 0.55
        return np.searchsorted([-1.5, -0.4, 0.4, 1.5], ease + noise) - 2

    many = drawn(400_000)
    weight = np.where(np.abs(many) == 2, 3, 1)
    truth = ((np.sign(many) + 1) / 2 * weight).sum() / weight.sum()
    held = {"clustered": 0, "v0.1": 0}
    for number in range(400):
        margins = drawn(30).tolist()
        of = rows(table([judgment(f"q{n}", *pair) for n, pair in enumerate(margins)], "base"))
        low, high = clustered(of)[1:]
        held["clustered"] += low <= truth <= high
        low, high = official({"m": tally(of)}, "v0.1", seed=number)["m"].estimate[1:]
        held["v0.1"] += low <= truth <= high
    assert 0.92 <= held["clustered"] / 400 <= 0.98
    assert held["v0.1"] / 400 < 0.85


def test_bad_rules_are_refused():
    with pytest.raises(ValueError, match=r"one of v0\.1, v2\.0; got 'v1'"):
        official({"m": GPT_35}, "v1", seed=0)
    with pytest.raises(ValueError, match="needs one round at least, got 0"):
        official({"m": GPT_35}, "v0.1", seed=0, rounds=0)
