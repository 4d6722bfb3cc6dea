"""One typed settings object per program: its flags, validation, --help and saved manifest.

class MseSettings(Settings):
    \"\"\"Squared error of every baseline on your model's responses.\"\"\"

    out: Path = Field(description="folder of samples and results")
    responses: int = Field(128, ge=1, description="responses to each prompt")

def main(argv: list[str]) -> int:
    prog = "openrlhf-js lab mse"
    return run(prog, lambda: work(parse(MseSettings, prog, argv)))
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from openrlhf_js.common.programs import choose

__all__ = ["Field", "Settings", "SettingsError", "choose", "parse", "run"]


class SettingsError(Exception):
    """What is wrong with the values of settings; not a ValueError, which tyro would reformat."""


class Settings(BaseModel):
    """Base of every program's settings: frozen, and no unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    def __init__(self, **values: Any):
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise SettingsError("; ".join(map(_explained, error.errors()))) from None

    def manifest(self) -> dict[str, Any]:
        """The settings as JSON values, to be saved beside results."""
        return self.model_dump(mode="json")


S = TypeVar("S", bound=Settings)


def _explained(error: Mapping[str, Any]) -> str:
    """One line: the flag, what is wrong, and what came."""
    message = str(error["msg"]).removeprefix("Value error, ")
    if not error["loc"]:
        return message
    flag = f"--{error['loc'][0]}"
    return f"{flag} {error['input']!r:.80}: {message[:1].lower()}{message[1:]}"


def parse(settings: type[S], prog: str, argv: Sequence[str], default: S | None = None) -> S:
    """The settings that a command line gives, over those of `default`, such as a file's.

    Leaves with status 2 and one message where they are wrong.
    """
    import tyro

    try:
        parsed: S = tyro.cli(  # type: ignore[assignment]
            settings,
            prog=prog,
            args=list(argv),
            default=default,
            use_underscores=True,
            config=(tyro.conf.FlagCreatePairsOff, tyro.conf.DisallowNone),
        )
        return parsed
    except SettingsError as error:
        print(f"{prog}: {error} (--help shows what is allowed)", file=sys.stderr)
        raise SystemExit(2) from None


Failures = Mapping[type[BaseException], Callable[[Any], str]]


def run(
    prog: str,
    work: Callable[[], int | None],
    resumes: bool = False,
    failures: Failures | None = None,
) -> int:
    """Runs a program and returns its exit status; an error is one message, without a traceback.

    Args:
        prog: what was typed, such as "openrlhf-js lab mse".
        work: the program; None is status 0.
        resumes: whether the same command continues after a stop.
        failures: messages for errors that do not come from what the user gave, by type: status 1.

    Status 1 is a failure, or the disk; 2: what was given cannot be used; 130: stopped.
    """
    from openrlhf_js.common.console import say

    advice = "; the same command resumes" if resumes else ""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup sets it
            signal.signal(number, signal.default_int_handler)
    try:
        return work() or 0
    except KeyboardInterrupt:
        status = 130
        message = f"stopped{advice}"
    except tuple(failures or ()) as error:
        status = 1
        kinds = [kind for kind in failures or {} if isinstance(error, kind)]
        message = (failures or {})[kinds[0]](error)
    except (ValueError, SettingsError) as error:
        status = 2
        message = str(error)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError) as error:
        status = 2
        message = f"{error.filename}: {error.strerror}"
    except BrokenPipeError:  # the reader of the output has left: `openrlhf_js.cli.main`
        raise
    except OSError as error:
        status = 1
        place = f"{error.filename}: " if error.filename else ""
        message = f"{place}{error.strerror or error}{advice}"
    say(f"{prog}: {message}", error=True)
    return status
