import json
import logging
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest
import torch

from openrlhf_js.cli import quickstart
from openrlhf_js.tiny import quickstart as stages
from openrlhf_js.tiny.tasks import TASKS


@pytest.fixture(autouse=True)
def as_it_was():
    """The program sets what belongs to its whole process; here that is pytest's."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers, threads = [signal.getsignal(number) for number in numbers], torch.get_num_threads()
    yield
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)
    torch.set_num_threads(threads)
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--task", "chess"], "unknown task 'chess'; choose from sort, countdown, maze"),
        (["--estimator", "jsx"], "unknown estimator 'jsx'; choose from js, js_plus"),
        (["--estimator", "js,rloo"], "unknown estimator 'js,rloo'"),
        (["--compare", "rloo,gae"], "unknown estimator 'gae'"),
        (["--compare", "js,js"], "names an estimator twice"),
        (["--estimator", "js", "--compare", "js,rloo"], "not allowed with argument"),
        (["--steps", "1"], "--steps is 1; give 2 or more"),
        (["--steps", "many"], "invalid int value: 'many'"),
        (["--output", "a,b"], "must not contain ,"),
        (["--seed", "-1"], "--seed is -1; give a number from 0"),
        (["--frobnicate"], "unrecognized arguments: --frobnicate"),
    ],
)
def test_wrong_flags_get_one_line_and_status_2(flags, told, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        quickstart.main(flags)
    assert left.value.code == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())  # nothing was begun


def test_a_folder_with_something_in_it_is_not_touched(tmp_path, capsys):
    (tmp_path / "mine").write_text("")
    with pytest.raises(SystemExit) as left:
        quickstart.main(["--output", str(tmp_path)])
    assert left.value.code == 2
    assert "is not empty" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        quickstart.main(["--output", str(tmp_path / "mine")])
    assert "cannot be used" in capsys.readouterr().err


def test_help_teaches():
    asked = [sys.executable, "-m", "openrlhf_js.cli.quickstart", "--help"]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    for part in ("--compare rloo,js,js_plus", "summary.json", "js_plus, js1, bloo", "--task maze"):
        assert part in said


@pytest.fixture
def small(monkeypatch):
    """Settings that take seconds, up to the training program."""
    settings = partial(quickstart.Settings, evaluation_samples=2, held_out=8)
    monkeypatch.setattr(quickstart, "Settings", settings)
    for name, task in TASKS.items():
        monkeypatch.setitem(TASKS, name, replace(task, warm_start_steps=3))


def stand_in(monkeypatch, program):
    """Puts a Python program in the place of the training program; it finds `run` and `folder`."""

    def command(settings, estimator, run, folder, gpu):
        return [sys.executable, "-c", f"run, folder = {str(run)!r}, {str(folder)!r}\n{program}"]

    monkeypatch.setattr(stages, "command", command)


def test_a_failure_shows_the_end_of_the_log(tmp_path, capsys, monkeypatch, small):
    stand_in(monkeypatch, "print('starting'); raise SystemExit('openrlhf_js: no such model')")
    assert quickstart.main(["--output", str(tmp_path / "run")]) == 1
    shown = capsys.readouterr().out
    assert "the program ended with status 1" in shown
    assert "  openrlhf_js: no such model" in shown
    assert f"The whole log: {tmp_path}/run/train.log" in shown
    assert not (tmp_path / "run" / "summary.json").exists()


def test_an_interrupted_run_says_so(tmp_path, capsys, monkeypatch, small):
    stand_in(monkeypatch, "import os, signal, time; os.kill(os.getppid(), signal.SIGTERM)\n"
                          "time.sleep(600)")  # fmt: skip
    assert quickstart.main(["--output", str(tmp_path / "run")]) == 130
    assert "nothing is left running" in capsys.readouterr().out


def test_another_task_is_named_wherever_a_task_is(tmp_path, capsys, monkeypatch, small):
    stand_in(monkeypatch, "import shutil; shutil.copytree(run + '/warm_start', folder + '/model')")
    assert quickstart.main(["--task", "maze", "--output", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert "quickstart: maze with js, seed 0" in shown
    assert "On held-out prompts of maze pass@1 went" in shown
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["task"] == summary["settings"]["task"] == "maze"
    assert summary["warm_start"] == {"slip": TASKS["maze"].slip, "steps": 3}
    written = "".join(path.read_text() for path in (tmp_path / "run").glob("**/*.json*"))
    assert "sort" not in written


def test_a_comparison_leaves_one_table_and_one_summary(tmp_path, capsys, monkeypatch, small):
    copied = "import shutil; shutil.copytree(run + '/warm_start', folder + '/model')"
    stand_in(monkeypatch, copied)
    assert quickstart.main(["--compare", "rloo,js", "--output", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert "estimator" in shown
    assert "\x1b" not in shown  # no control codes where there is no terminal
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert list(summary["results"]) == ["rloo", "js"]
    assert summary["results"]["js"]["gain"]["value"] == 0.0  # the model is the warm start
    assert summary["settings"]["seed"] == 0
    assert {"train with js", "evaluate rloo", "all"} <= summary["seconds"].keys()
    assert summary["versions"]["torch"]
    assert (tmp_path / "run" / "curves.png").stat().st_size > 10_000
    assert (tmp_path / "run" / "js" / "train.log").exists()
