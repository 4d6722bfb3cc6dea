"""`openrlhf-js lab simulate`: errors of every baseline for made-up values, without a model."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from openrlhf_js.cli.lab_run import finish, guarded
from openrlhf_js.cli.parser import Parser
from openrlhf_js.cli.progress import Bar
from openrlhf_js.cli.saying import say

if TYPE_CHECKING:  # what needs torch is imported once the flags are right
    from openrlhf_js.lab.values import Values

NAME = "simulate"
PROGRAM = f"openrlhf-js lab {NAME}"
MOST_REWARDS = 1_000_000  # of a batch
DESCRIPTION = """\
Measure how far every baseline is from the true value, where the values are made up.

Batches of prompts are drawn, each prompt with its value and rewards around it; every estimator of
openrlhf_js sees the same ones. No model is needed.

values:
  beta:A,B                 0.5,0.5: most prompts are hard or easy; 2,2: most are in between
  uniform                  from 0 to 1
  two_point:LOW,HIGH,SHARE HIGH for that share of the prompts
  logit_normal:MEAN,STD    1 / (1 + exp(-z)) with normal z
  constant:VALUE           the same for every prompt
  normal:MEAN,STD          for --rewards gaussian
  file:PATH                value.npz of lab value, or text with one value a line; drawn from it.
                           Measured values spread more than true ones, by their squared error
"""
EXAMPLES = """\
examples:
  openrlhf-js lab simulate --out runs/lab
  openrlhf-js lab simulate --values two_point:0.05,0.95,0.1 --prompts_count 16 --out runs/lab
  openrlhf-js lab simulate --values normal:0,1 --rewards gaussian --noise_spread 0.8 --out runs/lab
  openrlhf-js lab simulate --values file:runs/lab/value.npz --out runs/lab-again

It leaves in its folder:
  simulate.json   the table below, the finding, every flag, versions
  simulate.npz    the mean squared error of every baseline in every batch
  simulate.png    both as a picture

exit status: 0 done, 1 the disk fails, 2 what was given cannot be used, 130 stopped
"""


def main(argv: list[str] | None = None) -> int:
    """Runs the program from its command line and returns its exit status."""
    args = parse(argv)
    return guarded(PROGRAM, lambda: work(args, Console(), Console(stderr=True)), resumes=False)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Reads the command line; leaves with status 2 and one line if it is wrong."""
    parser = Parser(prog=PROGRAM, description=DESCRIPTION, epilog=EXAMPLES)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of results")
    parser.add_argument("--seed", type=int, default=0, help="of the draws (default %(default)s)")
    parser.add_argument(
        "--values", default="beta:0.5,0.5", metavar="KIND", help="see above (default %(default)s)"
    )
    parser.add_argument(
        "--rewards",
        default="bernoulli",
        choices=("bernoulli", "gaussian"),
        help="bernoulli: 1 with the value as probability, else 0 (default %(default)s)",
    )
    parser.add_argument(
        "--noise", type=float, metavar="STD", help="of a prompt's gaussian rewards (default 1)"
    )
    parser.add_argument(
        "--noise_spread",
        type=float,
        metavar="STD",
        help="of the noise's logarithm over prompts (default 0: the same for all)",
    )
    parser.add_argument(
        "--prompts_count", type=int, default=64, metavar="N", help="in a batch (default 64)"
    )
    parser.add_argument(
        "--responses", default="2,4,8", metavar="M,...", help="to a prompt (default %(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=4000, metavar="N", help="batches (default %(default)s)"
    )
    args = parser.parse_args(argv)
    try:
        args.responses = sorted({int(m) for m in args.responses.split(",")})
    except ValueError:
        parser.error(f"--responses {args.responses!r} are no whole numbers such as 2,4,8")
    for name, given in (
        ("responses", args.responses[0]),
        ("prompts_count", args.prompts_count),
        ("rounds", args.rounds),
    ):
        if given < 2:
            parser.error(f"--{name} is {given}; give 2 or more")
    if args.prompts_count * args.responses[-1] > MOST_REWARDS:
        parser.error(
            f"{args.prompts_count} x {args.responses[-1]} rewards are more than {MOST_REWARDS:,} "
            "in a batch; give fewer --prompts_count or --responses"
        )
    if args.seed < 0:
        parser.error(f"--seed is {args.seed}; give 0 or more")
    if args.rewards == "bernoulli" and (args.noise, args.noise_spread) != (None, None):
        parser.error("--noise and --noise_spread are of gaussian rewards; add --rewards gaussian")
    return args


def work(args: argparse.Namespace, console: Console, errors: Console) -> None:
    """Simulates, then writes and shows what came out."""
    from openrlhf_js.lab.simulate import LEFT_OUT, simulate
    from openrlhf_js.lab.simulate_summary import arrays, summarise

    values = _values(args)
    found = {}
    with Bar("simulating", args.rounds * len(args.responses), errors, "batches") as bar:
        for number, m in enumerate(args.responses):

            def progress(done: int, before: int = number * args.rounds) -> None:
                bar.update(before + done, before + done)

            found[m] = simulate(values, args.prompts_count, m, args.rounds, args.seed, progress)
    summary = summarise(values, args.prompts_count, found)
    for name, why in LEFT_OUT.items():
        say(console, f"{name} is left out: it {why}.")
    finish(args, NAME, summary, arrays(found), console)


def _values(args: argparse.Namespace) -> Values:
    from openrlhf_js.lab.values import bernoulli_rewards, gaussian_rewards, parse

    try:
        values = parse(args.values)
    except OSError as error:
        raise ValueError(f"--values {args.values} cannot be read: {error.strerror}") from error
    if args.rewards == "bernoulli":
        return bernoulli_rewards(values)
    noise, spread = args.noise, args.noise_spread
    return gaussian_rewards(
        values, 1.0 if noise is None else noise, 0.0 if spread is None else spread
    )


if __name__ == "__main__":
    sys.exit(main())
