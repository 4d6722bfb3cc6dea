"""What a study computes from its records, against figures worked out by hand."""

import math
from statistics import fmean, stdev

import pytest
from charts import forests_of, panels_of
from chromium import check_shown

from openrlhf_js.stats import detectable_effect
from openrlhf_js.study.analysis import analyse
from openrlhf_js.study.design import Run
from openrlhf_js.study.figures import Figures
from openrlhf_js.study.page import picture, write
from openrlhf_js.study.tables import cause_table, print_tables, results_table, verdicts


def record(estimator, seed, pass1, rate=1e-4, task="sort", curve=(0.0, 0.5, 1.0), **more):
    """A run's record."""
    run = Run(task, "natural", 16, 2, estimator, rate, seed)
    figures = Figures(
        pass1=pass1,
        reward=pass1 / 2,
        curve=list(curve),
        steps=30,
        dead=1.0,
        baseline_error=1.0,
        gradient_variance=1.0,
        gradient_snr=1.0,
    )
    return run._asdict() | figures._asdict() | more


def row_of(rows, estimator, quantity, learning_rate=None):
    (row,) = [
        row
        for row in rows
        if (row.estimator, row.quantity) == (estimator, quantity)
        and learning_rate in (None, row.learning_rate)
    ]
    return row


RLOO = {1e-4: [0.30, 0.40, 0.50], 2e-4: [0.10, 0.20, 0.60]}
JS = {1e-4: [0.35, 0.40, 0.54], 2e-4: [0.45, 0.50, 0.70]}


@pytest.fixture
def findings():
    records = [
        record(name, seed, value, rate)
        for name, rates in (("rloo", RLOO), ("js", JS))
        for rate, values in rates.items()
        for seed, value in enumerate(values)
    ]
    return analyse(reversed(records), "rloo")


def test_each_estimator_is_compared_at_its_own_best_rate(findings):
    # rloo's means over the other two seeds: 0.45 and 0.40, 0.40 and 0.35, 0.35 and 0.15
    assert row_of(findings.means, "rloo", "pass1").learning_rate == "0.0001"
    assert row_of(findings.means, "js", "pass1").learning_rate == "0.0002"
    row = row_of(findings.differences, "js", "pass1")
    gains = [0.45 - 0.30, 0.50 - 0.40, 0.70 - 0.50]
    assert row.value == pytest.approx(fmean(gains))
    half = 4.302653 * stdev(gains) / math.sqrt(3)  # t with 2 degrees of freedom
    assert (row.low, row.high) == pytest.approx((fmean(gains) - half, fmean(gains) + half))
    assert row.seeds == 3 and row.p_holm == row.p
    error = stdev(gains) / math.sqrt(3)
    assert row.detectable == pytest.approx(detectable_effect(error, 2))
    at_rate = row_of(findings.means_at_each_rate, "js", "pass1", learning_rate="0.0001")
    assert at_rate.value == pytest.approx(fmean([0.35, 0.40, 0.54]))


def test_p_values_are_corrected_over_all_cells():
    records = []
    for task, js in {"sort": [0.51, 0.62, 0.71], "maze": [0.56, 0.67, 0.76]}.items():
        finals = {"bloo": [0.52, 0.61, 0.72], "js": js, "rloo": [0.4, 0.5, 0.6]}
        for name, values in finals.items():
            records += [record(name, seed, value, task=task) for seed, value in enumerate(values)]
    differences = analyse(records, "rloo").differences
    rows = [row for row in differences if row.quantity == "pass1"]
    least = min(rows, key=lambda row: row.p)
    assert len(rows) == 4
    assert least.p_holm == pytest.approx(4 * least.p)


def test_what_the_correction_leaves_open_is_undecided():
    finals = {
        "rloo": [0.5, 0.5, 0.5],
        "js": [0.55, 0.6, 0.62],
        "bloo": [0.5, 0.6, 0.7],
        "opo": [0.7, 0.5, 0.6],
    }
    records = []
    for name, values in finals.items():
        records += [record(name, seed, value) for seed, value in enumerate(values)]
    findings = analyse(records, "rloo")
    row = row_of(findings.differences, "js", "pass1")
    assert row.low > 0 and row.p < 0.05 < row.p_holm
    by_estimator = {row["estimator"]: row for row in results_table(findings, row.cell)}
    assert "undecided (detects" in by_estimator["js"]["pass@1 - rloo"]


def test_a_seed_has_no_say_in_its_learning_rate():
    """Each seed is best at a rate that is bad for the other two: it gets one of theirs."""
    finals = {1e-4: [0.9, 0.1, 0.1], 2e-4: [0.1, 0.9, 0.1], 4e-4: [0.1, 0.1, 0.9]}
    records = []
    for rate, values in finals.items():
        records += [record("js", seed, value, rate) for seed, value in enumerate(values)]
    (pass1,) = [row for row in analyse(records, "js").means if row.quantity == "pass1"]
    assert pass1.value == pytest.approx(0.1)  # and not 0.37, the highest mean


def test_the_tables_of_one_cell(findings):
    cell = "sort, natural, 16 x 2"
    assert cause_table(findings, cell)[0]["gradient variance"] == "1 ± 0, p 1"
    js, rloo = results_table(findings, cell)
    assert (rloo["pass@1"], rloo["pass@1 - rloo"]) == ("40.0 ± 24.8", "")
    assert (js["learning rate"], js["pass@1"]) == ("0.0002", "55.0 ± 32.9")
    assert js["pass@1 - rloo"] == "+15.0 ± 12.4, p 0.035"
    assert js["training reward - rloo"].startswith("+7.5 ± 6.2")


def test_one_seed_has_no_differences(capsys):
    print_tables(analyse([record(name, 0, 0.5) for name in ("rloo", "js")], "rloo"))
    said = capsys.readouterr().out
    assert "pass@1 in percent. No difference has an interval yet" in said
    assert "- rloo" not in said


def test_the_result_of_a_users_own_grader_is_a_mean_reward(tmp_path):
    """Its scores may be parts of 1, or any number."""
    records = []
    for cell in ({"responses": 2}, {"responses": 4}):
        for name, reward in (("rloo", 0.25), ("js", 0.75)):
            records += [record(name, seed, reward, task="own", **cell) for seed in range(2)]
    findings = analyse(records, "rloo")
    rloo, _ = results_table(findings, "16 x 2")
    assert rloo["mean reward"].startswith("25.0")
    assert verdicts(findings) == {"js": "+50.0 (50.0 to 50.0)"}
    page = write(tmp_path, findings, "a title").read_text()
    assert "mean reward" in page and "pass@1" not in page


def test_the_picture_has_curves_and_differences(findings):
    drawn = picture(findings, "a model")
    (curves,) = panels_of(drawn)
    for name in ("rloo", "js"):
        assert curves.lines[name].x.tolist() == [5, 15, 25]
        assert curves.lines[name].value.tolist() == [0.0, 0.5, 1.0]
    (differences,) = forests_of(drawn)
    row = row_of(findings.differences, "js", "pass1")
    expected = [100 * end for end in (row.value, row.low, row.high)]
    assert differences == {("as drawn", "js"): pytest.approx(expected)}


def test_a_picture_shows_two_curves_with_all_of_their_bands(tmp_path):
    records = [
        record(name, seed, value, curve=(0.1 * seed, value))
        for name, value in (("rloo", 0.4), ("bloo", 0.3), ("js", 0.6))
        for seed in range(3)
    ]
    findings = analyse(records, "rloo")
    (curves,) = panels_of(picture(findings, "a model"))
    assert curves.lines.keys() == {"rloo", "js"}
    bottom, top = curves.vertical["domain"]
    for line in curves.lines.values():
        assert bottom < line.low.min() and line.high.max() < top
    write(tmp_path, findings, "a title")
    for name in ("compared.png", "compared-dark.png"):
        width = int.from_bytes((tmp_path / name).read_bytes()[16:20], "big")
        assert 1180 <= width <= 1200


def mixes():
    """Differences of 11 and 21 points where alike, in two cells; 0 as drawn, and -4 in the mix."""
    records = []
    gains = {("alike", 16): 0.1, ("alike", 64): 0.2, ("natural", 16): -0.01, ("mixed", 16): -0.05}
    for (mix, prompts), gain in gains.items():
        for seed in range(3):
            cell = {"mix": mix, "prompts": prompts}
            records.append(record("rloo", seed, 0.5 + 0.01 * seed, **cell))
            records.append(record("js_grad", seed, 0.5 + gain + 0.02 * seed, **cell))
    return analyse(records, "rloo")


def test_a_verdict_has_the_difference_in_each_mix():
    findings = mixes()
    (verdict,) = verdicts(findings).values()
    alike, natural, mixed = findings.averages_by_mix
    assert (alike.value, alike.cells) == (pytest.approx(16), 2)
    row = next(
        row for row in findings.differences if row.mix == "mixed" and row.quantity == "pass1"
    )
    assert mixed[2:5] == pytest.approx((100 * row.value, 100 * row.low, 100 * row.high))
    assert natural.detectable == pytest.approx(detectable_effect(1 / math.sqrt(3), 2))
    assert alike.detectable == pytest.approx(detectable_effect(1 / math.sqrt(6), 4))
    assert verdict.startswith("+16.0 (")
    undecided = f"+0.0 (-2.5 to 2.5) as drawn, undecided (detects {natural.detectable:.1f})"
    assert f" where alike; {undecided}; -4.0 (-6.5 to -1.5) in the mix" in verdict
    _, js_grad = results_table(findings, "sort, natural, 16 x 2", quantities=["pass1"])
    assert js_grad["pass@1 - rloo"].endswith(f"undecided (detects {natural.detectable:.1f})")


def test_a_browser_shows_the_page_of_a_study(tmp_path):
    page = write(tmp_path, mixes(), "a title").read_text()
    laptop, phone = check_shown(page, tmp_path, charts=5)
    for text in (laptop, phone):
        first = text.index("js_grad: +16.0 (")
        assert first < text.index("Learning curves") < text.index("Why")
        assert "-4.0 (-6.5 to -1.5)" in text and "Undecided: p is 0.05 or more" in text
        assert "not corrected for the number of comparisons" in text
        assert "alike (where alike): the middle third" in text
        assert text.count("mean over seeds, 95 % intervals") == 4


def test_one_seed_has_means_alone(tmp_path):
    records = [record("rloo", 0, 0.5), record("js", 0, 1)]
    findings = analyse(records, "rloo")
    assert findings.differences == []
    assert verdicts(findings) == {}
    assert forests_of(picture(findings, "")) == []
    page = write(tmp_path, findings, "a title")
    assert ",0.5,,,1," in page.with_name("rows.csv").read_text()
