"""From the words after --tasks to benchmarks and their items."""

from __future__ import annotations

import argparse
import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console

from openrlhf_js.cli.eval_passk_flags import definitions
from openrlhf_js.cli.progress import Bar
from openrlhf_js.cli.saying import say

if TYPE_CHECKING:
    from openrlhf_js.evaluation.passk.definitions import Benchmark
    from openrlhf_js.evaluation.passk.items import Item

FILES = (".jsonl", ".json", ".csv", ".parquet")
DRAWING = ("samples", "temperature", "top_p", "max_new_tokens")


class Asked(NamedTuple):
    """A benchmark with its items."""

    benchmark: Benchmark
    items: list[Item]


def name_of(task: str) -> str:
    """The name of a benchmark in results and files."""
    return re.sub(r"[^\w.-]", "_", Path(task).stem if Path(task).suffix else task)


def asked_of(args: argparse.Namespace, out: Path, errors: Console) -> list[Asked]:
    """The benchmarks that the flags ask for, each with its items.

    Args:
        args: the flags.
        out: gets `images/`, where a data set has figures.
        errors: shows progress.

    Raises:
        ValueError: a benchmark is not known or cannot be built. OSError: a file cannot be read.
    """
    found = [_benchmark(args, task) for task in args.tasks]
    names = [each.name for each in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"--tasks names {', '.join(sorted(twice))} twice; rename one of the files")
    if unknown := sorted(args.sources.keys() - {*names}):
        raise ValueError(f"--source is for {unknown[0]}, which --tasks does not name")
    return [Asked(each, _items(args, each, out, errors)) for each in found]


def _benchmark(args: argparse.Namespace, task: str) -> Benchmark:
    from openrlhf_js.evaluation.passk.definitions import ENDINGS, Benchmark, read_benchmark

    path = Path(task)
    named = definitions()
    if task in named:
        found = read_benchmark(named[task])
    elif path.suffix in ENDINGS:
        found = replace(read_benchmark(path), name=name_of(task))
    elif path.suffix in FILES:
        found = Benchmark(name_of(task), file=path)
    else:
        there = ", ".join(named) or "none: run in a checkout of the repository"
        raise ValueError(
            f"no benchmark {task!r}; those with names are {there}; else give a YAML file or a "
            f"file of prompts ({', '.join(FILES)}) from `openrlhf-js data build`"
        )
    given = {name: value for name in DRAWING if (value := getattr(args, name)) is not None}
    return replace(found, drawing=replace(found.drawing, **given))


def _items(
    args: argparse.Namespace, benchmark: Benchmark, out: Path, errors: Console
) -> list[Item]:
    from openrlhf_js.evaluation.passk.items import items_of_file

    if benchmark.file:
        found = items_of_file(benchmark.file)
    else:
        found = _built(benchmark, args.sources.get(benchmark.name), out, errors)
    if args.items and args.items > len(found):
        raise ValueError(
            f"--items {args.items}, but {benchmark.name} has {len(found)}; ask for fewer"
        )
    return found[: args.items]


def _built(benchmark: Benchmark, source: str | None, out: Path, errors: Console) -> list[Item]:
    """The items of a task, as `openrlhf-js data build` makes them."""
    from openrlhf_js.data.writing import items, options_of, row
    from openrlhf_js.evaluation.passk.items import items_of_rows
    from openrlhf_js.tasks import TASKS
    from openrlhf_js.tasks.base import Generated

    task = TASKS[benchmark.task]
    takes = options_of(task)
    options = dict(takes)
    if unknown := sorted(benchmark.options.keys() - takes.keys()):
        raise ValueError(
            f"{benchmark.name}: {benchmark.task} takes no option {unknown[0]!r}; it takes "
            f"{', '.join(takes) or 'none'}"
        )
    if "images_dir" in takes:
        options["images_dir"] = str(out / "images")
    for name, value in benchmark.options.items():
        options[name] = tuple(value) if isinstance(value, list) else value
    if source is not None:
        if "source" not in takes:
            raise ValueError(f"--source: {benchmark.name} makes its problems itself")
        options["source"] = source
    if not isinstance(task, Generated):
        options = task.used(benchmark.split, **options)
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", UserWarning)
        with Bar(f"building {benchmark.name}", 1, errors) as bar:
            made = items(
                task, benchmark.split, benchmark.count, benchmark.seed, options, bar.update
            )
            found = items_of_rows(row(task, item) for item in made)
    for note in notes:
        say(errors, f"note: {note.message}")
    return found


def labels(found: Sequence[Asked]) -> str:
    """What is asked, for a person."""
    return ", ".join(f"{each.benchmark.name} ({len(each.items):,} items)" for each in found)
