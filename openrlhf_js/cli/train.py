"""Trains a policy with OpenRLHF and a shrinkage baseline.

Takes every flag of OpenRLHF's `train_ppo_ray`, and the estimators of `openrlhf_js.estimators`.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from typing import Any

from openrlhf_js.common.console import complain, say
from openrlhf_js.common.programs import curves_command
from openrlhf_js.plugin import flags
from openrlhf_js.plugin.checks.everything import check
from openrlhf_js.plugin.checks.models import check_hub_models
from openrlhf_js.plugin.checks.start import earlier_run_problems
from openrlhf_js.plugin.flags.parser import (
    flag_values,
    upstream_parser,
    validate_upstream,
    with_file,
)
from openrlhf_js.plugin.run import failures
from openrlhf_js.plugin.run.checkpoints import choose_checkpoint, latest_checkpoint
from openrlhf_js.plugin.run.device import prepare_device
from openrlhf_js.plugin.run.leftovers import RUN_ID
from openrlhf_js.plugin.run.record import recorded
from openrlhf_js.plugin.run.restarts import keep_running
from openrlhf_js.plugin.run.screen import say_tail, shown
from openrlhf_js.plugin.run.training import train
from openrlhf_js.plugin.schedule import summary
from openrlhf_js.plugin.upstream import BadInput


def main(argv: list[str] | None = None) -> int:
    """Runs a training; its exit status is 0 done, 1 failed, 2 bad input, 130 interrupted."""
    flat: dict[str, Any] = {}
    gc.disable()  # until all is imported, which takes a sixth less time so
    try:
        parser = upstream_parser()
        flags.add_flags(parser)
        args = parser.parse_args(with_file(sys.argv[1:] if argv is None else argv))
        flat = vars(args)
        if flat["js.requeued"]:
            flat["ckpt.load_enable"] = latest_checkpoint(flat).is_file()
        if flat["js.restarts"] > 0 and not flat["js.dry_run"] and RUN_ID not in os.environ:
            if problems := earlier_run_problems(flat):
                raise BadInput("\n".join(problems))
            return keep_running(sys.argv[1:] if argv is None else argv, flat)
        prompts = check(args)
        device = prepare_device(flat["js.device"])
        checked = validate_upstream(args)
        if flat["js.dry_run"]:
            print("\n".join(flag_values(args, parser)))
            say(f"openrlhf_js: {summary(flat, prompts)}")
            return 0
        check_hub_models(flat)
        if flat["ckpt.load_enable"]:
            choose_checkpoint(flat)
        say(f"openrlhf_js: {summary(flat, prompts)}")
        with shown(flat), recorded(args, parser):
            train(checked, device)
        if flat["logger.tensorboard_dir"]:
            say(f"openrlhf_js: curves: {curves_command(flat['logger.tensorboard_dir'])}")
        say(f"openrlhf_js: done; the model is in {flat['ckpt.output_dir']}")
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


if __name__ == "__main__":
    sys.exit(main())
