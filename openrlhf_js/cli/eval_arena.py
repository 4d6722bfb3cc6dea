"""`openrlhf-js eval arena PROGRAM ...`: Arena-Hard, from its questions to a score."""

from __future__ import annotations

import sys

from openrlhf_js.cli.main import choose

PROGRAMS = {
    "fetch": ("eval_arena_fetch", "get questions, baseline answers and the judge's texts"),
    "generate": ("eval_arena_generate", "have a model answer the questions"),
    "judge": ("eval_arena_judge", "have the answers compared with the baseline's"),
    "score": ("eval_arena_score", "win rates with intervals, style control, comparisons"),
    "show": ("eval_arena_show", "the page with every question, answer and verdict"),
}


def main(argv: list[str] | None = None) -> int:
    """Runs the program that the first argument names, and returns its exit status."""
    return choose("openrlhf-js eval arena", PROGRAMS, sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    sys.exit(main())
