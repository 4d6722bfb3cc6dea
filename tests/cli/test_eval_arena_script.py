"""eval/arena_hard.sh: which programs it calls, how, and that it stops before it costs money."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from openrlhf_js.evaluation.arena.benches import BENCHES
from openrlhf_js.evaluation.arena.fetched import record
from openrlhf_js.evaluation.arena.files import Folder
from openrlhf_js.evaluation.arena.settings import read_settings

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "eval" / "arena_hard.sh"
# Stands in for Python: writes down its words, and leaves as the test says.
PYTHON = """#!/usr/bin/env bash
printf '%s\\n' "${*:5}" >> "$CALLS"
case "$5" in fetch) exit "${FETCH_STATUS:-0}" ;; generate) exit "${GENERATE_STATUS:-0}" ;; esac
"""


class Place:
    def __init__(self, folder: Path):
        self.folder, self.calls = folder, folder / "calls"
        (folder / "python").write_text(PYTHON)
        (folder / "python").chmod(0o755)

    def run(self, *words: str, **variables: str) -> tuple[int, list[str], str]:
        self.calls.write_text("")
        found = subprocess.run(
            ["bash", str(SCRIPT), *words],
            cwd=self.folder,
            env={
                "PATH": os.environ["PATH"],
                "PYTHON": str(self.folder / "python"),
                "CALLS": str(self.calls),
                **variables,
            },
            capture_output=True,
            text=True,
            timeout=30,
        )
        return found.returncode, self.calls.read_text().split("\n")[:-1], found.stdout


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_it_stops_before_it_costs(place: Place) -> None:
    status, calls, said = place.run("runs/js/model/")
    assert status == 0
    settings = ROOT / "eval" / "arena_hard_v2.0.yaml"
    assert calls == [
        "fetch --data data --bench arena-hard-v2.0",
        "generate --data data --bench arena-hard-v2.0 --model runs/js/model --name js-model "
        "--max_new_tokens 4096 --temperature 0",
        "judge --data data --bench arena-hard-v2.0 --models js-model --judge gpt-4.1 "
        f"--settings {settings} --dry-run",
    ]
    assert "call it again with BUDGET=DOLLARS" in said


def test_all_of_it(place: Place) -> None:
    variables = {
        "BENCH": "arena-hard-v0.1",
        "BUDGET": "25",
        "NAME": "js",
        "FROM": "my clone",
        "CATEGORY": "arena-hard-v0.1",
        "STYLE_TOKENIZER": "o",
        "COMPARE": "rloo",
    }
    status, calls, said = place.run("runs/js/model", **variables)
    assert status == 0
    assert calls[0].endswith("--from my clone")
    assert calls[1].endswith("--style_tokenizer o")
    assert calls[3].endswith(
        f"--judge gpt-4-1106-preview --settings {ROOT / 'eval' / 'arena_hard_v0.1.yaml'} "
        "--url https://api.openai.com/v1 --key_env OPENAI_API_KEY --budget 25"
    )
    assert calls[4].startswith(
        "score --data data --bench arena-hard-v0.1 --category arena-hard-v0.1 "
        "--judge gpt-4-1106-preview --compare js rloo --json runs/arena-hard/js/scores.json"
    )
    assert len(calls) == 5 and said.rstrip().endswith("runs/arena-hard/js/arena.html")


def test_a_judge_of_ones_own(place: Place) -> None:
    own = {"BUDGET": "none", "JUDGE_KEY": "none", "JUDGE": "j", "JUDGE_URL": "http://h/v1"}
    _, calls, _ = place.run("model", **own, JUDGE_NAME="k")
    assert calls[3].endswith("--judge_name k --url http://h/v1")
    assert " --judge k " in calls[4]
    _, calls, _ = place.run("model", **own)
    assert "--name model " in calls[1]
    assert calls[3].endswith("--url http://h/v1")


def test_what_was_fetched_whole_is_not_fetched_again(place: Place) -> None:
    """The record is as `eval arena fetch` writes it."""
    folder = Folder(place.folder / "data", "arena-hard-v2.0")
    folder.root.mkdir(parents=True)
    folder.questions.write_text("")
    record(folder, "here", {"question.jsonl": "1"}, False)
    _, calls, _ = place.run("model")
    assert [call.split()[0] for call in calls] == ["fetch", "generate", "judge"]
    # what is there may do, also where nothing more is to be had
    _, calls, _ = place.run("model", FETCH_STATUS="2")
    assert [call.split()[0] for call in calls] == ["fetch", "generate", "judge"]
    record(folder, "here", {}, True)
    _, calls, _ = place.run("model")
    assert [call.split()[0] for call in calls] == ["generate", "judge"]


def test_a_benchmark_of_ones_own(place: Place) -> None:
    own = {"BENCH": "mine", "BASELINE": "base", "SETTINGS": str(ROOT / "eval/arena_hard_v2.0.yaml")}
    _, calls, _ = place.run("model", **own)
    assert calls[0].startswith("generate --data data --bench mine --model model")
    assert calls[1].startswith("judge --data data --bench mine --baseline base --models model")


def test_another_baseline_of_an_official_benchmark(place: Place) -> None:
    _, calls, _ = place.run("model", BASELINE="base")
    assert calls[0] == "fetch --data data --bench arena-hard-v2.0 --baseline base"
    (place.folder / "data" / "arena-hard-v2.0").mkdir(parents=True)
    (place.folder / "data" / "arena-hard-v2.0" / "question.jsonl").write_text("")
    _, calls, _ = place.run("model", BASELINE="base")
    assert calls[0].startswith("generate")


def test_a_benchmark_without_settings(place: Place) -> None:
    assert place.run("model", BENCH="mine", BASELINE="base")[:2] == (2, [])


def test_what_goes_wrong_ends_it(place: Place) -> None:
    status, calls, _ = place.run("model", FETCH_STATUS="2")
    assert status != 0 and len(calls) == 1
    status, calls, _ = place.run("model", FETCH_STATUS="1")
    assert status != 0 and len(calls) == 1  # not even the questions are there
    (place.folder / "data" / "arena-hard-v2.0").mkdir(parents=True)
    (place.folder / "data" / "arena-hard-v2.0" / "question.jsonl").write_text("")
    status, calls, _ = place.run("model", FETCH_STATUS="1")
    assert status == 0 and len(calls) == 3
    status, calls, _ = place.run("model", GENERATE_STATUS="1")
    assert status == 1 and len(calls) == 2


def test_help(place: Place) -> None:
    status, calls, said = place.run("--help")
    assert status == 0 and calls == [] and said.startswith("Arena-Hard for a trained checkpoint")
    assert place.run()[0] == 2


@pytest.mark.parametrize("name", ["v0.1", "v2.0"])
def test_the_settings_are_the_official_ones(name: str) -> None:
    found = read_settings(ROOT / "eval" / f"arena_hard_{name}.yaml", pytest.fail)
    bench = BENCHES[f"arena-hard-{name}"]
    assert found.bench_name == bench.name
    assert (found.judge_model, found.temperature, found.max_tokens) == bench.judges[0]
    assert {each.name for each in bench.judges} <= set(found.prices)
