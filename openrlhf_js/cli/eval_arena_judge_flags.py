"""The command line of `openrlhf-js eval arena judge`, and how it explains itself."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from openrlhf_js.cli.parser import Parser
from openrlhf_js.evaluation.arena.settings import TOKENS_NAMES

PROGRAM = "openrlhf-js eval arena judge"
DESCRIPTION = """\
Have a judge compare models' answers with the baseline's, in two games for each question.

In the first game answer A is the baseline's, in the second it is the model's. Every reply is
written down at once with what it cost, in judge_ledger/, and a judgment once both games have a
verdict, in model_judgment/JUDGE/MODEL.jsonl, which the official programs read as well. The same
call again goes on where it was stopped, also after kill -9: nothing is judged or paid for twice but
games that were under way. Games that failed, or have no verdict, stay open for the next call. What
is the same to the word, question and answers in the same order, is asked and paid for once.
"""
EXAMPLES = """\
examples:
  openrlhf-js eval arena judge --bench arena-hard-v2.0 --models my-model --judge gpt-4.1 \\
      --url https://api.openai.com/v1 --key_env OPENAI_API_KEY --settings judge.yaml --dry-run
  the same with --budget 20 instead of --dry-run
  openrlhf-js eval arena judge --bench arena-hard-v0.1 --models a b --judge Qwen3-32B \\
      --url http://node1:8000/v1 --url http://node2:8000/v1

--dry-run counts the tokens of a prompt as its bytes / 4, which is up to a quarter off for prose and
code, and too few for formulas and tables; and it takes 900 tokens for a reply, as the official
judges need. Once there are replies in the ledger, what the endpoint counted is taken instead.

--budget is for all that was ever paid to this judge for these models, this call included. A game
begins only if the budget also allows the worst that all games under way can cost: as many tokens
as the prompt has bytes and 100 more, and max_tokens. As much is counted for a reply that was lost,
by a time-out or in an answer that holds none: the endpoint may have charged for it, and is asked
the same at most twice. What it charges for a connection that was cut before its answer, or for
games that were dropped or killed, is not known, and not counted. Where a judge's thinking comes on
top of max_tokens, the games under way may pass the budget.

exit status: 0 all games have their verdict (or --dry-run is done), 1 some have not: answers are
missing, games failed, the budget is used up, or the endpoint or the disk fails; 2 what was given
cannot be used, 130 stopped
"""


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Reads the command line; leaves with status 2 and one line if it is wrong."""
    parser = Parser(prog=PROGRAM, description=DESCRIPTION, epilog=EXAMPLES)
    parser.add_argument(
        "--data", type=Path, default=Path("data"), metavar="DIR", help="default: %(default)s"
    )
    parser.add_argument(
        "--bench", metavar="NAME", help="default: the settings', or arena-hard-v2.0"
    )
    parser.add_argument(
        "--models", nargs="+", metavar="MODEL", help="whose answers to judge; or the settings'"
    )
    parser.add_argument(
        "--category", nargs="+", default=[], metavar="NAME", help="only these; default: all"
    )
    parser.add_argument("--baseline", default="", metavar="MODEL", help="instead of the bench's")
    judge = parser.add_argument_group("the judge")
    judge.add_argument(
        "--judge", metavar="NAME", help="the endpoint's name of it; or the settings'"
    )
    judge.add_argument(
        "--judge_name", metavar="NAME", help="folder of its judgments; default: the judge's name"
    )
    judge.add_argument(
        "--url",
        action="append",
        default=[],
        metavar="URL",
        help="an OpenAI-compatible endpoint, ending in /v1; may come again",
    )
    judge.add_argument(
        "--key_env", metavar="NAME", help="environment variable that holds the endpoints' key"
    )
    judge.add_argument(
        "--endpoints",
        type=Path,
        metavar="YAML",
        help="instead of --url: the official repository's api_config.yaml; --judge is a name in it",
    )
    judge.add_argument(
        "--settings", type=Path, metavar="YAML", help="the official file, or one as in eval/"
    )
    judge.add_argument("--temperature", type=float, help="instead of the settings'")
    judge.add_argument("--max_tokens", type=int, metavar="N", help="instead of the settings'")
    judge.add_argument(
        "--max_tokens_name",
        choices=TOKENS_NAMES,
        help="what the endpoint calls it; the latter for OpenAI's newer models",
    )
    judge.add_argument("--seed", type=int, help="sent to the endpoint; default: none is sent")
    how = parser.add_argument_group("how much")
    how.add_argument(
        "--concurrency", type=int, metavar="N", help="games at the same time; or the settings'"
    )
    how.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="of one reply; or the settings', or 300"
    )
    how.add_argument(
        "--tries",
        type=int,
        default=2,
        metavar="N",
        help="replies that are paid for a game in this call if they have no verdict (%(default)s)",
    )
    how.add_argument(
        "--budget", type=float, metavar="DOLLARS", help="never spend more; needs the judge's price"
    )
    how.add_argument(
        "--dry-run",
        "--dry_run",
        action="store_true",
        help="only say what is left, and what it would cost",
    )
    args = parser.parse_args(argv)
    for name in ("concurrency", "tries", "max_tokens"):
        value = getattr(args, name)
        if value is not None and value < 1:
            parser.error(f"--{name} is {value}; give 1 or more")
    if args.budget is not None and not 0 < args.budget < math.inf:
        parser.error(f"--budget is {args.budget:g}; give dollars above 0")
    if args.temperature is not None and not 0 <= args.temperature <= 10:
        parser.error(f"--temperature is {args.temperature:g}; give a number from 0 on")
    if not args.settings and not args.judge:
        parser.error("--judge NAME says who judges; or name a file of --settings that does")
    if args.timeout is not None and not 0 < args.timeout < math.inf:
        parser.error(f"--timeout is {args.timeout:g}; give seconds above 0")
    if not args.url and not args.endpoints and not args.dry_run:
        parser.error("--url says where the judge is, such as https://api.openai.com/v1")
    if args.endpoints and (args.url or args.key_env):
        parser.error("--endpoints says itself where the judge is: leave out --url and --key_env")
    return args
