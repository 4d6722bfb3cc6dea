"""Programs by name: `openrlhf-js PROGRAM`, and the programs below it. Needs no extra."""

from __future__ import annotations

import difflib
import importlib
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path


def choose(prog: str, programs: Mapping[str, tuple[str, str]], argv: Sequence[str]) -> int:
    """Runs the program that the first of `argv` names, importing it only then.

    `programs` has by name "module:function" of `function(argv) -> status`, and what it does.
    """
    name = argv[0] if argv else "--help"
    if name in ("-h", "--help"):
        print(usage(prog, programs))
        return 0
    if name not in programs:
        hint = did_you_mean(name, programs)
        print(f"{prog}: no program {name!r}{hint}\n\n{usage(prog, programs)}", file=sys.stderr)
        return 2
    location, _ = programs[name]
    module, _, function = location.partition(":")
    main = getattr(importlib.import_module(module), function)
    return int(main(argv[1:]))


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A question for the similar one of these names, to stand behind a name; "" where none is."""
    similar = difflib.get_close_matches(name, list(names), n=1)
    return f" (did you mean {similar[0]!r}?)" if similar else ""


def usage(prog: str, programs: Mapping[str, tuple[str, str]]) -> str:
    """How a group of programs is called, with a line for each program."""
    width = max(map(len, programs))
    lines = [f"usage: {prog} PROGRAM [--help] ...", "", "programs:"]
    for name, (_, summary) in programs.items():
        lines.append(f"  {name:{width}}  {summary}".rstrip())
    return "\n".join(lines)


def curves_command(folder: str | Path) -> str:
    """The command that shows the TensorBoard files in a folder and below it."""
    program = Path(sys.executable).with_name("tensorboard")
    return shlex.join([str(program), "--logdir", str(folder)])
