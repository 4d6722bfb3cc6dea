"""A run in a process of its own, started again after a crash."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

from openrlhf_js.common.console import say
from openrlhf_js.plugin.prompts import Flat
from openrlhf_js.plugin.run.checkpoints import latest_checkpoint
from openrlhf_js.plugin.run.leftovers import RUN_ID, SIGNALS, end_run


def keep_running(arguments: Sequence[str], flat: Flat) -> int:
    """Runs the training in a process of its own, again after each crash; its exit status.

    A crash is any end but success, bad input or an interruption. A start after one resumes the last
    checkpoint of this run; there are `--js.restarts` of them until there is a new checkpoint.
    """
    program = [sys.executable, "-m", "openrlhf_js.cli.train"]
    program += arguments
    program.append(f"--logger.wandb.run_name={flat['logger.wandb.run_name']}")  # one log
    marker = uuid.uuid4().hex
    restarts_left = flat["js.restarts"]
    environment = {**os.environ, RUN_ID: marker}
    before = _time_of(latest_checkpoint(flat))
    resume: list[str] = []
    heeded = [
        number
        for number in SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN  # nohup
    ]
    while True:
        for number in heeded:
            signal.signal(number, signal.default_int_handler)
        child = subprocess.Popen(program + resume, env=environment, start_new_session=True)
        try:
            status = child.wait()
        except KeyboardInterrupt:
            child.terminate()
            status = child.wait() and 130
        end_run(marker, child.pid)  # of a child that was killed
        saved = _time_of(latest_checkpoint(flat))
        if saved != before:
            restarts_left = flat["js.restarts"]
        restarts_left -= 1
        if status in (0, 2, 130) or restarts_left < 0:
            return status if status >= 0 else 1
        before = saved
        resume = ["--ckpt.load_enable"] if saved else []
        say(f"openrlhf_js: the run ended with status {status} and is started again", error=True)


def _time_of(file: Path) -> int:
    return file.stat().st_mtime_ns if file.is_file() else 0
