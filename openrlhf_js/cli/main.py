"""`openrlhf-js PROGRAM ...`: one command for every program, which is imported only when it runs."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TextIO

from openrlhf_js import __version__, needs
from answer_graders.programs import choose

PROG = "openrlhf-js"
PROGRAMS = {
    "train": ("openrlhf_js.cli.train:main", "train a policy (OpenRLHF's flags)"),
    "rm": ("openrlhf_js.cli.rm:main", "train, measure and serve reward models"),
    "eval": ("paired_eval.cli.passk:main", "measure a model: checked answers, or a judge"),
    "quickstart": ("baseline_research.cli.quickstart:main", "make a tiny model and train it, anywhere"),
    "study": ("baseline_research.cli.study:main", "many paired runs of several estimators, compared"),
    "data": ("answer_graders.programs.data:main", "build and check prompts with checkable answers"),
    "lab": ("baseline_research.cli.lab:main", "measure baselines and gradients against the truth"),
}
# Each program's extra, and a module that comes with it.
EXTRAS = {
    "train": ("train", "openrlhf"),
    "rm": ("reward-model", "altair"),
    "eval": ("eval", "altair"),
    "quickstart": ("train", "openrlhf"),
    "study": ("lab", "altair"),
    "data": ("tasks", "tyro"),
    "lab": ("lab", "altair"),
}
INTERRUPTED = 130  # as a shell has it
CLOSED_PIPE = 141  # the exit status that a shell gives to what SIGPIPE ends


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program that the first argument names, and returns its exit status.

    That is 141, without a message, where the reader of its output has left, as `head` does.
    """
    try:
        try:
            return _run(sys.argv[1:] if argv is None else argv)
        except KeyboardInterrupt:  # while it imports, or reads its flags
            print(f"{PROG}: stopped", file=sys.stderr)
            return INTERRUPTED
        finally:
            sys.stdout.flush()  # what is left in the buffer would fail after the last handler
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
    try:
        if name in EXTRAS:
            needs(*EXTRAS[name])
            needs("tasks", "pydantic", "rich", "tyro")  # what `train` lacks beside OpenRLHF
        return choose(PROG, PROGRAMS if name in PROGRAMS else _listed(), argv)
    except ModuleNotFoundError as error:
        if error.name:  # not from `needs`
            raise
        if "--help" in argv or "-h" in argv:
            print(f"usage: {PROG} {name} ...\n\n{PROGRAMS[name][1]}\n\n{error}")
            return 0
        print(f"{PROG}: {error}", file=sys.stderr)
        return 2


def _listed() -> dict[str, tuple[str, str]]:
    """The programs, each that lacks its extra with the extra behind what it does."""
    listed = dict(PROGRAMS)
    for name, (extra, module) in EXTRAS.items():
        if find_spec(module) is None:
            location, summary = PROGRAMS[name]
            listed[name] = (location, f"{summary} (needs openrlhf-js[{extra}])")
    return listed


if __name__ == "__main__":
    sys.exit(main())
