"""`openrlhf-js data`: what it writes, prints and exits with, and that OpenRLHF reads the files."""

import re
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kit import until

from answer_graders.programs import data
from answer_graders.tasks import TASKS

Captured = pytest.CaptureFixture[str]


def run(*argv: str | Path) -> int:
    try:
        return data.main([str(each) for each in argv])
    except SystemExit as left:
        return int(str(left.code))


def build(out: Path, task: str = "countdown", split: str = "train", *more: str) -> Path:
    """A file of 12 problems, unless `more` says otherwise."""
    assert run("build", task, "--split", split, "--out", out, "--count", "12", *more) == 0
    return out / f"{task}-{split}.jsonl"


def start(*argv: str | Path, **settings: Any) -> subprocess.Popen[str]:
    """The program as a process of its own."""
    # -B: Python 3.11 keeps bytecode that a full disk has cut short, and cannot load it again.
    command = [sys.executable, "-B", "-m", "answer_graders.programs.data", *map(str, argv)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, **{**pipes, **settings})


@pytest.mark.parametrize("task", ["countdown", "knights_knaves", "maze"])
def test_what_is_built_passes_its_check(task, tmp_path, capsys):
    path, test = build(tmp_path, task), build(tmp_path, task, "test")
    assert run("check", path, "--against", test) == 0
    assert "Nothing is wrong" in capsys.readouterr().out
    first = path.read_bytes()
    assert build(tmp_path / "b", task).read_bytes() == first
    assert build(tmp_path / "c", task, "train", "--seed", "1").read_bytes() != first


def test_a_file_is_replaced_only_by_force(tmp_path: Path, capsys: Captured) -> None:
    path = build(tmp_path)
    before = path.read_bytes()
    flags = ("build", "countdown", "--split", "train", "--count", "12", "--seed", "9")
    assert run(*flags, "--out", tmp_path) == 2
    assert "--force replaces it" in capsys.readouterr().err
    assert path.read_bytes() == before
    assert run(*flags, "--out", tmp_path, "--force") == 0 and path.read_bytes() != before
    assert run(*flags, "--out", path) == 2  # a file


# check


def test_problems_have_line_numbers_and_status_1(tmp_path: Path, capsys: Captured) -> None:
    path = build(tmp_path, "maze")
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, lines[4], "[not bold] \x1b[31m"]) + "\n")
    capsys.readouterr()
    assert run("check", path) == 1
    said = capsys.readouterr().out
    assert f"{path}, line 13: the same prompt as {path}, line 5" in said
    assert f"{path}, line 14: not JSON" in said


# As a process


def test_an_interrupt_or_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    full = ("build", "maze", "--split", "train", "--count", "500", "--out", tmp_path)
    running = start(*full, preexec_fn=small_files)
    _, said = running.communicate()
    assert running.returncode == 1
    assert said == f"openrlhf-js data build maze: {tmp_path}/maze-train.jsonl: File too large\n"
    many = ("build", "countdown", "--split", "train", "--count", "9999999", "--out", tmp_path)
    running = start(*many)
    until(lambda: list(tmp_path.iterdir()) or running.poll() is not None, seconds=150)
    running.send_signal(signal.SIGTERM)
    _, said = running.communicate()
    assert running.returncode == 130 and said.endswith(
        "openrlhf-js data build countdown: stopped\n"
    )
    assert not list(tmp_path.iterdir())


def test_help_lists_every_task(capsys: Captured):
    assert run("build", "--help") == 0
    listed = re.findall(r"^  (\w+) ", capsys.readouterr().out, re.MULTILINE)
    assert listed == list(TASKS)
