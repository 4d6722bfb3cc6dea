"""Trains a policy with OpenRLHF and any estimator, ours or its own: `openrlhf-js train`.

It takes every flag of OpenRLHF's `train_ppo_ray`, and ours (`plugin.flags`). What is wrong with
them is found before anything is loaded (`plugin.checks`). Then our actors take the place of
OpenRLHF's, and its own `train` runs (`plugin.run.ray_session`). With `--js.restarts` all of that
happens in a process of its own, which is started again after a crash.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import traceback
import uuid
from collections.abc import Sequence
from pathlib import Path

from openrlhf_js.common.console import complain, say
from openrlhf_js.common.environment import RUN_ID
from openrlhf_js.common.programs import curves_command
from openrlhf_js.plugin import flags
from openrlhf_js.plugin.checks import check
from openrlhf_js.plugin.checks.models import without_torch
from openrlhf_js.plugin.checks.start import earlier_run_problems
from openrlhf_js.plugin.flags import Flat
from openrlhf_js.plugin.flags.parser import settings_text, upstream_parser
from openrlhf_js.plugin.run import failures
from openrlhf_js.plugin.run.checkpoints import choose_checkpoint, latest_checkpoint
from openrlhf_js.plugin.run.device import prepare_device
from openrlhf_js.plugin.run.leftovers import SIGNALS, end_run
from openrlhf_js.plugin.run.model_card import (
    NOT_DONE,
    hub_problems,
    missing_in,
    open_repository,
    upload,
    write_card,
)
from openrlhf_js.plugin.run.overview import print_overview
from openrlhf_js.plugin.run.ray_session import train
from openrlhf_js.plugin.run.record import recorded
from openrlhf_js.plugin.run.screen import say_tail, shown
from openrlhf_js.plugin.upstream import BadInput


def main(argv: list[str] | None = None) -> int:
    """Runs a training; its exit status.

    0 done, 1 failed, 2 bad input, 3 done but not uploaded, 130 interrupted.
    """
    words = sys.argv[1:] if argv is None else argv
    flat: Flat = {}
    gc.disable()  # until all is imported, which takes a sixth less time so
    try:
        parser = upstream_parser()
        flags.add_flags(parser)
        args = parser.parse_args(words)
        flat = vars(args)
        if flat["js.requeued"]:
            flat["ckpt.load_enable"] = latest_checkpoint(flat).is_file()
        if flat["js.restarts"] > 0 and not flat["js.dry_run"] and RUN_ID not in os.environ:
            if problems := [*earlier_run_problems(flat), *hub_problems(flat)]:
                raise BadInput("\n".join(problems))
            try_upload(flat)
            return keep_running(words, flat)
        starts = not flat["js.dry_run"]
        with contextlib.nullcontext() if starts else without_torch():
            checked = check(args, download=starts)
            device = prepare_device(flat["js.device"])
            if flat["js.verbose"] and not starts:
                print(settings_text(flat, parser))
            print_overview(flat | {"js.device": device}, checked, download=starts)
        if not starts:
            say("openrlhf_js: all checks passed, nothing was started (--verbose: every setting)")
            return 0
        if RUN_ID not in os.environ:  # else the first of these processes has
            try_upload(flat)
        if flat["ckpt.load_enable"]:
            choose_checkpoint(flat)
        with shown(flat), recorded(args, parser):
            train(checked.nested, device)
        if flat["logger.tensorboard_dir"]:
            say(f"openrlhf_js: curves:\n  {curves_command(flat['logger.tensorboard_dir'])}")
        write_card(args, parser)
        folder = flat["ckpt.output_dir"]
        say(f"openrlhf_js: done; {missing_in(folder) or f'the model is in {folder}'}")
        if flat["js.push_to_hub"]:
            return upload(flat)
    except KeyboardInterrupt:
        return complain("interrupted", 130)
    except Exception as error:
        if explained := failures.explained(error):
            return complain(*explained)
        if flat.get("js.verbose", True):
            traceback.print_exc()
        else:
            say_tail(error, flat)
        return 1
    finally:
        gc.enable()
    return 0


def try_upload(flat: Flat) -> None:
    """Asks the hub whether it will take the model; not where a scheduler starts the run again."""
    resumed_by_scheduler = flat["js.requeued"] and flat["ckpt.load_enable"]
    if flat["js.push_to_hub"] and not resumed_by_scheduler:
        open_repository(flat)


def keep_running(arguments: Sequence[str], flat: Flat) -> int:
    """Runs the training in a process of its own, again after each crash; its exit status.

    A crash is any end but success, bad input or an interruption. A start after one resumes the last
    checkpoint of this run; there are `--js.restarts` of them until there is a new checkpoint.
    """
    program = [sys.executable, "-m", "openrlhf_js.cli.train"]
    program += arguments
    program.append(f"--logger.wandb.run_name={flat['logger.wandb.run_name']}")  # one log
    marker = uuid.uuid4().hex
    restarts_left = flat["js.restarts"]
    environment = {**os.environ, RUN_ID: marker}
    before = _time_of(latest_checkpoint(flat))
    resume: list[str] = []
    heeded = [
        number
        for number in SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN  # nohup
    ]
    while True:
        for number in heeded:
            signal.signal(number, signal.default_int_handler)
        child = subprocess.Popen(program + resume, env=environment, start_new_session=True)
        try:
            status = child.wait()
        except KeyboardInterrupt:
            child.terminate()
            status = child.wait() and 130
        end_run(marker, child.pid)  # of a child that was killed
        saved = _time_of(latest_checkpoint(flat))
        if saved != before:
            restarts_left = flat["js.restarts"]
        restarts_left -= 1
        if status in (0, 2, NOT_DONE, 130) or restarts_left < 0:
            return status if status >= 0 else 1
        before = saved
        resume = ["--ckpt.load_enable"] if saved else []
        say(f"openrlhf_js: the run ended with status {status} and is started again", error=True)


def _time_of(file: Path) -> int:
    return file.stat().st_mtime_ns if file.is_file() else 0


if __name__ == "__main__":
    sys.exit(main())
