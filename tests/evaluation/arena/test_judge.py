"""Judging as a whole: the program in this process, against a real HTTP server."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest

from openrlhf_js.cli.eval_arena_judge import main
from openrlhf_js.evaluation import rates, servers
from openrlhf_js.evaluation.arena import judge as judging
from openrlhf_js.evaluation.arena.files import read_judgments
from openrlhf_js.evaluation.arena.judge_prompts import own_prompt
from openrlhf_js.evaluation.arena.ledger import Ledger
from openrlhf_js.evaluation.arena.protocol import protocol_of

sys.path.insert(0, str(Path(__file__).parents[1]))
from judged_bench import answer_row, read_lines, write_bench, write_lines
from stub_judge import HTML, Answer, completion, serving, verdict_of

SETTINGS = """\
judge_model: stub
max_tokens: 1000
temperature: 0.0
prices: {stub: {input: 2, output: 8}}
limits: {attempts: 2, timeout_seconds: 30}
"""


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setattr(rates, "FIRST_WAIT_SECONDS", 0.002)
    monkeypatch.setattr(servers, "FIRST_REST_SECONDS", 0.01)


def fair(request):
    """Always the same verdict for the same messages; 100 tokens in, 10 out."""
    return Answer(body=completion(f"So:\u2028[[{verdict_of(request.body)}]]"))


class Bench:
    """A bench on disk and the program, called in this process."""

    def __init__(self, path, capsys):
        self.data, self.capsys = path / "data", capsys
        self.settings = path / "settings.yaml"
        self.settings.write_text(SETTINGS)
        self.stub = None

    @property
    def folder(self):
        return self.data / "own"

    def judge(self, answer=fair, *flags, models=("m",), settings=True):
        """Status, what was said, and the user messages that the judge was asked."""
        with serving(answer) as self.stub:
            argv = ["--data", str(self.data), "--bench", "own", "--baseline", "base"]
            argv += ["--models", *models, "--url", self.stub.url, "--concurrency", "4"]
            if settings:
                argv += ["--settings", str(self.settings)]
            status = main([*argv, *flags])
        said = self.capsys.readouterr()
        return status, said.out + said.err, [request.user for request in self.stub.requests]

    def judgments(self, model="m", judge="stub"):
        path = self.folder / "model_judgment" / judge / f"{model}.jsonl"
        return read_lines(path) if path.exists() else []

    def ledger(self):
        return read_lines(self.folder / "judge_ledger" / "stub.jsonl")


@pytest.fixture
def bench(tmp_path, capsys):
    found = Bench(tmp_path, capsys)
    write_bench(found.data, 4, ("m", "n"))
    return found


def test_two_games_for_each_question_with_the_answers_swapped(bench):
    status, said, asked = bench.judge()
    assert status == 0
    assert len(asked) == len(set(asked)) == 8
    rows = {row["uid"]: row for row in bench.judgments()}
    assert sorted(rows) == ["q0", "q1", "q2", "q3"]
    for uid, row in rows.items():
        assert (row["category"], row["judge"], row["model"], row["baseline"]) == (
            "all",
            "stub",
            "m",
            "base",
        )
        for game, first, second in ((0, "base", "m"), (1, "m", "base")):
            system, user = row["games"][game]["prompt"]
            assert system == {"role": "system", "content": own_prompt("all").system}
            text = user["content"]
            assert f"What is {uid}?" in text
            assert text.index(f"{first} says {uid}.") < text.index(f"{second} says {uid}.")
            verdict = verdict_of({"messages": [system, user]})
            assert row["games"][game]["score"] == verdict
            assert row["games"][game]["judgment"]["answer"] == f"So:\u2028[[{verdict}]]"
    assert "judged: 8 games" in said
    assert "paid: 8 replies, 800 tokens in and 80 out, $0.0022" in said
    assert read_judgments(bench.folder / "model_judgment/stub/m.jsonl", pytest.fail)
    assert bench.stub.requests[0].body.keys() == {"model", "messages", "max_tokens", "temperature"}


def test_a_second_call_asks_nothing(bench):
    bench.judge()
    before = bench.judgments()
    status, said, asked = bench.judge()
    assert (status, asked) == (0, [])
    assert "4 judgments are there, 0 are open" in said
    assert bench.judgments() == before


def test_judgments_that_were_lost_come_back_from_the_ledger(bench):
    bench.judge()
    before = bench.judgments()
    shutil.rmtree(bench.folder / "model_judgment")
    status, said, asked = bench.judge()
    assert (status, asked) == (0, [])
    assert "judged: 8 games, 8 of them free" in said
    assert sorted(map(json.dumps, bench.judgments())) == sorted(map(json.dumps, before))


def test_a_judgment_cut_short_is_written_anew(bench):
    assert bench.judge()[0] == 0
    path = bench.folder / "model_judgment" / "stub" / "m.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    status, said, asked = bench.judge()
    assert (status, asked) == (0, [])
    assert "half written" in said
    assert sorted(path.read_bytes().split(b"\n")) == sorted(whole.split(b"\n"))


def test_the_same_answers_are_paid_for_once(bench):
    path = bench.folder / "model_answer"
    rows = [
        {**row, "model": "n"} if row["uid"] != "q3" else answer_row("q3", "n", "another")
        for row in read_lines(path / "m.jsonl")
    ]
    write_lines(path / "n.jsonl", rows)
    status, said, asked = bench.judge(models=("m", "n"))
    assert status == 0
    assert len(asked) == len(set(asked)) == 8 + 2
    assert "judged: 16 games, 6 of them free" in said
    first, second = bench.judgments("m"), bench.judgments("n")
    games = [{row["uid"]: row["games"] for row in rows} for rows in (first, second)]
    assert games[0].pop("q3") != games[1].pop("q3")
    assert games[0] == games[1]
    assert {row["model"] for row in second} == {"n"}


def test_the_same_answers_later_are_free_too(bench):
    bench.judge()
    rows = [{**row, "model": "n"} for row in read_lines(bench.folder / "model_answer/m.jsonl")]
    write_lines(bench.folder / "model_answer" / "n.jsonl", rows)
    status, said, asked = bench.judge(models=("n",))
    assert (status, asked) == (0, [])
    assert len(bench.judgments("n")) == 4
    assert "$0.0000; $0.0000 in all" in said  # it was paid for m


def test_a_reply_without_verdict_is_paid_kept_and_asked_again(bench):
    times = Counter()

    def answer(request):
        times[request.user] += 1
        if "q1" in request.user and times[request.user] <= 3:
            return Answer(body=completion("I cannot [[C]]"))
        return fair(request)

    status, said, asked = bench.judge(answer)
    assert status == 1
    assert "open: 2 games: no verdict in 2 replies" in said
    assert "replies without a verdict: 4" in said
    assert "left: 2 games" in said
    assert [count for user, count in Counter(asked).items() if "q1" in user] == [2, 2]
    assert sorted(row["uid"] for row in bench.judgments()) == ["q0", "q2", "q3"]
    status, said, asked = bench.judge(answer)
    assert status == 0
    assert len(asked) == 4
    assert "1 are open: 2 games" in said
    assert sorted(row["uid"] for row in bench.judgments()) == ["q0", "q1", "q2", "q3"]
    ledger = bench.ledger()
    assert len(ledger) == 6 + 4 + 4
    assert sum("[[C]]" in row["text"] for row in ledger) == 6
    assert sum(row["completion_tokens"] for row in ledger) == 140


def test_a_seed_is_another_one_when_it_is_asked_again(bench):
    def answer(request):
        return fair(request) if request.body["seed"] >= 9 else Answer(body=completion("?"))

    assert bench.judge(answer, "--seed", "7", "--tries", "1")[0] == 1
    assert bench.judge(answer, "--seed", "7", "--tries", "1")[0] == 1
    status, _, asked = bench.judge(answer, "--seed", "7", "--tries", "1")
    assert (status, len(asked)) == (0, 8)
    assert {request.body["seed"] for request in bench.stub.requests} == {9}


def test_a_game_that_fails_stays_open_and_its_fellow_is_not_paid_again(bench):
    def answer(request):
        second = request.user.index("m says") < request.user.index("base says")
        return Answer(502, HTML) if "q2" in request.user and second else fair(request)

    status, said, asked = bench.judge(answer)
    assert status == 1
    assert len(asked) == 7 + 2  # two attempts
    assert "open: 1 games: no reply after 2 attempts; the last: http" in said
    assert "answered 502: '<html>" in said
    assert len(bench.judgments()) == 3
    status, _, asked = bench.judge()
    assert (status, len(asked)) == (0, 1)
    assert len(bench.judgments()) == 4


def test_a_lost_reply_is_asked_for_once_more_and_told_of(bench):
    def answer(request):
        first = sum(each.user == request.user for each in bench.stub.requests) == 1
        return Answer(body=HTML) if "q2" in request.user or first else fair(request)

    status, said, asked = bench.judge(answer, "--tries", "1")
    assert (status, len(asked)) == (1, 16)
    assert "lost: 10 replies (a time-out, or an answer that holds none)" in said
    assert "games: a reply is lost, and may be charged for; http" in said
    assert "paid: 6 replies, 600 tokens in" in said
    assert len(bench.judgments()) == 3
    assert sum(row.get("lost", False) for row in bench.ledger()) == 10
    status, said, asked = bench.judge()
    assert (status, len(asked)) == (0, 2)
    assert "lost:" not in said


def test_what_the_endpoint_refuses_about_one_game_stops_no_other(bench):
    def answer(request):
        filtered = Answer(400, b'{"error": {"code": "content_filter"}}')
        return filtered if "q2" in request.user else fair(request)

    status, said, asked = bench.judge(answer)
    assert (status, len(asked)) == (1, 8)
    assert "open: 2 games: http" in said
    assert len(bench.judgments()) == 3


def test_games_that_are_all_refused_are_not_all_tried(bench):
    write_bench(bench.data, 50)
    long = Answer(400, b"maximum context length is 1100 tokens; your request has 200")
    status, said, asked = bench.judge(lambda request: long)
    assert status == 1
    assert judging.GIVE_UP_AFTER <= len(asked) < judging.GIVE_UP_AFTER + 4
    assert "are too long for it" in said

    def answer(request):  # some are answered: then the others are tried, each of them
        return fair(request) if "What is q0?" in request.user else long

    assert bench.judge(answer)[0] == 1
    assert len(bench.judge(answer)[2]) == 98


def test_a_verdict_in_thoughts_is_none(bench):
    thoughts = "<think>Perhaps [[A>B]], or"
    whole = f"{thoughts} [[A>>B]].</think>\n\nMy final verdict is: [[B>A]]"

    def answer(request):
        return Answer(body=completion(thoughts if "q1" in request.user else whole))

    status, said, asked = bench.judge(answer)
    assert (status, len(asked)) == (1, 6 + 4)
    assert "open: 2 games: no verdict in 2 replies" in said
    assert {game["score"] for row in bench.judgments() for game in row["games"]} == {"B>A"}
    assert {row["text"] for row in bench.ledger()} == {thoughts, whole}


def test_what_it_refuses_at_all_stops_at_once(bench):
    status, said, asked = bench.judge(lambda request: Answer(401, b"who?"))
    assert status == 1
    assert len(asked) <= 4
    assert "it wants a key" in said
    assert "what was judged is kept" in said
    assert bench.judgments() == []


def test_an_endpoint_that_answers_nobody_is_given_up(bench, monkeypatch):
    monkeypatch.setattr(judging, "GIVE_UP_AFTER", 5)
    write_bench(bench.data, 50)
    status, said, asked = bench.judge(lambda request: Answer(500, b"down"))
    assert status == 1
    assert len(asked) <= 2 * (5 + 4)
    assert "no reply after 2 attempts" in said
    assert "left: 100 games" in said


def test_judgments_of_the_official_program_count_and_its_null_games_are_asked(bench):
    prompt = [{"role": "system", "content": own_prompt("all").system}]
    game = {"score": "A>B", "judgment": {"answer": "official [[A>B]]"}, "prompt": prompt}
    silent = {"score": None, "judgment": {"answer": "?"}, "prompt": prompt}
    base = {"category": "all", "judge": "stub", "model": "m", "baseline": "base"}
    path = bench.folder / "model_judgment" / "stub" / "m.jsonl"
    rows = [
        {"uid": "q0", **base, "games": [game, game]},
        {"uid": "q1", **base, "games": [None, game]},
        {"uid": "q2", **base, "games": [game, silent]},
        {"uid": "q3", **base, "games": [None, None]},
    ]
    write_lines(path, rows)
    before = path.read_bytes()
    status, said, asked = bench.judge()
    assert status == 0
    assert "1 judgments are there, 3 are open: 4 games" in said
    assert len(asked) == 4
    assert Counter(uid for user in asked for uid in ("q0", "q1", "q2", "q3") if uid in user) == {
        "q1": 1,
        "q2": 1,
        "q3": 2,
    }
    assert path.read_bytes().startswith(before)
    found = {each.uid: each for each in read_judgments(path, lambda line: None)}
    assert all(game and game.verdict for each in found.values() for game in each.games)
    assert found["q1"].games[1].text == "official [[A>B]]"
    assert found["q2"].games[0].text == "official [[A>B]]"
    assert bench.judge()[2] == []


def test_what_is_missing_is_said_and_the_rest_goes_on(bench):
    answers = bench.folder / "model_answer"
    rows = read_lines(answers / "m.jsonl")
    write_lines(answers / "m.jsonl", [*rows[1:], answer_row("strange", "m", "x")])
    write_lines(answers / "base.jsonl", read_lines(answers / "base.jsonl")[:-1])
    status, said, _ = bench.judge(fair, models=("m", "nobody"))
    assert status == 1
    assert sorted(row["uid"] for row in bench.judgments()) == ["q1", "q2"]
    notes = [line for line in said.split("\n") if line.startswith("note:")]
    assert len(notes) == 4
    for words in (
        "m.jsonl: 1 of the all questions have no answer, the first is 'q0'",
        "base.jsonl: 1 of the all questions have no answer, the first is 'q3'",
        "nobody.jsonl: 4 of the all questions have no answer (there is no such file)",
        "1 of 4 uids are of no question (the first is 'strange')",
    ):
        assert sum(words in note for note in notes) == 1, words
    assert "and 6 judgments that want answers which are missing" in said


def test_the_baseline_and_the_judge_are_not_judged(bench):
    for name in ("base", "stub"):
        shutil.copy(
            bench.folder / "model_answer/m.jsonl", bench.folder / f"model_answer/{name}.jsonl"
        )
    status, said, asked = bench.judge(models=("base", "org/stub"))
    assert (status, asked) == (0, [])
    assert "base is the baseline of all" in said
    assert "stub is the judge" in said


def test_two_at_once_on_the_same_folder(bench):
    path = bench.folder / "judge_ledger" / "stub.jsonl"
    with Ledger(path, str, print):
        status, said, asked = bench.judge()
    assert (status, asked) == (2, [])
    assert "another call judges the same bench with the same judge" in said


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--max_tokens", "7"), "of max_tokens 1000, not 7"),
        (("--temperature", "0.5"), "at temperature 0.0, not 0.5"),
        (("--judge", "other", "--judge_name", "stub"), "by the model stub, not other"),
        (("--baseline", "n"), "all against base, not n"),
    ],
)
def test_another_way_of_judging_needs_another_folder(bench, flags, said):
    bench.judge()
    status, text, asked = bench.judge(fair, *flags)
    assert (status, asked) == (2, [])
    assert said in text
    assert "--judge_name" in text
    status, _, asked = bench.judge(fair, *flags, "--judge_name", "new")
    assert (status, len(asked)) == (0, 8)
    assert len(bench.judgments(judge="new")) == 4


def test_a_judge_that_calls_max_tokens_otherwise(bench):
    assert bench.judge(fair, "--max_tokens_name", "max_completion_tokens")[0] == 0
    body = bench.stub.requests[0].body
    assert body.keys() == {"model", "messages", "max_completion_tokens", "temperature"}
    assert body["max_completion_tokens"] == 1000
    shutil.rmtree(bench.folder / "model_judgment")
    assert bench.judge()[::2] == (0, [])  # the same is asked, by whatever name


def test_judgments_of_answers_that_have_changed_are_told_of(bench):
    bench.judge()
    path = bench.folder / "model_answer" / "m.jsonl"
    rows = read_lines(path)
    write_lines(path, [answer_row("q0", "m", "something \ud800 new"), *rows[1:]])
    status, said, asked = bench.judge()
    assert (status, asked) == (0, [])
    assert "1 judgments are of other answers or questions than those of now" in said
    assert "the first is 'q0'" in said
    (bench.folder / "model_judgment" / "stub" / "m.jsonl").unlink()
    status, said, asked = bench.judge()
    assert (status, len(asked)) == (0, 2)
    assert "than those of now" not in said
    assert "than those of now" not in bench.judge()[1]
    others = [answer_row(f"q{i}", "base", "another answer") for i in range(4)]
    write_lines(bench.folder / "model_answer" / "base.jsonl", others)
    assert "4 judgments are of other answers" in bench.judge()[1]


def test_a_game_of_an_answer_that_has_changed_is_asked_again(bench):
    told = [
        {"role": "system", "content": own_prompt("all").system},
        {"role": "user", "content": "What is q0? base says q0. m said."},
    ]
    game = {"score": "A>B", "judgment": {"answer": "old"}, "prompt": told}
    row = {"uid": "q0", "category": "all", "model": "m", "baseline": "base", "games": [game, None]}
    write_lines(bench.folder / "model_judgment" / "stub" / "m.jsonl", [row])
    status, said, asked = bench.judge()
    assert (status, len(asked)) == (0, 8)
    assert "than those of now" not in said


def test_another_prompt_needs_another_folder(bench):
    bench.judge()
    bench.settings.write_text(SETTINGS + "system_prompt: Judge otherwise.\n")
    status, said, asked = bench.judge()
    assert (status, asked) == (2, [])
    assert "with another prompt for all" in said


def test_judgments_of_another_program_with_another_prompt(bench):
    game = {"score": "A>B", "judgment": {"answer": ""}, "prompt": [{"role": "system"}]}
    game["prompt"][0]["content"] = "You are a judge."
    row = {"uid": "q0", "category": "all", "model": "m", "baseline": "base", "games": [game, None]}
    write_lines(bench.folder / "model_judgment" / "stub" / "other.jsonl", [row])
    status, said, asked = bench.judge()
    assert (status, asked) == (2, [])
    assert "other.jsonl was judged with another prompt for all" in said


def test_judgments_of_another_program_against_another_baseline(bench):
    row = {"uid": "q0", "category": "all", "model": "m", "baseline": "n", "games": [None, None]}
    write_lines(bench.folder / "model_judgment" / "stub" / "m.jsonl", [row])
    status, said, asked = bench.judge()
    assert (status, asked) == (2, [])
    assert "m.jsonl was judged against n in all, not base" in said


def test_what_another_program_judged_is_not_recorded_as_ours(bench):
    bench.judge()
    record = bench.folder / "model_judgment" / "stub" / "protocol.json"
    record.unlink()
    assert bench.judge()[::2] == (0, [])
    assert not record.exists()


def test_two_judges_each_in_its_own_folder(bench):
    bench.judge()
    status, _, asked = bench.judge(fair, "--judge", "org/second")
    assert (status, len(asked)) == (0, 8)
    assert {row["judge"] for row in bench.judgments()} == {"stub"}
    assert {row["judge"] for row in bench.judgments(judge="second")} == {"second"}
    assert {request.body["model"] for request in bench.stub.requests} == {"org/second"}


def test_the_record_says_how_it_was_judged(bench):
    from openrlhf_js.evaluation.arena.files import Folder

    bench.judge()
    (run,) = protocol_of(Folder(bench.data, "own"), "stub").runs
    assert (run.judge, run.model, run.temperature, run.max_tokens) == ("stub", "stub", 0.0, 1000)
    assert run.prompts == {"all": own_prompt("all").sha256}
    assert run.baselines == {"all": "base"}
    assert run.models == ("m",)


def test_a_judgment_that_cannot_be_written_loses_nothing(bench):
    place = bench.folder / "model_judgment" / "stub" / "m.jsonl"
    place.mkdir(parents=True)
    status, said, asked = bench.judge()
    assert status == 2
    assert f"{place}: Is a directory" in said
    place.rmdir()
    _, _, later = bench.judge()
    assert len(asked) + len(later) == 8
    assert len(bench.judgments()) == 4


def test_a_pattern_that_takes_for_ever_leaves_the_game_open(bench, monkeypatch):
    from openrlhf_js.evaluation.arena import verdict

    monkeypatch.setattr(verdict, "PATTERN_SECONDS", 0.02)
    bench.settings.write_text(SETTINGS + "regex_patterns: ['((?:A|A|AA)+)$']\n")
    status, said, _ = bench.judge(lambda request: Answer(body=completion("a" * 3000 + "!")))
    assert status == 1
    assert "took longer than 0.02 s" in said
    assert "verdicts are found by other patterns" in said
    assert len(bench.ledger()) == 16
    bench.settings.write_text(SETTINGS)
