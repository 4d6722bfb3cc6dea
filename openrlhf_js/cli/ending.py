"""How programs end: done, or with one error on stderr and without a traceback."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console

from openrlhf_js.cli.saying import say

Failures = Mapping[type[BaseException], Callable[[Any], str]]


def ended(
    program: str,
    work: Callable[[], int | None],
    kept: str = "",
    failures: Failures | None = None,
) -> int:
    """Runs a program and returns its exit status.

    Args:
        program: what was typed, such as "openrlhf-js lab mse".
        work: the program; None is 0.
        kept: what becomes of what was done when it stops half-way; "": nothing was.
        failures: by the type of an error that has nothing to do with what was given, what is said
            of it.

    Returns:
        That of `work`; 1 one of the failures, or the disk; 2 what was given cannot be used; 130
        stopped by Ctrl-C or by the system.
    """
    rest = f"; {kept}" if kept else ""
    failures = failures or {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup sets it
            signal.signal(number, signal.default_int_handler)  # as Ctrl-C
    try:
        return work() or 0
    except KeyboardInterrupt:
        message, status = f"stopped{rest}", 130
    except tuple(failures) as error:
        told = next(tell for kind, tell in failures.items() if isinstance(error, kind))
        message, status = told(error), 1
    except ValueError as error:
        message, status = str(error), 2
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError) as error:
        message, status = f"{error.filename}: {error.strerror}", 2
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        message, status = f"{place}{error.strerror or error}{rest}", 1
    say(Console(stderr=True), f"{program}: {message}")
    return status


def first_line(error: BaseException) -> str:
    """Of what an error says; PyTorch's go on for many."""
    return str(error).partition("\n")[0]
