import copy
import json

import numpy as np
import pytest
from passk_kit import group, items
from scipy import stats

from openrlhf_js.evaluation.passk.compare import compare, mean_difference, values_of
from openrlhf_js.evaluation.passk.summary import FORMAT, read_results, summarise
from openrlhf_js.report import passk as report
from openrlhf_js.stats import Difference, detectable_effect

SETTINGS = {"temperature": 0.7, "top_p": 1.0, "max_new_tokens": 64, "prompt_form": "chat"}


def evaluated(model, shares, names=("toy",), k=8, seed=0):
    """Results with these chances of a right answer, item by item."""
    draws = np.random.default_rng(seed)
    tasks = {}
    for name in names:
        groups = [
            group(i, "".join("r" if u < share else "w" for u in draws.random(k)))
            for i, share in enumerate(shares)
        ]
        summary = summarise(items(len(shares)), groups)
        tasks[name] = {"settings": dict(SETTINGS), **summary}
    return {"format": FORMAT, "model": model, "tasks": tasks}


A = evaluated("a", np.linspace(0.1, 0.8, 12))
B = evaluated("b", np.linspace(0.3, 0.9, 12), seed=1)


@pytest.mark.parametrize("metric", ["mean", "majority", "pass@4"])
def test_against_the_t_test_of_scipy(metric):
    row = compare(A, B, metric)["rows"][0]
    a, b = (values_of(each["tasks"]["toy"], metric) for each in (A, B))
    expected = stats.ttest_rel(b, a)
    low, high = expected.confidence_interval()
    assert row["p_value"] == pytest.approx(expected.pvalue)
    assert [row[name] for name in ("value", "low", "high", "a", "b")] == pytest.approx(
        [(b - a).mean(), low, high, a.mean(), b.mean()]
    )
    error = (b - a).std(ddof=1) / np.sqrt(12)
    assert row["detectable"] == pytest.approx(detectable_effect(error, 11))
    back = compare(B, A, metric)["rows"][0]
    assert (back["value"], back["p_value"]) == pytest.approx((-row["value"], row["p_value"]))


def test_several_benchmarks_and_their_mean():
    shares = np.linspace(0.2, 0.7, 12)
    a = evaluated("a", shares, ("one", "two"))
    b = evaluated("b", shares + 0.2, ("one", "two"), seed=5)
    first, second, mean = compare(a, b)["rows"]
    assert (mean["task"], mean["items"]) == ("mean", 24)
    assert mean["value"] == pytest.approx((first["value"] + second["value"]) / 2)
    assert mean["detectable"] < min(first["detectable"], second["detectable"])


def test_the_mean_of_differences_by_hand():
    parts = [Difference(0.1, 0, 0, 0, 0.03, 9.0), Difference(0.3, 0, 0, 0, 0.04, 9.0)]
    found = mean_difference(parts, 20)
    assert found.value == pytest.approx(0.2)
    assert found.standard_error == pytest.approx(0.025)  # sqrt(0.03^2 + 0.04^2) / 2
    degrees = (9e-4 + 16e-4) ** 2 / (9e-4**2 / 9 + 16e-4**2 / 9)
    assert found.degrees_of_freedom == pytest.approx(degrees)
    assert found.p_value == pytest.approx(2 * stats.t.sf(0.2 / 0.025, degrees))
    half = stats.t.ppf(0.975, degrees) * 0.025
    assert (found.low, found.high) == pytest.approx((0.2 - half, 0.2 + half))
    assert mean_difference([Difference(0.5, 0, 1, 1.0, np.inf, 0.0)] * 2, 2).p_value == 1.0


@pytest.mark.parametrize(
    ("a", "b", "p_value"),
    [([0.0], [1.0], 1), ([0.5] * 9, [0.5] * 9, 1), ([0.0] * 9, [1.0] * 9, 2**-8)],
)
def test_where_no_effect_size_can_be_told(a, b, p_value):
    (row,) = compare(evaluated("a", a), evaluated("b", b))["rows"]
    assert row["detectable"] is None and row["p_value"] == p_value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda task: task["settings"].update(temperature=1.0), "temperature is 0.7 and 1.0"),
        (lambda task: task["settings"].update(prompt_form="text"), "prompt_form is 'chat' and"),
        (lambda task: task.update(samples=4), "samples are 8 and 4"),
        (lambda task: task["per_item"]["uid"].__setitem__(3, "new"), "12 and 12 items, 11 of them"),
    ],
)
def test_what_is_not_the_same_is_refused(change, message):
    other = copy.deepcopy(B)
    change(other["tasks"]["toy"])
    with pytest.raises(ValueError, match=f"no fair comparison:\n  toy: {message}"):
        compare(A, other)


def test_a_server_may_be_compared_with_a_folder():
    served = copy.deepcopy(B)
    del served["tasks"]["toy"]["settings"]["prompt_form"]
    assert compare(A, served)["rows"] == compare(A, B)["rows"]
    with pytest.raises(ValueError, match="only one of the two has more"):
        compare(A, evaluated("b", [0.5] * 12, ("more", "toy")))


def test_results_on_disk(tmp_path):
    (tmp_path / "results.json").write_text(json.dumps(A))
    assert compare(read_results(tmp_path), B) == compare(A, B)
    assert read_results(tmp_path / "results.json") == read_results(tmp_path)
    with pytest.raises(ValueError, match=r"holds no results\.json"):
        read_results(tmp_path / "nowhere")
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(ValueError, match="does not hold results of this version"):
        read_results(tmp_path)


def test_tables_and_notes():
    (row,) = report.scores(A)
    task = A["tasks"]["toy"]
    mean = report.value_of(task, "mean_at_k")
    assert row["mean@k %"].startswith(f"{100 * mean['value']:.1f} ({100 * mean['low']:.1f} to ")
    assert [*report.passes(A)[0]] == ["pass@j %, j =", "1", "2", "4", "8"]
    (row,) = report.differences(compare(A, B))
    assert row["benchmark"] == "toy" and row["A %"] == f"{100 * mean['value']:.1f}"
    cut = copy.deepcopy(A)
    for each in cut["tasks"]["toy"]["rows"]:
        if each["quantity"] in ("truncated", "timeout"):
            each["value"] = 0.25
    notes = " ".join(report.notes(cut))
    assert "25.0 % were cut off at 64 tokens" in notes
    assert "25.00 % could not be graded" in notes
