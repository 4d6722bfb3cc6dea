"""`openrlhf-js study`: many runs, one table."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from openrlhf_js.common.console import say, table
from openrlhf_js.common.settings import parse, run
from openrlhf_js.study.design import StudySettings
from openrlhf_js.tiny.supervise import ProgramFailed, explained

PROG = "openrlhf-js study"


def main(argv: Sequence[str]) -> int:
    """Trains what is missing, and shows all; the exit status is that of `common.settings.run`."""
    failures = {ProgramFailed: explained, BrokenProcessPool: "a run was killed: {}".format}
    return run(PROG, lambda: work(read(argv)), resumes=True, failures=failures)


def read(argv: Sequence[str]) -> StudySettings:
    """Settings from a file, then flags, then the flags of training behind `--`."""
    own, train = list(argv), []
    if "--" in own:
        place = own.index("--")
        own, train = own[:place], own[place + 1 :]
    values: dict[str, Any] = {}
    if own and own[0].endswith((".yaml", ".yml")):
        path = Path(own.pop(0))
        try:
            values = yaml.safe_load(path.read_text(encoding="utf-8"))
        except yaml.YAMLError as error:
            raise ValueError(f"{path} is not YAML: {error}") from None
    if train or "train" in values:
        values["train"] = [*map(str, values.get("train") or ()), *train]
        values.setdefault("engine", "stack")
    return parse(StudySettings, PROG, own, StudySettings(**values))


def work(settings: StudySettings) -> None:
    """Trains the missing runs, writes page and rows, prints the tables."""
    from openrlhf_js.study import analysis, page, running, stack
    from openrlhf_js.tiny.supervise import prepare_libraries

    prepare_libraries()
    if settings.print:
        with running.store_of(settings) as store:  # which remembers the data
            running.prepare(settings)
            if not (left := running.unfinished(settings, store)):
                raise ValueError("all runs have finished: leave out --print to see them")
            for command in stack.write_commands(left, settings):
                say(command)
        say(f"\n{settings.out / 'commands.txt'} and {settings.out / 'array.sh'} (sbatch) hold them")
        return
    findings = analysis.analyse(running.run_all(settings), settings.compared_with)
    written = page.write(settings.out, findings, settings.compared_with, settings.title)
    for cell in page.cells_of(findings):
        rows, _ = page.table_of(findings, cell, settings.compared_with)
        table(rows, list(rows[0])[:4], title=cell)
    table(page.regret_table(findings), title="over all cells")
    for sentence in analysis.in_words(findings, settings.compared_with):
        say(sentence)
    say(f"\npage: {written}\nrows: {settings.out / page.ROWS}")
