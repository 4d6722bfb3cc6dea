"""`openrlhf-js lab value`: each prompt's value by many responses, with its standard error."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console

from openrlhf_js.cli.lab_flags import (
    SAMPLING_NOTE,
    add_sampling_flags,
    check_sampling_flags,
    sampling,
)
from openrlhf_js.cli.lab_run import finish, guarded
from openrlhf_js.cli.parser import Parser

NAME = "value"
PROGRAM = f"openrlhf-js lab {NAME}"
DESCRIPTION = f"""\
Estimate the value of each prompt: the mean reward of many responses, with its standard error.

{SAMPLING_NOTE}"""
EXAMPLES = """\
examples:
  openrlhf-js lab value --model Qwen/Qwen2.5-1.5B-Instruct --task countdown --out runs/lab
  openrlhf-js lab value --model ckpt --prompts data.jsonl --reward reward_models/math.py \\
      --apply_chat_template --responses 256 --out runs/lab
  openrlhf-js lab value --out runs/lab

It leaves in its folder:
  value.json   the table below, the finding, every flag, versions
  value.npz    values, standard_errors, variances, and every reward, in prompt order
  value.png    the values as a picture
  samples/     prompts and responses

exit status: 0 done, 1 a reward cannot be had or the disk fails, 2 what was given cannot be used,
130 stopped
"""


def main(argv: list[str] | None = None) -> int:
    """Runs the program from its command line and returns its exit status."""
    args = parse(argv)
    return guarded(PROGRAM, lambda: work(args, Console()))


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Reads the command line; leaves with status 2 and one line if it is wrong."""
    parser = Parser(prog=PROGRAM, description=DESCRIPTION, epilog=EXAMPLES)
    add_sampling_flags(parser)
    args = parser.parse_args(argv)
    check_sampling_flags(parser, args)
    return args


def work(args: argparse.Namespace, console: Console) -> None:
    """Samples what is missing, then writes and shows what the rewards say."""
    from openrlhf_js.lab.value import summarise

    summary, arrays = summarise(sampling(args))
    finish(args, NAME, summary, arrays, console)


if __name__ == "__main__":
    sys.exit(main())
