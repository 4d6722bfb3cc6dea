"""The quickstart from its flags to its last line, with a stand-in for the training program."""

import json
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils.tensorboard import SummaryWriter

from openrlhf_js.cli import quickstart
from openrlhf_js.tiny import quickstart as stages
from openrlhf_js.tiny.quickstart import ESTIMATORS, QuickstartSettings
from openrlhf_js.tiny.tasks import TASKS

RUN = Path("/run")


@pytest.fixture(autouse=True)
def as_it_was():
    """The program sets what belongs to its whole process; here that is pytest's."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers, threads = [signal.getsignal(number) for number in numbers], torch.get_num_threads()
    yield
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--task", "chess"], "unknown task 'chess'; choose from sort, countdown, maze"),
        (["--estimator", "jsx"], "unknown estimator 'jsx'; choose from js, js_plus"),
        (["--compare", "rloo,gae"], "unknown estimator 'gae'"),
        (["--compare", "js,js"], "names an estimator twice"),
        (["--estimator", "js", "--compare", "js,rloo"], "--estimator or --compare, not both"),
        (["--steps", "1"], "--steps 1: input should be greater than or equal to 2"),
        (["--out", "a,b"], "must not contain ,"),
    ],
)
def test_wrong_flags_get_a_message_and_status_2(flags, told, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        quickstart.main(flags)
    assert left.value.code == 2
    assert told in capsys.readouterr().err
    assert not list(tmp_path.iterdir())  # nothing was begun


def test_a_folder_with_something_in_it_is_not_touched(tmp_path, capsys):
    (tmp_path / "mine").write_text("")
    assert quickstart.main(["--out", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert quickstart.main(["--out", str(tmp_path / "mine")]) == 1
    assert "mine" in capsys.readouterr().err


@pytest.fixture
def small(monkeypatch):
    """Settings that take seconds, up to the training program."""
    read = quickstart.parse

    def parse(*args):
        return read(*args).model_copy(update={"evaluation_samples": 2, "held_out": 8})

    monkeypatch.setattr(quickstart, "parse", parse)
    for name, task in TASKS.items():
        monkeypatch.setitem(TASKS, name, replace(task, warm_start_steps=3))


def stand_in(monkeypatch, program):
    """Puts a Python program in the place of the training program."""

    def command(settings, estimator, run, folder, gpu):
        known = f"estimator, run, folder = {estimator!r}, {str(run)!r}, {str(folder)!r}"
        return [sys.executable, "-c", f"{known}\n{program}"]

    monkeypatch.setattr(stages, "command", command)


def test_a_failure_shows_the_end_of_the_log(tmp_path, capsys, monkeypatch, small):
    stand_in(monkeypatch, "print('starting'); raise SystemExit('openrlhf_js: no such model')")
    assert quickstart.main(["--out", str(tmp_path / "run")]) == 1
    shown = capsys.readouterr().err
    assert "the program ended with status 1" in shown
    assert "  openrlhf_js: no such model" in shown
    assert f"The whole log: {tmp_path}/run/train.log" in shown
    assert not (tmp_path / "run" / "summary.json").exists()


def test_an_interrupted_run_says_so(tmp_path, capsys, monkeypatch, small):
    stand_in(monkeypatch, "import os, signal, time; os.kill(os.getppid(), signal.SIGTERM)\n"
                          "time.sleep(600)")  # fmt: skip
    assert quickstart.main(["--out", str(tmp_path / "run")]) == 130
    shown = capsys.readouterr()
    assert "✗ train with js" in shown.out
    assert "quickstart: stopped" in shown.err


@pytest.fixture
def trained(tmp_path, monkeypatch, small):
    """A training program that keeps the warm start as its model, and logs one reward."""
    with SummaryWriter(str(tmp_path / "log")) as writer:
        writer.add_scalar("train/rollout/reward_mean", 0.5, 1)
    (log,) = (tmp_path / "log").iterdir()
    program = f"""
import shutil, os
shutil.copytree(run + '/warm_start', folder + '/model')
os.makedirs(run + '/tensorboard/' + estimator)
shutil.copy({str(log)!r}, run + '/tensorboard/' + estimator)
"""
    stand_in(monkeypatch, program)


def test_a_comparison_leaves_one_table_and_one_summary(tmp_path, capsys, trained):
    asked = ["--task", "countdown", "--compare", "rloo,js"]
    assert quickstart.main([*asked, "--out", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert "estimator" in shown and "quickstart: countdown with" in shown
    assert "\x1b" not in shown  # no control codes where there is no terminal
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["task"] == summary["settings"]["task"] == "countdown"
    assert summary["warm_start"] == {"slip": TASKS["countdown"].slip, "steps": 3}
    assert list(summary["results"]) == summary["settings"]["estimators"] == ["rloo", "js"]
    assert summary["results"]["js"]["gain"]["value"] == 0.0  # the model is the warm start
    assert summary["settings"]["seed"] == 0
    assert {"train with js", "evaluate rloo", "all"} <= summary["seconds"].keys()
    assert summary["versions"]["torch"]
    assert (tmp_path / "run" / "curves.png").stat().st_size > 10_000
    assert (tmp_path / "run" / "js" / "train.log").exists()


def flags(task="sort", **options):
    words = stages.command(QuickstartSettings(task=task), "js", RUN, RUN / "js", **options)[3:]
    return {
        word: following
        for word, following in zip(words, [*words[1:], "--"], strict=True)
        if word.startswith("--")
    }


@pytest.mark.parametrize("name", TASKS)
def test_the_command_knows_the_tasks_grader_and_lengths(name):
    found, task = flags(name, gpu=False), TASKS[name]
    assert Path(found["--reward.remote_url"]).is_file()
    assert found["--algo.advantage.estimator"] == "js"
    assert found["--ckpt.output_dir"] == "/run/js/model"
    assert "--train.colocate_all" in flags(gpu=True).keys() - found.keys()
    settings = QuickstartSettings()  # every step trains once on one whole batch
    batch = settings.prompts_per_step * settings.responses_per_prompt
    assert int(found["--train.batch_size"]) == batch
    assert int(found["--rollout.max_new_tokens"]) == task.max_new_tokens
    assert int(found["--data.max_len"]) == task.max_prompt_tokens + task.max_new_tokens


def test_the_training_program_knows_every_flag_and_estimator():
    pytest.importorskip("openrlhf")
    from openrlhf_js.plugin import flags as plugin_flags
    from openrlhf_js.plugin.parser import upstream_parser

    parser = upstream_parser()
    plugin_flags.add_flags(parser)
    for estimator in ESTIMATORS:
        words = stages.command(QuickstartSettings(), estimator, RUN, RUN, gpu=True)
        assert vars(parser.parse_args(words[3:]))["algo.advantage.estimator"] == estimator
