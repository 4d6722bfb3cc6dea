"""Folders of judgments as leaderboards: what is read, left out and said."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest

from openrlhf_js.evaluation.arena.benches import bench_of
from openrlhf_js.evaluation.arena.files import Folder
from openrlhf_js.evaluation.arena.judge_prompts import prompt_of
from openrlhf_js.evaluation.arena.leaderboard import Plan, board
from openrlhf_js.evaluation.arena.pool import load
from openrlhf_js.evaluation.arena.protocol import add_run, protocol_of, run_of
from openrlhf_js.evaluation.arena.rows import rows, table
from openrlhf_js.evaluation.arena.score import clustered, of_model
from openrlhf_js.evaluation.arena.standing import standing

sys.path.insert(0, str(Path(__file__).parent))
from arena_pools import (
    answer_row,
    judgment,
    judgment_row,
    random_pool,
    write_bench,
    write_judgments,
    write_lines,
)

V01, HARD, CREATIVE = "arena-hard-v0.1", "hard_prompt", "creative_writing"
BASELINES = {V01: "gpt-4-0314", HARD: "o3-mini-2025-01-31", CREATIVE: "gemini-2.0-flash-001"}


def of_category(category, judge="gpt-4.1", **named):
    """A random pool against the official baseline."""
    found = random_pool(baseline=BASELINES[category], judge=judge, **named)
    return [each._replace(category=category, uid=f"{category}-{each.uid}") for each in found]


@pytest.fixture
def read(tmp_path):
    """Writes judgments and loads them: read(judgments, judges, **) -> pools and warnings."""

    def write_and_load(judgments, judges=("gpt-4.1",), name="arena-hard-v2.0", **named):
        folder = Folder(tmp_path, name)
        write_bench(folder.root, judgments)
        warned: list[str] = []
        return load(folder, list(judges), warn=warned.append, **named), warned

    return write_and_load


def test_the_scores_are_those_of_the_judgments(read):
    judgments = of_category(HARD, missing=0.1)
    (pool,), warned = read(judgments)
    found = board(pool, ["gpt-4.1"], Plan())
    direct = table(judgments, BASELINES[HARD])
    for line in found.lines:
        if line.model == BASELINES[HARD]:
            assert (line.score, line.ci_low, line.ci_high, line.wins) == (50, 50, 50, None)
            continue
        own = of_model(rows(direct), direct.models.index(line.model))
        estimate = clustered(own)
        assert (line.score, line.ci_low, line.ci_high) == pytest.approx([100 * e for e in estimate])
        assert line.wins + line.losses + line.ties == own.weight.sum()
        assert line.judgments == 30 and line.questions == line.judgments_complete < 30
        assert line.games_failed == 0 < line.games_without_verdict
    scores = [line.score for line in found.lines]
    assert len(scores) == 5 and scores == sorted(scores, reverse=True)
    assert not warned
    assert found.interval == "95 %, by question"


def test_both_categories_at_once_in_the_bench_s_order(read):
    judgments = of_category(CREATIVE, models=2) + of_category(HARD, models=2)
    pools, _ = read(judgments)
    assert [pool.category for pool in pools] == [HARD, CREATIVE]
    assert [pool.judged.baseline for pool in pools] == [BASELINES[HARD], BASELINES[CREATIVE]]
    alone, _ = read(judgments, categories=[CREATIVE])
    assert [pool.category for pool in alone] == [CREATIVE]
    both, one = board(pools[1], ["gpt-4.1"], Plan()), board(alone[0], ["gpt-4.1"], Plan())
    assert both.lines == one.lines


def test_judges_are_apart_and_pooled(read):
    one, two = (of_category(CREATIVE, judge=j, seed=s) for s, j in enumerate(["gpt-4.1", "other"]))
    (pool,), _ = read(one + two, ["gpt-4.1", "other"])
    tallies = {}
    for judges in (["gpt-4.1"], ["other"], ["gpt-4.1", "other"]):
        found = board(pool, judges, Plan())
        assert {line.judge for line in found.lines} == {" + ".join(judges)}
        tallies[" + ".join(judges)] = {line.model: line.wins for line in found.lines}
    for model in ("m0", "m3"):
        first, second, both = (tallies[name][model] for name in tallies)
        assert both == first + second


def test_judges_who_judged_a_model_unequally_are_not_pooled_in_silence(read):
    both = [of_category(CREATIVE, judge=judge) for judge in ("gpt-4.1", "other")]
    kept = [each for each in both[1] if each.model != "m1"]
    (pool,), _ = read([*both[0], *kept], ["gpt-4.1", "other"])
    assert board(pool, ["gpt-4.1", "other"], Plan()).notes == [
        "m1 is pooled from unequal numbers of judgments (30 by gpt-4.1, 0 by other): compare it "
        "with care."
    ]
    assert board(pool, ["gpt-4.1"], Plan()).notes == []


def test_official_intervals_follow_the_bench(read):
    (pool,), _ = read(of_category(V01, judge="j", missing=0.2), ["j"], name=V01)
    found = {line.model: line for line in board(pool, ["j"], Plan("official")).lines}
    assert found["m0"].ci == "official v0.1" and found["m0"].confidence == 0.95
    assert (found["m0"].seed, found["m0"].rounds) == (0, 100)
    # v0.1 counts every game that has a verdict, and clustered scores complete judgments.
    by_game = rows(pool.judged.of_model("m0"), both=False)
    assert found["m0"].wins + found["m0"].losses + found["m0"].ties == by_game.weight.sum()
    fair = {line.model: line for line in board(pool, ["j"], Plan()).lines}
    assert fair["m0"].questions < found["m0"].questions
    assert fair["m0"].seed is None and fair["m0"].rounds is None

    (pool,), _ = read(of_category(HARD))
    line = board(pool, ["gpt-4.1"], Plan("official", rounds=50)).lines[0]
    assert (line.ci, line.confidence, line.rounds) == ("official v2.0", 0.9, 50)
    assert line.bootstrap_mean == pytest.approx(line.score, abs=1.5)
    assert line.bootstrap_mean != line.score


def test_style_control_of_the_whole_pool_whatever_is_shown(read):
    (pool,), _ = read(of_category(HARD, questions=40))
    plan = Plan(control="all", rounds=50)
    every = board(pool, ["gpt-4.1"], plan)
    some = board(pool, ["gpt-4.1"], plan, models=["m1"])
    assert [line.model for line in some.lines] == [BASELINES[HARD], "m1"]
    assert some.lines[1] == next(line for line in every.lines if line.model == "m1")
    assert every.coefficients == some.coefficients and set(every.coefficients) == {
        "length",
        "header",
        "list",
        "bold",
    }
    plain = {line.model: line.score for line in board(pool, ["gpt-4.1"], Plan()).lines}
    assert some.lines[1].score_without_control == pytest.approx(plain["m1"])
    assert some.lines[1].equal_style_low < some.lines[1].score_at_equal_style
    official = board(pool, ["gpt-4.1"], Plan("official", "length"))
    assert official.lines[0].ci == "official v2.0"


def test_lengths_are_of_the_questions_judged(read):
    (pool,), _ = read(of_category(HARD, models=1, questions=3))
    line = next(x for x in board(pool, ["gpt-4.1"], Plan()).lines if x.model == "m0")
    ours, theirs = pool.styles["m0"], pool.styles[BASELINES[HARD]]
    assert line.mean_tokens == pytest.approx(sum(s.tokens for s in ours.values()) / 3)
    ratio = sum(s.tokens for s in ours.values()) / sum(s.tokens for s in theirs.values())
    assert line.tokens_to_baseline == pytest.approx(ratio)


def test_a_model_without_counts_has_no_controlled_score_and_is_named(tmp_path):
    folder = Folder(tmp_path, "arena-hard-v2.0")
    judgments = of_category(HARD, models=2)
    write_bench(folder.root, judgments)
    rows_of = [answer_row(j.uid, "m0", "text") for j in judgments if j.model == "m0"]
    write_lines(folder.answers("m0"), rows_of)
    warned = []
    (pool,) = load(folder, ["gpt-4.1"], warn=warned.append)
    assert any("30 of 30 answers have no counts" in line for line in warned)
    found = board(pool, ["gpt-4.1"], Plan(control="length", rounds=20))
    assert [line.model for line in found.lines] == [BASELINES[HARD], "m1"]
    assert "m0 has no score." in found.notes
    plain = {line.model: line for line in board(pool, ["gpt-4.1"], Plan()).lines}
    assert plain["m0"].mean_tokens is None and plain["m0"].score > 0


def test_what_is_left_out_is_said(tmp_path):
    folder = Folder(tmp_path, "arena-hard-v2.0")
    good = of_category(HARD, models=1)
    write_bench(folder.root, good, categories={"not-judged": HARD})
    more = [
        judgment("hard_prompt-q0", 1, 1, "m9", "gpt-4.1", "gpt-4-0314", HARD),
        judgment("nowhere", 1, 1, "m0", "gpt-4.1", BASELINES[HARD], HARD),
        judgment("hard_prompt-q0", 1, 1, "gpt-4.1", "gpt-4.1", BASELINES[HARD], HARD),
        judgment("hard_prompt-q0", 1, 1, BASELINES[HARD], "gpt-4.1", BASELINES[HARD], HARD),
    ]
    write_judgments(folder.root, [*good, *more])
    folder.answers("m0").unlink()
    warned = []
    (pool,) = load(folder, ["gpt-4.1"], warn=warned.append)
    assert pool.judged.models == ("m0",) and len(pool.judged.model) == 30
    assert pool.questions == 31
    text = "\n".join(warned)
    for said in (
        "1 judgments are of no question (the first is of 'nowhere')",
        "left out, since not against o3-mini-2025-01-31: 1 against gpt-4-0314",
        "a judge's judgments of itself or its fellow are left out",
        "judgments of the baseline o3-mini-2025-01-31 itself are left out",
        "m0.jsonl: no answers, so the length and style of m0 are not known",
    ):
        assert said in text
    line = board(pool, ["gpt-4.1"], Plan()).lines[-1]
    assert (line.questions, line.questions_of_category) == (30, 31)


def test_odd_files_cost_nothing_else(tmp_path):
    """A copy of a file, one without a line, and a category that the bench does not have."""
    root = tmp_path / "arena-hard-v2.0"
    own = {"judge": "gpt-4.1", "baseline": BASELINES[HARD]}
    good = [judgment(f"q{number}", 1, 1, category=HARD, **own) for number in range(3)]
    write_bench(root, [*good, judgment("q3", 1, 1, category="poems", **own)])
    files = root / "model_judgment" / "gpt-4.1"
    rows = (files / "m.jsonl").read_text().replace('"A>B"', '"A=B"')
    (files / "m copy.jsonl").write_text(rows)
    (files / "new.jsonl").write_text("")
    said = []
    (pool,) = load(Folder(tmp_path, root.name), ["gpt-4.1"], warn=said.append)
    assert pool.category == HARD
    (line, _) = board(pool, ["gpt-4.1"], Plan()).lines
    assert (line.wins, line.ties) == (6, 0)
    assert said == [
        f"{files / 'm.jsonl'}: 4 judgments are there twice, also as those of 'm' in m copy.jsonl "
        "(the first is 'q0'); each counts once, from the file that has the model's name",
        f"{files / 'new.jsonl'}: no judgment that can be read",
        "judgments of 'poems' are left out: arena-hard-v2.0 has the categories hard_prompt, "
        "creative_writing, coding, math",
    ]


def test_without_questions_it_scores_and_says_so(tmp_path):
    folder = Folder(tmp_path, "arena-hard-v2.0")
    write_judgments(folder.root, of_category(HARD, models=1))
    warned = []
    (pool,) = load(folder, ["gpt-4.1"], warn=warned.append)
    assert "no questions, so it is not known whether all were judged" in warned[0]
    found = board(pool, ["gpt-4.1"], Plan())
    assert found.lines[-1].questions_of_category is None
    with pytest.raises(ValueError, match="put the answers into model_answer"):
        board(pool, ["gpt-4.1"], Plan(control="all"))


def test_models_and_judges_with_slashes_go_by_their_last_part(tmp_path):
    folder = Folder(tmp_path, "mine")
    judgments = random_pool(models=1, baseline="org/base", judge="org/j")
    lines = [judgment_row(each._replace(model="org/m0")) for each in judgments]
    write_lines(folder.judgments("org/j", "org/m0"), lines)
    (pool,) = load(folder, ["j"], warn=[].append)
    assert pool.judged.models == ("m0",) and pool.judged.judges == ("j",)
    assert pool.judged.baseline == "base"


def test_a_bench_of_one_s_own_takes_the_baseline_that_was_judged_against(read):
    (pool,), _ = read(random_pool(models=1), ["j"], name="mine")
    assert pool.judged.baseline == "base" and pool.category == "hard"
    found = board(pool, ["j"], Plan())
    assert found.lines[0].model in ("base", "m0")
    mixed = random_pool(models=1) + random_pool(models=1, baseline="other", questions=31)[-1:]
    with pytest.raises(
        ValueError, match=r"against several \(base, other\): name it with --baseline"
    ):
        read(mixed, ["j"], name="mine")
    (pool,), warned = read(mixed, ["j"], name="mine", baseline="base")
    assert len(pool.judged.model) == 30 and "1 against other" in warned[-1]


def test_a_category_that_was_judged_against_another_baseline_costs_no_other(read):
    moved = [each._replace(baseline="mine") for each in of_category(HARD, models=1)]
    (pool,), warned = read([*moved, *of_category(CREATIVE, models=1)])
    assert pool.category == CREATIVE
    assert warned == [
        "no table of this: no judgment of hard_prompt is against o3-mini-2025-01-31, but 30 "
        "against mine: score with --category hard_prompt --baseline mine"
    ]
    (pool,), _ = read(moved, categories=[HARD], baseline="mine")  # the advice is good
    assert (pool.category, pool.judged.baseline) == (HARD, "mine")


@pytest.mark.parametrize(
    ("judges", "named", "said"),
    [
        (["nobody"], {}, "no judgments by nobody in .*; judges there: gpt-4.1. Name one of these"),
        (["gpt-4.1"], {"categories": ["math"]}, "no judgment in the category 'math'; judged were"),
        (
            ["gpt-4.1"],
            {"baseline": "gpt-4-0314"},
            "no judgment of hard_prompt is against gpt-4-0314, but 30 against o3-mini-2025-01-31: "
            "score with --category hard_prompt --baseline o3-mini-2025-01-31",
        ),
    ],
)
def test_what_cannot_be_scored(read, judges, named, said):
    with pytest.raises(ValueError, match=said):
        read(of_category(HARD, models=1), judges, **named)


def test_unknown_models_and_empty_boards(read):
    (pool,), _ = read([judgment("q", None, 1, "m", "gpt-4.1", BASELINES[HARD], HARD)])
    with pytest.raises(ValueError, match="judged nothing of 'x' in hard_prompt; judged were m"):
        board(pool, ["gpt-4.1"], Plan(), models=["x"])
    with pytest.raises(ValueError, match=r"no judgment of hard_prompt by gpt-4\.1 is complete"):
        board(pool, ["gpt-4.1"], Plan())


def test_a_line_is_json(read):
    (pool,), _ = read(of_category(HARD, models=1))
    for plan in (Plan(), Plan("official"), Plan(control="all", rounds=10)):
        for line in board(pool, ["gpt-4.1"], plan).lines:
            plain = json.loads(json.dumps(line.plain(), allow_nan=False))
            assert plain["model"] == line.model and plain["judges"] == ["gpt-4.1"]
            assert math.isfinite(plain["score"])


def test_the_protocol(tmp_path):
    bench = bench_of("arena-hard-v2.0")
    folder = Folder(tmp_path, bench.name)
    unknown = standing(folder, bench, HARD, ["gpt-4.1"])
    assert unknown.followed is None
    assert unknown.words() == "Protocol not recorded: nothing tells how gpt-4.1 judged."
    other = standing(folder, bench, HARD, ["llama"])
    assert other.followed is False and "the judge is llama; officially gpt-4.1 or" in other.words()
    alone = standing(folder, bench, CREATIVE, ["gpt-4.1"])
    assert alone.followed is False
    assert (
        "creative_writing is officially judged by gpt-4.1 and gemini-2.5, pooled" in alone.words()
    )
    assert standing(folder, bench, CREATIVE, ["gpt-4.1", "gemini-2.5"]).followed is None
    both = standing(folder, bench, HARD, ["gpt-4.1", "gemini-2.5"])
    assert both.followed is False and "hard_prompt is officially judged by one" in both.words()
    assert standing(folder, bench_of("mine", "base"), "any", ["j"]).followed is False
    moved = bench_of("arena-hard-v2.0", {HARD: "mine"})
    assert (
        "the baseline of hard_prompt is mine; officially o3"
        in standing(folder, moved, HARD, ["gpt-4.1"]).words()
    )

    official = prompt_of("system", "template", "")._replace(official=True)
    add_run(folder, run_of(bench, "gpt-4.1", "gpt-4.1", 0.0, 16000, {HARD: official}))
    good = standing(folder, bench, HARD, ["gpt-4.1"])
    assert good.followed is True and good.words() == "The official protocol was followed."


def test_the_protocol_is_known_of_the_models_that_were_judged_here(tmp_path):
    bench = bench_of("arena-hard-v2.0")
    folder = Folder(tmp_path, bench.name)
    official = prompt_of("system", "template", "")._replace(official=True)
    run = run_of(bench, "gpt-4.1", "gpt-4.1", 0.0, 16000, {HARD: official})
    write_judgments(folder.root, of_category(HARD, models=2))  # fetched: m0 and m1
    add_run(folder, run, ["org/js", "m0"])
    add_run(folder, run, ["rloo", "js"])
    (recorded,) = protocol_of(folder, "gpt-4.1").runs
    assert recorded == run._replace(models=("js", "rloo"))
    # the models that were recorded stay so when they have judgments
    write_lines(folder.judgments("gpt-4.1", "js"), [])
    add_run(folder, run, ["js"])
    assert protocol_of(folder, "gpt-4.1").runs == (recorded,)

    assert standing(folder, bench, HARD, ["gpt-4.1"], ["js", "rloo"]).followed is True
    partly = standing(folder, bench, HARD, ["gpt-4.1"], ["js", "m0", "m1"])
    assert partly == (None, ("nothing tells how gpt-4.1 judged m0, m1",))
    many = [f"m{number}" for number in range(7)]
    assert standing(folder, bench, HARD, ["gpt-4.1"], many).said == (
        "nothing tells how gpt-4.1 judged m0, m1, m2, m3, m4 and 2 more",
    )
