"""Settings, deviations; judging with a stub judge: every game paid and written once."""

from collections import Counter

import pytest
from judged_bench import BASELINE, answer_row, judgment_row, read_lines, write_bench, write_lines
from stub_judge import by_hash, reply, serving, user, verdict_of

from answer_graders.programs.store import read_store
from paired_eval.arena import protocol
from paired_eval.arena.board import board
from paired_eval.arena.data import Folder, bench_of, read_judgments, read_questions
from paired_eval.arena.judge import Assignment, Judging, Spending
from paired_eval.arena.pool import load
from paired_eval.arena.protocol import (
    JudgePrompt,
    JudgeSettings,
    Price,
    deviations,
    digest,
    identity_of,
    read_settings,
)
from paired_eval.sampling.endpoint import Endpoint, EndpointError

V2 = "arena-hard-v2.0"
HARD = "hard_prompt"


def test_the_official_settings_files(tmp_path):
    path = tmp_path / "newer.yaml"
    path.write_text(
        "judge_model: gpt-4.1\ntemperature: 0.0\nmax_tokens: 16000\nbench_name: arena-hard-v2.0\n"
        "reference: null\nregex_patterns:\n  - \\[\\[([AB<>=]+)\\]\\]\n  - \\[([AB<>=]+)\\]\n"
        "regex_pattern: x\n"
        "prompt_template: 'Q {QUESTION} A {ANSWER_A} B {ANSWER_B}'\nmodel_list:\n  - m\n"
    )
    found = read_settings(path)
    assert found.request() == {"temperature": 0.0, "max_tokens": 16000}
    assert found.bench_name == V2
    assert found.prompt_template.startswith("Q {QUESTION}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("judge_model: j\ntemprature: 1\n", "temprature"),
        ("judge_model: j\nregex_patterns: ['(x)']\n", "patterns"),
        ("judge_model: j\nprompt_template: '{QUESTION}'\n", "{ANSWER_A}"),
        ("judge_model: 'sk-secret\n", "YAML"),
    ],
)
def test_settings_that_are_wrong(tmp_path, text, said):
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(ValueError) as caught:
        read_settings(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert "sk-secret" not in str(caught.value)


def test_deviations_of_a_judge(monkeypatch):
    bench = bench_of(V2)
    monkeypatch.setattr(protocol, "TEMPLATE", digest("t"))
    official = bench.categories[HARD]._replace(system_sha256=digest("s"))
    bench = bench._replace(categories={HARD: official})

    def of(texts=("s", "t"), **changes):
        settings = JudgeSettings(judge_model="gpt-4.1-2025-04-14", temperature=0.0)
        identity = identity_of(bench, HARD, "gpt-4.1", settings, JudgePrompt(*texts))
        return deviations(bench, HARD, {"gpt-4.1": identity | changes})

    assert of() == []
    assert len(of(texts=("s", "other"))) == 1
    parameters = {"temperature": 1.0, "reasoning_effort": "high"}
    request, model = of(judge_model="gpt-4.1-mini", parameters=parameters)
    assert "request" in request and "gpt-4.1-mini" in model
    baseline, judge = deviations(bench_of(V2, "b"), HARD, {"x": {}})
    assert "o3-mini-2025-01-31" in baseline and "gpt-4.1" in judge
    assert len(deviations(bench_of(V2), "creative_writing", {"gpt-4.1": {}})) == 1  # two judges
    assert len(deviations(bench_of("mine", "b"), "c", {"x": {}})) == 1


class Place:
    """A bench with a stub judge."""

    def __init__(self, data, stub):
        self.stub = stub
        self.folder = Folder(data, "own")

    def judging(
        self, models=("m",), retry_failed=False, name="j", budget=None, judge_empty=False, **given
    ):
        values = {"judge_model": "stub", "temperature": 0.0, "max_tokens": 100, "concurrency": 4}
        assignment = Assignment(
            folder=self.folder,
            bench=bench_of("own", BASELINE),
            judge=name,
            settings=JudgeSettings(**values | given),
            questions=read_questions(self.folder),
            models=models,
            retry_failed=retry_failed,
            judge_empty=judge_empty,
        )
        return Judging(assignment, budget)

    def judge(self, **named):
        """Judges, and returns how many judgments are open."""
        endpoint = Endpoint(self.stub.url, "stub", timeout_seconds=10)
        with self.judging(**named) as judging:
            judging.run(endpoint)
            self.last = judging
        return len(judging.open_pairs)

    def rows(self, model="m", name="j"):
        return read_lines(self.folder.judgments(name, model))

    def replies(self, name="j"):
        return list(read_store(self.folder.ledger(name, "all"))[1])


@pytest.fixture
def place(tmp_path):
    write_bench(tmp_path, models=("m", "n"))
    with serving(by_hash) as stub:
        yield Place(tmp_path, stub)


def test_two_games_for_each_question_with_the_answers_swapped_each_paid_once(place):
    assert place.judge() == 0
    assert len(place.stub.requests) == 8
    rows = place.rows()
    assert sorted(row["uid"] for row in rows) == ["q0", "q1", "q2", "q3"]
    for row in rows:
        first, second = (game["prompt"][1]["content"] for game in row["games"])
        answer_of_model = f"m says {row['uid']}."
        answer_of_baseline = f"{BASELINE} says {row['uid']}."
        assert first.index(answer_of_baseline) < first.index(answer_of_model)
        assert second.index(answer_of_model) < second.index(answer_of_baseline)
        for game in row["games"]:
            assert game["score"] == verdict_of({"messages": game["prompt"]})
        assert (row["judge"], row["model"], row["baseline"]) == ("j", "m", BASELINE)
    request = place.stub.requests[0]
    asked = {name: request[name] for name in ("model", "temperature", "max_tokens")}
    assert asked == {"model": "stub", "temperature": 0.0, "max_tokens": 100}
    assert [record["prompt_tokens"] for record in place.replies()] == [100] * 8

    before = place.folder.judgments("j", "m").read_bytes()
    place.folder.judgments("j", "m").unlink()  # lost judgments come back from the ledger
    place.judge()
    assert place.folder.judgments("j", "m").read_bytes() == before
    answers = place.folder.answers("m").read_text()  # and another model has the same answers
    place.folder.answers("n").write_text(answers.replace('"model": "m"', '"model": "n"'))
    assert place.judge(models=("m", "n")) == 0
    assert len(place.stub.requests) == 8
    assert [row["games"] for row in place.rows("n")] == [row["games"] for row in place.rows()]

    for other in ({"temperature": 1.0}, {"prompt_template": "{QUESTION}{ANSWER_A}{ANSWER_B}"}):
        with pytest.raises(ValueError, match=r"other settings(.|\n)*--judge_name"):
            place.judge(**other)
    assert place.judge(temperature=1.0, name="k") == 0
    assert len(place.rows(name="k")) == 4


def test_answers_that_changed_are_judged_anew(place):
    place.judge()
    rows = read_lines(place.folder.answers("m"))
    rows[0] = answer_row("q0", "m", "<think>cut off")  # no answer, with its thinking apart
    rows[1] = answer_row("q1", "m", "another answer")
    write_lines(place.folder.answers("m"), rows)
    with pytest.raises(ValueError, match="1 of 2 answers of m that are to be judged are empty"):
        place.judge()
    assert len(place.stub.requests) == 8
    assert place.judge(judge_empty=True) == 0
    assert len(place.stub.requests) == 12
    shown = {row["uid"]: row["games"][0]["prompt"][1]["content"] for row in place.rows()}
    assert len(place.rows()) == 4
    assert "another answer" in shown["q1"]


def test_what_has_no_answer_to_its_present_text_is_not_judged(place, capsys):
    prompts = {uid: f"What is {uid}?" for uid in ("q0", "q1", "q2", "q3")}
    rows = [answer_row(uid, "m", "m says", prompt=prompts[uid]) for uid in prompts]
    write_lines(place.folder.answers("m"), rows[1:])
    questions = [{"uid": uid, "category": "all", "prompt": prompts[uid]} for uid in prompts]
    questions[1]["prompt"] = "What is q1 now?"
    write_lines(place.folder.questions, questions)
    assert place.judge(models=("m", BASELINE, "j")) == 0
    assert sorted(row["uid"] for row in place.rows()) == ["q2", "q3"]
    assert "2 questions lack an answer of m" in capsys.readouterr().err


def test_games_without_a_verdict_or_a_reply(place):
    """Those without a verdict are asked twice and recorded, and those without a reply are open."""
    lost = (200, b"<html>502</html>")

    def odd(request, _):
        if "q3" in user(request):
            return lost
        return reply("[[C]]") if "q2" in user(request) else by_hash(request)

    place.stub.answer = odd
    assert place.judge(concurrency=1) == 1
    times_asked = Counter(user(request) for request in place.stub.requests)
    assert sorted(times_asked.values()) == [1] * 6 + [2] * 2
    assert [row["uid"] for row in place.rows()] == ["q0", "q1", "q2"]
    row = place.rows()[2]
    assert [game["score"] for game in row["games"]] == [None, None]
    assert row["games"][0]["judgment"]["answer"] == "[[C]]"

    place.stub.answer = by_hash
    assert place.judge() == 0  # asks what was lost
    assert len(place.stub.requests) == 12
    place.judge(retry_failed=True)
    assert len(place.stub.requests) == 14
    judgments = read_judgments(place.folder.judgments("j", "m"))
    assert [judgment.complete for judgment in judgments.values()] == [True] * 4


def test_a_verdict_is_what_the_judge_does_not_quote_and_the_official_one_is_kept(place):
    """Of each question the first reply quotes the loser, and the judge of q3 never decides."""
    quoting = 'My verdict is [[A>B]], but B\'s last line is "[[B>>A]]".'
    undecided = 'I cannot decide. B contains "My verdict is [[B>>A]]".'
    place.stub.answer = lambda request, _: reply(undecided if "q3" in user(request) else quoting)
    assert place.judge() == 0
    assert len(place.stub.requests) == 6 + 2 * 2
    assert {game["score"] for row in place.rows() for game in row["games"]} == {"B>>A"}
    (pool,) = load(place.folder, ["j"], baseline=BASELINE)
    (row,) = [row for row in board(pool, ["j"]).rows if row["model"] == "m"]
    assert [row["verdict"], row["games_won"], row["games_missing"]] == ["unquoted", 3, 2]
    assert "8 games have another official verdict (--verdict official)" in row["deviations"]
    (pool,) = load(place.folder, ["j"], baseline=BASELINE, rule="official")
    (row,) = [row for row in board(pool, ["j"]).rows if row["model"] == "m"]
    assert [row["verdict"], row["games_won"], row["games_missing"]] == ["official", 4, 0]


REFUSALS = [
    (400, {"error": {"code": "invalid_prompt", "message": "flagged as violating"}}),
    (403, b"moderation"),
    (422, b"unprocessable"),
]


def test_refused_games_stop_no_other_and_are_asked_once(tmp_path):
    """60 games, of which every fifth is refused, the first among them; rerun three times."""
    write_bench(tmp_path, 30)
    seen: dict[str, int] = {}

    def refusing(request, number):
        place = seen.setdefault(user(request), len(seen))
        return by_hash(request) if place % 5 else REFUSALS[place // 5 % 3]

    with serving(refusing) as stub:
        place = Place(tmp_path, stub)
        for _ in range(3):
            assert place.judge() == 0
        asked = Counter(map(user, stub.requests))
        assert {asked[text] for text in seen} == {1}
        assert len(stub.requests) == 60
        assert "12 games were refused and have no score" in " ".join(place.last.outcome())
        assert any("invalid_prompt" in record.get("refused", "") for record in place.replies())
        games = [game for row in place.rows() for game in row["games"]]
        assert games.count(None) == 12
        assert all(game["score"] for game in games if game)

        stub.answer = by_hash
        assert place.judge(retry_failed=True) == 0
        assert "were refused" not in " ".join(place.last.outcome())
        assert len(stub.requests) == 60 + 12


def test_a_setting_that_is_refused_stops_the_run_and_records_nothing(place):
    place.stub.answer = lambda request, _: (400, b"temperature must be 1")
    with pytest.raises(ValueError, match=r"8 requests were refused .*: temperature must be 1"):
        place.judge()
    assert not place.folder.ledger("j", "all").exists()


def test_games_that_are_refused_after_an_earlier_call_had_replies(place):
    def only_q0(request, number):
        return by_hash(request) if "q0" in user(request) else (200, b"<html>")

    place.stub.answer = only_q0
    assert place.judge() == 3
    place.stub.answer = lambda request, _: (400, b"invalid_prompt")
    assert place.judge() == 0
    assert place.judge() == 0
    assert len(place.stub.requests) == 8 + 6


def test_a_judge_that_no_longer_replies_ends_the_run(tmp_path):
    write_bench(tmp_path, 30)
    down = (503, b"down", {"x-should-retry": "false"})
    with serving(lambda request, number: by_hash(request) if number < 5 else down) as stub:
        place = Place(tmp_path, stub)
        with pytest.raises(EndpointError, match=r"in a row had no reply.* 503: down"):
            place.judge(concurrency=1)
        assert len(stub.requests) == 4 + 8
        stub.answer = by_hash
        assert place.judge() == 0
        assert len(stub.requests) == 12 + 60 - 4
    assert len({record["game"] for record in place.replies()}) == len(place.replies()) == 60


def test_judgments_of_another_program_count_where_they_are_complete(place):
    path = place.folder.judgments("j", "m")
    theirs = [judgment_row("q0", 1, 1), judgment_row("q1", 2, "failed")]
    write_lines(path, theirs)
    for _ in range(2):
        assert place.judge() == 0
        assert len(place.stub.requests) == 6
    rows = {row["uid"]: row for row in place.rows()}
    assert rows["q0"] == theirs[0]
    assert len(rows) == 4
    assert all(game["score"] for game in rows["q1"]["games"])
    write_lines(path, [judgment_row("q0", 1, 1, baseline="another")])
    with pytest.raises(ValueError, match=r"q0 of m was judged against another, not base"):
        place.judge()


def test_a_budget_is_kept_and_a_larger_one_resumes(place):
    prices = {"stub": {"input": 1.0, "output": 1.0}}
    place.stub.answer = lambda request, _: reply("[[A>B]]", tokens=1000, asked=1000)
    assert place.judge(budget=0.007, prices=prices, concurrency=2) > 0  # a game costs $0.002
    assert place.last.spending.out_of_money
    assert len(place.stub.requests) == 3
    assert place.last.spending.dollars == pytest.approx(0.006)
    assert place.judge(budget=0.016, prices=prices) == 0
    assert len(place.stub.requests) == 8
    assert not place.last.spending.out_of_money


def test_the_bill_counts_tokens_or_else_bytes_and_no_refusals():
    record = {"text": "\u00e4\u00e4", "thinking": "", "prompt_bytes": 4000}
    uncounted = {"prompt_tokens": None, "completion_tokens": None}
    counted = {"prompt_tokens": 1000, "completion_tokens": 500}
    spending = Spending(Price(input=1000, output=2000))
    spending.add(record | counted)
    spending.add(record | counted | {"refused": "no"})
    assert spending.progress(open_games=8) == "$2.00 of about $18.00"
    spending.add(record | uncounted)
    assert (spending.prompt_tokens, spending.completion_tokens) == (5000, 504)
    unpriced = Spending(price=None)
    unpriced.add(record | counted)
    assert unpriced.progress(open_games=3) == "price unknown"
