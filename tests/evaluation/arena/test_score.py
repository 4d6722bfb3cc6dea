"""Scores, intervals and comparisons, against published figures, slow loops and a simulation."""

import math
import re

import numpy as np
import pandas as pd
import pytest
from judged_bench import judgment_row, random_rows, rows_with, write_judged, write_lines
from scipy import special, stats

from openrlhf_js.evaluation.arena.board import board, judging
from openrlhf_js.evaluation.arena.data import Folder
from openrlhf_js.evaluation.arena.notes import MISSING
from openrlhf_js.evaluation.arena.pool import load
from openrlhf_js.evaluation.arena.score import Plan, clustered, compare, games, official
from openrlhf_js.stats import clustered_mean, detectable_effect

V2 = "arena-hard-v2.0"
HARD = {"category": "hard_prompt", "baseline": "o3-mini-2025-01-31", "judge": "gpt-4.1"}
CREATIVE = {"category": "creative_writing", "baseline": "gemini-2.0-flash-001"}


@pytest.fixture
def pool(tmp_path):
    """Writes judgments and reads them: pool(rows) -> the only pool."""

    def made(rows, judges=("j",), bench="own", **named):
        write_judged(tmp_path, rows, bench=bench)
        (found,) = load(Folder(tmp_path, bench), judges, **named)
        return found

    return made


def own(rows, model="m"):
    return rows[rows.model == model]


def tally(rows):
    """Weighted rows won, lost and tied."""
    return [rows.weight[rows.points == points].sum() for points in (1, 0, 0.5)]


# the model's rows in game 1 (A is the baseline) and in game 2, as upstream's table has them
UPSTREAM = {
    "A>>B": ([0, 0, 0], [1, 1, 1]),
    "A>B": ([0], [1]),
    "A=B": ([0.5], [0.5]),
    "B>A": ([1], [0]),
    "B>>A": ([1, 1, 1], [0, 0, 0]),
}


@pytest.mark.parametrize("first", UPSTREAM)
@pytest.mark.parametrize("second", UPSTREAM)
def test_each_pair_of_verdicts_has_its_rows(pool, first, second):
    row = judgment_row("q", 1, 1)
    for game, verdict in zip(row["games"], (first, second), strict=True):
        game["score"] = verdict
    found = games(pool([row]).judged).sort_index()
    assert (
        np.repeat(found.points, found.weight.astype(int)).tolist()
        == UPSTREAM[first][0] + UPSTREAM[second][1]
    )


def test_rows_that_count(pool):
    rows = [judgment_row("a", 1, None), judgment_row("b", "failed", -2), judgment_row("c", 2, 1)]
    judged = pool(rows).judged
    assert tally(games(judged)) == [4, 0, 0]
    assert tally(games(judged, both=False)) == [5, 3, 0]
    assert tally(games(judged, much_weight=2)) == [3, 0, 0]
    assert judged.failed.tolist() == [0, 1, 0]


def test_the_published_score_of_gpt_3_5_is_found(pool):
    rows = games(pool(rows_with(258, 1012, 144, 500)).judged)
    assert tally(rows) == [258, 1012, 144]  # gpt-3.5-turbo-0125 on v0.1
    assert round(100 * clustered(rows).value, 2) == 23.34
    # published, of 100 unseeded rounds: 21.7 to 25.3; what the percentiles tend to is
    # 23.34 -+ 1.96 standard errors of 1,414 rows
    sure = official(rows, "v0.1", seed=0, rounds=3000)["m"]
    assert 100 * np.array(sure) == pytest.approx([23.34, 21.32, 25.39], abs=0.15)
    few = official(rows, "v0.1", seed=1)["m"]
    assert 100 * few.low == pytest.approx(21.5, abs=0.5)


@pytest.mark.parametrize("rule", ["v0.1", "v2.0"])
def test_official_intervals_are_those_of_rows_drawn_one_by_one(rule):
    outcomes = np.repeat([1.0, 0.0, 0.5], [300, 500, 110])
    rng = np.random.default_rng(1)
    means = [rng.choice(outcomes, len(outcomes)).mean() for _ in range(3000)]
    slow = np.quantile(means, (0.025, 0.975) if rule == "v0.1" else (0.05, 0.95))
    rows = pd.DataFrame({"model": "m", "points": outcomes, "weight": 1.0})
    found = official(rows, rule, seed=2, rounds=3000)["m"]
    assert [found.low, found.high] == pytest.approx(slow, abs=0.004)
    rare = pd.DataFrame([{"model": "rare", "points": 1.0, "weight": 1.0}])
    few = official(pd.concat([rows, rare], ignore_index=True), rule, seed=2)["rare"]
    assert few == (1, 1, 1)  # whose only row some resamples of v0.1 lack


def test_clustered_intervals_are_by_question(pool):
    # 40 questions with both games alike: 40 draws, not 80 rows
    alike = [judgment_row(f"q{n}", margin, margin) for n, margin in enumerate([1, -1] * 20)]
    both = alike + [{**row, "judge": "k"} for row in alike]
    rows = games(pool(both, ["j"]).judged)
    found = clustered(rows)
    # Wilson with t of 39 degrees of freedom and 40 * 39 / 40 trials, by hand
    t, trials = special.stdtrit(39, 0.975), 39.0
    half = np.sqrt(t**2 / trials * (0.25 + t**2 / trials / 4)) / (1 + t**2 / trials)
    assert found == pytest.approx((0.5, 0.5 - half, 0.5 + half))
    rowwise = official(rows, "v0.1", seed=0, rounds=2000)["m"]
    assert found.high - found.low > 1.35 * (rowwise.high - rowwise.low)


def test_two_judges_of_a_question_are_one_cluster(pool):
    alike = [judgment_row(f"q{n}", margin, margin) for n, margin in enumerate([1, -1, -1] * 6)]
    found = pool(alike + [{**row, "judge": "k"} for row in alike], ["j", "k"])
    one, two = (board(found, judges, Plan()).rows[-1] for judges in (["j"], ["j", "k"]))
    assert two["judge"] == "j + k" and two["wins"] == 2 * one["wins"]
    assert [two[end] for end in ("ci_low", "ci_high")] == pytest.approx(
        [one[end] for end in ("ci_low", "ci_high")]
    )


def test_how_a_judge_judged_by_hand(pool):
    rows = [
        judgment_row("1", 1, 1),  # the same
        judgment_row("2", -2, 1),  # the winner changes, A wins twice
        judgment_row("3", 2, 1),  # the same winner, another strength
        judgment_row("4", 0, -1),  # a tie and a winner
        judgment_row("5", 0, 0),
        judgment_row("6", None, 1),
        judgment_row("7", "failed", None),
    ]
    found = judging(pool(rows).judged)
    assert (found["games_failed"], found["games_without_verdict"]) == (1, 2)
    assert found["contradictions"] == pytest.approx(1 / 5)
    # points of A: 0 + 1, 1 + 1, 0 + 1, 1/2 + 0, 1/2 + 1/2 of ten
    assert found["side_a"] == pytest.approx(5.5 / 10)


@pytest.fixture
def weak_pool(pool):
    """A model that won one game of 80, one that won none, and one that is nearer to both."""
    rows = [judgment_row("q0", -2, 1, model="weak")]
    rows += [judgment_row(f"q{number}", -2, -2, model="weak") for number in range(1, 40)]
    rows += [judgment_row(f"q{number}", -2, -2, model="none") for number in range(40)]
    for number in range(40):
        second = 1 if number % 4 == 0 else -1
        rows.append(judgment_row(f"q{number}", -1, second, model="near"))
    return pool(rows)


def test_weak_models_get_numbers_and_one_way_out(weak_pool):
    scores = board(weak_pool, ["j"], Plan())
    numbers = scores.notes[0]
    row = next(row for row in scores.rows if row["model"] == "weak")
    assert row["score"] == pytest.approx(100 * 1 / 238)
    # two scores with this standard error: 2.8 times that of their difference
    standard_error = (row["ci_high"] - row["ci_low"]) / 3.92
    changes = dict(re.findall(r"(none|weak) (\d+\.\d)", numbers))
    assert list(changes) == ["none", "weak"]
    assert float(changes["weak"]) == pytest.approx(2.8 * math.sqrt(2) * standard_error, abs=0.1)
    assert "--baseline near, and with --judge_name j-near (score: --judge j-near)" in numbers
    official_scores = board(weak_pool, ["j"], Plan(ci="official"))  # "none" has no width there
    assert numbers in official_scores.notes
    assert "floor" not in str(board(weak_pool, ["j"], Plan(), ["near"]))


def test_models_without_a_score_are_one_note(pool):
    rows = [judgment_row(f"q{n}", -2, -2, model=m) for n in range(9) for m in ("w1", "w2")]
    rows += [judgment_row(f"q{n}", n % 3 - 1, 1, model="fair") for n in range(9)]
    notes = board(pool(rows), ["j"], Plan(style_control="all")).notes
    assert [note for note in notes if "w1" in note] == [
        "They won, or lost, every game, which has no fit: w1, w2.",
        "No score: w1, w2.",
    ]


def test_a_judge_that_favours_a_side_is_told_of(pool):
    biased = [judgment_row(f"q{n}", -1, 1 if n % 4 else -1) for n in range(40)]
    found = board(pool(biased), ["j"], Plan())
    assert "The judge favours the answer shown first: 87.5 %" in " ".join(found.notes)
    assert {row.get("contradictions") for row in found.rows} == {None, 0.75}


def test_missing_games_are_counted_with_worst_cases(pool):
    rows = [judgment_row("a", 2, 1), judgment_row("b", -1, 0), judgment_row("c", 1, None)]
    rows.append(judgment_row("d", 1, 1, model="other"))
    scores = board(pool(rows), ["j"], Plan())
    (row,) = [row for row in scores.rows if row["model"] == "m"]
    # 4 of 4 rows won, 1/2 of 2; of c and d 4 games are missing: 12 rows
    assert row["score"] == pytest.approx(100 * 4.5 / 6)
    assert row["games_missing"] == 4
    assert row["questions"] == 2
    assert row["worst_case_low"] == pytest.approx(100 * 4.5 / 18)
    assert row["worst_case_high"] == pytest.approx(100 * 16.5 / 18)
    assert scores.notes[2:] == [
        "m: 4 of 8 games are missing: 1 without a verdict, 1 left out, as their question's other "
        "game is missing, 2 not judged.",
        "other: 6 of 8 games are missing: 6 not judged.",
        "The worst case is the score if all of them were lost, or won, by much.",
    ]


def test_the_reasons_of_missing_games_add_up(pool, tmp_path):
    """20 questions, two judges: lost verdicts, refused games, failed answers, open judgments."""
    rows = random_rows(2, 20, missing=0.2) + random_rows(2, 20, seed=1, missing=0.1, judge="k")
    rows[3] = judgment_row("q3", "failed", "failed", model="m0")
    rows[4] = judgment_row("q4", 1, "failed", model="m0")
    rows = [row for row in rows if row["model"] == "m0" or row["uid"] not in ("q5", "q6", "q7")]
    failed = [{"model": "m1"}, {"uid": "q5", "refused": "too long"}]
    write_lines(tmp_path / "own" / "generation" / "m1.jsonl", failed)
    scores = board(pool(rows, judges=("j", "k")), ["j", "k"], Plan())
    by_model = {row["model"]: row for row in scores.rows}
    for model in ("m0", "m1"):
        row = by_model[model]
        counted = row["games_won"] + row["games_lost"] + row["games_tied"]
        reasons = [row[name] for name in MISSING]
        assert row["games_missing"] == sum(reasons) == 2 * 2 * 20 - counted
        assert min(reasons) >= 0
    assert by_model["m0"]["games_failed"] == 3
    assert by_model["m0"]["games_not_judged"] == 0
    assert by_model["m1"]["games_unanswered"] == 2 * 2
    assert by_model["m1"]["games_not_judged"] == 2 * 2 * 2


def test_official_plans_follow_the_bench(pool):
    rows = random_rows(missing=0.2, category="arena-hard-v0.1", baseline="gpt-4-0314")
    found = pool(rows, bench="arena-hard-v0.1")
    line = board(found, ["j"], Plan(ci="official")).rows[0]
    assert line["ci"] == "official v0.1" and line["confidence"] == 0.95
    # v0.1 counts every game that has a verdict, clustered scores complete judgments
    fair = {row["model"]: row for row in board(found, ["j"], Plan()).rows}
    assert fair[line["model"]]["questions"] < line["questions"]
    with pytest.raises(ValueError, match="a style control of its own"):
        board(found, ["j"], Plan(style_control="all"))


def test_files_that_name_no_baseline_take_the_one_that_is_named(tmp_path):
    rows = random_rows(2, 6, category="arena-hard-v0.1")
    write_judged(tmp_path, rows, bench="arena-hard-v0.1")
    path = Folder(tmp_path, "arena-hard-v0.1").judgments("j", "m0")
    older = [{k: v for k, v in row.items() if k not in ("baseline", "category")} for row in rows]
    write_lines(path, [row for row in older if row["model"] == "m0"])
    for baseline, models in (("base", {"m0", "m1"}), ("", {"m0"})):
        (found,) = load(Folder(tmp_path, "arena-hard-v0.1"), ["j"], baseline=baseline)
        assert {*found.judged.model} == models
        assert found.baseline == (baseline or "gpt-4-0314")


def test_style_control_says_whose_it_is(pool):
    lost = [judgment_row(f"q{n}", -2, -2, model="m3") for n in range(40)]
    found = pool(random_rows(3, 40) + lost)
    found.styles.loc["m0"] = [3.0, 0.0, 0.0, 0.0]
    ours, official = (board(found, ["j"], Plan(ci, "all")) for ci in ("clustered", "official"))
    assert "official script stops after 50 steps" in " ".join(ours.notes)
    assert "near it: m0." in " ".join(ours.notes)
    assert {row["model"] for row in ours.rows} == {"base", "m1", "m2"}  # m3 lost every game
    assert "they have not converged" in " ".join(official.notes) and len(official.rows) == 5
    assert {row["confidence"] for row in official.rows} == {0.9}


def test_categories_judges_and_deviations(tmp_path, caplog):
    rows = random_rows(2, 6, **CREATIVE, judge="gpt-4.1")
    rows += [{**row, "uid": f"h{row['uid']}"} for row in random_rows(2, 6, seed=1, **HARD)]
    rows.append(judgment_row("q0", 1, 1, model="late", **{**HARD, "baseline": "another"}))
    write_judged(tmp_path, rows, bench=V2)
    pools = load(Folder(tmp_path, V2), ["gpt-4.1"])
    assert [pool.category for pool in pools] == ["hard_prompt", "creative_writing"]
    assert [pool.baseline for pool in pools] == [HARD["baseline"], CREATIVE["baseline"]]
    assert (
        "against o3-mini-2025-01-31: score them with --category hard_prompt --baseline another"
        in caplog.text
    )
    found = board(pools[1], ["gpt-4.1"], Plan(much_weight=2)).rows[0]
    assert found["deviations"] == [
        "the number of judges is 1; officially 2",
        "the weight of much better is 2; officially 3",
        "nothing tells how gpt-4.1 judged m0, m1",
    ]
    with pytest.raises(ValueError, match="no question is of the category 'poems'"):
        load(Folder(tmp_path, V2), ["gpt-4.1"], ["poems"])
    write_judged(tmp_path, random_rows(1, 2))
    for bench in (V2, "own"):
        with pytest.raises(ValueError, match="holds nothing usable that x judged"):
            load(Folder(tmp_path, bench), ["x"])
    with pytest.raises(ValueError, match="of m7 in hard_prompt; it judged m0, m1"):
        board(pools[0], ["gpt-4.1"], Plan(), ["m7"])


def test_what_is_left_out_is_said(tmp_path, caplog):
    rows = [judgment_row("a", 1, 1), judgment_row("a", 1, 1, model="j"), judgment_row("b", 2, 2)]
    folder = write_judged(tmp_path, rows)
    write_lines(folder / "question.jsonl", [{"uid": "a", "category": "all", "prompt": "p"}])
    (pool,) = load(Folder(tmp_path, "own"), ["j"])
    assert pool.judged.uid.tolist() == ["a"] and pool.judged.model.tolist() == ["m"]
    assert caplog.text.count("1 of no known question, or of a judge, are left out") == 2


def test_equal_weights_are_a_paired_t_test(pool):
    margins = {"a": [1, 1, -1, 1, 0, 1, 1, -1], "b": [1, -1, -1, 0, 0, -1, 1, 1]}
    rows = [
        judgment_row(f"q{n}", m, m, model=name)
        for name, own in margins.items()
        for n, m in enumerate(own)
    ]
    found, said = compare(pool(rows), ["j"], Plan(), "a", "b")
    points = [(np.sign(side) + 1) / 2 for side in margins.values()]
    expected = stats.ttest_rel(*points)
    assert found.value == pytest.approx(points[0].mean() - points[1].mean())
    assert found.p_value == pytest.approx(expected.pvalue)
    assert found[1:3] == pytest.approx(tuple(expected.confidence_interval()))
    assert "no difference is shown. On the 8 questions of both (0 left out);" in said
    detectable = 100 * detectable_effect(found.standard_error, found.degrees_of_freedom)
    assert f"a difference of {detectable:.1f} points would have been found" in said


def test_the_jackknife_by_question_with_weights(pool):
    found_pool = pool(random_rows(2, 25, seed=3))
    found, _ = compare(found_pool, ["j"], Plan(), "m1", "m0")
    rows = games(found_pool.judged)

    def difference(rows):
        return clustered(own(rows, "m1")).value - clustered(own(rows, "m0")).value

    left_out = np.array([difference(rows[rows.uid != uid]) for uid in rows.uid.unique()])
    variance = 24 / 25 * np.square(left_out - difference(rows)).sum()
    assert found.value == pytest.approx(difference(rows))
    assert found.standard_error == pytest.approx(math.sqrt(variance))
    widths = [
        clustered_mean(r.points, r.uid.to_numpy(), weights=r.weight).half_width
        for r in (own(rows, "m1"), own(rows, "m0"))
    ]
    assert found.estimate.half_width < 0.9 * math.hypot(*widths)


def test_questions_of_one_model_alone_are_left_out_and_counted(pool):
    rows = [judgment_row(f"q{n}", m, m, model="a") for n, m in enumerate([1, 1, -1, 1, -1])]
    rows += [judgment_row(f"q{n}", m, m, model="b") for n, m in enumerate([1, -1, -1], start=1)]
    rows += [judgment_row("q9", 1, None, model="b")]
    found_pool = pool(rows)
    _, said = compare(found_pool, ["j"], Plan(), "a", "b")
    assert "66.7 - 33.3 = +33.3" in said and "On the 3 questions of both (2 left out)" in said
    for a, b in (("a", "a"), ("a", "base"), ("nobody", "b")):
        with pytest.raises(ValueError, match="have no question in common, or are the same"):
            compare(found_pool, ["j"], Plan(), a, b)
