"""The final answer of a response: in the last `\\boxed{}` or `<answer>`, or after the last `####`.

Each takes the response alone, never the prompt, which may hold examples of an answer, and takes
time in proportion to the response's length, whatever it holds.
"""

from __future__ import annotations

import re

# Each alternative begins with its own character, so that the engine leaps over plain text.
_BRACES = re.compile(
    r"\\(?:(?:boxed|fbox)(?:\s{0,8}(?P<box>\{)|[ \t]{1,8}(?P<word>[^\s{}$\\]+))|[\\{}])|\{|\}"
)
_TAGS = re.compile(r"<(?P<slash>/?)answer>", re.IGNORECASE)
_HASHES = re.compile(r"####[^\S\n]*([^\n]*)")


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
