"""`openrlhf-js rm PROGRAM ...`: reward models, from preferences to a served score."""

from __future__ import annotations

import sys

from openrlhf_js.cli.main import choose

PROGRAMS = {
    "train": ("train_rm", "train a reward model on preferences (OpenRLHF's flags)"),
    "eval": ("rm_eval", "measure a reward model on preferences that it has not seen"),
    "serve": ("rm_serve", "give a reward model's scores over HTTP"),
}


def main(argv: list[str] | None = None) -> int:
    """Runs the program that the first argument names, and returns its exit status."""
    return choose("openrlhf-js rm", PROGRAMS, sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    sys.exit(main())
