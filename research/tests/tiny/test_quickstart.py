"""The quickstart from its flags to its last line, with a stand-in for the training program."""

import signal
import sys
from dataclasses import replace

import pytest
import torch
from torch.utils.tensorboard import SummaryWriter

from baseline_research.cli import quickstart
from baseline_research.study import stack
from baseline_research.study.design import InlineStudy
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


def test_a_comparison_on_the_stack_says_what_each_estimator_gained(start, capsys, tmp_path):
    warm_start = InlineStudy(tasks=["maze"], out=tmp_path / "run").start_of("maze")
    for name in ("rloo", "js"):
        folder = tmp_path / "run" / "stack" / f"maze-natural-64x4-{name}-0.0003-0"
        log = folder / "tensorboard" / folder.name
        errors = {"js/value_error": 0.1, "js/value_error_rloo": 0.2}
        logged = {"train/rollout/reward_mean": 0.5, **errors}
        with SummaryWriter(str(log)) as writer:
            for step in range(1, 21):
                for tag, value in logged.items():
                    writer.add_scalar(tag, value, step)
        (log / "openrlhf_js.yaml").write_text("record: {outcome: done}\n")
        (folder / "model").symlink_to(warm_start)
        (folder / "command.txt").write_text("python x")
    assert start("", "--compare", "rloo,js") == 0  # nothing is trained again
    shown = capsys.readouterr().out
    assert "(8 responses to each of 200 held-out prompts)" in shown
    assert "regret" not in shown
    before = shown.partition("pass@1 ")[2].partition(" ")[0]
    told = f"js on Ray, DeepSpeed and vLLM, 20 steps of 64 x 4: pass@1 {before} -> {before}"
    assert f"{told}\n" in shown  # the model is the warm start
    assert "\x1b" not in shown  # no control codes where there is no terminal
