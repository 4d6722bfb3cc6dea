"""The quickstart from its flags to its last line, with a stand-in for the training program."""

import signal
import sys
from dataclasses import replace

import pytest
import torch

from baseline_research.cli import quickstart
from baseline_research.study import stack
from baseline_research.tiny.tasks import TASKS


@pytest.fixture(autouse=True)
def as_it_was():
    """The program sets what belongs to its whole process; here that is pytest's."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = [signal.getsignal(number) for number in numbers]
    threads = torch.get_num_threads()
    yield
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)
    torch.set_num_threads(threads)


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Starts a quickstart whose training program is a line of Python."""

    monkeypatch.setitem(TASKS, "maze", replace(TASKS["maze"], warm_start_steps=3))

    def run(program, *flags):
        words = [sys.executable, *(["-c", program] if program else ["x"])]
        monkeypatch.setattr(stack, "training_command", lambda run, settings: words)
        given = ["--task", "maze", "--seeds", "0", "--steps", "20", *flags]
        return quickstart.main([*given, "--out", str(tmp_path / "run")])

    return run


def test_a_failure_shows_the_end_of_the_log(start, capsys):
    assert start("print('starting'); raise SystemExit('openrlhf_js: no such model')") == 1
    shown = capsys.readouterr().err
    assert "the program ended with status 1" in shown
    assert "  openrlhf_js: no such model" in shown
    assert "The whole log: " in shown
    assert "train.log" in shown


def test_an_interrupted_run_says_so(start, capsys):
    program = "import os, signal, time; os.kill(os.getppid(), signal.SIGTERM); time.sleep(600)"
    assert start(program) == 130
    assert "quickstart: stopped" in capsys.readouterr().err
