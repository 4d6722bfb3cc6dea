"""`openrlhf-js lab sweep`: the distance to the true gradient for every shrinkage coefficient."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console

from openrlhf_js.cli.lab_flags import SAMPLING_NOTE, sampling
from openrlhf_js.cli.lab_gradient_flags import (
    GRADIENT_NOTE,
    add_gradient_flags,
    check_gradient_flags,
    measured,
    plan_of,
    say_how_exact,
    scores_of,
)
from openrlhf_js.cli.lab_run import finish, guarded
from openrlhf_js.cli.parser import Parser

NAME = "sweep"
PROGRAM = f"openrlhf-js lab {NAME}"
DESCRIPTION = f"""\
Measure how far small batches' policy gradients are from a precise one, for shrinkage coefficients
lambda from 0 (rloo) to 1 (bloo), and where js and js_plus stand.

{GRADIENT_NOTE}
A batch's squared distance is a parabola in lambda, so three gradients give the whole curve.

minimum     the lambda at which the mean distance is least, with a bootstrap interval over batches;
            its reduction is measured on each batch with the lambda that is best for the others
least mse   the same for the squared error of the baseline to the prompts' values
js, js_plus their mean lambda and their own reduction

{SAMPLING_NOTE}"""
EXAMPLES = """\
examples:
  openrlhf-js lab sweep --model ckpt/policy --task countdown --out runs/lab
  openrlhf-js lab sweep --out runs/lab --m 4          the same samples again

It leaves in its folder:
  sweep.json   the table below, the finding, every flag, versions
  sweep.npz    the curves, and the distances of every batch
  sweep.png    both as a picture

exit status: 0 done, 1 the disk, the memory or the reward fails, 2 what was given cannot be used,
130 stopped
"""


def main(argv: list[str] | None = None) -> int:
    """Runs the program from its command line and returns its exit status."""
    args = parse(argv)
    return guarded(PROGRAM, lambda: work(args, Console()))


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Reads the command line; leaves with status 2 and one line if it is wrong."""
    parser = Parser(prog=PROGRAM, description=DESCRIPTION, epilog=EXAMPLES)
    add_gradient_flags(parser)
    args = parser.parse_args(argv)
    check_gradient_flags(parser, args)
    return args


def work(args: argparse.Namespace, console: Console) -> None:
    """Samples and measures what is missing, then writes and shows what came out."""
    samples = sampling(args)
    from openrlhf_js.lab.sweep import SWEPT, summarise

    found = measured(args, scores_of(args, samples), samples, SWEPT)
    summary, arrays = summarise(samples, plan_of(args, len(samples.prompts)), found)
    summary["samples"] = samples.settings
    say_how_exact(args, found, summary["disjoint"])
    finish(args, NAME, summary, arrays, console)


if __name__ == "__main__":
    sys.exit(main())
