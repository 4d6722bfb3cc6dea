"""`openrlhf-js eval arena`: all of it on a tiny model, kills and faults, and eval/arena_hard.sh."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from judged_bench import (
    BASELINE,
    judgment_row,
    read_lines,
    write_bench,
    write_judged,
    write_lines,
)
from kit import until
from stub_judge import by_hash, faulty, serving

from answer_graders.programs.store import read_store
from paired_eval.arena import style
from paired_eval.arena.data import BENCHES, Folder
from paired_eval.arena.protocol import read_settings
from paired_eval.cli import arena as eval_arena

ROOT = Path(__file__).parents[2]


def test_a_model_that_finds_no_memory_is_one_line(monkeypatch, capsys):
    torch = pytest.importorskip("torch")

    def without_memory(settings):
        raise torch.OutOfMemoryError("Tried to allocate")

    monkeypatch.setattr(eval_arena, "_generate", without_memory)
    assert eval_arena.generate(["--model", "m", "--name", "m", "--bench", "v2.0"]) == 1
    assert "smaller --batch_size" in capsys.readouterr().err


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A tiny model; tokens are characters, the official one is downloaded."""
    model = pytest.importorskip("baseline_research.tiny.model")
    sort = pytest.importorskip("baseline_research.tiny.tasks").sort
    monkeypatch.setattr(style, "load_tokenizer", lambda bench: len)
    tokenizer = model.make_tokenizer(sort.tokens)
    policy = model.make_model(tokenizer, seed=0)
    policy.config.max_position_embeddings = 64
    folder = tmp_path / "model"
    model.save(policy, tokenizer, folder)
    prompts = [sort.prompt(str(number)) for number in range(10, 16)]
    prompts.append(sort.prompt("1" * 300))  # too long for the model
    rows = [
        {"uid": f"q{number}", "category": "c", "prompt": prompt}
        for number, prompt in enumerate(prompts)
    ]
    bench = write_bench(tmp_path / "data", len(rows), ("other",))
    write_lines(bench / "question.jsonl", rows)
    return folder


def test_from_answers_to_a_page(tiny, tmp_path, capsys, monkeypatch):
    data = tmp_path / "data"
    place = ["--data", str(data), "--bench", "own"]
    generate_answers(tiny, place, data, capsys, monkeypatch)
    judge_answers(place, tmp_path, capsys, monkeypatch)
    score(place, tmp_path, capsys)


def generate_answers(model, place, data, capsys, monkeypatch):
    """Six of seven questions are answered; tokens are counted once their tokenizer is there."""
    folder = Folder(data, "own")
    words = ["generate", *place, "--model", str(model), "--name", "m", "--max_new_tokens", "5"]
    with monkeypatch.context() as offline:
        offline.setattr(style, "load_tokenizer", lambda bench: None)
        assert eval_arena.main([*words, "--questions", "2"]) == 0
    assert not any("metadata" in row for row in read_lines(folder.answers("m")))

    assert eval_arena.main(words) == 0  # the last one is too long, and recorded as failed
    assert "answers to 6 of 7 questions" in capsys.readouterr().out
    rows = read_lines(folder.answers("m"))
    assert [row["uid"] for row in rows] == [f"q{number}" for number in range(6)]
    assert all(row["metadata"]["token_len"] <= 5 for row in rows)
    assert eval_arena.main([*words, "--temperature", "1"]) == 2
    assert "temperature" in capsys.readouterr().err


def judge_answers(place, tmp_path, capsys, monkeypatch):
    """26 games, none of them before a server answers and the budget allows it."""
    bench = tmp_path / "data" / "own"
    settings = tmp_path / "judge.yaml"
    settings.write_text(
        "judge_model: j\nprices: {j: {input: 1, output: 1}}\n"
        "parameters: {temperature: null, reasoning_effort: low}\n"
    )
    words = ["judge", *place, "--baseline", BASELINE, "--models", "m", "other"]
    words += ["--settings", str(settings)]
    assert eval_arena.main([*words, "--dry_run"]) == 0
    assert "26 games" in capsys.readouterr().out
    assert not (bench / "judge_ledger" / "j" / "all.jsonl").exists()

    nobody = "http://127.0.0.1:9/v1"
    assert eval_arena.main([*words, "--url", nobody]) == 1
    assert f"no server answers at {nobody}" in capsys.readouterr().err

    key = "sk-abcdefghijkl"
    monkeypatch.setenv("A_KEY", key)
    with serving(by_hash) as stub:
        words += ["--url", stub.url, "--key_env", "A_KEY"]
        assert eval_arena.main([*words, "--budget", "0.0001"]) == 1
        assert eval_arena.main([*words, "--budget", "1"]) == 0
    assert len(stub.requests) == 26
    assert stub.requests[0]["reasoning_effort"] == "low"
    assert "temperature" not in stub.requests[0]
    assert set(stub.keys) == {f"Bearer {key}"}
    for path in bench.rglob("*"):
        assert path.is_dir() or key.encode() not in path.read_bytes()


def score(place, tmp_path, capsys):
    """Scores on the console, as JSON and as a page."""
    scores = tmp_path / "out" / "s.json"
    page = tmp_path / "out" / "s.html"
    place = [*place, "--baseline", BASELINE]
    words = ["score", *place, "--compare", "m", "other", "--style_control"]
    words += ["--json", str(scores), "--html", str(page)]
    assert eval_arena.main(words) == 0
    assert "m against other, paired by question" in capsys.readouterr().out
    rows = {row["model"]: row for row in reversed(json.loads(scores.read_bytes()))}
    assert set(rows) == {"m", "other", BASELINE}
    assert rows["m"]["questions"] == 6
    assert rows["m"]["games_missing"] == 2
    assert b'class="question"' in page.read_bytes()

    assert eval_arena.main(["score", *place, "--models", "nobody"]) == 2
    assert "nobody" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "rule", "score"),
    [
        ([], "unquoted", 100),
        (["--ci", "official"], "official", 25),
        (["--verdict", "unquoted", "--ci", "official"], "unquoted", 100),
    ],
)
def test_official_intervals_take_official_verdicts(words, rule, score, tmp_path):
    """Of two games that the model wins, the text of one quotes the loser at its end."""
    rows = [judgment_row("q0", -2, 1)]
    rows[0]["games"][0]["judgment"]["answer"] = "Verdict: [[B>A]], though it says `[[A>>B]]`."
    write_judged(tmp_path, rows)
    place = ["--data", str(tmp_path), "--bench", "own", "--baseline", BASELINE]
    path = tmp_path / "scores.json"
    assert eval_arena.main(["score", *place, "--json", str(path), *words]) == 0
    (row,) = [row for row in json.loads(path.read_bytes()) if row["model"] == "m"]
    assert row["verdict"] == rule
    assert row["score"] == score


@pytest.mark.timeout(300)  # starts the program
def test_a_kill_costs_no_judgment_and_hardly_any_money(tmp_path):
    folder = write_bench(tmp_path, 20)
    words = ["judge", "--data", str(tmp_path), "--bench", "own", "--baseline", BASELINE]
    words += ["--models", "m", "--settings", str(four_at_a_time(tmp_path)), "--url"]
    with serving() as stub:
        stub.answer = faulty(stub, 0.2, 0, 3)
        paid = stub.counts["paid"]
        program = [sys.executable, "-m", "paired_eval.cli", "arena"]
        with subprocess.Popen([*program, *words, stub.url]) as process:
            until(lambda: paid.total() >= 8)
            process.kill()
        assert eval_arena.main([*words, stub.url]) == 0
    rows = read_lines(folder / "model_judgment" / "stub" / "m.jsonl")
    assert sorted(row["uid"] for row in rows) == sorted(f"q{n}" for n in range(20))
    assert all(game["score"] for row in rows for game in row["games"])
    assert len(paid) == 40
    assert paid.total() - 40 <= 4  # what was under way at the kill -9
    ledger = list(read_store(folder / "judge_ledger" / "stub" / "all.jsonl")[1])
    assert len({each["game"] for each in ledger}) == 40


def four_at_a_time(folder):
    """The settings of a judge that is asked four games at a time."""
    path = folder / "judge.yaml"
    path.write_text("judge_model: stub\nconcurrency: 4\n")
    return path


def test_ctrl_c_lets_the_replies_under_way_arrive_and_a_second_one_does_not(tmp_path):
    """Twice four games at a time of twenty questions, whose replies wait for `reply_now`."""
    write_bench(tmp_path, 20)
    words = ["judge", "--data", str(tmp_path), "--bench", "own", "--baseline", BASELINE]
    words += ["--models", "m", "--settings", str(four_at_a_time(tmp_path)), "--url"]
    program = [sys.executable, "-m", "paired_eval.cli", "arena"]
    reply_now = threading.Event()

    def wait_and_reply(request, number):
        reply_now.wait(60)
        return by_hash(request)

    def records():
        path = Folder(tmp_path, "own").ledger("stub", "all")
        return list(read_store(path)[1]) if path.exists() else []

    with serving(wait_and_reply) as stub:
        words.append(stub.url)
        with subprocess.Popen([*program, *words], text=True, stderr=subprocess.PIPE) as process:
            until(lambda: stub.now == 4)
            process.send_signal(signal.SIGINT)
            until_said(process, "s for 4 replies under way")
            process.send_signal(signal.SIGINT)
            began = time.monotonic()
            assert process.wait(60) == 130
            assert time.monotonic() - began < 30  # not the minute that the replies would take
        assert records() == []
        with subprocess.Popen([*program, *words], text=True, stderr=subprocess.PIPE) as process:
            until(lambda: len(stub.requests) == 8)
            process.send_signal(signal.SIGINT)
            until_said(process, "Ctrl-C ends this at once")
            assert records() == []
            reply_now.set()
            until_said(process, "stopped; the same command resumes")
            assert process.wait(30) == 130
        assert len(stub.requests) == 8  # none began after the signal
        assert len(records()) == 4
        assert eval_arena.main(words) == 0
        assert len(stub.requests) == 4 + 40  # nothing that had arrived was paid for twice


def until_said(process, words):
    for line in process.stderr:
        if words in line:
            return
    raise AssertionError(f"nobody said {words!r}")


SCRIPT = ROOT / "eval" / "arena_hard.sh"
# Stands in for Python: writes its words down, and leaves as the test says.
PYTHON = """#!/usr/bin/env bash
printf '%s\\n' "${*:5}" >> "$CALLS"
case "$5" in fetch) exit "${FETCH_STATUS:-0}" ;; generate) exit "${GENERATE_STATUS:-0}" ;;
    judge) case "$*" in *--dry_run) ;; *) exit "${JUDGE_STATUS:-0}" ;; esac ;; esac
"""


@pytest.fixture
def script(tmp_path):
    """Runs the script with a Python that writes down what it is called for."""
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    calls = tmp_path / "calls"

    def run(*words: str, **variables: str) -> tuple[int, list[str]]:
        """The status, and the words of each program that was called."""
        calls.write_text("")
        environment = {"PATH": os.environ["PATH"], "PYTHON": str(python), "CALLS": str(calls)}
        call = ["bash", str(SCRIPT), *words]
        finished = subprocess.run(call, cwd=tmp_path, env=environment | variables, timeout=30)
        return finished.returncode, calls.read_text().splitlines()

    return run


def test_the_script_stops_before_it_costs(script):
    status, calls = script("runs/js/model/")
    assert status == 0
    assert [call.split()[0] for call in calls] == ["fetch", "generate", "judge"]
    assert calls[-1].endswith("--dry_run")


@pytest.mark.parametrize(
    ("words", "variables", "status", "programs"),
    [
        (["--help"], {}, 0, ""),
        ([], {}, 2, ""),
        (["http://localhost:8000/v1"], {}, 2, ""),  # which checkpoint is it?
        (["model"], {"FETCH_STATUS": "1"}, 1, "fetch"),  # not even the questions are there
        (["model"], {"GENERATE_STATUS": "1"}, 1, "generate"),
        (["model"], {"GENERATE_STATUS": "3"}, 3, "generate judge"),  # open: not in the way
        (["model"], {"BUDGET": "9", "JUDGE_STATUS": "2"}, 2, "generate judge judge"),
        # some games are open: others are scored
        (["model"], {"BUDGET": "9", "JUDGE_STATUS": "1"}, 1, "generate judge judge score"),
    ],
)
def test_what_the_script_refuses_and_what_ends_it(
    script, tmp_path, words, variables, status, programs
):
    folder = tmp_path / "data" / "arena-hard-v2.0"
    if "FETCH_STATUS" not in variables:
        for name in ("question.jsonl", "judge_prompts.json"):
            write_lines(folder / name, [])
    if "JUDGE_STATUS" in variables:
        write_lines(folder / "model_judgment" / "gpt-4.1" / "model.jsonl", [])
    ended, calls = script(*words, **variables)
    assert ended == status
    assert " ".join(call.split()[0] for call in calls) == programs


@pytest.mark.timeout(300)  # imports torch twice
@pytest.mark.integration  # trains, serves a judge, and runs five programs
def test_the_example_needs_no_key_and_no_network(tmp_path):
    pytest.importorskip("baseline_research")  # which makes the example's model
    environment = {**os.environ, "PYTHON": sys.executable, "OUT": str(tmp_path)}
    example = subprocess.run(["bash", str(SCRIPT), "--example"], env=environment)
    assert example.returncode == 0
    scores = {row["model"]: row for row in json.loads((tmp_path / "scores.json").read_bytes())}
    assert set(scores) == {"careless", "tiny"}
    assert scores["tiny"]["questions"] == 40
    assert scores["tiny"]["games_missing"] == 0
    assert 5 < scores["tiny"]["score"] < 95
    assert (tmp_path / "arena.html").stat().st_size > 40_000


@pytest.mark.parametrize("name", ["v0.1", "v2.0"])
def test_the_settings_are_the_official_ones(name):
    settings = read_settings(ROOT / "eval" / f"arena_hard_{name}.yaml")
    bench = BENCHES[f"arena-hard-{name}"]
    assert settings.bench_name == bench.name
    assert settings.request() == bench.judges[settings.judge_model]
    assert set(bench.judges) <= set(settings.prices)
