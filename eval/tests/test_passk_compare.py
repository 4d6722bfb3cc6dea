import copy

import numpy as np
import pytest
from passk_kit import group, items
from scipy import stats

from paired_eval.cli.passk import correct_p
from paired_eval.pages import passk as report
from paired_eval.passk.compare import compare, mean_difference, values_of
from paired_eval.passk.summary import FORMAT, summarise
from paired_eval.stats import Difference, detectable_effect

SETTINGS = {
    "temperature": 0.7,
    "top_p": 1.0,
    "max_new_tokens": 64,
    "prompt_form": "chat",
}


def evaluated(model, shares, names=("toy",), k=8, seed=0):
    """Results with these chances of a right answer, item by item."""
    rng = np.random.default_rng(seed)
    tasks = {}
    for name in names:
        groups = []
        for item, share in enumerate(shares):
            is_right = rng.random(k) < share
            marks = np.where(is_right, "r", "w")
            groups.append(group(item, "".join(marks)))
        summary = summarise(items(len(shares)), groups)
        tasks[name] = {"settings": dict(SETTINGS), **summary}
    return {"format": FORMAT, "model": model, "tasks": tasks}


A = evaluated("a", np.linspace(0.1, 0.8, 12))
B = evaluated("b", np.linspace(0.3, 0.9, 12), seed=1)


@pytest.mark.parametrize("metric", ["mean", "majority", "pass@4"])
def test_against_the_t_test_of_scipy(metric):
    (row,) = compare(A, B, metric)["rows"]
    a = values_of(A["tasks"]["toy"], metric)
    b = values_of(B["tasks"]["toy"], metric)
    expected = stats.ttest_rel(b, a)
    low, high = expected.confidence_interval()
    standard_error = (b - a).std(ddof=1) / np.sqrt(12)
    figures = {
        "a": a.mean(),
        "b": b.mean(),
        "value": (b - a).mean(),
        "low": low,
        "high": high,
        "p_value": expected.pvalue,
        "detectable": detectable_effect(standard_error, 11),
    }
    assert {name: row[name] for name in figures} == pytest.approx(figures)


def test_several_benchmarks_and_their_mean():
    shares = np.linspace(0.2, 0.7, 12)
    a = evaluated("a", shares, ("one", "two"))
    b = evaluated("b", shares + 0.2, ("one", "two"), seed=5)
    first, second, mean = compare(a, b)["rows"]
    assert mean["task"] == "mean"
    assert mean["items"] == 24
    assert mean["value"] == pytest.approx((first["value"] + second["value"]) / 2)
    assert mean["detectable"] < min(first["detectable"], second["detectable"])


def difference(value, error, degrees=9.0):
    return Difference(value, 0, 0, 1.0, error, degrees)


def test_the_mean_of_differences_by_hand():
    mean = mean_difference([difference(0.1, 0.03), difference(0.3, 0.04)], clusters=20)
    assert mean.value == pytest.approx(0.2)
    assert mean.standard_error == pytest.approx(0.025)  # sqrt(0.03^2 + 0.04^2) / 2
    degrees = (9e-4 + 16e-4) ** 2 / (9e-4**2 / 9 + 16e-4**2 / 9)
    assert mean.degrees_of_freedom == pytest.approx(degrees)
    assert mean.p_value == pytest.approx(2 * stats.t.sf(0.2 / 0.025, degrees))
    half_width = stats.t.ppf(0.975, degrees) * 0.025
    assert mean.low == pytest.approx(0.2 - half_width)
    assert mean.high == pytest.approx(0.2 + half_width)
    unknown = difference(0.5, np.inf, degrees=0.0)  # without a spread nothing is shown
    assert mean_difference([unknown, unknown], clusters=2).p_value == 1.0


@pytest.mark.parametrize(
    ("a", "b", "p_value"),
    [([0.0], [1.0], 1), ([0.5] * 9, [0.5] * 9, 1), ([0.0] * 9, [1.0] * 9, 2**-8)],
)
def test_where_no_effect_size_can_be_told(a, b, p_value):
    (row,) = compare(evaluated("a", a), evaluated("b", b))["rows"]
    assert row["detectable"] is None
    assert row["p_value"] == p_value


@pytest.mark.parametrize(
    ("field", "name", "value", "message"),
    [
        ("settings", "temperature", 1.0, "temperature"),
        ("settings", "prompt_form", "text", "prompt_form"),
        ("per_item", "uid", ["new"], "12 and 1 items"),
    ],
)
def test_what_is_not_the_same_is_refused(field, name, value, message):
    other = copy.deepcopy(B)
    other["tasks"]["toy"][field][name] = value
    with pytest.raises(ValueError, match=f"no fair comparison:\n  toy: {message}"):
        compare(A, other)


def test_the_sign_test_of_a_mean_counts_the_items_that_differ():
    a = evaluated("a", [0.0, 0.0], ("few",))
    b = evaluated("b", [1.0, 1.0], ("few",))
    equal = evaluated("", [0.0] * 12, ("equal",))["tasks"]
    few, _, mean = compare({**a, "tasks": a["tasks"] | equal}, {**b, "tasks": b["tasks"] | equal})[
        "rows"
    ]
    assert few["p_value"] == mean["p_value"] == 0.5
    b["tasks"]["down"] = evaluated("", [0.0] * 12, ("down",))["tasks"]["down"]
    a["tasks"]["down"] = evaluated("", [1.0] * 12, ("down",))["tasks"]["down"]
    *_, mean = compare(a, b)["rows"]
    assert mean["p_value"] == 1  # one up, one down


def test_a_field_that_one_of_them_was_not_sent_is_refused():
    other = copy.deepcopy(B)
    other["tasks"]["toy"]["settings"]["omitted"] = ["seed"]
    assert compare(A, other)["rows"] == compare(A, B)["rows"]
    other["tasks"]["toy"]["settings"]["omitted"] = ["temperature"]
    with pytest.raises(ValueError, match="--omit"):
        compare(A, other)


def test_a_server_may_be_compared_with_a_folder():
    served = copy.deepcopy(B)
    del served["tasks"]["toy"]["settings"]["prompt_form"]
    assert compare(A, served)["rows"] == compare(A, B)["rows"]
    with pytest.raises(ValueError, match="only one of the two has more"):
        compare(A, evaluated("b", [0.5] * 12, ("more", "toy")))


def test_a_difference_of_shares_stays_within_100_points():
    pair = [evaluated(name, shares) for name, shares in (("a", [0, 0]), ("b", [0, 1]))]
    (row,) = report.differences(compare(*pair), "B")
    assert row["difference to A, points"] == "+50.0 (-100.0 to 100.0)"


def test_several_comparisons_are_concluded_by_holms_method():
    comparisons = {label: copy.deepcopy(compare(A, B)) for label in "BC"}
    for label, p_value in (("B", 0.03), ("C", 0.04)):
        comparisons[label]["rows"][-1]["p_value"] = p_value
    assert "undecided" not in report.conclusion(comparisons["B"], "B")
    (note,) = correct_p(comparisons)
    assert "2 comparisons" in note
    assert [one["rows"][-1]["p_holm"] for one in comparisons.values()] == [0.06, 0.06]
    assert "undecided" in report.conclusion(comparisons["B"], "B")
    assert correct_p({"B": comparisons["B"]}) == []
