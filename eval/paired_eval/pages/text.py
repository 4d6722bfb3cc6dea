"""Numbers and names as pages, tables and pictures write them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

LONGEST_NAME = 22  # characters of a series that a picture has room for
VERSION = re.compile(r"(?<=\w)@[0-9a-f]{8}$")  # that a study appends to a name


def with_interval(
    value: float | None,
    low: float | None,
    high: float | None,
    form: str = ".3g",
    scale: float = 1,
    unit: str = "",
) -> str:
    """A number with its interval, such as `84.2 % (82.9 to 85.5)`; "-" where there is none.

    A plus in the form applies only to the number: `+5.6 (2.7 to 8.5)`.
    """
    if value is None:
        return "-"
    text = f"{_digits(scale * value, form)}{unit}"
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return text
    form = form.removeprefix("+")
    return f"{text} ({_digits(scale * low, form)} to {_digits(scale * high, form)})"


def _digits(value: float, form: str) -> str:
    """A number in this form; a large one in whole digits, such as 1,234, without an exponent."""
    text = f"{value:{form}}"
    if "e+" not in text:
        return text
    sign = "+" if form.startswith("+") else ""
    return f"{value:{sign},.0f}"


def short_names(names: Iterable[str], longest: int = LONGEST_NAME) -> dict[str, str]:
    """What a picture shows, by name: both ends of a long name, without a file's version.

    If two would look the same, the versions stay, or else the names stay whole.
    """
    names = list(names)
    start = longest // 2
    end = longest - start - 1
    for text_of in (lambda name: VERSION.sub("", name), str):
        short = {}
        for name in names:
            text = printable(text_of(name))
            short[name] = text if len(text) <= longest else f"{text[:start]}…{text[-end:]}"
        if len(set(short.values())) == len(short):
            return short
    return {name: printable(name) for name in names}


def printable(name: str) -> str:
    """The name with unprintable characters replaced, which no picture or page may hold."""
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in name
    )


def beginning(text: str, longest: int) -> str:
    """The text on one line, with an ellipsis where it goes on."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[:longest]}\N{HORIZONTAL ELLIPSIS}"
