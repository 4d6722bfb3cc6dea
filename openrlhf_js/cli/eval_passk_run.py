"""Samples what a folder lacks of a model's responses, grades, and summarises them."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from openrlhf_js.cli.eval_passk_sides import Side, local_side, served_side
from openrlhf_js.cli.eval_passk_tasks import Asked, asked_of, labels
from openrlhf_js.cli.progress import Bar
from openrlhf_js.cli.saying import say
from openrlhf_js.evaluation.endpoint import RequestRefused
from openrlhf_js.evaluation.passk.regrading import OF_THE_MACHINE, grade_again, places_of
from openrlhf_js.evaluation.passk.results import (
    FILE,
    check_model,
    merged,
    read_results,
    results,
    versions,
)
from openrlhf_js.evaluation.passk.samples import SampleFile
from openrlhf_js.evaluation.passk.summary import counted, summarise

SHOWN = 5  # items that are refused


def run(args: argparse.Namespace, model: str, out: Path, errors: Console) -> dict[str, Any]:
    """What a model reaches on every benchmark, as `results.results` has it.

    Args:
        args: the flags.
        model: folder, hub id or address.
        out: folder of samples.
        errors: shows progress.

    Raises:
        ValueError: what was given cannot be used. RequestRefused: a served model refuses items
            that are not to be left out, or all of them. EndpointRefused, EndpointUnavailable: it
            does not answer. OSError: a file cannot be read or written.
    """
    asked = asked_of(args, out, errors)
    say(errors, labels(asked))
    find = served_side if model.startswith(("http://", "https://")) else local_side
    side = find(args, model, asked, errors)
    if (out / FILE).is_file():
        check_model(read_results(out), side.identity, out)
    tasks: dict[str, Any] = {}
    refused: dict[str, dict[int, str]] = {}
    for each in asked:
        drawing, name = asdict(each.benchmark.drawing), each.benchmark.name
        k = drawing.pop("samples")
        own = {**side.identity, **drawing, "seed": args.seed, "versions": versions()}
        with SampleFile(out, name, own, each.items) as file:
            _grade_again(file, each, errors, None if args.grade_again else OF_THE_MACHINE)
            if args.grade_again:
                gone = _left_out_before(file, each, out)
            else:
                gone = _sampled(file, each, side, errors)
            complete = [i for i in range(len(each.items)) if i not in gone]
            groups = [[file.samples[i, j] for j in range(k)] for i in complete]
            settings = file.identity  # versions and place of the time when they were sampled
        if gone:
            refused[name] = gone
        if groups:
            found = summarise([each.items[i] for i in complete], groups)
            left_out = [each.items[i].uid for i in gone]
            tasks[name] = {"settings": settings, **found, "left_out": left_out}
        said = ", ".join(f"{count:,} {status}" for status, count in counted(groups).most_common())
        say(errors, f"{name}: {said or 'nothing'}")
    told = "".join(_told(name, gone) for name, gone in refused.items())
    if len(tasks) < len(asked):
        raise RequestRefused(f"{told}There is a benchmark of which no item is left")
    if refused and not args.leave_out_refused:
        raise RequestRefused(
            f"{told}All else is sampled; --leave_out_refused gives results without these items"
        )
    if refused:
        say(errors, told.rstrip())
    return merged(out, results(side.name, tasks))


def _sampled(file: SampleFile, each: Asked, side: Side, errors: Console) -> dict[int, str]:
    """Samples what is missing; gives the items that are refused, with the reason."""
    lacks = file.missing(len(each.items), each.benchmark.drawing.samples)
    if not lacks:
        return {}
    side.ready()
    with Bar(f"sampling {each.benchmark.name}", lacks, errors, "responses") as bar:
        return side.sample(file, each, bar)


def _left_out_before(file: SampleFile, each: Asked, out: Path) -> dict[int, str]:
    """The items that lack samples, if the results that are there leave them out already."""
    name, k = each.benchmark.name, each.benchmark.drawing.samples
    there = read_results(out)["tasks"].get(name, {}) if (out / FILE).is_file() else {}
    known = {*there.get("left_out", ())}
    lacking = [i for i in range(len(each.items))
               if any((i, j) not in file.samples for j in range(k))]  # fmt: skip
    if unknown := sum(each.items[i].uid not in known for i in lacking):
        raise ValueError(
            f"{file.path} lacks samples of {unknown:,} items, and --grade_again takes none: call "
            "without it first"
        )
    return {i: f"item {i + 1} was left out before" for i in lacking}


def _told(name: str, refused: dict[int, str]) -> str:
    """Lines on the items of a benchmark that are refused."""
    first = list(refused.values())[:SHOWN]
    more = [f"and {len(refused) - SHOWN:,} more"] if len(refused) > SHOWN else []
    said = [f"{name}: {len(refused):,} items are refused", *(f"  {each}" for each in first + more)]
    return "\n".join(said) + "\n"


def _grade_again(
    file: SampleFile, each: Asked, errors: Console, statuses: tuple[str, ...] | None
) -> None:
    """Grades what is there anew: all of it, or what has these statuses."""
    name, places = each.benchmark.name, places_of(file, len(each.items), statuses)
    if not places:
        return
    with Bar(f"grading {name} again", len(places), errors, "responses") as bar:
        changed = grade_again(file, each.items, places, lambda done: bar.update(done, done))
    say(errors, f"{name}: graded {len(places):,} responses again; {changed:,} of them changed")
