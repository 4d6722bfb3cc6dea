"""`openrlhf-js study`: many runs, one table."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from answer_graders.programs.console import progress, say
from answer_graders.programs.files import read_yaml
from answer_graders.programs.settings import SettingsError, parse, run
from baseline_research.study.design import InlineStudy, StackStudy, Study
from baseline_research.study.own_flags import missing_flags
from baseline_research.study.runs import Run
from baseline_research.tiny.supervise import ProgramFailed, explained

PROG = "openrlhf-js study"
STUDIES: dict[str, type[InlineStudy | StackStudy]] = {"inline": InlineStudy, "stack": StackStudy}


def main(argv: Sequence[str]) -> int:
    """Trains the missing runs and shows all. Returns the exit status."""
    failures = {ProgramFailed: explained, BrokenProcessPool: "a run was killed: {}".format}
    return run(PROG, lambda: work(read(argv)), resumes=True, failures=failures)


def read(argv: Sequence[str]) -> Study:
    """Reads settings from a file, then flags, then the training flags after `--`.

    `--engine` chooses the class of the settings.
    """
    flags = list(argv)
    train = []
    if "--" in flags:
        place = flags.index("--")
        train = flags[place + 1 :]
        flags = flags[:place]
    values: dict[str, Any] = {}
    if flags and flags[0].endswith((".yaml", ".yml")):
        values.update(read_yaml(Path(flags.pop(0)), numbers=False))
    listed = values.get("train") or []
    if not isinstance(listed, list):
        raise SettingsError("train: give a list of words, such as [--actor.adam.lr, 1e-6]")
    train = [*map(str, listed), *train]
    _check_places(flags, train, values)
    engine = values.pop("engine", "stack" if train else "inline")
    if train:
        values["train"] = train
    engines = argparse.ArgumentParser(PROG, add_help=False, allow_abbrev=False)
    engines.add_argument("--engine", choices=list(STUDIES), default=engine)
    chosen, flags = engines.parse_known_args(flags)
    if train and chosen.engine != "stack":
        raise SettingsError("what stands behind -- are flags of training: give --engine stack")
    study = STUDIES[chosen.engine]
    return parse(study, PROG, flags, study(**values))


def _check_places(flags: Sequence[str], train: Sequence[str], values: Mapping[str, Any]) -> None:
    """Raises SettingsError for training flags, such as --data.prompt_dataset, before the `--`.

    The message gives the full command, with the file's settings as flags.
    """
    misplaced = []
    given = {word.removeprefix("--").partition("=")[0] for word in flags if word.startswith("--")}
    of_study = ["--engine", "stack"]
    for name, value in values.items():  # from the file
        if "." in name:
            misplaced += [f"--{name}", str(value)]
        elif name not in {"engine", "train", *given} and value is not None and value is not False:
            listed = value if isinstance(value, list) else [value]
            of_study += [f"--{name}", *(str(word) for word in listed if word is not True)]
    words = of_study
    for word in flags:
        if word.startswith("--"):
            name = word.partition("=")[0]
            words = misplaced if "." in name else of_study
            if name == "--engine":
                words = []  # only the stack engine takes training flags
        words.append(word)
    if not misplaced:
        return
    train = [*misplaced, *train]
    command = f"{PROG} {shlex.join(of_study)} -- {shlex.join(train)}"
    needed = " ".join(missing_flags(train))
    raise SettingsError(
        f"{misplaced[0].partition('=')[0]} is a flag of training. Your own data and model are "
        "trained with --engine stack, by flags behind `--` (in a file: the list `train`), and "
        f"compared by an evaluation:\n  {command} {needed}".rstrip()
    )


def work(settings: Study) -> None:
    """Trains the missing runs, writes page and rows, prints the tables."""
    if isinstance(settings, StackStudy) and settings.print:
        print_commands(settings)
    else:
        with progress("study", unit="runs") as bar:
            bar.show("importing torch")  # takes seconds
            from torch import OutOfMemoryError

            from baseline_research.study.running import run_all

        try:
            records = run_all(settings)
        except OutOfMemoryError as error:
            advice = "give fewer --jobs, or --prompts and --responses"
            raise ValueError(f"{error}\nThe GPU is full: {advice}") from None
        show(settings, records)


def print_commands(settings: StackStudy) -> None:
    """Prints the command of each run that has not finished, and writes them into a file."""
    from baseline_research.study import running, stack

    with running.store_of(settings) as store:  # the store remembers the data
        runs = running.store_runs(settings, store, train_here=False)
        if not runs:
            raise ValueError("all runs have finished: leave out --print to see them")
        for command in stack.write_commands(runs, settings):
            print(command)
    say(f"{settings.out / stack.COMMANDS} has these {len(runs)} commands", error=True)


def show(settings: Study, records: Sequence[Mapping[str, Any]]) -> None:
    """Writes page and rows, prints the tables."""
    from baseline_research.study import analysis, budget, page, tables

    tried = []
    if settings.budget:
        tried = budget.tried_splits(settings, {Run.of(record): record for record in records})
        records = budget.final_records(settings, records)
    findings = analysis.analyse(records, settings.compared_with)
    written = page.write(settings.out, findings, settings.title, tried)
    tables.print_tables(findings)
    if not findings.is_own:
        say(f"pass@1: of {settings.pass1_in_words}")
    say(
        f"\npage: {written}\npicture: {settings.out / page.PICTURE}\n"
        f"rows: {settings.out / page.ROWS}"
    )
