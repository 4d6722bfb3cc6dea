"""Runs a recipe of scripts/recipes or reward_models, or tries it: --dry_run and --tiny."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path

from openrlhf_js.common.console import say

USAGE = """\
usage: python -m openrlhf_js.cli.recipe train|rm-train [--dry_run] [--tiny] FLAGS...

  --dry_run  print every flag with its value, check them without a GPU, and end
  --tiny     the same flags on a tiny model and tiny data, on this machine's CPU, in minutes
"""


def main(argv: list[str] | None = None) -> int:
    """Runs OpenRLHF's program with a recipe's flags, and returns its exit status."""
    program, *rest = (sys.argv[1:] if argv is None else argv) or [""]
    if program not in ("train", "rm-train") or {"-h", "--help"} & set(rest):
        print(USAGE)
        return 0 if {"-h", "--help"} & {program, *rest} else 2
    dry, tiny = bool({"--dry-run", "--dry_run"} & set(rest)), "--tiny" in rest
    flags = [word for word in rest if word not in ("--dry-run", "--dry_run", "--tiny")]
    from openrlhf_js.tiny import recipes

    shrink = recipes.tiny_training if program == "train" else recipes.tiny_reward_training
    with contextlib.ExitStack() as stack:
        try:
            if tiny:
                folder = Path(tempfile.mkdtemp(prefix="openrlhf-js-tiny-"))
                flags = shrink(flags, folder)
                print(f"openrlhf_js: the tiny run is in {folder}", flush=True)
            elif dry:
                stand_ins = stack.enter_context(tempfile.TemporaryDirectory())
                flags = recipes.with_data(flags, Path(stand_ins))
        except ValueError as error:
            say(f"openrlhf_js: {error}", error=True)
            return 2
        flags += ["--js.dry_run"] * dry
        if program == "train":
            from openrlhf_js.cli import train as training

            return training.main(flags)
        if dry or tiny:
            from openrlhf_js.cli import rm

            return rm.train(flags)
    # DeepSpeed's launcher starts one process for each GPU
    launcher = [sys.executable, "-m", "deepspeed.launcher.runner", "--no_local_rank", "--module"]
    os.execv(sys.executable, [*launcher, "openrlhf_js.cli.rm", "train", *flags])


if __name__ == "__main__":
    sys.exit(main())
