import math

import numpy as np
import pytest
from scipy import stats

from openrlhf_js.stats import bootstrap_interval, clustered_mean, percentile_interval
from openrlhf_js.stats import clusters as by_cluster
from openrlhf_js.stats.bootstrap import bca_interval, counts, draws, studentized_interval
from openrlhf_js.stats.delta_method import standard_error


def ratio(total):
    return total[..., 0] / total[..., 1]


def sums_of(values):
    return np.column_stack([values, np.ones(len(values))])


def test_counts_are_a_multinomial_draw():
    drawn = np.concatenate(list(counts(5, 40_000, 0)))
    assert drawn.shape == (40_000, 5)
    assert (drawn.sum(1) == 5).all()
    assert drawn.mean(0) == pytest.approx([1] * 5, abs=0.03)
    assert drawn.var(0) == pytest.approx([0.8] * 5, abs=0.03)
    assert np.cov(drawn.T)[0, 1] == pytest.approx(-0.2, abs=0.03)


def test_strata_keep_their_size():
    strata = ["a", "b", "a", "b", "b", "c"]
    drawn = np.concatenate(list(counts(6, 20_000, 0, strata)))
    assert (drawn[:, [0, 2]].sum(1) == 2).all()
    assert (drawn[:, [1, 3, 4]].sum(1) == 3).all()
    assert (drawn[:, 5] == 1).all()
    assert drawn.mean(0) == pytest.approx([1] * 6, abs=0.03)


def test_the_seed_decides_and_the_pieces_do_not(monkeypatch):
    sums = sums_of(np.random.default_rng(0).normal(size=7))
    strata = [0, 0, 0, 1, 1, 1, 1]
    at_once = draws(sums, ratio, 50, 3, strata)
    assert (at_once == draws(sums, ratio, 50, 3, strata)).all()
    assert (at_once != draws(sums, ratio, 50, 4, strata)).any()
    monkeypatch.setattr("openrlhf_js.stats.bootstrap.CHUNK_NUMBERS", 22)
    assert (at_once == draws(sums, ratio, 50, 3, strata)).all()


def test_the_variance_of_a_mean_is_known():
    values = np.random.default_rng(1).normal(size=25)
    drawn = draws(sums_of(values), ratio, 20_000, 0)
    assert drawn.mean() == pytest.approx(values.mean(), abs=0.005)
    assert drawn.std() == pytest.approx(values.std() / 5, rel=0.02)


def test_bca_is_scipys():
    values = np.random.default_rng(2).exponential(size=400)
    expected = stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, rng=np.random.default_rng(0)
    ).confidence_interval
    found = bootstrap_interval(sums_of(values), ratio, seed=0, rounds=20_000, method="bca")
    assert found[1:] == pytest.approx(tuple(expected), abs=0.004)
    skewed = bootstrap_interval(sums_of(values), ratio, seed=0, rounds=20_000, method="percentile")
    assert found.low > skewed.low + 0.003  # what the acceleration is for


def test_bca_by_hand():
    # 3 of 10 draws lie below the value, and one on it: z0 = Phi^-1(0.35). Without skewness the
    # ends stand at Phi(2 z0 -+ z), here with z = sqrt(2 / 1) t_1 of two clusters.
    drawn = np.arange(10.0)
    found = bca_interval(3.0, drawn, np.array([-1.0, 1.0]), 0.5)
    z0, z = stats.norm.ppf(0.35), math.sqrt(2) * stats.t.ppf(0.75, 1)
    levels = stats.norm.cdf([2 * z0 - z, 2 * z0 + z])
    assert found == pytest.approx((3.0, *np.quantile(drawn, levels)))


def test_the_delta_methods_error_is_that_of_the_mean():
    values = np.random.default_rng(3).normal(size=12) + 1e6
    drawn = next(counts(12, 5, 0))
    found = standard_error(drawn, drawn @ sums_of(values), sums_of(values), ratio)
    repeated = [np.repeat(values, row.astype(int)) for row in drawn]
    expected = [sample.std() / math.sqrt(11) for sample in repeated]
    assert found == pytest.approx(expected, rel=1e-3)


def test_the_delta_method_keeps_strata_apart():
    values = np.array([1.0, 2, 6, 101, 103, 7])
    strata = ["a", "a", "a", "b", "b", "c"]
    once, sums = np.ones((1, 6)), sums_of(values)
    found = standard_error(once, once @ sums, sums, ratio, strata)
    # Sum of n^2 s^2 / n over strata, by 6 rows; the stratum of one row adds nothing.
    assert found[0] == pytest.approx(math.sqrt(3 * 7 + 2 * 2) / 6)


def test_studentized_by_hand():
    found = studentized_interval(
        1.0, 0.5, np.array([0.0, 1.0, 2.0, 5.0]), np.array([1.0, 0.0, 0.5, 1.0]), 0.5
    )
    # Ratios -1, 0 (no distance, whatever the error), 2, 4: quartiles -1 and 2.
    assert found == (1.0, 0.0, 1.5)
    stuck = studentized_interval(1.0, 0.5, np.array([0.0, 2.0]), np.zeros(2))
    assert stuck == (1.0, -math.inf, math.inf)


def test_few_clusters_widen_the_percentiles():
    drawn = np.random.default_rng(3).normal(size=200_000)
    plain = percentile_interval(0, drawn)
    assert plain[1:] == pytest.approx((-1.96, 1.96), abs=0.02)
    wide = percentile_interval(0, drawn, clusters=10)
    assert wide.high == pytest.approx(math.sqrt(10 / 9) * stats.t.ppf(0.975, 9), abs=0.03)


def test_it_agrees_with_the_formula_where_there_is_one():
    rng = np.random.default_rng(4)
    clusters = np.sort(rng.integers(0, 200, 1500))
    values = rng.normal(size=1500) + rng.normal(size=200)[clusters]
    numbers, count = by_cluster.codes(clusters, 1500)
    sums = np.column_stack(
        [
            by_cluster.add_up(values, numbers, count),
            by_cluster.add_up(np.ones(1500), numbers, count),
        ]
    )
    found = bootstrap_interval(sums, ratio, seed=0, rounds=10_000)
    formula = clustered_mean(values, clusters)
    assert found.value == pytest.approx(formula.value)
    assert found.half_width == pytest.approx(formula.half_width, rel=0.05)


def test_two_systems_side_by_side_are_paired():
    rng = np.random.default_rng(5)
    item = 10 * rng.normal(size=60)
    a, b = item + rng.normal(size=60), item + rng.normal(size=60)
    both = np.column_stack([a, b, np.ones(60)])
    found = bootstrap_interval(both, lambda t: (t[..., 0] - t[..., 1]) / t[..., 2], seed=0)
    assert found.half_width == pytest.approx(clustered_mean(a - b).half_width, rel=0.1)


def test_the_rows_of_a_published_leaderboard():
    # Arena-Hard v0.1, gpt-3.5-turbo-0125: 23.34, about 21.7 to 25.3 from rows taken one by one.
    values = np.repeat([1.0, 0.0, 0.5], [258, 1012, 144])
    found = bootstrap_interval(sums_of(values), ratio, seed=0, rounds=4000, method="plain")
    assert 100 * found.value == pytest.approx(23.34, abs=0.005)
    assert 100 * np.array(found[1:]) == pytest.approx([21.3, 25.4], abs=0.2)


def test_degenerate_samples():
    assert bootstrap_interval(sums_of([2.0]), ratio, seed=0) == (2, -math.inf, math.inf)
    assert bootstrap_interval(sums_of([2.0, 2.0, 2.0]), ratio, seed=0) == (2, 2, 2)
    lonely = bootstrap_interval(sums_of([1.0, 2.0, 6.0]), ratio, seed=0, strata=["a", "a", "b"])
    assert lonely == (3, -math.inf, math.inf)
    found = bootstrap_interval(sums_of([0.0, 0.0, 0.0, 1.0]), ratio, seed=0, method="bca")
    assert 0 <= found.low <= found.value <= found.high <= 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bootstrap_interval(np.zeros((0, 2)), ratio, seed=0), "finite numbers"),
        (lambda: bootstrap_interval(np.zeros(3), ratio, seed=0), "finite numbers"),
        (lambda: bootstrap_interval(sums_of([1.0, math.nan]), ratio, seed=0), "finite numbers"),
        (lambda: bootstrap_interval(sums_of([1.0, 2.0]), ratio, seed=0, method="basic"), "'basic'"),
        (
            lambda: bootstrap_interval(sums_of([1.0, 2.0]), ratio, seed=0, rounds=0),
            "a round at least",
        ),
        (
            lambda: bootstrap_interval(sums_of([1.0, 2.0]), ratio, seed=0, confidence=95),
            "between 0 and 1",
        ),
        (
            lambda: bootstrap_interval(sums_of([1.0]), ratio, seed=0, confidence=95),
            "between 0 and 1",
        ),
    ],
)
def test_what_cannot_be_resampled_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_strata_narrow_what_lies_between_them():
    values = np.concatenate([np.arange(10.0), 100 + np.arange(10.0)])
    strata = [0] * 10 + [1] * 10
    whole = bootstrap_interval(sums_of(values), ratio, seed=0)
    for method in ("studentized", "bca", "percentile"):
        found = bootstrap_interval(sums_of(values), ratio, seed=0, strata=strata, method=method)
        assert found.value == 54.5
        assert 1 < found.half_width < 2 < whole.half_width


def test_a_statistic_that_is_not_always_there_is_refused():
    sums = np.array([[1.0, 1.0], [0.0, 0.0]])  # half of a quarter of the resamples divide by 0
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="not finite in"):
        bootstrap_interval(sums, ratio, seed=0)
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="of all rows is nan"):
        bootstrap_interval(np.zeros((3, 2)), ratio, seed=0)
