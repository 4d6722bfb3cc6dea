"""Judging with a stub that fails and a program that is killed: each game once, and paid once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
import stub_judge
from judged_bench import read_lines, write_bench

from openrlhf_js.evaluation.arena.verdict import parse_verdict

QUESTIONS, AT_ONCE, KILLS = 60, 8, 3
SECONDS, ERRORS, GARBAGE = 0.02, 0.1, 0.05


def counts(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/counts", timeout=10) as answer:
        return json.load(answer)


def start(data, port):
    command = [sys.executable, "-m", "openrlhf_js.cli.eval_arena_judge", "--data", str(data)]
    command += ["--bench", "own", "--baseline", "base", "--models", "m", "--judge", "stub"]
    command += ["--url", f"http://127.0.0.1:{port}/v1", "--concurrency", str(AT_ONCE)]
    command += ["--tries", "9"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.fixture
def port():
    settings = map(str, (SECONDS, ERRORS, GARBAGE, 1))
    stub = subprocess.Popen(
        [sys.executable, stub_judge.__file__, *settings], stdout=subprocess.PIPE, text=True
    )
    yield int(stub.stdout.readline())
    stub.kill()
    stub.wait()
    stub.stdout.close()


def test_kills_and_faults_cost_no_judgment_and_hardly_any_money(tmp_path, port):
    folder = write_bench(tmp_path / "data", QUESTIONS)
    games = 2 * QUESTIONS
    kills = [games * (number + 1) // (KILLS + 1) for number in range(KILLS)]
    calls, killed, said = 0, 0, ""
    while True:
        calls += 1
        process = start(folder.parent, port)
        while process.poll() is None:
            if kills and sum(counts(port)["paid"].values()) >= kills[0]:
                kills.pop(0)
                process.kill()
            time.sleep(0.01)
        said = process.communicate()[0]
        if process.returncode == 0:
            break
        assert process.returncode in (1, -9), said  # 1: some game's replies were lost twice
        killed += process.returncode == -9
    assert killed == KILLS
    assert calls <= KILLS + 5

    rows = read_lines(folder / "model_judgment" / "stub" / "m.jsonl")
    assert sorted(row["uid"] for row in rows) == sorted(f"q{i}" for i in range(QUESTIONS))
    for row in rows:
        for game in row["games"]:
            assert game["score"] == stub_judge.verdict_of({"messages": game["prompt"]})

    found = counts(port)
    paid = Counter(found["paid"])
    assert len(paid) == games
    assert paid.total() - games <= KILLS * AT_ONCE
    assert found["errors"] > 0
    # Of all that was paid for, with and without a verdict, only what was under way is not known.
    every = read_lines(folder / "judge_ledger" / "stub.jsonl")
    assert any(row.get("lost") for row in every)
    ledger = [row for row in every if not row.get("lost")]
    total = paid.total() + sum(found["garbage"].values())
    assert total - KILLS * AT_ONCE <= len(ledger) <= total
    with_verdict = Counter(row["key"] for row in ledger if parse_verdict(row["text"]))
    assert len(with_verdict) == games
    assert set(with_verdict.values()) == {1}
    assert not [name for name in os.listdir(folder) if name.endswith(".partial")]
