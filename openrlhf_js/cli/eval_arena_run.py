"""How programs of `openrlhf-js eval arena` end: done, or with one error."""

from __future__ import annotations

import signal
from collections.abc import Callable

from rich.console import Console

from openrlhf_js.cli.saying import say


def guarded(program: str, work: Callable[[], int], kept: str) -> int:
    """Runs a program and returns its exit status, with one error on stderr where it fails.

    Args:
        program: what was typed, such as "openrlhf-js eval arena fetch".
        work: the program.
        kept: what becomes of what was done when it stops half-way.

    Returns:
        That of `work`; 1 an endpoint, the disk or the memory fails; 2 what was given cannot be
        used; 130 stopped by Ctrl-C.
    """
    from openrlhf_js.evaluation.endpoint import EndpointRefused, EndpointUnavailable

    errors = Console(stderr=True)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup sets it
            signal.signal(number, signal.default_int_handler)  # as Ctrl-C
    try:
        return work()
    except KeyboardInterrupt:
        say(errors, f"{program}: stopped; {kept}")
        return 130
    except (EndpointRefused, EndpointUnavailable, MemoryError) as error:
        say(errors, f"{program}: {error}\n{kept}")
        return 1
    except ValueError as error:
        say(errors, f"{program}: {error}")
        return 2
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError) as error:
        say(errors, f"{program}: {error.filename}: {error.strerror}")
        return 2
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        say(errors, f"{program}: {place}{error.strerror or error}; {kept}")
        return 1
