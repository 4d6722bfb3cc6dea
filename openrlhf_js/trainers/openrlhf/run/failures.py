"""Explains why a run failed, in one line if the cause is known."""

from __future__ import annotations

import errno
import re
from pathlib import Path

from answer_graders.programs.console import say
from openrlhf_js.trainers.openrlhf.upstream import (
    BadInput,
    BadReward,
    ProcessDied,
    UpstreamMismatch,
)

LOST_PROCESS = {  # errors of Ray and torch
    "RayActorError",
    "NodeDiedError",
    "ObjectLostError",
    "WorkerCrashedError",
    "DistBackendError",
}
CUT_SHORT = "inline_container"  # where PyTorch fails to write a checkpoint


def complain(message: str, status: int) -> int:
    """Prints each line of a message as ours, and returns the exit status."""
    for line in message.splitlines():
        say(f"openrlhf_js: {line}", error=True)
    return status


def explained(error: BaseException) -> tuple[str, int] | None:
    """The message and exit status for a failure that needs no traceback; None for any other."""
    cause = getattr(error, "cause", None)
    while isinstance(cause, BaseException):  # the actor's own error, without Ray's tracebacks
        error = cause
        cause = getattr(error, "cause", None)
    message = str(error)
    if isinstance(error, BadInput):
        return message, 2
    if isinstance(error, BadReward | ProcessDied | UpstreamMismatch):
        return message, 1
    if getattr(error, "errno", None) == errno.ENOSPC:
        return f"no space is left on the disk: {error}", 1
    if isinstance(error, RuntimeError) and CUT_SHORT in message:
        return f"a checkpoint was cut short, as on a full disk (--ckpt.path): {message[:200]}", 1
    if message.startswith(("All images failed to load", "VLM prompt length")):  # upstream's
        return message[:500], 2
    if type(error).__name__ == "EngineDeadError":
        return "a vLLM engine died; the log says why, unless the system killed it for its memory", 1
    is_lost = any(kind.__name__ in LOST_PROCESS for kind in type(error).__mro__)
    # Gloo's words; an OSError with the same is of a user's own connection
    is_cut_off = isinstance(error, RuntimeError) and re.search("(closed|reset) by peer", message)
    if (is_lost or is_cut_off) and "creation task" not in message:
        return f"a process of the run died: {' '.join(message.split())}", 1
    return None


def existing_folder(folder: str) -> Path:
    """The folder, or the nearest one above it that exists."""
    path = Path(folder).absolute()
    while not path.exists():
        path = path.parent
    return path
