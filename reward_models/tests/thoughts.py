"""The marks of thoughts that tests try: `tasks/thought_marks.txt`."""

import json
from pathlib import Path

_LINES = (Path(__file__).parent / "thought_marks.txt").read_text("utf-8").splitlines()
MARKS: list[tuple[str, str]] = []
for _line in _LINES:
    if _line[:1] in ("<", "[", "\u25c1"):
        _opening, _closing = _line.split(" ")
        MARKS.append((_opening.replace("\u23ce", "\n"), _closing))


def rows():
    """The rows of `thoughts.txt`: grader, reply, reward."""
    for line in (Path(__file__).parent / "thoughts.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            yield json.loads(line)
