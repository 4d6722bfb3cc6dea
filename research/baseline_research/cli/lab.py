"""`openrlhf-js lab PROGRAM ...`: how far baselines and gradients are from what they estimate."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from answer_graders.programs.console import say, table
from answer_graders.programs.files import make_folder
from answer_graders.programs.settings import Settings, choose, parse, run
from baseline_research.lab import settings as flags

if TYPE_CHECKING:  # torch is imported only after the flags are checked
    from baseline_research.lab.results import LabResult

PROG = "openrlhf-js lab"


class Program(NamedTuple):
    """A program's flags, and its analysis: a function in `baseline_research.lab`."""

    settings: type[Settings]
    analysis: str


PROGRAMS: dict[str, Program] = {
    "value": Program(flags.ValueSettings, "value.values"),
    "mse": Program(flags.MseSettings, "mse.errors"),
    "gradient": Program(flags.GradientSettings, "gradient.gradients"),
    "heterogeneity": Program(flags.HeterogeneitySettings, "heterogeneity.every_shrinkage"),
    "simulate": Program(flags.SimulateSettings, "simulate.simulated"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program that the first argument names, and returns its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    name = arguments[0]
    if name not in PROGRAMS:
        summaries = {}
        for known, program in PROGRAMS.items():
            first_line = (program.settings.__doc__ or "").splitlines()[0]
            summaries[known] = ("", first_line.removesuffix("."))
        return choose(PROG, summaries, [name])
    prog = f"{PROG} {name}"
    settings: Any = parse(PROGRAMS[name].settings, prog, arguments[1:])
    from torch import OutOfMemoryError

    from baseline_research.lab.grading import RewardFailed

    failures: Any = {
        RewardFailed: lambda error: f"{error}\nResponses are kept; the same command resumes",
        OutOfMemoryError: lambda error: (
            f"{error}\nGive a smaller --batch_size, or for gradients --gradient_dtype bf16; "
            "the same command resumes"
        ),
    }
    return run(prog, lambda: _run(name, settings), name != "simulate", failures)


def _run(name: str, settings: Any) -> None:
    """Analyses, prints the table, and writes JSON, arrays and picture."""
    from baseline_research.lab import page as lab
    from baseline_research.lab.results import save

    make_folder(settings.out)
    module, _, function = PROGRAMS[name].analysis.partition(".")
    analyse = getattr(importlib.import_module(f"baseline_research.lab.{module}"), function)
    result = _of_checkpoints(analyse, settings)
    path = save(settings.out, name, result, settings.manifest())
    table(lab.table(result.summary()))
    say(f"\n{result.caption}")
    for written in (path, path.with_suffix(".npz"), lab.picture(path)):
        say(str(written))


def _of_checkpoints(analyse: Callable[[Any], LabResult], settings: Any) -> LabResult:
    """Analyses one model, or every checkpoint, each in a folder of its name below --out."""
    from baseline_research.lab.results import over_training

    if not isinstance(settings, flags.LabSettings) or len(settings.model) < 2:
        return analyse(settings)
    results = {}
    for model in settings.model:
        name = Path(model).name
        say(f"\n{name}", style="bold")
        checkpoint = {"model": (model,), "out": settings.out / name}
        results[name] = analyse(settings.model_copy(update=checkpoint))
    return over_training(results)


if __name__ == "__main__":
    sys.exit(main())
