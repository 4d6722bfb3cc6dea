"""`openrlhf-js lab gradient`: how far small batches' gradients are from a precise one."""

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

NAME = "gradient"
PROGRAM = f"openrlhf-js lab {NAME}"
REFERENCE, BASELINES = "rloo", ("js", "js_plus", "bloo", "reinforce++", "dr_grpo")
COLUMNS = (
    *("m", "estimator", "gradient", "distance", "plain_distance", "reduction_percent"),
    *("reduction_low", "reduction_high", "mse_reduction_percent", "shrinkage"),
)
DESCRIPTION = f"""\
Measure how far the policy gradients of small batches are from a precise one, for every baseline.

{GRADIENT_NOTE}
distance             mean of ||g - G||^2 without the error of G itself, which is estimated from its
                     two halves: unbiased for the variance of g (plus its squared bias, if biased)
plain distance       the same with G's error, as in the paper
reduction percent    against {REFERENCE}, paired by batch, with its 95 % interval
mse reduction        the same of the baseline's squared error to the prompts' values

dr_grpo has {REFERENCE}'s gradient times (m - 1)/m: its shorter steps lie nearer, but to one side.

{SAMPLING_NOTE}"""
EXAMPLES = """\
examples:
  openrlhf-js lab gradient --model ckpt/policy --task countdown --out runs/lab
  openrlhf-js lab gradient --model ckpt/policy --prompts train.jsonl --reward reward.py \\
      --prompts_count 64 --responses 64 --m 2,4 --out runs/lab
  openrlhf-js lab gradient --out runs/lab --baselines js,remax        the same samples again
  openrlhf-js lab gradient --out runs/lab --projection 4096           for large models

It leaves in its folder:
  gradient.json   the table below, the finding, every flag, versions
  gradient.npz    squared norms, products with G and distances, of every batch
  gradient.png    both as a picture

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
    parser.add_argument(
        "--baselines",
        metavar="NAME,...",
        help=f"compared with {REFERENCE} (default {','.join(BASELINES)}, and remax if greedy "
        "responses were sampled)",
    )
    args = parser.parse_args(argv)
    check_gradient_flags(parser, args)
    if args.baselines is not None:
        args.baselines = [name for name in args.baselines.split(",") if name != REFERENCE]
        if not args.baselines:
            parser.error(f"--baselines needs one to compare with {REFERENCE}, such as js")
    return args


def work(args: argparse.Namespace, console: Console) -> None:
    """Samples and measures what is missing, then writes and shows what came out."""
    samples = sampling(args)
    import numpy as np

    from openrlhf_js.lab.gradient_summary import summarise
    from openrlhf_js.lab.small_batches import check_names

    known = (*BASELINES, *(("remax",) if samples.greedy_rewards is not None else ()))
    names = (REFERENCE, *(args.baselines or known))
    check_names(names, samples)
    found = measured(args, scores_of(args, samples), samples, names)
    arrays = {
        "estimators": np.array(names),
        "m": np.array(args.m),
        "squared_norms": found.squared_norms,
        "products": found.products,
        "distances": found.distances,
    }
    summary = summarise(samples, plan_of(args, len(samples.prompts)), found)
    summary["samples"] = samples.settings
    say_how_exact(args, found, summary["batches"]["disjoint"])
    finish(args, NAME, summary, arrays, console, COLUMNS)


if __name__ == "__main__":
    sys.exit(main())
