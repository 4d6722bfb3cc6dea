"""`openrlhf-js eval PROGRAM ...`: how good a model is, and which of two is better."""

from __future__ import annotations

import sys

from openrlhf_js.cli.main import choose

PROGRAMS = {
    "passk": ("eval_passk", "sample answers that can be checked: mean@k, pass@k, majority"),
    "arena": ("eval_arena", "have answers compared by a judge: Arena-Hard, creative writing"),
}


def main(argv: list[str] | None = None) -> int:
    """Runs the program that the first argument names, and returns its exit status."""
    return choose("openrlhf-js eval", PROGRAMS, sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    sys.exit(main())
