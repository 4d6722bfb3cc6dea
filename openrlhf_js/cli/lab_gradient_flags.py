"""The flags of the lab's programs that take gradients, and the work that they share."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from openrlhf_js.cli.lab_flags import add_sampling_flags, check_sampling_flags
from openrlhf_js.cli.progress import Bar
from openrlhf_js.cli.sampling_flags import DTYPES, device_of
from openrlhf_js.cli.saying import say

if TYPE_CHECKING:  # what needs torch is imported once the flags are right
    from openrlhf_js.lab.gradient import Measured
    from openrlhf_js.lab.policy_gradient import ScoreSum
    from openrlhf_js.lab.small_batches import Plan
    from openrlhf_js.lab.store import Samples

RESPONSES = 256  # the paper's
GRADIENT_NOTE = """\
The policy gradient of n prompts with m responses each is 1/(n m) sum (r - b) grad log pi(y), the
logarithm summed over the tokens of a response. Some responses of the pool make a precise one; small
batches are drawn from the others. What is computed is kept in DIR/gradients, and the same command
goes on where it was stopped.
"""


def add_gradient_flags(parser: argparse.ArgumentParser, m: str = "2,4,8") -> None:
    """Adds the flags of the samples, of the small batches and of the passes.

    Args:
        parser: of the program.
        m: responses to a prompt, where the user does not say.
    """
    add_sampling_flags(parser, RESPONSES)
    batches = parser.add_argument_group("small batches")
    batches.add_argument(
        "--batches", type=int, default=20, metavar="N", help="how many (default %(default)s)"
    )
    batches.add_argument(
        "--batch_prompts", type=int, metavar="N", help="in each (default half of the prompts)"
    )
    batches.add_argument(
        "--m", default=m, metavar="M,...", help="responses to each prompt (default %(default)s)"
    )
    passes = parser.add_argument_group("gradients")
    passes.add_argument(
        "--projection",
        type=int,
        default=0,
        metavar="K",
        help="compare random projections to K numbers, such as 4096: fewer passes, with an error "
        "that is reported (default: exact)",
    )
    passes.add_argument(
        "--gradient_dtype",
        default="float32",
        choices=sorted(DTYPES),
        help="of the model; sums are float32 at least (default %(default)s)",
    )
    passes.add_argument(
        "--max_tokens",
        type=int,
        default=8192,
        metavar="N",
        help="of a pass, padding included (default %(default)s); less takes less memory",
    )
    passes.add_argument("--gradient_checkpointing", action="store_true", help="takes less memory")


def check_gradient_flags(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Leaves with status 2 and one line if a flag cannot be used; `args.m` becomes a tuple."""
    check_sampling_flags(parser, args)
    try:
        args.m = tuple(sorted({int(m) for m in args.m.split(",")}))
    except ValueError:
        parser.error(f"--m {args.m!r} are no whole numbers such as 2,4,8")
    for name, given, least in (
        ("m", args.m[0], 2),
        ("batches", args.batches, 2),
        ("batch_prompts", args.batch_prompts, 2),
        ("max_tokens", args.max_tokens, 1),
    ):
        if given is not None and given < least:
            parser.error(f"--{name} is {given}; give {least} or more")
    if args.projection < 0 or args.projection == 1:
        parser.error(f"--projection is {args.projection}; give 2 or more, such as 4096")


def plan_of(args: argparse.Namespace, prompts: int) -> Plan:
    """The batches that the flags ask for, from so many prompts."""
    from openrlhf_js.lab.small_batches import Plan

    n = args.batch_prompts or max(2, prompts // 2)
    return Plan(args.batches, n, args.m, args.seed)


def scores_of(args: argparse.Namespace, samples: Samples) -> ScoreSum:
    """The model that was sampled, ready to sum up gradients.

    Raises:
        ValueError: the samples are not from the distribution that has the gradient, or the model
            has changed since.
        OSError: the model cannot be read.
    """
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    from openrlhf_js.lab.policy_gradient import ScoreSum
    from openrlhf_js.reward_model.score_file import hash_of_model

    settings = samples.settings
    if settings["top_p"] != 1:
        raise ValueError(
            f"the samples are of top_p = {settings['top_p']}, whose distribution leaves tokens "
            "out; its gradient is not that of the log-probabilities. Sample with --top_p 1"
        )
    folder = Path(settings["model"])
    if not folder.is_dir():
        raise ValueError(f"the model that was sampled, {folder}, is not there any more")
    if hash_of_model(folder) != settings["model_sha256"]:
        raise ValueError(
            f"{folder} has changed since it was sampled; give another --out, to sample anew"
        )
    logging.disable_progress_bar()
    dtype = getattr(torch, DTYPES[args.gradient_dtype])
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(device_of(args))
    return ScoreSum(model, settings["temperature"], args.max_tokens, args.gradient_checkpointing)


def measured(
    args: argparse.Namespace,
    scores: ScoreSum,
    samples: Samples,
    names: Sequence[str],
    what: str = "gradients",
) -> Measured:
    """What `gradient.measure` finds, exactly or projected; shows its progress on stderr.

    Args:
        args: the flags.
        scores: of `scores_of`.
        samples: the pool.
        names: the baselines.
        what: is being done, for the progress.

    Raises:
        ValueError: the pool does not suffice, or a baseline cannot be compared.
    """
    from openrlhf_js.lab.gradient import measure
    from openrlhf_js.lab.projected_gradient import measure_projected

    plan = plan_of(args, len(samples.prompts))
    with Bar(what, 1, Console(stderr=True), "responses") as bar:

        def tell(done: int, total: int) -> None:
            bar.update(done / total, done)

        if args.projection:
            return measure_projected(
                scores, samples, plan, tuple(names), args.out, args.projection, tell
            )
        return measure(scores, samples, plan, tuple(names), args.out, tell)


def say_how_exact(args: argparse.Namespace, found: Measured, disjoint: bool) -> None:
    """Says on stdout what the figures rest on, where it is not what one would expect."""
    console = Console()
    if not disjoint:
        say(
            console,
            "Batches share responses: the pool is too small for batches that do not. Intervals "
            "cover other batches from this pool; more --responses make them cover new ones.",
        )
    if found.projection_errors:
        errors = found.projection_errors
        measured = math.hypot(*errors) / math.sqrt(len(errors))
        say(
            console,
            f"Gradients were projected to {args.projection} numbers: squared distances are right "
            f"to {math.sqrt(2 / args.projection):.2%} in theory, and to {measured:.2%} in "
            f"{len(errors)} squared norms that were computed exactly too.",
        )
