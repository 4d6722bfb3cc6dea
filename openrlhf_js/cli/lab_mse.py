"""`openrlhf-js lab mse`: the squared error of every baseline to the true value."""

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
from openrlhf_js.cli.progress import Bar
from openrlhf_js.cli.saying import say

NAME = "mse"
PROGRAM = f"openrlhf-js lab {NAME}"
BATCH_PROMPTS = 64  # the paper's
COLUMNS = (  # of the table; the file has more
    *("responses", "estimator", "gradient", "mse", "reduction_percent", "low", "high"),
    "shrinkage",
)
DESCRIPTION = f"""\
Measure how far every baseline is from the true value, on responses of a model.

Small batches are drawn from many responses; a prompt's value is the mean of those that are not in
the batch, and the squared error of that mean is taken off.

{SAMPLING_NOTE}"""
EXAMPLES = """\
examples:
  openrlhf-js lab mse --model Qwen/Qwen2.5-1.5B-Instruct --task countdown --out runs/lab
  openrlhf-js lab mse --model ckpt --prompts data.jsonl --reward reward_models/math.py \\
      --apply_chat_template --out runs/lab
  openrlhf-js lab mse --m 2,3,4,6,8,16 --out runs/lab

It leaves in its folder:
  mse.json   the table below, the finding, every flag, versions
  mse.npz    the squared errors of every baseline by prompt
  mse.png    errors and reductions as a picture
  samples/   prompts and responses

exit status: 0 done, 1 a reward cannot be had or the disk fails, 2 what was given cannot be used,
130 stopped
"""


def main(argv: list[str] | None = None) -> int:
    """Runs the program from its command line and returns its exit status."""
    args = parse(argv)
    return guarded(PROGRAM, lambda: work(args, Console(), Console(stderr=True)))


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Reads the command line; leaves with status 2 and one line if it is wrong."""
    parser = Parser(prog=PROGRAM, description=DESCRIPTION, epilog=EXAMPLES)
    parser.add_argument(
        "--m", default="2,4,8", metavar="M,...", help="responses of a batch (default %(default)s)"
    )
    parser.add_argument(
        "--batch_prompts",
        type=int,
        metavar="N",
        help=f"of a batch (default {BATCH_PROMPTS}, or all if there are fewer)",
    )
    parser.add_argument(
        "--batches", type=int, default=1000, metavar="N", help="of each m (default %(default)s)"
    )
    add_sampling_flags(parser)
    args = parser.parse_args(argv)
    try:
        args.m = sorted({int(each) for each in args.m.split(",")})
    except ValueError:
        parser.error(f"--m {args.m!r} are no whole numbers such as 2,4,8")
    for name, given, least in (
        ("m", args.m[0], 2),
        ("batch_prompts", args.batch_prompts, 1),
        ("batches", args.batches, 1),
    ):
        if given is not None and given < least:
            parser.error(f"--{name} is {given}; give {least} or more")
    check_sampling_flags(parser, args)
    return args


def work(args: argparse.Namespace, console: Console, errors: Console) -> None:
    """Samples what is missing, then measures the baselines, writes and shows what came out."""
    from openrlhf_js.lab.mse import check, left_out, measure, measurements
    from openrlhf_js.lab.mse_summary import arrays, summarise

    samples = sampling(args)
    pool, greedy = samples.rewards, samples.greedy_rewards
    n = args.batch_prompts or min(BATCH_PROMPTS, len(pool))
    for m in args.m:
        check(pool, n, m)
    for name, why in left_out(n, greedy is not None).items():
        say(console, f"{name} is left out: it {why}.")
    found = {}
    each = measurements(n, args.batches)
    with Bar("measuring", each * len(args.m), errors, "batches") as bar:
        for number, m in enumerate(args.m):

            def progress(done: int, before: int = number * each) -> None:
                bar.update(before + done, before + done)

            found[m] = measure(pool, n, m, args.batches, args.seed, greedy, progress)
    summary = summarise(found, pool, n, args.batches) | {"samples": samples.settings}
    finish(args, NAME, summary, arrays(found), console, COLUMNS)


if __name__ == "__main__":
    sys.exit(main())
