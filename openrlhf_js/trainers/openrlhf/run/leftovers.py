"""Removes what a run left behind when it ended or was killed: processes, and Ray's folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
from pathlib import Path

import psutil

from openrlhf_js.common.environment import RUN_ID
from openrlhf_js.common.processes import end_processes

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # that interrupt a run
FOLDER = "ojs-"  # prefix of Ray's temporary folder; short, since socket paths are limited
PATIENCE_SECONDS = 5.0  # for a process to end by itself


def interrupt_on_signals() -> None:
    """Makes signals that end a run do what Ctrl-C does, unless they are ignored, as by nohup."""
    for number in SIGNALS[1:]:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


def end_run(
    marker: str, session: int | None = None, spared: tuple[int, float] | None = None
) -> None:
    """Ends the processes that a run left behind, such as vLLM's engines, unknown to Ray.

    They have the marker in their environment, or belong to the session of the run or its nursery.
    """

    def is_ours(process: psutil.Process) -> bool:
        if (process.pid, process.create_time()) == spared:
            return False
        return os.getsid(process.pid) == session or process.environ().get(RUN_ID) == marker

    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not stop this
    end_processes(is_ours, PATIENCE_SECONDS)


def remove_dead_folders() -> None:
    """Removes the Ray folders of runs that were killed: those whose lock no process holds."""
    for lock in Path(tempfile.gettempdir()).glob(f"{FOLDER}*/lock"):
        with contextlib.suppress(OSError), lock.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while the run lives
            shutil.rmtree(lock.parent, ignore_errors=True)
