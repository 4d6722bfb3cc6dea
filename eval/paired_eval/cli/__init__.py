"""`openrlhf-js eval`: how good a model is, and which of two is better."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from answer_graders.programs import choose

PROGRAMS = {
    "passk": ("paired_eval.cli.passk:main", "grade answers that can be checked: mean@k, pass@k"),
    "arena": ("paired_eval.cli.arena:main", "have answers compared by a judge: Arena-Hard"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `passk` or `arena` and returns the exit status."""
    return choose("openrlhf-js eval", PROGRAMS, sys.argv[1:] if argv is None else argv)
