"""The flags of the lab's programs that sample, and the sampling they ask for."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from openrlhf_js.cli.sampling_flags import add_engine_flags, check_counts, check_drawing_flags
from openrlhf_js.tasks import TASKS

if TYPE_CHECKING:  # what needs torch is imported once the flags are right
    from openrlhf_js.lab.store import Samples

PROMPTS, RESPONSES = 128, 128  # the paper's
SAMPLED_BY = (  # flags that say nothing of samples that are there already
    *("split", "input_key", "label_key", "group_key", "apply_chat_template", "input_template"),
    *("max_new_tokens", "temperature", "top_p", "engine", "dtype", "batch_size"),
)
SAMPLING_NOTE = """\
Responses are sampled once, into DIR/samples, and used by every program of the lab. The same command
goes on where it was stopped; more --responses or --prompts_count sample what is missing, and
without --model the program takes what is there.
"""


def add_sampling_flags(parser: argparse.ArgumentParser, responses: int = RESPONSES) -> None:
    """Adds the flags that `sampling` reads, `--out` and `--seed` among them.

    Args:
        parser: of the program.
        responses: to a prompt, where the user does not say.
    """
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder of samples and results"
    )
    parser.add_argument("--seed", type=int, default=0, help="of everything (default %(default)s)")
    what = parser.add_argument_group("what is sampled")
    what.add_argument("--model", metavar="NAME", help="policy: a folder, or a hub id")
    which = what.add_mutually_exclusive_group()
    which.add_argument(
        "--prompts", type=Path, metavar="FILE", help="JSON, JSON lines, CSV or Parquet, as a run's"
    )
    which.add_argument("--task", choices=sorted(TASKS), help="a task of openrlhf_js, as data build")
    what.add_argument(
        "--split", default="train", choices=("train", "test"), help="of --task (%(default)s)"
    )
    what.add_argument(
        "--reward", type=Path, metavar="FILE", help="as --reward.remote_url; default: --task's own"
    )
    what.add_argument(
        "--prompts_count",
        type=int,
        metavar="N",
        help=f"drawn by the seed (default {PROMPTS}, or all if there are fewer)",
    )
    what.add_argument(
        "--responses", type=int, metavar="M", help=f"to each prompt (default {responses})"
    )
    parser.set_defaults(responses_default=responses)
    texts = parser.add_argument_group("prompts, as in training")
    texts.add_argument("--input_key", default="input", metavar="KEY", help="default %(default)s")
    texts.add_argument(
        "--label_key", default="label", metavar="KEY", help="default %(default)s; '' for none"
    )
    texts.add_argument(
        "--group_key", default="datasource", metavar="KEY", help="default %(default)s"
    )
    texts.add_argument("--apply_chat_template", action="store_true", help="implied by --task")
    texts.add_argument("--input_template", metavar="TEXT", help="such as 'User: {}\\nAssistant: '")
    how = parser.add_argument_group("how it is sampled")
    how.add_argument(
        "--max_new_tokens", type=int, default=1024, metavar="N", help="default %(default)s"
    )
    how.add_argument("--temperature", type=float, default=1.0, help="default %(default)s")
    how.add_argument("--top_p", type=float, default=1.0, help="default %(default)s")
    add_engine_flags(how)


def check_sampling_flags(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Leaves with status 2 and one line if the flags of sampling cannot be used."""
    check_counts(parser, args, ("prompts_count", "responses", "max_new_tokens", "batch_size"))
    check_drawing_flags(parser, args)
    asked = args.prompts or args.task
    if args.model and not asked:
        parser.error("--model needs --prompts FILE or --task NAME, which say what it is asked")
    if asked and not args.model:
        parser.error("--prompts and --task need --model, which is asked")
    if args.prompts and not args.reward:
        parser.error("--prompts needs --reward FILE, which grades the responses")
    if args.reward and not args.model:
        parser.error("--reward needs --model and --prompts, whose responses it grades")
    given = [name for name in SAMPLED_BY if getattr(args, name) != parser.get_default(name)]
    if given and not args.model:
        parser.error(f"--{given[0]} needs --model: without it, what is there is taken as it is")
    if args.input_template:
        if args.apply_chat_template or args.task:
            other = "--apply_chat_template" if args.apply_chat_template else "--task"
            parser.error(f"--input_template is not used with {other}; leave out one")
        if not _holds_prompt(args.input_template):
            parser.error(
                f"--input_template is {args.input_template!r}; write {{}} where the prompt belongs "
                "and no other braces"
            )


def _holds_prompt(template: str) -> bool:
    try:
        return "\0" in template.format("\0")
    except (ValueError, LookupError):
        return False


def sampling(args: argparse.Namespace) -> Samples:
    """The samples that the flags ask for: those there, after sampling what is missing.

    Shows its progress on stderr. `samples.settings["model"]` is the folder that was sampled, also
    where the flags name none.

    Raises:
        ValueError: what was given cannot be used. RewardFailed: a response has no reward.
    """
    from openrlhf_js.cli.lab_sampling import sample_missing
    from openrlhf_js.lab.store import open_samples

    prompts, responses = args.prompts_count, args.responses
    if args.model:
        responses = responses or args.responses_default
        prompts = sample_missing(args, responses, Console(stderr=True))
    samples = open_samples(args.out, prompts)
    there = samples.rewards.shape
    prompts, responses = prompts or there[0], responses or there[1]
    if prompts > there[0] or responses > there[1]:
        raise ValueError(
            f"{args.out} has {there[0]} prompts with {there[1]} responses each, not {prompts} with "
            f"{responses}: add --model and the other flags that sampled them, to sample more"
        )
    return samples.first(prompts, responses)
