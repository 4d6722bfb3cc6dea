"""`openrlhf-js PROGRAM ...`: one door to every program."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence

PROGRAMS = {
    "train": ("train_ppo_ray", "train a policy by reinforcement learning (OpenRLHF's flags)"),
    "rm": ("rm", "train, measure and serve reward models"),
    "eval": ("eval", "measure a model: checked answers, and answers that a judge compares"),
    "quickstart": ("quickstart", "make a tiny model and train it, on any machine, in minutes"),
    "data": ("data", "build, check and show prompt files with verifiable answers"),
    "report": ("report", "draw runs and the lab's results: one page, and pictures"),
    "lab": ("lab", "see the variance: baselines and gradients against the truth"),
}


def main(argv: list[str] | None = None) -> int:
    """Runs the program that the first argument names, and returns its exit status."""
    return choose("openrlhf-js", PROGRAMS, sys.argv[1:] if argv is None else argv)


def choose(door: str, programs: Mapping[str, tuple[str, str]], argv: Sequence[str]) -> int:
    """Runs one of several programs, or says which there are.

    Args:
        door: what is typed before the program's name.
        programs: their modules in `openrlhf_js.cli` and what they do, by name.
        argv: the program's name and its arguments.

    Returns:
        The exit status; 2 where there is no such program.
    """
    name, *rest = argv or ["--help"]
    if name in programs:
        return importlib.import_module(f"openrlhf_js.cli.{programs[name][0]}").main(rest)
    width = max(map(len, programs))
    usage = f"usage: {door} PROGRAM [--help] ...\n\nprograms:\n" + "\n".join(
        f"  {program:{width}}  {summary}" for program, (_, summary) in programs.items()
    )
    if name in ("-h", "--help"):
        print(usage)
        return 0
    print(f"{door}: no program {name!r}\n\n{usage}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
