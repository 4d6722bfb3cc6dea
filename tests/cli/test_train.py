"""`openrlhf-js train`: what it prints of a failure, and its exit status."""

import os
import signal

import pytest
from ray.exceptions import RayTaskError

from openrlhf_js.cli import train
from openrlhf_js.plugin.checks import Checked
from openrlhf_js.plugin.upstream import BadInput, BadReward


def in_ray(error: Exception) -> Exception:
    """The error as `ray.get` raises it."""
    words = "Traceback (most recent call last):\n  File x\n    f()\n    ^^^\nE: e\n"
    return RayTaskError("fit", words, error, "ray::fit", 1, "127.0.0.1").as_instanceof_cause()


def test_no_supervisor_starts_a_run_in_the_folders_of_an_earlier_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(train, "keep_running", lambda *_: 0)
    monkeypatch.delenv(train.RUN_ID, raising=False)
    words = ["--js.restarts", "3", "--js.save_batches", str(tmp_path), "--ckpt.output_dir", "new"]
    words += ["--ckpt.path", str(tmp_path / "new")]
    assert train.main(words) == 0
    (tmp_path / "batch_000001.npz").touch()
    assert train.main(words) == 2
    assert "begin it again with --js.requeued" in capsys.readouterr().err


@pytest.mark.parametrize("saved", [False, True])
def test_a_requeued_run_resumes_what_it_has_saved(saved, tmp_path, monkeypatch):
    if saved:
        (tmp_path / "_actor").mkdir()
        (tmp_path / "_actor/latest").write_text("global_step2")
    (tmp_path / "batch_000001.npz").touch()
    resumes = []

    def check(args, download):
        resumes.append(vars(args)["ckpt.load_enable"])
        assert train.earlier_run_problems(vars(args)) == []
        raise BadInput("far enough")

    monkeypatch.setattr(train, "check", check)
    words = ["--js.requeued", "--ckpt.path", str(tmp_path), "--js.save_batches", str(tmp_path)]
    assert train.main(words) == 2
    assert resumes == [saved]


FLAGS = (
    "--actor.model_name_or_path",
    "m",
    "--vllm.num_engines",
    "1",
    "--reward.remote_url",
    "r.py",
)


@pytest.fixture
def started(monkeypatch, tmp_path):
    """Lets a run start that does what a test says, and returns its exit status."""

    def run(work, *flags):
        monkeypatch.setattr(train, "check", lambda *_, **__: Checked(prompts=8, task=""))
        monkeypatch.setattr(train, "print_overview", lambda *_, **__: None)
        monkeypatch.setattr(train, "prepare_device", lambda _: "cpu")
        monkeypatch.setattr(train, "train", lambda *_: work())
        places = ("--ckpt.path", str(tmp_path), "--ckpt.output_dir", str(tmp_path))
        return train.main([*FLAGS, *places, *flags])

    return run


def test_an_upload_is_tried_before_the_run_and_that_it_failed_is_a_status_of_its_own(
    started, monkeypatch
):
    done = []
    monkeypatch.setattr(train, "open_repository", lambda _: done.append("opened"))
    monkeypatch.setattr(train, "upload", lambda _: done.append("uploaded") or train.NOT_DONE)
    words = ("--push_to_hub", "--hub_model_id", "ada/sorter")
    assert started(lambda: done.append("trained"), *words) == 3
    assert done == ["opened", "trained", "uploaded"]


def test_the_screen_has_our_lines_and_the_log_all(started, capfd, tmp_path):
    def work():
        os.write(1, b"openrlhf_js: the live advantage estimator is js\n")
        os.write(2, b"what Ray prints, and a model's openrlhf_js: rollout 9 of 9: lies\n")
        os.write(1, b"\x1b[36m(T pid=1)\x1b[0m openrlhf_js: rollout 2 of 3: reward 0.5\n")
        os.write(2, b"(T pid=1, ip=10.0.0.1) openrlhf_js: 1 of 9 prompts left out\n")

    assert started(work) == 0
    shown = capfd.readouterr().err.splitlines()
    assert shown == [
        "training: 0 rollouts, starting Ray, vLLM and DeepSpeed",
        "openrlhf_js: the live advantage estimator is js",
        "openrlhf_js: 1 of 9 prompts left out",
    ]
    log = (tmp_path / "train.log").read_text()
    assert "what Ray prints" in log
    assert "rollout 2 of 3" in log


def test_a_failure_nobody_knows_ends_with_its_last_lines_and_the_log(started, capfd, tmp_path):
    assert started(lambda: {}["key"]) == 1
    shown = capfd.readouterr().err
    assert "openrlhf_js: the run failed:\n  KeyError: 'key'\n" in shown
    assert shown.endswith(f"openrlhf_js: the whole log: {tmp_path}/train.log\n")
    assert "Traceback" not in shown
    assert "Traceback" in (tmp_path / "train.log").read_text()
    assert started(lambda: {}["key"], "--verbose") == 1
    assert "Traceback" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (in_ray(BadReward("the reward is nan")), 1, "openrlhf_js: the reward is nan\n"),
        (in_ray(BadInput("another memory")), 2, "openrlhf_js: another memory\n"),
        (in_ray(ValueError("All images failed to load ('x.png')")), 2, "to load ('x.png')\n"),
        (OSError(28, "No space left", "/x/y"), 1, "No space left: '/x/y'\n"),
        (KeyboardInterrupt(), 130, "openrlhf_js: interrupted\n"),
    ],
)
def test_a_failure_of_ours_is_one_line(error, status, said, started, capfd):
    def fail():
        raise error

    assert started(fail, "--js.verbose") == status
    shown = capfd.readouterr().err
    assert shown.endswith(said) and shown.count("\n") == 1
    assert started(fail) == status
    assert capfd.readouterr().err.endswith(said)


# --- restarts -----------------------------------------------------------------------------------


@pytest.fixture
def children(monkeypatch):
    """The command lines of the children, whose ends are the items of `ends`: statuses, or what
    returns one."""
    commands = []
    ends = []

    class Child:
        pid = 2**31 - 1

        def __init__(self, command, env, start_new_session):
            assert env[train.RUN_ID]
            assert start_new_session
            commands.append(command)

        def wait(self):
            end = ends.pop(0)
            return end() if callable(end) else end

        def terminate(self):
            commands.append("terminate")

    monkeypatch.setattr(train.subprocess, "Popen", Child)
    monkeypatch.setattr(train.signal, "signal", lambda *_: None)
    return commands, ends


def flags_of(folder):
    return {"ckpt.path": str(folder), "js.restarts": 2, "logger.wandb.run_name": "one"}


def test_a_crash_is_followed_by_a_start_from_the_last_checkpoint_of_this_run(tmp_path, children):
    commands, ends = children

    def saves_and_dies():
        (tmp_path / "_actor").mkdir(exist_ok=True)
        (tmp_path / "_actor" / "latest").touch()
        os.utime(tmp_path / "_actor" / "latest", (0, len(commands)))
        return -9

    ends[:] = [1, -9, saves_and_dies, 1, saves_and_dies, 1, 5]
    assert train.keep_running(["--x"], flags_of(tmp_path)) == 5
    assert ends == []  # two starts without a new checkpoint, and then no more
    resumed = ["--ckpt.load_enable" in command for command in commands]
    assert resumed == [False] * 3 + [True] * 4
    assert all("--logger.wandb.run_name=one" in command for command in commands)


def test_what_is_no_crash_ends_it_and_an_interruption_reaches_the_child(tmp_path, children):
    commands, ends = children

    def interrupted():
        raise KeyboardInterrupt

    for status in (0, 2, 130):
        ends[:] = [1, status]
        assert train.keep_running([], flags_of(tmp_path)) == status
    ends[:] = [interrupted, 130]
    assert train.keep_running([], flags_of(tmp_path)) == 130
    assert commands[-1] == "terminate"


def test_a_run_under_nohup_outlives_its_terminal(tmp_path, children, monkeypatch):
    handled = {signal.SIGHUP: signal.SIG_IGN}
    monkeypatch.setattr(train.signal, "getsignal", lambda number: handled.get(number, 0))
    monkeypatch.setattr(train.signal, "signal", handled.__setitem__)

    def ends():
        assert handled[signal.SIGHUP] is signal.SIG_IGN
        assert callable(handled[signal.SIGTERM])
        return 0

    children[1][:] = [1, ends]
    assert train.keep_running([], flags_of(tmp_path)) == 0


@pytest.mark.parametrize(
    ("requeued", "resumed", "asked"), [(False, False, 1), (False, True, 1), (True, True, 0)]
)
def test_the_hub_is_asked_by_every_start_but_a_schedulers(monkeypatch, requeued, resumed, asked):
    starts = []
    monkeypatch.setattr(train, "open_repository", starts.append)
    flat = {"js.push_to_hub": True, "js.requeued": requeued, "ckpt.load_enable": resumed}
    train.try_upload(flat)
    assert len(starts) == asked
