"""Ends the processes of a program that starts many, some of them indirectly."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

import psutil

ROUND_SECONDS = 0.5
GIVE_UP_SECONDS = 30.0  # on processes that a kill does not end, as in a disk driver


def end_processes(is_ours: Callable[[psutil.Process], bool], patience_seconds: float) -> None:
    """Asks processes to end, and kills those that still run after `patience_seconds`.

    Processes that they start meanwhile are ended, too. This process never is.
    """
    deadline = time.monotonic() + patience_seconds
    while time.monotonic() < deadline + GIVE_UP_SECONDS:
        running = _running(is_ours)
        if not running:
            return
        for process in running:
            with contextlib.suppress(psutil.Error):
                if time.monotonic() < deadline:
                    process.terminate()
                else:
                    process.kill()
        psutil.wait_procs(running, timeout=min(ROUND_SECONDS, patience_seconds))


def _running(is_ours: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    running = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if process.pid != os.getpid() and is_ours(process) and _must_end(process):
                running.append(process)
    return running


def _must_end(process: psutil.Process) -> bool:
    """Whether it runs and is not Python's resource tracker, which ends by itself.

    The tracker removes vLLM's /dev/shm/psm_* if an engine is killed, so it must outlive the engine.
    """
    cleaner = "multiprocessing.resource_tracker"
    if any(cleaner in argument for argument in process.cmdline()):
        return False
    return process.status() != psutil.STATUS_ZOMBIE
