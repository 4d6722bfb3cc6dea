"""The command line of `openrlhf-js eval arena score`, and how it explains itself."""

from __future__ import annotations

import argparse
from pathlib import Path

from openrlhf_js.cli.parser import Parser

PROGRAM = "openrlhf-js eval arena score"
DESCRIPTION = """\
Score what judges have judged: the weighted share of rows that each model won against the baseline,
with intervals that say how sure that is.

A much better answer counts as 3 rows, a better one as 1, and a tie as half a win. A judgment counts
if both of its games have a verdict (by v0.1's official rule, each game that has one).
"""
EXAMPLES = """\
examples:
  openrlhf-js eval arena score --data data --bench arena-hard-v0.1 --judge gpt-4-1106-preview
  openrlhf-js eval arena score --bench arena-hard-v2.0 --judge gpt-4.1 gemini-2.5 \\
      --category creative_writing                # two judges: each by itself, and pooled
  openrlhf-js eval arena score --bench arena-hard-v2.0 --judge gpt-4.1 --style_control none all
  openrlhf-js eval arena score --bench arena-hard-v0.1 --judge gpt-4.1 --compare js rloo

--ci clustered (95 %) takes each question as one draw: this is how far the score would move with
other questions. --ci official repeats the bench's own script, which resamples rows: v0.1's 2.5th to
97.5th percentiles, v2.0's 5th to 95th.

--compare A B tests A against B on the questions that count for both, paired by question, which sees
much smaller differences than two intervals side by side. It is always by question.

--style_control takes none, all, length, markdown (header, list and bold), header, list, bold, or a
sum such as length+bold; several give a table each. Style is fitted over all models that the judge
has judged, whichever are shown. Each answer needs its counts (metadata) in model_answer, or
--count_style.

exit status: 0 done, 1 a file cannot be written, 2 what was given cannot be used, 130 stopped
"""


def add_pool(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that say what is scored, and how."""
    what = parser.add_argument_group("what is scored")
    what.add_argument(
        "--data", type=Path, default=Path("data"), metavar="DIR", help="default: %(default)s"
    )
    what.add_argument("--bench", metavar="NAME", help="its folder in --data")
    what.add_argument(
        "--judge",
        nargs="+",
        default=[],
        metavar="NAME",
        help="whose judgments; several are shown apart and pooled (default: the only one there)",
    )
    what.add_argument(
        "--models", nargs="+", default=[], metavar="MODEL", help="show only these; default: all"
    )
    what.add_argument(
        "--category", nargs="+", default=[], metavar="NAME", help="only these; default: all judged"
    )
    what.add_argument("--baseline", default="", metavar="MODEL", help="instead of the bench's")
    how = parser.add_argument_group("how")
    how.add_argument(
        "--ci", choices=("clustered", "official"), default="clustered", help="default: %(default)s"
    )
    how.add_argument(
        "--style_control",
        nargs="+",
        default=["none"],
        metavar="NAME",
        help="held equal, see below; default: none",
    )
    how.add_argument(
        "--count_style",
        nargs="?",
        const="",
        type=lambda text: Path(text) if text else "",
        metavar="FILE",
        help="count tokens and markup of answers whose file has no counts; FILE: "
        "o200k_base.tiktoken (v0.1: cl100k_base.tiktoken), where it cannot be downloaded",
    )
    how.add_argument(
        "--compare",
        nargs=2,
        action="append",
        default=[],
        metavar=("A", "B"),
        help="a paired test of two models; may come again",
    )
    how.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of bootstraps; default: %(default)s"
    )
    how.add_argument(
        "--rounds", type=int, metavar="N", help="of bootstraps; default: 1000, official: 100"
    )


def check_pool(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Leaves with status 2 if a flag of `add_pool` has a value that cannot be used."""
    from openrlhf_js.evaluation.arena.style_control import features_of

    if not args.bench:
        parser.error("--bench names what was judged, a folder in --data")
    if args.rounds is not None and args.rounds < 2:
        parser.error(f"--rounds is {args.rounds}; give 2 or more")
    if args.seed < 0:
        parser.error(f"--seed is {args.seed}; give 0 or more")
    for name in ("judge", "models", "category", "style_control"):
        if again := [each for each in getattr(args, name) if getattr(args, name).count(each) > 1]:
            parser.error(f"--{name} has {again[0]} twice")
    for control in args.style_control:
        try:
            features_of(control)
        except ValueError as error:
            parser.error(f"--style_control: {error}")


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Reads the command line; leaves with status 2 and one line if it is wrong."""
    parser = Parser(prog=PROGRAM, description=DESCRIPTION, epilog=EXAMPLES)
    add_pool(parser)
    written = parser.add_argument_group("files to write")
    for name, said in (
        ("json", "an object for each model, category, judge and style control"),
        ("csv", "the same as a table"),
        ("markdown", "the tables and what is said of them"),
        ("figure", "the scores with their intervals, as PNG"),
        ("html", "a page with all of it, and every question, answer and verdict"),
    ):
        written.add_argument(f"--{name}", type=Path, metavar="FILE", help=said)
    args = parser.parse_args(argv)
    check_pool(parser, args)
    return args
