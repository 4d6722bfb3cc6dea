"""`openrlhf-js train`: what it prints of a failure, and its exit status."""

import os
import signal
from zipfile import ZipFile

import pytest
from ray.exceptions import RayTaskError

from openrlhf_js.cli import train
from openrlhf_js.trainers.openrlhf.checks import Checked
from openrlhf_js.trainers.openrlhf.checks.start import earlier_run_problems
from openrlhf_js.trainers.openrlhf.upstream import BadInput, BadReward


@pytest.fixture(autouse=True)
def handlers():
    """Signals do afterwards what they did before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def in_ray(error: Exception) -> Exception:
    """The error as `ray.get` raises it."""
    words = "Traceback (most recent call last):\n  File x\n    f()\n    ^^^\nE: e\n"
    return RayTaskError("fit", words, error, "ray::fit", 1, "127.0.0.1").as_instanceof_cause()


@pytest.mark.parametrize("saved", [False, True])
def test_a_requeued_run_resumes_what_it_has_saved(saved, tmp_path, monkeypatch):
    if saved:
        (tmp_path / "_actor/global_step2").mkdir(parents=True)
        (tmp_path / "_actor/latest").write_text("global_step2")
        with ZipFile(tmp_path / "_actor/global_step2/rank_0_optim_states.pt", "w"):
            pass
    (tmp_path / "batch_000001.npz").touch()
    resumes = []

    def check(args, download):
        resumes.append(vars(args)["ckpt.load_enable"])
        assert earlier_run_problems(vars(args)) == []
        raise BadInput("far enough")

    monkeypatch.setattr(train, "check", check)
    words = ["--js.requeued", "--ckpt.path", str(tmp_path), "--js.save_batches", str(tmp_path)]
    words += ["--actor.num_gpus_per_node", "1"]
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


def test_a_failure_before_there_is_a_log_is_printed(capsys, monkeypatch):
    monkeypatch.setattr(train, "check", lambda *_, **__: {}["key"])
    assert train.main([*FLAGS]) == 1
    shown = capsys.readouterr().err
    assert "Traceback" in shown and "the whole log" not in shown


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_ray_has_started_interrupts_the_run(number, started, capfd):
    signal.signal(number, signal.SIG_DFL)
    assert started(lambda: os.kill(os.getpid(), number)) == 130
    assert capfd.readouterr().err.endswith("openrlhf_js: interrupted\n")


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
