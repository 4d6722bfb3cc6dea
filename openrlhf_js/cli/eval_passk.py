"""`openrlhf-js eval passk`: mean@k, pass@k and majority of a model, or two models compared."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from openrlhf_js.cli.ending import first_line
from openrlhf_js.cli.eval_passk_flags import PROGRAM, parse
from openrlhf_js.cli.eval_run import guarded
from openrlhf_js.cli.saying import say
from openrlhf_js.whole_file import whole_file

GOES_ON = "what was sampled is kept, and the same command goes on from here"


def main(argv: list[str] | None = None) -> int:
    """Runs the program from its command line.

    Args:
        argv: the arguments, without the program's name; the process's own if None.

    Returns:
        The exit status: 0 done, 1 an endpoint fails or refuses items, or the disk or the memory
        fails, 2 what was given cannot be used, 130 stopped. Wrong flags exit with 2.
    """
    args = parse(argv)
    errors = Console(stderr=True)
    from torch import OutOfMemoryError

    return guarded(
        PROGRAM,
        lambda: (compare if args.compare else evaluate)(args, Console(), errors),
        GOES_ON,
        {
            OutOfMemoryError: lambda error: (
                f"{first_line(error)}\nGive a smaller --batch_size; {GOES_ON}"
            )
        },
    )


def evaluate(args: argparse.Namespace, console: Console, errors: Console) -> None:
    """Samples what is missing of one model, then writes and shows what it says."""
    found = _evaluated(args, args.model, args.out, console, errors)
    if args.json:
        _write_json(args.json, found)


def _evaluated(
    args: argparse.Namespace, model: str, out: Path, console: Console, errors: Console
) -> dict[str, Any]:
    from openrlhf_js.cli.eval_passk_output import show
    from openrlhf_js.cli.eval_passk_run import run
    from openrlhf_js.evaluation.passk import table
    from openrlhf_js.evaluation.passk.results import FILE
    from openrlhf_js.report import passk as report

    found = run(args, model, out, errors)
    tables = [table.scores(found), table.passes(found), table.details(found)]
    notes = table.notes(found)
    _write_json(out / FILE, found)
    _write(
        out / "results.md",
        table.markdown(f"pass@k of {found['model']}", [*tables, table.settings(found)], notes),
    )
    drawn = report.draw([found], [_short(found["model"])], out / "passk.png")
    say(console, f"\n{found['model']}")
    show(console, tables, notes)
    for path in (out / FILE, out / "results.md", drawn):
        say(console, str(path))
    return found


def compare(args: argparse.Namespace, console: Console, errors: Console) -> None:
    """Compares two results item by item, after evaluating what are models yet."""
    from openrlhf_js.cli.eval_passk_output import show
    from openrlhf_js.evaluation.passk import compare as paired
    from openrlhf_js.evaluation.passk import table
    from openrlhf_js.report import passk as report

    _check_sides(args)
    a = _side(args, args.compare[0], "a", console, errors)
    b = _side(args, args.compare[1], "b", console, errors)
    found = paired.compare(a, b, args.metric)
    sides = zip(args.compare, (a, b), strict=True)
    names = _names([found["model"] if _is_model(place) else place for place, found in sides])
    say(console, f"\nA: {found['a']} ({args.compare[0]})\nB: {found['b']} ({args.compare[1]})")
    tables = [table.differences(found)]
    notes = [
        f"{_metric(args.metric)}; paired by item, 95 % intervals; detectable: the true difference "
        "that such a test finds 8 times in 10.",
        *found["notes"],
        *found["in_words"],
    ]
    show(console, tables, notes)
    if args.json:
        _write_json(args.json, found)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        title = f"{names[1]} (B) against {names[0]} (A)"
        _write_json(args.out / "comparison.json", found)
        _write(args.out / "comparison.md", table.markdown(title, tables, notes))
        drawn = report.draw([a, b], names, args.out / "comparison.png")
        for path in (args.out / "comparison.json", args.out / "comparison.md", drawn):
            say(console, str(path))


def _side(
    args: argparse.Namespace, place: str, letter: str, console: Console, errors: Console
) -> dict[str, Any]:
    """The results of one side of a comparison: those of a folder, or of a model."""
    from openrlhf_js.evaluation.passk.results import read_results

    if _is_model(place):
        found = _evaluated(args, place, args.out / letter, console, errors)
    else:
        found = read_results(Path(place))
    return _only(found, args.tasks, place) if args.tasks else found


def _check_sides(args: argparse.Namespace) -> None:
    """Raises ValueError for what cannot be compared, before anything is sampled."""
    from openrlhf_js.evaluation.passk.results import FILE

    models = [place for place in args.compare if _is_model(place)]
    for place in models:
        path = Path(place)
        if path.is_dir() and not (path / "config.json").is_file():
            raise ValueError(
                f"{place} is neither a folder of results, with {FILE}, nor a model, with "
                "config.json"
            )
        if not (args.tasks and args.out):
            raise ValueError(
                f"{place} is no folder of results. To compare models, say with --tasks on what, "
                "and with --out where their samples are kept"
            )
    if args.sampled_by and not models:
        raise ValueError(
            f"--{args.sampled_by[0]} needs a model to compare: results that are there are taken as "
            "they are"
        )


def _is_model(place: str) -> bool:
    from openrlhf_js.evaluation.passk.results import FILE

    return not (Path(place) / FILE).is_file() and not place.endswith(".json")


def _only(found: dict[str, Any], tasks: Sequence[str], place: str) -> dict[str, Any]:
    from openrlhf_js.cli.eval_passk_tasks import name_of

    wanted = [name_of(task) for task in tasks]
    if missing := [name for name in wanted if name not in found["tasks"]]:
        raise ValueError(f"{place} has no {', '.join(missing)}; it has {', '.join(found['tasks'])}")
    return {**found, "tasks": {name: found["tasks"][name] for name in wanted}}


def _metric(metric: str) -> str:
    return {"mean": "mean@k", "majority": "majority@k"}.get(metric, metric)


def _names(models: Sequence[str]) -> list[str]:
    """Short names that differ."""
    short = [_short(each) for each in models]
    return short if short[0] != short[1] else [f"A: {short[0]}", f"B: {short[1]}"]


def _short(model: str) -> str:
    name = model.rstrip("/").rpartition("/")[2] or model
    return name.rpartition("#")[2] if "://" in model else name


def _write(path: Path, text: str) -> None:
    with whole_file(path) as file:
        file.write(text.encode(errors="backslashreplace"))


def _write_json(path: Path, found: dict[str, Any]) -> None:
    from openrlhf_js.evaluation.passk.results import write_json

    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, found)


if __name__ == "__main__":
    sys.exit(main())
