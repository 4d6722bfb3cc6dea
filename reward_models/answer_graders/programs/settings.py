"""One typed settings object per program: its flags, validation, --help and saved manifest.

class MseSettings(Settings):
    \"\"\"Squared error of every baseline on your model's responses.\"\"\"

    out: Path = Field(description="folder of samples and results")
    responses: int = Field(128, ge=1, description="responses to each prompt")

def main(argv: list[str]) -> int:
    return program("openrlhf-js lab mse", MseSettings, work, argv)
"""

from __future__ import annotations

import inspect
import shutil
import signal
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from tyro.conf import arg

from answer_graders.programs import as_typed, choose, did_you_mean

__all__ = ["Field", "Settings", "SettingsError", "choose", "parse", "program", "run"]


NO_HINT = arg(help_behavior_hint="")


class SettingsError(Exception):
    """The values of settings are wrong; not a ValueError, which tyro would reformat."""


class Settings(BaseModel):
    """Base of every program's settings: frozen, without unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    def __init__(self, **values: Any):
        try:
            super().__init__(**values)
        except ValidationError as error:
            flags = _flags(type(self))
            problems = [_explained(problem, flags) for problem in error.errors()]
            raise SettingsError("; ".join(problems)) from None

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Puts flags without a default first in --help, and those of other modules last.

        An empty default is not shown.
        """
        cls.__pydantic_fields__ = dict(sorted(cls.model_fields.items(), key=cls._rank))
        for name in vars(cls).get("__annotations__", {}):
            field = cls.model_fields.get(name)
            if field is not None and field.default in (None, "", [], ()):
                cls.__annotations__[name] = Annotated[cls.__annotations__[name], NO_HINT]

    @classmethod
    def _rank(cls, item: tuple[str, Any]) -> tuple[bool, bool]:
        name, field = item
        definer = next(
            base for base in reversed(cls.__mro__) if name in vars(base).get("__annotations__", {})
        )
        return not field.is_required(), definer.__module__ != cls.__module__

    def manifest(self) -> dict[str, Any]:
        """The settings as JSON values, to be saved beside results."""
        return self.model_dump(mode="json")


S = TypeVar("S", bound=Settings)


def wrapped(text: str, width: int) -> str:
    """A help text wrapped to the width of a terminal.

    tyro joins lines that begin with a letter, and doubles empty ones. So lines are indented by two
    spaces, and an empty one holds a zero-width space. Indented lines, such as commands, stay as
    they are.
    """
    lines: list[str] = []
    for block in text.split("\n\n"):
        prose: list[str] = []
        for line in block.splitlines():
            if line.startswith(" "):
                lines += [*textwrap.wrap(" ".join(prose), width), line]
                prose = []
            else:
                prose.append(line)
        lines += [*textwrap.wrap(" ".join(prose), width), "\u200b"]
    return "\n".join(f"  {line}" if line.strip("\u200b") else line for line in lines[:-1])


def _explained(error: Mapping[str, Any], flags: Mapping[str, str]) -> str:
    """One line: the flag, the value that was given, and what is wrong."""
    message = str(error["msg"]).removeprefix("Value error, ")
    if not error["loc"]:
        return message
    field = error["loc"][0]
    if error["type"] == "extra_forbidden":  # of a file
        return f"unknown name {field!r}{did_you_mean(str(field), flags.values())}"
    flag = flags.get(field, field)
    return f"--{flag} {error['input']!r:.80}: {message[:1].lower()}{message[1:]}"


def _check_names(settings: type[Settings], argv: Sequence[str]) -> None:
    """Raises SettingsError for an unknown flag, before tyro complains about missing ones."""
    known = list(_flags(settings).values())
    for word in argv:
        if word.startswith("--"):
            name = word.removeprefix("--").partition("=")[0].replace("-", "_")
            if name not in (*known, "help"):
                hint = did_you_mean(f"--{name}", [f"--{flag}" for flag in known])
                raise SettingsError(f"unknown flag {word}{hint}")


def _flags(settings: type[BaseModel]) -> dict[str, str]:
    """The flag of each field: the name of the field, or that of its `tyro.conf.arg`."""
    flags = {}
    for name, field in settings.model_fields.items():
        names = [entry.name for entry in field.metadata if getattr(entry, "name", None)]
        flags[name] = names[0] if names else name
    return flags


def parse(settings: type[S], prog: str, argv: Sequence[str], default: S | None = None) -> S:
    """The settings of a command line, which override those of `default`, such as a file's.

    Exits with status 2 and one message if they are wrong.
    """
    import tyro

    prog = as_typed(prog)
    description = as_typed(inspect.getdoc(settings) or "")
    columns = min(100, shutil.get_terminal_size().columns)
    try:
        _check_names(settings, argv)
        parsed: S = tyro.cli(  # type: ignore[assignment]
            settings,
            prog=prog,
            description=wrapped(description, columns - 2),
            args=list(argv),
            default=default,
            use_underscores=True,
            config=(tyro.conf.FlagCreatePairsOff, tyro.conf.DisallowNone),
        )
        return parsed
    except SettingsError as error:
        from answer_graders.programs.console import say

        say(f"{prog}: {error} (--help shows what is allowed)", error=True)
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
        prog: the command, such as "openrlhf-js lab mse".
        work: the program; None is status 0.
        resumes: whether the same command continues after a stop.
        failures: by type, the message of an error that user input did not cause: status 1.

    Status 1: a failure, such as a full disk; 2: the input cannot be used; 130: stopped.
    """
    from answer_graders.programs.console import say

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
    except BrokenPipeError:  # the output's reader has left: see `openrlhf_js.cli.main`
        raise
    except OSError as error:
        status = 1
        place = f"{error.filename}: " if error.filename else ""
        message = f"{place}{error.strerror or error}{advice}"
    say(f"{as_typed(prog)}: {message}", error=True)
    return status


def program(
    prog: str,
    settings: type[S],
    work: Callable[[S], int | None],
    argv: Sequence[str],
    *,
    resumes: bool = False,
    failures: Failures | None = None,
) -> int:
    """Parses a command line, and runs the work on its settings; returns the status of `run`."""
    parsed = parse(settings, prog, argv)
    return run(prog, lambda: work(parsed), resumes, failures)
