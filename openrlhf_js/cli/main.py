"""`openrlhf-js PROGRAM ...`: one command for the programs of all packages that are installed."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import NamedTuple, TextIO

from openrlhf_js import HOW_TO_INSTALL, __version__

PROG = "openrlhf-js"
GROUP = "openrlhf_js.programs"  # of entry points: the program's name, and its `main(argv)`
CLONE = "a clone of the repository: bash scripts/setup.sh"


class Program(NamedTuple):
    """What a program does, how to install it, and a module that the installation brings."""

    summary: str
    install: str
    module: str


PROGRAMS = {
    "train": Program("train a policy (OpenRLHF's flags)", "openrlhf-js[openrlhf]", "openrlhf"),
    "rm": Program("train, measure and serve reward models", "openrlhf-js[reward-model]", "fastapi"),
    "eval": Program("measure a model: checked answers, or a judge", "paired-eval", "paired_eval"),
    "quickstart": Program("make a tiny model and train it, anywhere", CLONE, "baseline_research"),
    "study": Program(
        "many paired runs of several estimators, compared", CLONE, "baseline_research"
    ),
    "data": Program(
        "build and check prompts with checkable answers", "answer-graders[data]", "datasets"
    ),
    "lab": Program("measure baselines and gradients against the truth", CLONE, "baseline_research"),
}
INTERRUPTED = 130  # the exit status that a shell reports after Ctrl-C
CLOSED_PIPE = 141  # the exit status that a shell reports after SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program that the first argument names, and returns its exit status.

    It is 141, without a message, if the reader of its output has closed the pipe, as `head` does.
    """
    try:
        try:
            return _run(sys.argv[1:] if argv is None else argv)
        except KeyboardInterrupt:  # while it imports, or reads its flags
            print(f"{PROG}: stopped", file=sys.stderr)
            return INTERRUPTED
        finally:
            sys.stdout.flush()  # else the buffer is flushed, and may fail, after the last handler
    except BrokenPipeError:
        unread = [stream for stream in (sys.stdout, sys.stderr) if _reader_has_left(stream)]
        if not unread:
            raise
        nowhere = os.open(os.devnull, os.O_WRONLY)  # for what Python flushes when it ends
        for stream in unread:
            os.dup2(nowhere, stream.fileno())
        return CLOSED_PIPE


def _reader_has_left(stream: TextIO) -> bool:
    """Whether a stream goes to a pipe that nobody reads any more."""
    poll = select.poll()
    poll.register(stream, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _run(argv: Sequence[str]) -> int:
    if list(argv) == ["--version"]:
        print(f"{PROG} {__version__}")
        return 0
    name = argv[0] if argv else "--help"
    if name in PROGRAMS and not _is_installed(name):
        return _say_what_is_missing(name, is_help="--help" in argv or "-h" in argv)
    if find_spec("answer_graders") is None:  # the code that all programs share
        summaries = "\n".join(f"  {name:12}{_listed(name)}" for name in PROGRAMS)
        print(f"usage: {PROG} PROGRAM [--help] ...\n\nprograms:\n{summaries}")
        return 0 if name in ("-h", "--help") else 2
    from answer_graders.programs import choose

    found = {point.name: point.value for point in entry_points(group=GROUP)}
    programs = {known: (found.get(known, ""), _listed(known)) for known in PROGRAMS}
    programs |= {other: (found[other], "") for other in found if other not in PROGRAMS}
    return choose(PROG, programs, argv)


def _is_installed(name: str) -> bool:
    """Whether a program's package and what the program needs are installed."""
    return find_spec("answer_graders") is not None and find_spec(PROGRAMS[name].module) is not None


def _listed(name: str) -> str:
    """A program's summary, with what must be installed for it."""
    program = PROGRAMS[name]
    return (
        program.summary if _is_installed(name) else f"{program.summary} (needs {program.install})"
    )


def _say_what_is_missing(name: str, is_help: bool) -> int:
    """Says how to install a program: with --help on stdout, else as an error."""
    program = PROGRAMS[name]
    missing = f"{name} is not installed; it comes with {program.install} ({HOW_TO_INSTALL})"
    if is_help:
        print(f"usage: {PROG} {name} ...\n\n{program.summary}\n\n{missing}")
        return 0
    print(f"{PROG}: {missing}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
