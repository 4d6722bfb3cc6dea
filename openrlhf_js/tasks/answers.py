"""The final answer of a response: in the last `\\boxed{}` or `<answer>`, or after the last `####`.

Each takes the response alone, never the prompt, which may hold examples of an answer. All take
time in proportion to the length of their text, whatever it holds.
"""

from __future__ import annotations

import re

# Each alternative begins with its own character, so that the engine leaps over plain text.
_BRACES = re.compile(
    r"\\(?:(?:boxed|fbox)(?:\s{0,8}(?P<box>\{)|[ \t]{1,8}(?P<word>[^\s{}$\\]+))|[\\{}])|\{|\}"
)
_TAGS = re.compile(r"<(?P<slash>/?)answer>", re.IGNORECASE)
_HASHES = re.compile(r"####[^\S\n]*([^\n]*)")
_PRESENTATION = re.compile(
    r"""[$`"'{}\u2018\u2019\u201c\u201d]|\\(?:[\\()\[\]\s,;:!]|(?:left|right)(?=\s?[()])"""
    r"""|(?:boxed|fbox|quad|qquad|(?:text|math)(?:bf|it|rm|tt)?)(?![A-Za-z]))"""
)


def last_boxed(response: str) -> str | None:
    """What the last complete `\\boxed{...}` or `\\fbox{...}` holds, with balanced braces.

    Of nested boxes the outer one counts. `\\boxed 7`, without braces, holds the next word.

    Returns:
        The content, or None where no box is complete.
    """
    found: tuple[int, int] | None = None  # cut out at the end: a copy for each would be quadratic
    starts: list[int | None] = []  # of every open brace: where its box begins, if it is a box's
    for match in _BRACES.finditer(response):
        if match["box"]:
            starts.append(match.end())
        elif match["word"]:
            found = match.span("word")
        elif match[0] == "{":
            starts.append(None)
        elif match[0] == "}" and starts:
            start = starts.pop()
            found = found if start is None else (start, match.start())
    return response[slice(*found)] if found else None


def last_answer_tag(response: str) -> str | None:
    """What stands in the last complete `<answer>...</answer>`, or None where none is complete."""
    found = start = None
    for match in _TAGS.finditer(response):
        if not match["slash"]:
            start = match.end()
        elif start is not None:
            found, start = response[start : match.start()], None
    return found


def last_hashes(response: str) -> str | None:
    """What follows the last `####` on its line, or None where there is none."""
    found = None
    for match in _HASHES.finditer(response):
        found = match[1].strip()
    return found


def plain(answer: str) -> str:
    """An answer without what merely presents it, for those that are no LaTeX: `8*3` of `$8*3$.`.

    Math delimiters, `\\left(` and `\\right)`, `\\boxed{}`, `\\text{}` and their like, braces,
    LaTeX's spaces, backticks and quotes become spaces wherever they stand, closed or not, so that
    none joins what it divides. Bold stars around the whole go, and so does a last full stop.
    """
    text = _PRESENTATION.sub(" ", answer).strip().removesuffix(".").rstrip()
    if text.startswith("**") and text.endswith("**"):
        text = text[2:-2].rstrip().removesuffix(".")
    return text.strip()
