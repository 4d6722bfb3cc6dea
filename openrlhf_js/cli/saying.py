"""What programs say on a terminal. Text of others is never taken for markup or for control."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.text import Text


def visible(text: str) -> str:
    """The text with everything that does not print, but for line ends, written as an escape."""
    return "".join(
        character
        if character == "\n" or character.isprintable()
        else character.encode("unicode_escape").decode()
        for character in text
    )


def say(console: Console, text: str, style: str = "") -> None:
    """Prints text as it is, unwrapped, so that paths and commands can be copied."""
    console.print(Text(visible(text), style), soft_wrap=True)


def complain(message: object, status: int) -> int:
    """Prints what is wrong on stderr, each line with our name, and returns the exit status."""
    for line in visible(str(message)).splitlines():
        print(f"openrlhf_js: {line}", file=sys.stderr, flush=True)
    return status
