"""Run a recipe of scripts/recipes or reward_models, or try it: --dry-run and --tiny."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from openrlhf_js.cli.saying import complain

USAGE = """\
usage: python -m openrlhf_js.cli.recipe train|rm-train [--dry-run] [--tiny] FLAGS...

  --dry-run  print every flag with its value, check them without a GPU, and end
  --tiny     the same flags on a tiny model and tiny data, on this machine's CPU, in minutes
"""


def main(argv: list[str] | None = None) -> int:
    """Runs OpenRLHF's program with a recipe's flags, and returns its exit status."""
    program, *rest = (sys.argv[1:] if argv is None else argv) or [""]
    if program not in ("train", "rm-train"):
        print(USAGE, file=sys.stderr)
        return 2
    if {"-h", "--help"} & set(rest):
        print(USAGE)
        return 0
    flags = [word for word in rest if word not in ("--dry-run", "--tiny")]
    dry, tiny = "--dry-run" in rest, "--tiny" in rest
    if tiny:
        from openrlhf_js.tiny import recipes

        folder = Path(tempfile.mkdtemp(prefix="openrlhf-js-tiny-"))
        shrink = recipes.tiny_training if program == "train" else recipes.tiny_reward_training
        try:
            flags = shrink(flags, folder)
        except ValueError as error:
            return complain(error, 2)
        print(f"openrlhf_js: the tiny run is in {folder}", flush=True)
    if dry:
        flags.append("--js.dry_run")
    if program == "train":
        from openrlhf_js.cli import train_ppo_ray

        return train_ppo_ray.main(flags)
    if dry or tiny:
        from openrlhf_js.cli import train_rm

        return train_rm.main(flags)
    # DeepSpeed's launcher starts one process for each GPU
    launcher = [sys.executable, "-m", "deepspeed.launcher.runner"]
    os.execv(sys.executable, [*launcher, "--module", "openrlhf_js.cli.train_rm", *flags])


if __name__ == "__main__":
    sys.exit(main())
