"""Runs a program that starts many processes, and leaves none of them behind."""

from __future__ import annotations

import contextlib
import logging
import signal
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil
from rich.text import Text

from openrlhf_js.common.processes import end_processes

SUPERVISED = "OPENRLHF_JS_SUPERVISED"  # in every process of a program, to find and end them by
PATIENCE_SECONDS = 20.0  # for the program to end by itself
KILL_AFTER_SECONDS = 5.0  # for processes that are still alive then


LAST_LINES = 12  # of a log, shown on failure


class ProgramFailed(RuntimeError):
    """A supervised program ended with an error; `log` is what it printed."""

    def __init__(self, status: int, log: Path):
        super().__init__(status, log)  # as pickle wants them
        self.status = status
        self.log = log

    def __str__(self) -> str:
        return f"the program ended with status {self.status}"


@contextlib.contextmanager
def supervised(
    command: Sequence[str], log: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a command that prints into `log`; when the block ends, all its processes end."""
    mark = uuid.uuid4().hex
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**environment, SUPERVISED: mark},
            start_new_session=True,  # the terminal's Ctrl-C reaches it only through us
        )
    try:
        yield process
    finally:
        with _signals_ignored(signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            _end(process, mark)


@contextlib.contextmanager
def _signals_ignored(*signals: signal.Signals) -> Iterator[None]:
    """Ignores these signals in the block, so not even a second Ctrl-C interrupts it."""
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in signals}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    # Ray's and vLLM's processes have their own sessions. They are found as descendants, or, once
    # their parent is gone, by the mark; some have overwritten their environment with their title.
    descendants: set[psutil.Process] = set()
    with contextlib.suppress(psutil.Error):
        descendants.update(psutil.Process(process.pid).children(recursive=True))
    if process.poll() is None:
        process.send_signal(signal.SIGINT)  # Ray handles SIGTERM itself, and exits at once
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_SECONDS)

    def is_ours(candidate: psutil.Process) -> bool:
        return candidate in descendants or candidate.environ().get(SUPERVISED) == mark

    end_processes(is_ours, KILL_AFTER_SECONDS)


def last_lines(log: Path) -> list[str]:
    """Our own errors in a log if there are any, else its last lines.

    Progress bars, colours and repeats are left out.
    """
    end = log.read_text(encoding="utf-8", errors="replace")[-100_000:]
    text = Text.from_ansi(end).plain
    lines = [line.rstrip() for line in text.splitlines() if line.strip() and "%|" not in line]
    our_errors = [line for line in lines if "openrlhf_js: " in line]
    return list(dict.fromkeys((our_errors or lines)[-LAST_LINES:]))


def explained(failure: ProgramFailed) -> str:
    """The error as text, with the end of the log."""
    lines = "\n".join(f"  {line}" for line in last_lines(failure.log))
    return f"training failed: {failure}. Its last lines:\n{lines}\nThe whole log: {failure.log}"


def prepare_libraries() -> None:
    """Keeps libraries from writing over the screen, and torch from crowding busy cores."""
    import torch
    from transformers.utils.logging import disable_progress_bar

    logging.disable(logging.WARNING)
    disable_progress_bar()
    torch.set_num_threads(1)  # two threads gain little here, and wait for each other on busy cores
