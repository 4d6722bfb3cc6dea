"""The file for Arena-Hard: what it hands on, and when its example is made anew."""

import os
import subprocess
from contextlib import nullcontext
from pathlib import Path

import pytest

EVAL = Path(__file__).parents[2] / "eval"


@pytest.mark.parametrize("judge", ["", "mine"])
def test_the_program_reads_the_judge_of_the_settings(tmp_path, judge):
    python = tmp_path / "python"
    python.write_text('#!/usr/bin/env bash\necho "$*"\n')
    python.chmod(0o755)
    judgments = tmp_path / "data/arena-hard-v2.0/model_judgment/theirs"
    judgments.mkdir(parents=True)
    (judgments / "model.jsonl").touch()
    environment = {"PATH": os.environ["PATH"], "PYTHON": str(python), "BUDGET": "none"}
    environment |= {"JUDGE": judge} if judge else {}
    printed = subprocess.run(
        ["bash", EVAL / "arena_hard.sh", "."],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    generate, *judging, score = [line for line in printed.splitlines() if "arena " in line][1:]
    assert f"--model {tmp_path} --name {tmp_path.parent.name}-{tmp_path.name} " in generate
    for line in (*judging, score):
        assert ("--judge " in line) == bool(judge)


@pytest.mark.parametrize("whole", [True, False])
def test_a_model_of_the_example_that_is_cut_short_is_made_anew(tmp_path, monkeypatch, whole):
    monkeypatch.syspath_prepend(str(EVAL))
    import arena_hard_example as example

    (tmp_path / "tiny").mkdir()
    if whole:
        (tmp_path / "tiny/tokenizer_config.json").touch()
    made = []
    monkeypatch.setattr(example, "write", made.append)
    monkeypatch.setattr(example, "running", nullcontext)
    done = subprocess.CompletedProcess([], returncode=0)
    monkeypatch.setattr(example.subprocess, "run", lambda *_, **__: done)
    assert example.main(tmp_path) == 0
    assert made == ([] if whole else [tmp_path])
