"""The command line of `openrlhf-js eval passk`, and how it explains itself."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path

from openrlhf_js.cli.parser import Parser
from openrlhf_js.cli.sampling_flags import add_engine_flags, check_counts, check_drawing_flags
from openrlhf_js.evaluation.arena.settings import TOKENS_NAMES

PROGRAM = "openrlhf-js eval passk"
DESCRIPTION = """\
Sample k responses of a model to every item of a benchmark, grade them, and say how good it is:
mean@k, pass@j for j up to k, majority vote, each with an interval by item. Or compare two models.

A model is a folder, a hub id, or an address of an OpenAI-compatible server (http://host:8000/v1,
with #NAME after it where it serves several models). A benchmark is a name of eval/*.yaml, another
such file, or a file of prompts that `openrlhf-js data build` wrote. Every sample is kept: the same
command goes on where it was stopped, and more --samples add to those that are there.
"""
EXAMPLES = """\
examples:
  openrlhf-js eval passk --model Qwen/Qwen2.5-Math-1.5B --tasks math500 amc23 --out runs/base
  openrlhf-js eval passk --model ckpt/js --tasks data/maze-test.jsonl --samples 32 --out runs/js
  openrlhf-js eval passk --model http://localhost:8000/v1 --tasks geometry3k --out runs/vl
  openrlhf-js eval passk --model ckpt/js --tasks math500 --items 20 --samples 4 --out runs/try

  openrlhf-js eval passk --compare runs/rloo runs/js                          B less A, by item
  openrlhf-js eval passk --compare ckpt/rloo ckpt/js --tasks math500 --out runs/both

It leaves in its folder:
  results.json, results.md   every figure, also by item (comparison.json, comparison.md)
  passk.png                  pass@j over j, with bands
  samples/NAME.jsonl         every response: text, tokens, finish reason, verdict, answer, seed
  samples/NAME.items.jsonl   what was asked

Benchmarks by name: {names}

exit status: 0 done, 1 an endpoint fails, or refuses items, or the disk fails, 2 what was given
cannot be used, 130 stopped
"""
FORMS = ("auto", "chat", "text")
SAMPLED_BY = (  # flags that say nothing of results that are there already
    *("samples", "temperature", "top_p", "max_new_tokens", "items", "seed", "prompt_form"),
    *("engine", "device", "dtype", "batch_size", "key_env", "concurrency", "timeout", "source"),
    *("grade_again", "leave_out_refused", "max_tokens_name"),
)
_SOURCE = re.compile(r"([^=]+)=(.+)")


def definitions() -> dict[str, Path]:
    """The benchmarks that have a name: `eval/NAME.yaml` here, and beside the package."""
    beside = Path(__file__).parents[2] / "eval"
    found = {}
    for folder in (beside, Path("eval")):
        for path in sorted(folder.glob("*.yaml")):
            if not path.stem.startswith("arena"):
                found[path.stem] = path
    return found


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Reads the command line; leaves with status 2 and one line if it is wrong."""
    names = ", ".join(definitions()) or "none found; run in a checkout, or name YAML files"
    parser = Parser(prog=PROGRAM, description=DESCRIPTION, epilog=EXAMPLES.format(names=names))
    parser.add_argument("--model", metavar="MODEL", help="folder, hub id, or address of a server")
    parser.add_argument(
        "--compare",
        nargs=2,
        metavar=("A", "B"),
        help="two folders of results, or two models; says by how much B is better",
    )
    parser.add_argument("--tasks", nargs="+", metavar="TASK", help="names, YAML or prompt files")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of samples and results")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here as well")
    parser.add_argument("--seed", type=int, default=0, help="of the samples (default %(default)s)")
    parser.add_argument(
        "--metric",
        default="mean",
        help="of --compare: mean (default), majority, or pass@J such as pass@4",
    )
    parser.add_argument(
        "--grade_again",
        action="store_true",
        help="sample nothing, and grade every response that is there anew, as after an update",
    )
    _add_drawing(parser)
    where = parser.add_argument_group("where a model runs")
    add_engine_flags(where)
    served = parser.add_argument_group("where a model is served")
    served.add_argument(
        "--key_env", metavar="NAME", help="environment variable that holds the key of the server"
    )
    served.add_argument(
        "--concurrency", type=int, default=64, metavar="N", help="requests at once (%(default)s)"
    )
    served.add_argument(
        "--timeout", type=float, default=600.0, metavar="SECONDS", help="of one (%(default)s)"
    )
    served.add_argument(
        "--max_tokens_name",
        default=TOKENS_NAMES[0],
        choices=TOKENS_NAMES,
        help="what the server calls --max_new_tokens; the latter for OpenAI's newer models",
    )
    served.add_argument(
        "--leave_out_refused",
        action="store_true",
        help="give results without the items that the server refuses (filtered, or too long)",
    )
    args = parser.parse_args(argv)
    _check(parser, args)
    return args


def _add_drawing(parser: argparse.ArgumentParser) -> None:
    how = parser.add_argument_group("how it is sampled (default: as the benchmark says)")
    how.add_argument("--samples", type=int, metavar="K", help="to each item (files of prompts: 16)")
    how.add_argument("--temperature", type=float, help="files of prompts: 1.0")
    how.add_argument("--top_p", type=float, help="files of prompts: 1.0")
    how.add_argument(
        "--max_new_tokens", type=int, metavar="N", help="of a response (files of prompts: 2048)"
    )
    how.add_argument("--items", type=int, metavar="N", help="the first N of each, for a trial")
    how.add_argument(
        "--prompt_form",
        default="auto",
        choices=FORMS,
        help="chat: with the tokenizer's template; text: without; auto: with it if it has one",
    )
    how.add_argument(
        "--source",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="file or folder of a benchmark's data set, instead of the hub; may be repeated",
    )


def _check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    check_counts(parser, args, ("samples", "max_new_tokens", "items", "batch_size", "concurrency"))
    check_drawing_flags(parser, args)
    if not 0 < args.timeout < float("inf"):
        parser.error(f"--timeout is {args.timeout:g}; give seconds above 0")
    if bool(args.model) == bool(args.compare):
        parser.error("give --model MODEL, or --compare A B")
    if args.model and not (args.tasks and args.out):
        missing = "--out DIR, which keeps the samples" if args.tasks else "--tasks"
        parser.error(f"--model needs {missing}; --tasks are {', '.join(definitions())}, or files")
    if args.metric != "mean" and not args.compare:
        parser.error("--metric is of --compare; the results of one model hold all metrics")
    served = [each for each in (args.model, *(args.compare or ())) if each and "://" in each]
    if served and args.prompt_form == "text":
        parser.error(f"--prompt_form text: {served[0]} puts its own chat template around a prompt")
    if args.key_env and args.key_env not in os.environ:
        parser.error(f"--key_env {args.key_env}: there is no such environment variable")
    sources = [_SOURCE.fullmatch(each) for each in args.source]
    if None in sources:
        parser.error("--source must be NAME=PATH, such as math500=downloads/MATH-500")
    args.sampled_by = [
        name for name in SAMPLED_BY if getattr(args, name) != parser.get_default(name)
    ]
    args.sources = {match[1]: match[2] for match in sources if match}
