"""`openrlhf-js eval arena generate`: a model's answers to the questions."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rich.console import Console

from openrlhf_js.cli.eval_run import guarded
from openrlhf_js.cli.parser import Parser
from openrlhf_js.cli.sampling_flags import add_engine_flags, check_counts
from openrlhf_js.cli.saying import say

PROGRAM = "openrlhf-js eval arena generate"
DESCRIPTION = """\
Have a model answer the questions of a benchmark that was fetched. Thoughts before an answer are
kept in the file, apart from what the judge sees; length and markdown are counted as the official
repository counts them.

A model is a folder, a hub id, or an address of an OpenAI-compatible server (http://host:8000/v1,
with #NAME after it where it serves several models). Every answer is kept as soon as it is there:
the same command goes on where it was stopped, and asks nothing twice.
"""
EXAMPLES = """\
examples:
  openrlhf-js eval arena generate --model ckpt/js --name js --data data --bench arena-hard-v0.1
  openrlhf-js eval arena generate --model http://localhost:8000/v1 --name js --data data
  openrlhf-js eval arena generate --model ckpt/js --name js-trial --data data --questions 20

It leaves in data/BENCH/model_answer, laid out as in the official repository:
  NAME.jsonl             the answers
  NAME.generation.json   the settings they were made with

exit status: 0 done, 1 questions stay open, or an endpoint or the disk fails, 2 what was given
cannot be used, 130 stopped
"""


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Reads the command line; leaves with status 2 and one line if it is wrong."""
    parser = Parser(prog=PROGRAM, description=DESCRIPTION, epilog=EXAMPLES)
    parser.add_argument("--model", required=True, help="folder, hub id, or address of a server")
    parser.add_argument("--name", help="of the model in the results (default: its own)")
    parser.add_argument(
        "--data", type=Path, default=Path("data"), metavar="DIR", help="default data"
    )
    parser.add_argument(
        "--bench", default="arena-hard-v2.0", metavar="NAME", help="default %(default)s"
    )
    parser.add_argument(
        "--category", nargs="+", default=[], metavar="NAME", help="only these; default: all"
    )
    parser.add_argument("--questions", type=int, metavar="N", help="only the first N, for a trial")
    how = parser.add_argument_group("how it answers")
    how.add_argument("--temperature", type=float, help="0: the likeliest answer (default)")
    how.add_argument("--top_p", type=float, default=1.0, help="default %(default)s")
    how.add_argument(
        "--max_new_tokens",
        type=int,
        metavar="N",
        help="of an answer, thoughts included (default 4096)",
    )
    how.add_argument("--system", metavar="TEXT", help="system message (default: none)")
    how.add_argument("--seed", type=int, default=0, help="of the answers (default %(default)s)")
    how.add_argument(
        "--style_tokenizer",
        type=Path,
        metavar="FILE",
        help="o200k_base.tiktoken (for arena-hard-v0.1: cl100k_base.tiktoken), which counts an "
        "answer's tokens, where it cannot be downloaded",
    )
    where = parser.add_argument_group("where a model runs")
    add_engine_flags(where, "250 with vLLM, 16 without")
    served = parser.add_argument_group("where a model is served")
    served.add_argument(
        "--key_env", metavar="NAME", help="environment variable that holds the key of the server"
    )
    served.add_argument(
        "--concurrency", type=int, metavar="N", help="requests at once (default 64)"
    )
    served.add_argument(
        "--timeout", type=float, default=600.0, metavar="SECONDS", help="of one (%(default)s)"
    )
    served.add_argument(
        "--endpoints",
        type=Path,
        metavar="YAML",
        help="the official repository's api_config.yaml; --model is a name in it",
    )
    args = parser.parse_args(argv)
    _check(parser, args)
    return args


def _check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    check_counts(parser, args, ("questions", "max_new_tokens", "batch_size", "concurrency"))
    if args.temperature is not None and not 0 <= args.temperature < float("inf"):
        parser.error(f"--temperature is {args.temperature:g}; give 0 or more")
    if not 0 < args.top_p <= 1:
        parser.error(f"--top_p is {args.top_p:g}; give a number above 0, up to 1")
    if args.seed < 0:
        parser.error(f"--seed is {args.seed}; give 0 or more")
    if not 0 < args.timeout < float("inf"):
        parser.error(f"--timeout is {args.timeout:g}; give seconds above 0")
    if args.key_env and args.endpoints:
        parser.error("--endpoints says itself where the keys are: leave out --key_env")
    if args.key_env and args.key_env not in os.environ:
        parser.error(f"--key_env {args.key_env}: there is no such environment variable")


def main(argv: list[str] | None = None) -> int:
    """Runs the program from its command line.

    Args:
        argv: the arguments, without the program's name; the process's own if None.

    Returns:
        The exit status: 0 done, 1 questions stay open, or an endpoint, the disk or the memory
        fails, 2 what was given cannot be used, 130 stopped. Wrong flags exit with 2.
    """
    args = parse(argv)
    kept = "the answers so far are kept, and the same command goes on from here"
    return guarded(PROGRAM, lambda: generate(args, Console(), Console(stderr=True)), kept)


def generate(args: argparse.Namespace, console: Console, errors: Console) -> int:
    """Answers what is missing, says what is there, and returns the exit status."""
    from openrlhf_js.cli.eval_arena_answers import endpoints_of, local_answers, served_answers
    from openrlhf_js.evaluation.arena.answer_file import tally
    from openrlhf_js.evaluation.arena.files import Folder, read_questions
    from openrlhf_js.evaluation.arena.style import load_tokenizer

    folder = Folder(args.data, args.bench)
    if not folder.questions.exists():
        raise ValueError(
            f"{folder.questions} is not there: get it with openrlhf-js eval arena fetch --data "
            f"{args.data} --bench {args.bench}"
        )
    found = read_questions(folder.questions, lambda line: say(errors, line))
    categories = sorted({each.category for each in found.values()})
    strange = sorted(set(args.category) - set(categories))
    if strange:
        raise ValueError(
            f"--category {' '.join(strange)}: {folder.questions} has {', '.join(categories)}"
        )
    # A question's number in the whole file sets its seed, whichever of them are asked.
    asked = {
        uid: each
        for uid, each in list(found.items())[: args.questions]
        if not args.category or each.category in args.category
    }
    if not asked:
        raise ValueError(f"{folder.questions} has none of the questions that are asked for")
    count_tokens = load_tokenizer(args.bench, args.style_tokenizer)
    endpoints = endpoints_of(args, errors)
    given = (folder, list(found.values()), asked, count_tokens, errors)
    if endpoints:
        path, failed = served_answers(args, endpoints, *given)
    else:
        path, failed = local_answers(args, *given)
    there = tally(path, asked)
    say(console, f"{path}: answers to {there.answers} of {len(asked)} questions")
    if there.cut_off:
        say(
            console,
            f"{there.cut_off} of them were cut off at {args.max_new_tokens} tokens: with more "
            "(--max_new_tokens, and another --name) they would be whole",
        )
    if there.empty:
        say(
            console,
            f"{there.empty} of them are empty: the model said nothing, or its thoughts did not end",
        )
    for uid, reason in list(failed.items())[:3]:
        say(errors, f"no answer to {uid}: {reason}")
    if there.answers < len(asked):
        again = "; the same command tries again" if failed else ""
        say(errors, f"{len(asked) - there.answers} questions stay open{again}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
