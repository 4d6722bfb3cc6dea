"""Every flag of a program with the value that a run would have, for `--js.dry_run`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

SECRETS = ("logger.wandb.key",)


def flag_values(args: argparse.Namespace, parser: argparse.ArgumentParser) -> Iterator[str]:
    """One line for each flag, in alphabetical order; `*` marks those that are not at their default.

    Args:
        args: flat, with dotted attribute names, as the parser returned them.
        parser: knows the defaults.
    """
    for name, value in sorted(vars(args).items()):
        mark = "*" if changed(name, value, parser) else " "
        words = "(hidden)" if name in SECRETS and value else value
        if isinstance(value, list | tuple):
            words = " ".join(map(str, value))
        yield f"{mark} --{name} {words}"


def changed(name: str, value: object, parser: argparse.ArgumentParser) -> bool:
    """Whether a flag is not at its default."""
    default = parser.get_default(name)
    return value != default and _tuples(value) != _tuples(default)


def _tuples(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value
