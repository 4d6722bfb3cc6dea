"""Upstream's own command line, taken from upstream's own source.

OpenRLHF builds and validates its flags under `if __name__ == "__main__"`, where they cannot be
imported, and importing the module around them takes many seconds. So the source is parsed, split at
`args = parser.parse_args()`, and each half compiled by itself: no flag is listed twice, and
`--help` or a typo answers at once.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import functools
import importlib.util
import os
from datetime import datetime
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple, NoReturn

from openrlhf_js.plugin.errors import BadInput, UpstreamMismatch
from openrlhf_js.plugin.old_flags import POLICY, Spellings
from openrlhf_js.plugin.upstream import WORKS_WITH

MAIN = "__name__ == '__main__'"  # as ast.unparse writes it


class Program(NamedTuple):
    """The two halves of upstream's main block."""

    build: CodeType  # makes `parser`
    validate: CodeType  # reads the flat `args`, leaves them checked and nested


def _mismatch(path: Path | str, missing: str) -> UpstreamMismatch:
    return UpstreamMismatch(f"{path}: {missing} is missing; openrlhf_js works with {WORKS_WITH}")


def source_path(program: str = "train_ppo_ray") -> Path:
    """Where a program of the installed `openrlhf.cli` stands; importing it is not needed."""
    spec = importlib.util.find_spec("openrlhf")
    if spec is None or not spec.submodule_search_locations:
        raise UpstreamMismatch(
            f"OpenRLHF is not installed; openrlhf_js works with {WORKS_WITH} "
            "(`bash scripts/setup.sh` installs it)"
        )
    return Path(spec.submodule_search_locations[0], "cli", f"{program}.py")


@functools.cache
def read_program(path: Path) -> Program:
    """Splits upstream's main block into the code that builds the parser and the code that checks.

    Raises:
        UpstreamMismatch: names the statement that is not where it is expected.
    """
    if not path.is_file():
        raise _mismatch(path, "the file")
    statements = _main_block(ast.parse(path.read_text(encoding="utf-8")))
    if statements is None:
        raise _mismatch(path, 'the block `if __name__ == "__main__":`')
    written = [ast.unparse(statement) for statement in statements]
    if "args = parser.parse_args()" not in written:
        raise _mismatch(path, "the statement `args = parser.parse_args()`")
    if written[-1] != "train(args)":
        raise _mismatch(path, "the statement `train(args)` at the end")
    parse = written.index("args = parser.parse_args()")
    if "args = hierarchize(args)" not in written[parse:]:
        raise _mismatch(path, "the statement `args = hierarchize(args)`")

    def compiled(part: list[ast.stmt]) -> CodeType:
        return compile(ast.Module(body=part, type_ignores=[]), str(path), "exec")

    return Program(compiled(statements[:parse]), compiled(statements[parse + 1 : -1]))


def _main_block(module: ast.Module) -> list[ast.stmt] | None:
    for statement in module.body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == MAIN:
            return statement.body
    return None


class Parser(argparse.ArgumentParser):
    """Answers a mistake with one line, and an unknown flag with the ones that look like it.

    Abbreviations are off: with flat and dotted names side by side, the beginning of an old flag
    could mean another new one.
    """

    def __init__(self, spellings: Spellings = POLICY, **options: Any):
        super().__init__(allow_abbrev=False, **options)
        self._renamed = spellings.renamed

    def parse_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def, override]
        known, unknown = self.parse_known_args(args, namespace)
        if unknown:
            flags = [token for token in unknown if token.startswith("--")]
            self.error("; ".join(map(self._hint, flags)) or f"unexpected value {unknown[0]!r}")
        return known

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")

    def _hint(self, token: str) -> str:
        name = token[2:].partition("=")[0]
        names = [flag[2:] for flag in self._option_string_actions if flag.startswith("--")]
        close = difflib.get_close_matches(name, [*names, *self._renamed])
        shown = [f"--{new}" for near in close for new in self._renamed.get(near, near).split()]
        hint = f", did you mean {' or '.join(dict.fromkeys(shown))}?" if shown else ""
        return f"unknown flag --{name}{hint}"


def upstream_parser(
    program: str = "train_ppo_ray", spellings: Spellings = POLICY
) -> argparse.ArgumentParser:
    """A parser with every flag, default and help text of the installed upstream.

    Args:
        program: of `openrlhf.cli`.
        spellings: its older ones, for hints at what was meant.

    Raises:
        UpstreamMismatch: the installed OpenRLHF is none that we know.
    """
    path = source_path(program)
    names: dict[str, Any] = {"argparse": argparse, "os": os, "datetime": datetime}
    try:
        exec(read_program(path).build, names)
    except NameError as error:
        raise _mismatch(path, f"a parser that needs no other import ({error})") from error
    if not isinstance(names.get("parser"), argparse.ArgumentParser):
        raise _mismatch(path, "`parser`, an argparse.ArgumentParser")
    return Parser(
        spellings, parents=[names["parser"]], add_help=False
    )  # --help comes with upstream's


def validate_upstream(args: argparse.Namespace, program: str = "train_ppo_ray") -> Any:
    """Upstream's own checks of its flags, and the values that it fills in.

    Args:
        args: flat, with dotted attribute names, as the parser returns them.
        program: of `openrlhf.cli`.

    Returns:
        The nested arguments (`args.algo.advantage.estimator`) that upstream's `train` takes.

    Raises:
        BadInput: carries the message of upstream's failed assertion.
    """
    names: dict[str, Any] = {"args": args}
    try:
        exec(read_program(source_path(program)).validate, names)
    except AssertionError as error:
        raise BadInput(str(error)) from error
    return names["args"]
