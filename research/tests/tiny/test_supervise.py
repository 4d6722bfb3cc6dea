"""A supervised program leaves no process behind, and its log tells why it failed."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from kit import until

from baseline_research.tiny import supervise

# Starts a grandchild in a session of its own, as Ray does, and says its number.
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {child!r}], start_new_session=True)
print(child.pid, flush=True)
{then}
"""
SLEEP = "import time; time.sleep(600)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


def grandchild(log):
    until(lambda: log.read_text().strip())
    return psutil.Process(int(log.read_text().split()[0]))


@pytest.mark.parametrize(("child", "then"), [(SLEEP, "sys.exit(3)"), (STUBBORN, "time.sleep(600)")])
def test_nothing_is_left_behind(tmp_path, monkeypatch, child, then):
    monkeypatch.setattr(supervise, "KILL_AFTER_SECONDS", 0.5)
    log = tmp_path / "log"
    command = [sys.executable, "-c", PARENT.format(child=child, then=then)]
    before = signal.getsignal(signal.SIGINT)
    with supervise.supervised(command, log, dict(os.environ)) as process:
        sleeper = grandchild(log)
        if "exit" in then:
            assert process.wait(20) == 3
        time.sleep(0.3)  # for the stubborn one to become stubborn
        assert sleeper.is_running()
    assert process.poll() is not None
    assert not sleeper.is_running() or sleeper.status() == psutil.STATUS_ZOMBIE
    assert signal.getsignal(signal.SIGINT) is before


def test_others_are_left_alone(tmp_path):
    with subprocess.Popen([sys.executable, "-c", SLEEP]) as other:
        with supervise.supervised([sys.executable, "-c", "0"], tmp_path / "log", {}) as process:
            process.wait(20)
        assert other.poll() is None
        other.kill()


def test_last_lines_are_those_that_say_something(tmp_path):
    log = tmp_path / "log"
    log.write_text(
        "\x1b[36m(Actor pid=12)\x1b[0m loading\n"
        "Train epoch [1/1]:  50%|#####     | 1/2\rTrain epoch [1/1]: 100%|##########| 2/2\n\n"
        "Traceback (most recent call last):\n"
        "RuntimeError: no\n"
        "RuntimeError: no\n"
    )
    expected = ["(Actor pid=12) loading", "Traceback (most recent call last):", "RuntimeError: no"]
    assert supervise.last_lines(log) == expected
    log.write_text(log.read_text() + "openrlhf_js: --data.prompt_dataset: no such file\nbye\n")
    assert supervise.last_lines(log) == ["openrlhf_js: --data.prompt_dataset: no such file"]
