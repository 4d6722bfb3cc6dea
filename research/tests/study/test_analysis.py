"""What a study computes from its records, against figures worked out by hand."""

import math
import re
from statistics import fmean, stdev

import pytest
from charts import forests_of, panels_of
from chromium import opened

from baseline_research.study.analysis import analyse
from baseline_research.study.figures import Figures, may_be_in_unit
from baseline_research.study.page import picture, write
from baseline_research.study.runs import Run
from baseline_research.study.tables import (
    cause_table,
    conclusion,
    print_tables,
    results_table,
    verdicts,
)
from paired_eval.stats import detectable_effect

DIFFERENCE = "pass@1: difference to rloo, points"


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
    assert "undecided (detects" in by_estimator["js"][DIFFERENCE]


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
    assert "no interval" in cause_table(findings, cell)[0]["gradient variance"]
    js, rloo = results_table(findings, cell)
    assert (rloo["pass@1, %"], rloo[DIFFERENCE]) == ("40.0 ± 24.8", "")
    assert (js["learning rate"], js["pass@1, %"]) == ("0.0002", "55.0 ± 32.9")
    assert js[DIFFERENCE] == "+15.0 ± 12.4, p 0.035"
    assert js["training reward: difference to rloo, points"].startswith("+7.5 ± 6.2")


def own(*finals, **more):
    """A study of the user's own data: by estimator, the mean rewards of its seeds."""
    records = []
    for name, rewards in finals:
        for seed, reward in enumerate(rewards):
            records.append(record(name, seed, reward, task="own", **more))
    return analyse(records, "rloo")


def test_the_result_of_a_users_own_grader_is_a_mean_reward_and_printed_as_it_is(tmp_path, capsys):
    """Its scores may be parts of 1, or any number: those of a reward model, such as 0.538."""
    findings = own(("rloo", [0.531, 0.538, 0.545]), ("js", [2.531, 2.548, 2.545]))
    rloo, js = results_table(findings, "16 x 2")
    assert rloo["mean reward"] == "0.538 ± 0.0174"  # t = 4.303 times 0.007 / sqrt(3)
    assert rloo["training reward"] == "0.269 ± 0.00869"
    assert js["mean reward: difference to rloo"].startswith("+2 ± 0.0143, p ")
    assert verdicts(findings) == {"js": "+2 (1.99 to 2.02)"}
    page = write(tmp_path, findings, "a title").read_text()
    print_tables(findings)
    for text in (page, capsys.readouterr().out):
        assert "mean reward" in text and "0.538 ± 0.0174" in text
        assert "pass@1" not in text and "53.8" not in text and "points" not in text
        assert "%" not in re.sub(r"95 %|80 %|width: ?\d+%|[\d.]+%", "", text.split("</style>")[-1])


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
    write(tmp_path, findings, "a title")
    assert (tmp_path / "compared.png").read_bytes().startswith(b"\x89PNG")


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
    for words in (
        "+16.0 (",
        f"undecided (detects {natural.detectable:.1f})",
        "-4.0 (-6.5 to -1.5)",
    ):
        assert words in verdict
    assert "js_grad (in the mix) is worse than rloo" in conclusion(findings)


def test_a_browser_shows_the_page_of_a_study(tmp_path):
    with opened(write(tmp_path, mixes(), "a title")) as tab:
        text = tab.text("body")
        drawn = "[...document.images].filter(image => image.naturalWidth > 0).length"
        assert tab.evaluate(drawn) == 5
        tab.check()
    first = text.index("js_grad: +16.0 (")
    assert first < text.index("Learning curves") < text.index("Why")
    assert "-4.0 (-6.5 to -1.5)" in text and "Undecided: p is 0.05 or more" in text
    assert "not corrected for the number of comparisons" in text
    assert "alike (where alike): the middle third" in text
    assert text.count("mean over seeds, 95 % intervals") == 4


def test_equal_seeds_have_no_interval_and_no_test(tmp_path, capsys):
    """A t interval needs spread: what is the same in all seeds has none, whatever rounding says."""
    finals = {"rloo": [0.3, 0.5], "js": [0.3, 0.5], "bloo": [0.4, 0.6]}  # 0.6 - 0.5 < 0.4 - 0.3
    records = []
    for name, values in finals.items():
        records += [
            record(name, seed, value, curve=(0.5, 0.5)) for seed, value in enumerate(values)
        ]
    findings = analyse(records, "rloo")
    cell = "sort, natural, 16 x 2"
    by_estimator = {row["estimator"]: row for row in results_table(findings, cell)}
    assert by_estimator["js"][DIFFERENCE] == "+0.0 (no interval: equal in all seeds)"
    assert by_estimator["bloo"][DIFFERENCE] == "+10.0 (no interval: equal in all seeds)"
    assert "undecided" in conclusion(findings)
    row = row_of(findings.differences, "js", "pass1")
    assert (row.low, row.high, row.p, row.p_holm) == (-math.inf, math.inf, None, None)
    print_tables(findings)
    page = write(tmp_path, findings, "a title")
    for text in (capsys.readouterr().out, page.read_text()):
        assert "± 0.0" not in text and "p 1" not in text and "nan" not in text
    rows = page.with_name("rows.csv").read_text().splitlines()
    assert any(
        row.startswith("difference") and row.endswith(",js,0.0001,pass1,0,,,2,,,,") for row in rows
    )


def test_rewards_from_0_to_1_have_intervals_and_bands_from_0_to_1():
    """Two seeds have t = 12.7: without the cut, 15 +- 63.5 %, and a band from -0.85 to 1.13."""
    finals = {"rloo": [0.1, 0.2], "js": [0.1, 0.8]}
    records = []
    for name, values in finals.items():
        for seed, value in enumerate(values):
            records.append(record(name, seed, value, curve=(0.06, 0.06 + 0.16 * seed)))
    findings = analyse(records, "rloo")
    for row in (*findings.means, *findings.curves):
        if getattr(row, "quantity", "reward") in ("pass1", "reward"):
            assert 0 <= row.low <= row.value <= row.high <= 1
    rloo, js = results_table(findings, "sort, natural, 16 x 2")
    assert rloo["pass@1, %"] == "15.0 (0.0 to 78.5)"
    assert js["pass@1, %"] == "45.0 (0.0 to 100.0)"
    assert js[DIFFERENCE].startswith("+30.0 (-100.0 to 100.0), p 0.5, undecided")


def test_rewards_beyond_0_and_1_keep_their_intervals():
    """Of a user's own grader: means outside, or rewards whose spread says that some are."""
    rewards = ("rloo", [0.1, 0.2]), ("js", [0.4, 0.5])
    (unit, *_), (spread, *_), (outside, *_) = (
        [row for row in findings.means if row.quantity == "pass1"]
        for findings in (
            own(*rewards),
            own(*rewards, rewards_in_unit=False),
            own(*rewards, curve=(-0.1, 0.5)),
        )
    )
    assert unit.low == 0
    assert spread.low == outside.low == pytest.approx(0.15 - 12.706 * 0.05, abs=1e-3)


@pytest.mark.parametrize(
    ("mean", "deviation", "count", "expected"),
    [
        (0.25, math.sqrt(4 / 3 * 0.1875), 4, True),  # 1, 0, 0, 0
        (0.25, 0.51, 4, False),
        (0.538, 1.0, 64, False),  # a reward model's
        (0.3, math.sqrt(0.91 * 64 / 63), 64, False),  # 1 and -1
        (0.5, 0.0, 1, True),
        (-0.1, 0.0, 4, False),
        (1.1, 0.0, 4, False),
    ],
)
def test_whether_rewards_may_lie_between_0_and_1(mean, deviation, count, expected):
    assert may_be_in_unit(mean, deviation, count) is expected
