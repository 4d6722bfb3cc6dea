"""The command line of `openrlhf-js rm eval`, and how it explains itself."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from openrlhf_js.cli.parser import Parser
from openrlhf_js.reward_model.tokens import TOKEN_VARIABLE

PROGRAM = "openrlhf-js rm eval"
DESCRIPTION = """\
Measure a reward model on preferences that it has not seen.

Every pair's chosen and rejected responses are scored, by a model folder or by servers, and the
rewards are compared: accuracy with an interval clustered by prompt, also by subset; calibration;
what length has to do with it; ties; and the mean and std that normalise rewards.
"""
EXAMPLES = f"""\
examples:
  openrlhf-js rm eval held_out.jsonl --model ckpt/rm --prompt-key prompt
  openrlhf-js rm eval held_out.jsonl --model ckpt/rm --apply-chat-template --subset-key source
  openrlhf-js rm eval held_out.jsonl --url http://127.0.0.1:5000/get_reward --prompt-key prompt

The same call again goes on where it was stopped. It leaves in its folder:
  scores.jsonl      both rewards of every pair, as they come
  evaluation.json   every figure
  report.html       the same as a page with pictures, which opens offline

A server that wants a bearer token gets the one in the variable {TOKEN_VARIABLE}.
exit status: 0 done, 1 a reward cannot be had, 2 what was given cannot be used, 130 stopped
"""


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Reads the command line; leaves with status 2 and one line if it is wrong."""
    parser = Parser(prog=PROGRAM, description=DESCRIPTION, epilog=EXAMPLES)
    parser.add_argument("file", type=Path, help="preferences: JSON, JSON lines, CSV or Parquet")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--model", metavar="NAME", help="reward model: a folder, or a hub id")
    which.add_argument(
        "--url",
        action="append",
        metavar="URL",
        help="a server's /get_reward, best not normalised; may come again",
    )
    texts = parser.add_argument_group("texts, as in training")
    texts.add_argument(
        "--prompt-key", metavar="KEY", help="column of the prompt; without, both sides hold it"
    )
    for side in ("chosen", "rejected"):
        texts.add_argument(f"--{side}-key", metavar="KEY", default=side, help="default %(default)s")
    texts.add_argument(
        "--subset-key", metavar="KEY", default="subset", help="column of groups to report as well"
    )
    texts.add_argument(
        "--apply-chat-template", action="store_true", help="the columns hold messages"
    )
    texts.add_argument("--input-template", metavar="TEXT", help="such as 'User: {}\\nAssistant: '")
    texts.add_argument(
        "--tokenizer", metavar="NAME", help="for the template, and to count tokens, with --url"
    )
    model = parser.add_argument_group("a model of your own (--model)")
    model.add_argument(
        "--max-len", type=int, default=2048, metavar="TOKENS", help="as in training (%(default)s)"
    )
    model.add_argument("--dtype", default="bf16", help="bf16 (default), fp16 or float32")
    model.add_argument("--device", help="such as cuda; default: a GPU if there is one")
    model.add_argument("--value-head-prefix", default="score", metavar="NAME")
    served = parser.add_argument_group("servers (--url)")
    served.add_argument(
        "--in-flight", type=int, default=8, metavar="N", help="requests at once (%(default)s)"
    )
    served.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS")
    parser.add_argument(
        "--pairs-at-once", type=int, metavar="N", help="scored and saved together (default 128; 8)"
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="default runs/rm-eval-<hash of all the above>"
    )
    args = parser.parse_args(argv)
    args.pairs_at_once = args.pairs_at_once or (128 if args.model else 8)
    for name in ("max_len", "in_flight", "pairs_at_once", "timeout"):
        if not 0 < getattr(args, name) < float("inf"):
            parser.error(f"--{name.replace('_', '-')} is {getattr(args, name)}; give 1 or more")
    for url in args.url or ():
        if not re.match(r"https?://[^/\s]", url):
            parser.error(f"--url {url!r} is no address such as http://127.0.0.1:5000/get_reward")
    if args.url and args.apply_chat_template and not args.tokenizer:
        parser.error("--apply-chat-template needs --tokenizer where the model is served")
    return args
