import copy
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from openrlhf_js.evaluation.passk.compare import compare, in_words, mean_difference
from openrlhf_js.evaluation.passk.results import read_results, results, write_json
from openrlhf_js.evaluation.passk.summary import summarise
from openrlhf_js.uncertainty import Difference, paired_detectable_effect

sys.path.insert(0, str(Path(__file__).parent))
from passk_kit import group, items

SETTINGS = {"temperature": 0.7, "top_p": 1.0, "max_new_tokens": 64, "prompt_form": "chat"}


def evaluated(model, shares, names=("toy",), k=8, seed=0):
    """Results with these chances of a right answer, item by item."""
    draws = np.random.default_rng(seed)
    made = items(len(shares))
    tasks = {}
    for name in names:
        groups = [
            group(i, "".join("r" if u < share else "w" for u in draws.random(k)))
            for i, share in enumerate(shares)
        ]
        tasks[name] = {"settings": dict(SETTINGS), **summarise(made, groups)}
    return results(model, tasks)


A = evaluated("a", np.linspace(0.1, 0.8, 12))
B = evaluated("b", np.linspace(0.3, 0.9, 12), seed=1)


@pytest.mark.parametrize("metric", ["mean", "majority", "pass@4"])
def test_against_the_t_test_of_scipy(metric):
    from openrlhf_js.evaluation.passk.summary import values_of

    row = compare(A, B, metric)["rows"][0]
    a, b = (values_of(each["tasks"]["toy"], metric) for each in (A, B))
    expected = stats.ttest_rel(b, a)
    low, high = expected.confidence_interval()
    assert row["p_value"] == pytest.approx(expected.pvalue)
    assert row["difference"] == pytest.approx({"value": (b - a).mean(), "low": low, "high": high})
    seen = paired_detectable_effect((b - a).std(ddof=1), 12)
    assert row["detectable"] == pytest.approx(seen)
    assert (row["a"], row["b"]) == pytest.approx((a.mean(), b.mean()))


def test_sides_can_be_swapped():
    there, back = compare(A, B)["rows"][0], compare(B, A)["rows"][0]
    assert there["difference"]["value"] == pytest.approx(-back["difference"]["value"])
    assert there["p_value"] == pytest.approx(back["p_value"])


def test_repeated_items_do_not_make_it_surer():
    twice = copy.deepcopy([A, B])
    for each in twice:
        of = each["tasks"]["toy"]["per_item"]
        for name in of:
            of[name] = of[name] * 2
    row, once = compare(*twice)["rows"][0], compare(A, B)["rows"][0]
    assert row["p_value"] == pytest.approx(once["p_value"])
    assert row["items"] == 12


def test_several_benchmarks_and_their_mean():
    shares = np.linspace(0.2, 0.7, 12)
    a = evaluated("a", shares, ("one", "two"))
    b = evaluated("b", shares + 0.2, ("one", "two"), seed=5)
    first, second, mean = compare(a, b)["rows"]
    assert mean["task"] == "mean"
    assert mean["difference"]["value"] == pytest.approx(
        (first["difference"]["value"] + second["difference"]["value"]) / 2
    )
    assert mean["items"] == 24
    assert mean["detectable"] < min(first["detectable"], second["detectable"])


def test_the_mean_of_differences_by_hand():
    parts = [Difference(0.1, 0, 0, 0, 0.03, 9.0), Difference(0.3, 0, 0, 0, 0.04, 9.0)]
    found = mean_difference(parts)
    assert found.value == pytest.approx(0.2)
    assert found.standard_error == pytest.approx(0.025)  # sqrt(0.03^2 + 0.04^2) / 2
    degrees = (9e-4 + 16e-4) ** 2 / (9e-4**2 / 9 + 16e-4**2 / 9)
    assert found.degrees_of_freedom == pytest.approx(degrees)
    assert found.p_value == pytest.approx(2 * stats.t.sf(0.2 / 0.025, degrees))
    half = stats.t.ppf(0.975, degrees) * 0.025
    assert (found.low, found.high) == pytest.approx((0.2 - half, 0.2 + half))


def test_one_item_says_nothing():
    a, b = evaluated("a", [0.1]), evaluated("b", [0.9])
    found = compare(a, b)
    assert found["rows"][0]["detectable"] is None
    assert found["in_words"] == ["toy: 1 items are too few for any test."]
    unbounded = mean_difference([Difference(0.5, 0, 1, 1.0, np.inf, 0.0)] * 2)
    assert unbounded.p_value == 1.0


def test_a_model_against_itself():
    assert "score the same on every one of 12 items" in compare(A, A)["in_words"][0]


def test_items_that_differ_all_alike_promise_nothing():
    a, b = evaluated("a", [0.0] * 3), evaluated("b", [1.0] * 3)
    found = compare(a, b)
    assert found["rows"][0]["detectable"] is None
    assert found["in_words"] == [
        "toy: B is better by 100.0 points on every one of 3 items (p = 0.25)."
    ]


def test_a_server_may_be_compared_with_a_folder():
    served = copy.deepcopy(B)
    del served["tasks"]["toy"]["settings"]["prompt_form"]
    assert compare(A, served)["rows"] == compare(A, B)["rows"]


def row(change, p_value, seen, items=40):
    difference = {"value": change, "low": change - 0.05, "high": change + 0.05}
    return {
        "task": "amc23",
        "items": items,
        "difference": difference,
        "p_value": p_value,
        "detectable": seen,
    }


def test_words_say_what_a_small_benchmark_could_have_seen():
    said = in_words(row(0.025, 0.4, 0.1))
    assert said == (
        "amc23: no difference is shown (+2.5 points, p = 0.4). A true one of 10.0 points would "
        "have been found 8 times in 10; a smaller one may well have been missed. 40 items are too "
        "few to see less than 10.0 points reliably: for an effect of 5.0 points, take about 160 "
        "such items."
    )
    assert in_words(row(-0.08, 0.001, 0.02)) == (
        "amc23: B is worse by 8.0 points (p = 0.001, 40 items)."
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda task: task["settings"].update(temperature=1.0), "temperature is 0.7 and 1.0"),
        (lambda task: task["settings"].update(max_new_tokens=9), "max_new_tokens is 64 and 9"),
        (lambda task: task["settings"].update(prompt_form="text"), "prompt_form is 'chat' and"),
        (lambda task: task.update(samples=4), "samples are 8 and 4"),
        (
            lambda task: task["per_item"]["uid"].__setitem__(3, "new"),
            "12 and 12 items, 11 of them the same; the first that differs is number 4",
        ),
        (lambda task: task["per_item"]["uid"].pop(), "12 and 11 items, 11 of them the same"),
    ],
)
def test_what_is_not_the_same_is_refused(change, message):
    other = copy.deepcopy(B)
    change(other["tasks"]["toy"])
    with pytest.raises(ValueError, match=f"no fair comparison:\n  toy: {message}"):
        compare(A, other)


def test_other_benchmarks_are_refused():
    with pytest.raises(ValueError, match=r"only one of the two has more \(a has toy; b has more"):
        compare(A, evaluated("b", [0.5] * 12, ("more", "toy")))


def test_results_on_disk(tmp_path):
    write_json(tmp_path / "results.json", A)
    assert compare(read_results(tmp_path), B) == compare(A, B)
    assert read_results(tmp_path / "results.json") == read_results(tmp_path)
    with pytest.raises(ValueError, match=r"holds no results\.json"):
        read_results(tmp_path / "nowhere")
    for text, message in (("{", "is no JSON"), ("[]", "is no result of"), ("{}", "is no result")):
        (tmp_path / "results.json").write_text(text)
        with pytest.raises(ValueError, match=message):
            read_results(tmp_path)


def without(found, gone):
    """Results after a server refused these items."""
    left = copy.deepcopy(found)
    task = left["tasks"]["toy"]
    task["left_out"] = [task["per_item"]["uid"][place] for place in gone]
    for values in task["per_item"].values():
        for place in sorted(gone, reverse=True):
            del values[place]
    task["items"] = task["distinct_items"] = len(task["per_item"]["uid"])
    return left


def test_what_one_of_them_leaves_out_is_compared_in_neither():
    both = compare(without(A, [1, 4]), without(B, [1, 4]))
    each = compare(without(A, [4]), without(B, [1]))
    assert each["rows"] == both["rows"]
    assert each["rows"][0]["items"] == 10
    assert (
        each["notes"]
        == both["notes"]
        == ["toy: 2 items, which a server refused A or B, are left out of the comparison."]
    )
    assert compare(A, B)["notes"] == []
    with pytest.raises(ValueError, match="no item that neither of the two leaves out"):
        compare(without(A, [*range(6)]), without(B, [*range(6, 12)]))


def test_items_that_are_only_missing_are_still_an_error():
    fewer = without(B, [3])
    del fewer["tasks"]["toy"]["left_out"]
    with pytest.raises(ValueError, match="12 and 11 items, 11 of them the same"):
        compare(A, fewer)


def test_graders_of_two_versions_are_told():
    a, b = copy.deepcopy([A, B])
    a["tasks"]["toy"]["graded_by"], b["tasks"]["toy"]["graded_by"] = "0.1.0", "0.2.0"
    (said,) = compare(a, b)["notes"]
    assert "(toy by 0.1.0 and 0.2.0)" in said and "--grade_again" in said
    b["tasks"]["toy"]["graded_by"] = "0.1.0"
    assert compare(a, b)["notes"] == []
