"""`openrlhf-js PROGRAM ...`: one door to every program."""

from __future__ import annotations

import importlib
import sys

PROGRAMS = {
    "train": ("train_ppo_ray", "train a policy by reinforcement learning (OpenRLHF's flags)"),
    "quickstart": ("quickstart", "make a tiny model and train it, on any machine, in minutes"),
    "data": ("data", "build, check and show prompt files with verifiable answers"),
}


def main(argv: list[str] | None = None) -> int:
    """Runs the program that the first argument names, and returns its exit status."""
    name, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if name in PROGRAMS:
        return importlib.import_module(f"openrlhf_js.cli.{PROGRAMS[name][0]}").main(rest)
    width = max(map(len, PROGRAMS))
    usage = "usage: openrlhf-js PROGRAM [--help] ...\n\nprograms:\n" + "\n".join(
        f"  {program:{width}}  {summary}" for program, (_, summary) in PROGRAMS.items()
    )
    if name in ("-h", "--help"):
        print(usage)
        return 0
    print(f"openrlhf-js: no program {name!r}\n\n{usage}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
