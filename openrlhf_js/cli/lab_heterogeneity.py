"""`openrlhf-js lab heterogeneity`: groups of prompts by themselves, and the mix of all."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:  # what needs torch is imported once the flags are right
    from openrlhf_js.lab.gradient import Measured
    from openrlhf_js.lab.store import Samples

NAME = "heterogeneity"
PROGRAM = f"openrlhf-js lab {NAME}"
COLUMNS = (
    *("prompts", "value", "v", "s", "estimator", "shrinkage", "best_shrinkage", "best_low"),
    *("best_high", "mse_reduction_percent", "reduction_percent", "reduction_low"),
    "reduction_high",
)
DESCRIPTION = f"""\
Measure what mixing tasks or difficulties does: shrinkage, and what it saves of the gradient's
variance, for each group of prompts by itself and for a mix with equal shares of all.

Groups are those of --group_key, or several files: --prompts A.jsonl,B.jsonl, each sampled into a
folder of its own; --prompts_count is then that of each. Every group and the mix have about as many
prompts as the smallest group.

{GRADIENT_NOTE}
{SAMPLING_NOTE}"""
EXAMPLES = """\
examples:
  openrlhf-js lab heterogeneity --model ckpt/policy --prompts mixed.jsonl --reward reward.py \\
      --prompts_count 512 --responses 128 --out runs/lab
  openrlhf-js lab heterogeneity --model ckpt/policy --prompts easy.jsonl,hard.jsonl \\
      --reward reward.py --out runs/lab

It leaves in its folder:
  heterogeneity.json   the table below, the finding, every flag, versions
  heterogeneity.npz    the curves over lambda of every set
  heterogeneity.png    both as a picture

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
    add_gradient_flags(parser, m="4")
    args = parser.parse_args(argv)
    check_gradient_flags(parser, args)
    if len(args.m) > 1:
        parser.error(f"--m takes one number here, such as 4; got {','.join(map(str, args.m))}")
    files = _files(args)
    if len({file.stem for file in files}) < len(files):
        parser.error("--prompts: two files have the same name, and groups are called by it")
    return args


def work(args: argparse.Namespace, console: Console) -> None:
    """Samples and measures what is missing, then writes and shows what came out."""
    samples = _samples(args)
    from openrlhf_js.lab.heterogeneity import compare, sets
    from openrlhf_js.lab.sweep import SWEPT

    plan = plan_of(args, min(len(rows) for rows in sets(samples.groups).values()))
    args.batch_prompts = plan.prompts  # the same for all
    scores = scores_of(args, samples)

    found = []

    def measure(own: Samples, name: str) -> Measured:
        found.append(measured(args, scores, own, SWEPT, f"gradients of {name}"))
        return found[-1]

    summary, arrays = compare(samples, plan, measure)
    summary["samples"] = samples.settings
    say_how_exact(args, found[-1], summary["disjoint"])
    finish(args, NAME, summary, arrays, console, COLUMNS)


def _files(args: argparse.Namespace) -> list[Path]:
    return [Path(part) for part in str(args.prompts).split(",")] if args.prompts else []


def _samples(args: argparse.Namespace) -> Samples:
    """The samples of one file with groups, or of several files, each a group by its name."""
    files = _files(args)
    if len(files) < 2:
        return sampling(args)
    from openrlhf_js.lab.heterogeneity import joined

    found = {}
    for file in files:
        own = {**vars(args), "prompts": file, "out": args.out / file.stem}
        found[file.stem] = sampling(argparse.Namespace(**own))
    return joined(found)


if __name__ == "__main__":
    sys.exit(main())
