"""`openrlhf-js eval arena judge` as its users meet it: flags, money, keys, Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from openrlhf_js.cli import progress
from openrlhf_js.cli.eval_arena_judge import main
from openrlhf_js.evaluation import rates
from openrlhf_js.evaluation.arena.ledger import Ledger

sys.path.insert(0, str(Path(__file__).parents[1] / "evaluation"))
from judged_bench import read_lines, write_bench
from stub_judge import Answer, completion, serving

KEY = "sk-live-98765432109876543210"
SETTINGS = """\
judge_model: stub
max_tokens: 100
temperature: 0.0
prices: {stub: {input: 1000, output: 10000}}
limits: {attempts: 2, timeout_seconds: 5}
"""
REPLY_DOLLARS = 100 * 1000 / 1e6 + 10 * 10000 / 1e6  # 100 tokens in, 10 out: $0.20


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setattr(rates, "FIRST_WAIT_SECONDS", 0.002)


@pytest.fixture
def place(tmp_path):
    """A folder with a bench of 20 questions, and settings."""
    write_bench(tmp_path / "data", 20)
    (tmp_path / "s.yaml").write_text(SETTINGS)
    return tmp_path


def flags(place, url="http://127.0.0.1:9/v1"):
    return [
        *("--data", str(place / "data"), "--bench", "own", "--baseline", "base"),
        *("--models", "m", "--settings", str(place / "s.yaml"), "--url", url),
    ]


def fair(request):
    return Answer(body=completion("[[A>B]]"))


def judged(place):
    path = place / "data/own/model_judgment/stub/m.jsonl"
    return read_lines(path) if path.exists() else []


def call(place, *more, answer=fair):
    """The exit status, and how many requests the judge got."""
    with serving(answer) as stub:
        return main([*flags(place, stub.url), *more]), stub.number


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "--judge NAME says who judges"),
        (["--judge", "j"], "--url says where the judge is"),
        (["--judge", "j", "--url", "u", "--budget", "0"], "--budget is 0; give dollars above 0"),
        (["--judge", "j", "--url", "u", "--budget", "nan"], "--budget is nan"),
        (["--judge", "j", "--url", "u", "--tries", "0"], "--tries is 0; give 1 or more"),
        (["--judge", "j", "--url", "u", "--concurrency", "0"], "--concurrency is 0"),
        (["--judge", "j", "--url", "u", "--temperature", "-1"], "--temperature is -1"),
        (["--judge", "j", "--url", "u", "--timeout", "0"], "--timeout is 0; give seconds above 0"),
        (["--judge", "j", "--url", "u", "--endpoints", "y"], "leave out --url and --key_env"),
        (["--judge", "j", "--url", "u", "--dollars", "1"], "unrecognized arguments"),
    ],
)
def test_wrong_flags_are_one_line(argv, said, capsys):
    with pytest.raises(SystemExit) as stop:
        main(argv)
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_help_says_how_it_ends(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for words in ("exit status: 0 all games have their verdict", "--dry-run", "130 stopped"):
        assert words in text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("--bench", "other"), "'other' is none of arena-hard"),
        (("--bench", "other", "--baseline", "b"), "question.jsonl: no such file"),
        (("--category", "maths"), "no question is of the category 'maths'; there are all (20)"),
        (("--url", "nonsense"), "'nonsense' is no url of an endpoint"),
        (("--url", "http://x/v1?key=abc"), "name the environment variable"),
        (("--key_env", "NO_SUCH_KEY"), "the environment variable NO_SUCH_KEY is not set"),
        (("--settings", "/no/such.yaml"), "/no/such.yaml: No such file"),
    ],
)
def test_what_cannot_be_used(place, change, said, capsys):
    argv = flags(place)
    if change[0] == "--bench":
        del argv[argv.index("--baseline") : argv.index("--baseline") + 2]
    assert main([*argv, *change]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert "Traceback" not in captured.err
    assert not (place / "data/own/judge_ledger").exists()


@pytest.mark.parametrize("flag", ["--dry-run", "--dry_run"])
def test_a_dry_run_asks_nothing_and_leaves_nothing(place, flag, capsys):
    before = sorted(place.rglob("*"))
    status, asked = call(place, flag)
    assert (status, asked) == (0, 0)
    text = capsys.readouterr().out
    assert "m: 40 games" in text
    assert "to be paid: 40 replies; 0 games cost nothing" in text
    assert "and 36,000 out" in text  # 900 each
    assert "at $1000 in and $10000 out for a million tokens" in text
    assert sorted(place.rglob("*")) == before


def test_a_dry_run_needs_no_address_and_no_price(place, capsys):
    (place / "s.yaml").write_text("judge_model: stub\nmax_tokens: 100\n")
    argv = flags(place)
    del argv[argv.index("--url") :]
    assert main([*argv, "--dry-run"]) == 0
    assert "money: unknown; give the price of stub under 'prices'" in capsys.readouterr().out


def test_a_dry_run_goes_by_what_was_counted(place, capsys):
    """20 replies of 100 and 10 tokens: the other 20 will have as many."""

    def half(request):
        return fair(request) if request.number <= 20 else Answer(400, b"no more")

    assert call(place, "--concurrency", "1", answer=half)[0] == 1
    capsys.readouterr()
    call(place, "--dry-run")
    text = capsys.readouterr().out
    assert "to be paid: 20 replies" in text
    # the uids of the second half are longer by a character
    tokens = re.search(r"about ([\d,]+) in and 200 out; from 20 replies in the ledger", text)
    assert 2000 <= int(tokens[1].replace(",", "")) <= 2020
    money = re.search(r"money: about \$([\d.]+), at", text)
    assert float(money[1]) == pytest.approx(20 * REPLY_DOLLARS, rel=0.01)
    assert f"paid so far for these models: ${20 * REPLY_DOLLARS:.2f}" in text


def test_a_budget_is_not_passed_and_a_larger_one_goes_on(place, capsys):
    """At worst a game costs its bytes and 100 tokens out: less than $5."""
    status, asked = call(place, "--budget", "6")
    captured = capsys.readouterr()
    assert status == 1
    assert "the budget of $6 does not allow another game for sure" in captured.err
    spent = asked * REPLY_DOLLARS
    assert 1 <= spent <= 6
    assert f"${spent:.2f} in all" in captured.out
    assert f"left: {40 - asked} games" in captured.out
    before = len(judged(place))
    assert call(place, "--budget", "6") == (1, 0)  # what was paid before counts
    status, more = call(place, "--budget", "60")
    assert (status, asked + more) == (0, 40)
    assert before < len(judged(place)) == 20


def test_lost_replies_cannot_pass_a_budget(place, capsys):
    """The endpoint charges for each at worst: 100 tokens out are $1, and the prompt's bytes."""
    garbage = Answer(body=b"<html>")
    status, asked = call(place, "--budget", "30", answer=lambda request: garbage)
    captured = capsys.readouterr()
    assert status == 1
    assert "the budget of $30 does not allow another game for sure" in captured.err
    assert f"lost: {asked} replies" in captured.out
    rows = read_lines(place / "data/own/judge_ledger/stub.jsonl")
    worst = [row["prompt_bytes"] / 1000 + 0.1 + 1 for row in rows]
    assert 30 - max(worst) <= sum(worst) <= 30
    assert call(place, "--budget", "30", answer=lambda request: garbage) == (1, 0)


def test_progress_says_what_was_paid_so_far(place, capsys, monkeypatch):
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0)
    call(place, "--concurrency", "1")
    lines = [line for line in capsys.readouterr().err.split("\n") if line.startswith("judging: ")]
    assert len(lines) == 40
    assert lines[9].startswith("judging: 25%, 10 games, ")
    assert lines[9].endswith(f" left, ${10 * REPLY_DOLLARS:.2f}")


def test_a_budget_needs_a_price(place, capsys):
    (place / "s.yaml").write_text("judge_model: stub\nmax_tokens: 100\n")
    assert call(place, "--budget", "6") == (2, 0)
    assert "--budget needs the price of stub: put it under 'prices'" in capsys.readouterr().err


def test_replies_without_a_count_of_tokens_cannot_pass_a_budget(place, capsys):
    """Each reply is taken to have as many tokens as bytes."""
    text = "word " * 20 + "[[A>B]]"
    status, asked = call(
        place, "--budget", "30", answer=lambda request: Answer(body=completion(text, None))
    )
    assert status == 1
    assert 0 < asked < 40
    assert f"{asked} replies came without a count of tokens" in capsys.readouterr().out


def test_the_key_reaches_the_judge_and_nothing_else(place, monkeypatch):
    """The stub repeats it in replies and errors; no file and no word of the program holds it."""

    def answer(request):
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return Answer(401, b"no key")
        if request.number % 5 == 0:
            return Answer(500, f"key {KEY} failed".encode())
        return Answer(body=completion(f"Your key is {KEY}. [[A>B]]", reasoning_content=KEY))

    environment = {**os.environ, "JUDGE_KEY": KEY, "HTTPX_LOG_LEVEL": "trace"}
    with serving(answer) as stub:
        command = [sys.executable, "-m", "openrlhf_js.cli.eval_arena_judge"]
        command += [*flags(place, stub.url), "--key_env", "JUDGE_KEY"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=50)
    said = done.stdout + done.stderr
    assert len(judged(place)) >= 10
    assert "Your key is [key]." in judged(place)[0]["games"][0]["judgment"]["answer"]
    assert KEY not in said
    files = [path for path in place.rglob("*") if path.is_file()]
    assert len(files) >= 6
    for path in files:
        assert KEY.encode() not in path.read_bytes(), path


def test_the_official_file_of_endpoints(place, capsys, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", KEY)
    argv = flags(place)
    del argv[argv.index("--url") :]
    with serving(fair) as first, serving(fair) as second:
        (place / "api.yaml").write_text(
            "stub:\n  model: org/real-name\n  parallel: 1\n  endpoints:\n"
            f"    - {{api_base: '{first.url}', api_key: $JUDGE_KEY}}\n"
            f"    - {{api_base: '{second.url}', api_key: $JUDGE_KEY}}\n"
        )
        assert main([*argv, "--endpoints", str(place / "api.yaml")]) == 0
        assert (first.number, second.number) == (20, 20)
        assert first.most_at_once == 1
        (request, *_) = first.requests
    assert request.body["model"] == "org/real-name"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert "$8.00" in capsys.readouterr().out  # the price of the name in the file
    assert {row["judge"] for row in judged(place)} == {"stub"}


def test_a_thinking_judge_gets_no_temperature(place, capsys):
    argv = flags(place)
    del argv[argv.index("--url") :]
    argv += ["--endpoints", str(place / "api.yaml")]
    with serving(fair) as stub:
        (place / "api.yaml").write_text(
            "stub:\n  model: o9\n  api_type: openai_thinking\n  endpoints:\n"
            f"    - {{api_base: '{stub.url}'}}\n"
        )
        assert main(argv) == 2
        assert "which takes no temperature: give --settings FILE" in capsys.readouterr().err
        (place / "s.yaml").write_text("judge_model: stub\nmax_tokens: 70\n")
        assert main(argv) == 0
        (request, *_) = stub.requests
    assert "temperature" not in request.body and "max_tokens" not in request.body
    assert request.body["max_completion_tokens"] == 70


def test_what_was_refused_binds_nobody(place, capsys):
    """Nothing was judged in the first call, so the second may judge in another way."""
    assert call(place, answer=lambda request: Answer(400, b"max_tokens is too large"))[0] == 1
    assert "no room for any messages: give fewer (--max_tokens" in capsys.readouterr().err
    assert call(place, "--max_tokens", "50") == (0, 40)


def test_a_key_that_is_refused(place, monkeypatch, capsys):
    monkeypatch.setenv("JUDGE_KEY", KEY)
    status, _ = call(
        place, "--key_env", "JUDGE_KEY", answer=lambda request: Answer(401, KEY.encode())
    )
    error = capsys.readouterr().err
    assert status == 1
    assert "set the environment variable JUDGE_KEY to a key that it accepts" in error
    assert KEY not in error


def test_ctrl_c_lets_games_under_way_end(place, capsys):
    def answer(request):
        if request.number == 10:
            os.kill(os.getpid(), signal.SIGINT)
        return fair(request)._replace(seconds=0.3 if request.number > 6 else 0)

    status, asked = call(place, "--concurrency", "4", answer=answer)
    error = capsys.readouterr().err
    assert status == 130
    assert error.count(" games that are under way and paid for; Ctrl-C drops them") == 1
    assert "the same call goes on from here" in error
    assert "Traceback" not in error
    assert asked < 20
    ledger = read_lines(place / "data/own/judge_ledger/stub.jsonl")
    assert len(ledger) == asked  # nothing that was asked is lost
    status, more = call(place)
    assert (status, asked + more) == (0, 40)


def test_ctrl_c_twice_drops_them(place, capsys, monkeypatch):
    def answer(request):
        if request.number == 10:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGINT)
        return fair(request)._replace(seconds=60 if request.number > 6 else 0)

    began = time.monotonic()
    status, _ = call(place, "--concurrency", "4", answer=answer)
    captured = capsys.readouterr()
    assert status == 130
    assert time.monotonic() - began < 30
    assert "dropped: 4 games under way, for which you may be charged" in captured.out
    assert "the same call goes on from here" in captured.err
    status, more = call(place)
    assert (status, more) == (0, 34)


def test_games_under_way_are_waited_for_until_their_time_out(place, capsys):
    """And not sent again then: two attempts would be allowed."""

    def answer(request):
        if request.number == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return fair(request)._replace(seconds=60)

    status, asked = call(place, "--concurrency", "4", "--timeout", "0.5", answer=answer)
    captured = capsys.readouterr()
    assert (status, asked) == (130, 4)
    assert "waiting for 4 games" in captured.err
    assert "lost: 4 replies" in captured.out
    assert "dropped" not in captured.out


def test_games_that_are_not_sent_yet_are_not_sent_after_ctrl_c(place, capsys):
    """Three of four workers wait for the pace, and would be let go before the first reply."""
    (place / "s.yaml").write_text(
        SETTINGS.replace("attempts: 2", "attempts: 2, requests_per_minute: 240")
    )

    def answer(request):
        os.kill(os.getpid(), signal.SIGINT)
        return fair(request)._replace(seconds=0.9)

    assert call(place, "--concurrency", "4", answer=answer) == (130, 1)
    captured = capsys.readouterr()
    assert "waiting for 1 games" in captured.err
    assert "paid: 1 replies" in captured.out
    assert "left: 39 games" in captured.out


def test_games_under_way_are_kept_when_the_endpoint_refuses(place, capsys):
    def answer(request):
        refused = Answer(401, b"who?", seconds=0.2)
        return refused if request.number == 1 else fair(request)._replace(seconds=0.6)

    status, asked = call(place, "--concurrency", "4", answer=answer)
    captured = capsys.readouterr()
    assert (status, asked) == (1, 4)
    assert "waiting for 3 games" in captured.err
    assert "it wants a key" in captured.err
    assert len(read_lines(place / "data/own/judge_ledger/stub.jsonl")) == 3


def test_a_refusal_is_told_even_if_nobody_waits_for_the_rest(place, capsys):
    def answer(request):
        if request.number > 1:
            return fair(request)._replace(seconds=60)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        return Answer(401, b"who?", seconds=0.2)

    status, _ = call(place, "--concurrency", "4", answer=answer)
    captured = capsys.readouterr()
    assert status == 1
    assert "dropped: 3 games" in captured.out
    assert "it wants a key" in captured.err


def test_a_full_disk_is_not_waited_with(place, capsys, monkeypatch):
    def full(self, line):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Ledger, "_write", full)

    def answer(request):
        return fair(request)._replace(seconds=0 if request.number == 4 else 60)

    began = time.monotonic()
    status, _ = call(place, "--concurrency", "4", answer=answer)
    captured = capsys.readouterr()
    assert status == 1
    assert time.monotonic() - began < 4  # the time-out is 5
    assert "stub.jsonl: No space left on device" in captured.err
    assert "waiting" not in captured.err
    assert "dropped: 3 games" in captured.out
