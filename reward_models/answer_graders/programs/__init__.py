"""Programs by name: `openrlhf-js PROGRAM`, and those below it. Needs only the standard library."""

from __future__ import annotations

import difflib
import importlib
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

# The commands of packages that also come without openrlhf-js, and what they are called with it.
ALONE = {"answer-graders": "openrlhf-js data", "paired-eval": "openrlhf-js eval"}


def as_typed(text: str) -> str:
    """A text with the packages' own commands, where one of these was called."""
    if Path(sys.argv[0]).name in ALONE:
        for own, of_product in ALONE.items():
            text = text.replace(of_product, own)
    return text


def choose(
    prog: str, programs: Mapping[str, tuple[str, str]], argv: Sequence[str], noun: str = "program"
) -> int:
    """Runs the program that `argv[0]` names, and imports only this one.

    `programs` maps each name to "module:function", where `function(argv)` returns a status, and a
    summary; `noun` is what messages call them.
    """
    prog = as_typed(prog)
    name = argv[0] if argv else "--help"
    usage = _usage(prog, programs, noun)
    if name in ("-h", "--help"):
        print(usage)
        return 0
    if name not in programs:
        hint = did_you_mean(name, programs)
        print(f"{prog}: no {noun} {name!r}{hint}\n\n{usage}", file=sys.stderr)
        return 2
    location, _ = programs[name]
    module, _, function = location.partition(":")
    main = getattr(importlib.import_module(module), function)
    return int(main(argv[1:]))


def needs(requirement: str, *modules: str) -> None:
    """Raises ModuleNotFoundError that names what to install, if one of the modules is missing."""
    for module in modules:
        if find_spec(module) is None:
            raise ModuleNotFoundError(
                f"{module} is not installed; it comes with {requirement} "
                "(how to install it: docs/install.md, Four packages)"
            )


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A question with the most similar name, to append to a message; "" if none is similar.

    It contains the name, such as `--reward.model` for `--model`, or is a close match.
    """
    candidates = list(names)
    word = name.strip("-")
    similar = [candidate for candidate in candidates if len(word) > 3 and word in candidate]
    similar += difflib.get_close_matches(name, candidates, n=1)
    return f" (did you mean {similar[0]!r}?)" if similar else ""


def _usage(prog: str, programs: Mapping[str, tuple[str, str]], noun: str) -> str:
    """The usage of a group of programs, with a summary of each."""
    width = max(map(len, programs)) + 4
    lines = [f"usage: {prog} {noun.upper()} [--help] ...", "", f"{noun}s:"]
    for name, (_, summary) in programs.items():
        line = textwrap.fill(
            summary,
            min(100, shutil.get_terminal_size().columns),
            initial_indent=f"  {name}".ljust(width),
            subsequent_indent=" " * width,
            break_on_hyphens=False,
        )
        lines.append(line or f"  {name}")
    return "\n".join(lines)


def curves_command(folder: str | Path) -> str:
    """The command that shows the TensorBoard files in a folder and below it."""
    program = Path(sys.executable).with_name("tensorboard")
    return shlex.join([str(program), "--logdir", str(folder)])
