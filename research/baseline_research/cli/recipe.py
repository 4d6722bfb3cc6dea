"""Runs a recipe of scripts/recipes or reward_models, or tries it with --dry_run or --tiny."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

from answer_graders.programs.console import say


def main(argv: list[str] | None = None) -> int:
    """Runs OpenRLHF's program with a recipe's flags, and returns its exit status."""
    prog = "python -m baseline_research.cli.recipe"
    usage = "%(prog)s PROGRAM [--dry_run] [--tiny] FLAGS..."
    labs = ("mse", "gradient", "heterogeneity")
    parser = argparse.ArgumentParser(prog, usage, allow_abbrev=False)
    parser.add_argument(
        "program", choices=("train", "rm-train", *labs), help="program that the recipe is of"
    )
    parser.add_argument(
        "--dry_run",
        "--dry-run",
        action="store_true",
        help="check every flag without a GPU, show what would run, and end",
    )
    parser.add_argument(
        "--tiny",
        action="store_true",
        help="run the same flags on a tiny model and tiny data, on this machine's CPU, in minutes",
    )
    options, flags = parser.parse_known_args(argv)
    with tempfile.TemporaryDirectory() as stand_ins:
        try:
            if options.tiny:
                flags = _tiny(options.program, flags)
            elif options.dry_run and options.program == "train":
                from baseline_research.tiny.recipes import with_data  # slow to import

                flags = with_data(flags, Path(stand_ins))
        except ValueError as error:
            say(f"openrlhf_js: {error}", error=True)
            return 2
        if options.program in labs:
            return _lab(options.program, flags, dry_run=options.dry_run)
        if options.dry_run:
            flags = [*flags, "--js.dry_run"]
        if options.dry_run and options.program == "train" and not options.tiny:
            flags = ["--js.device", "gpu", *flags]  # even if this machine has none
        if options.program == "train":
            from openrlhf_js.cli import train as training

            return training.main(flags)
        if options.dry_run or options.tiny:
            from openrlhf_js.cli import rm

            return rm.train(flags)
    return _launch_reward_training(flags)


def _tiny(program: str, flags: list[str]) -> list[str]:
    """The flags with small models and data, which it writes into a new folder."""
    from baseline_research.tiny import recipes

    folder = Path(tempfile.mkdtemp(prefix="openrlhf-js-tiny-"))
    shrinking = {"train": recipes.tiny_training, "rm-train": recipes.tiny_reward_training}
    flags = shrinking.get(program, recipes.tiny_lab)(flags, folder)
    print(f"openrlhf_js: the tiny run is in {folder}", flush=True)
    return flags


def _lab(program: str, flags: list[str], *, dry_run: bool) -> int:
    """Runs a lab program, or prints its flags with their values and a star for those given."""
    from answer_graders.programs.settings import parse
    from baseline_research.cli import lab
    from baseline_research.tiny.recipes import Flags

    flags = Flags(flags).words()  # if a flag occurs twice, the last one counts
    if not dry_run:
        return lab.main([program, *flags])
    settings = parse(lab.PROGRAMS[program].settings, f"openrlhf-js lab {program}", flags)
    for name, value in settings.manifest().items():
        words = value if isinstance(value, list | tuple) else [value]
        mark = "*" if f"--{name}" in flags else " "
        say(f"{mark} --{name} {' '.join(map(str, words))}")
    return 0


def _launch_reward_training(flags: list[str]) -> NoReturn:
    """Replaces this process by DeepSpeed's launcher, which starts one process for each GPU."""
    launcher = [sys.executable, "-m", "deepspeed.launcher.runner", "--no_local_rank", "--module"]
    os.execv(sys.executable, [*launcher, "openrlhf_js.cli.rm", "train", *flags])


if __name__ == "__main__":
    sys.exit(main())
