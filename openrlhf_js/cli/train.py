"""Trains a policy with OpenRLHF and any estimator, ours or its own: `openrlhf-js train`.

It takes every flag of OpenRLHF's `train_ppo_ray`, and ours. The code is in
`openrlhf_js/trainers/openrlhf/`: `flags` adds ours; `checks` finds mistakes before anything is
loaded; `run.ray_session` replaces OpenRLHF's actors by ours and runs OpenRLHF's own `train`.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import sys
import traceback
from pathlib import Path
from typing import Any

from answer_graders.programs import curves_command
from answer_graders.programs.console import say
from openrlhf_js.trainers.openrlhf import flags
from openrlhf_js.trainers.openrlhf.checks import check
from openrlhf_js.trainers.openrlhf.checks.models import without_torch
from openrlhf_js.trainers.openrlhf.flags import Flat
from openrlhf_js.trainers.openrlhf.flags.parser import settings_text, upstream_parser
from openrlhf_js.trainers.openrlhf.run import failures
from openrlhf_js.trainers.openrlhf.run.checkpoints import choose_checkpoint, has_checkpoint
from openrlhf_js.trainers.openrlhf.run.device import prepare_device
from openrlhf_js.trainers.openrlhf.run.leftovers import interrupt_on_signals
from openrlhf_js.trainers.openrlhf.run.overview import print_overview
from openrlhf_js.trainers.openrlhf.run.ray_session import train
from openrlhf_js.trainers.openrlhf.run.record import recorded
from openrlhf_js.trainers.openrlhf.run.screen import say_tail, shown

WEIGHTS = ("*.safetensors", "adapter_model.bin")  # the latter for LoRA under ZeRO 3


def main(argv: list[str] | None = None) -> int:
    """Runs a training, and returns its exit status.

    0 done, 1 failed, 2 bad input, 130 interrupted.
    """
    flat: Flat = {}
    interrupt_on_signals()
    gc.disable()  # until all is imported, which then takes a sixth less time
    try:
        args, parser = parse(sys.argv[1:] if argv is None else argv)
        nested, device = check_start(args, parser)
        flat = vars(args)  # from here on there is a log
        if flat["js.dry_run"]:
            say("openrlhf_js: all checks passed, nothing was started (--verbose: every setting)")
            return 0
        run(args, parser, nested, device)
        publish(flat)
    except KeyboardInterrupt:
        return failures.complain("interrupted", 130)
    except Exception as error:
        return report_failure(error, flat)
    finally:
        gc.enable()
    return 0


def parse(words: list[str]) -> tuple[argparse.Namespace, argparse.ArgumentParser]:
    """The flags, upstream's and ours, flat, and the parser that has read them."""
    parser = upstream_parser()
    flags.add_flags(parser)
    return parser.parse_args(words), parser


def check_start(args: argparse.Namespace, parser: argparse.ArgumentParser) -> tuple[Any, str]:
    """Checks flags, files and device, and prints what the run will be.

    A dry run does so without a network, and without torch.

    Returns:
        The arguments as upstream's `train` takes them, and the device, "cpu" or "gpu".
    """
    flat = vars(args)
    if flat["js.requeued"]:
        flat["ckpt.load_enable"] = has_checkpoint(flat)
    starts = not flat["js.dry_run"]
    with contextlib.nullcontext() if starts else without_torch():
        checked = check(args, download=starts)
        device = prepare_device(flat["js.device"])
        if flat["js.verbose"] and not starts:
            print(settings_text(flat, parser))
        print_overview(flat | {"js.device": device}, checked, download=starts)
    return checked.nested, device


def run(
    args: argparse.Namespace, parser: argparse.ArgumentParser, nested: Any, device: str
) -> None:
    """Trains, from a checkpoint where the flags say so; keeps the log and the settings."""
    flat = vars(args)
    if flat["ckpt.load_enable"]:
        choose_checkpoint(flat)
    with shown(flat), recorded(args, parser):
        train(nested, device)


def publish(flat: Flat) -> None:
    """Prints where the curves and the model are."""
    if flat["logger.tensorboard_dir"]:
        say(f"openrlhf_js: curves:\n  {curves_command(flat['logger.tensorboard_dir'])}")
    say(f"openrlhf_js: done; {where_the_model_is(flat['ckpt.output_dir'])}")


def report_failure(error: Exception, flat: Flat) -> int:
    """Says why a run failed, in one line where the cause is known; returns the exit status."""
    if explained := failures.explained(error):
        return failures.complain(*explained)
    if flat.get("js.verbose", True):
        traceback.print_exception(error)
    else:
        say_tail(error, flat)
    return 1


def where_the_model_is(folder: str) -> str:
    """Says where the trained model is, or that it is not on this node."""
    if any(path for pattern in WEIGHTS for path in Path(folder).glob(pattern)):
        return f"the model is in {folder}"
    return f"there are no weights in {folder} on this node"


if __name__ == "__main__":
    sys.exit(main())
