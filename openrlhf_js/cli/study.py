"""`openrlhf-js study`: many runs, one table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from openrlhf_js.common.console import say, table
from openrlhf_js.common.settings import parse, run
from openrlhf_js.study.design import StudySettings, words_of
from openrlhf_js.tiny.supervise import ProgramFailed, explained

PROG = "openrlhf-js study"


def main(argv: Sequence[str]) -> int:
    """Trains what is missing, and shows all; the exit status is that of `common.settings.run`."""
    return run(PROG, lambda: work(read(argv)), resumes=True, failures={ProgramFailed: explained})


def read(argv: Sequence[str]) -> StudySettings:
    """Settings from a file, then flags, then the flags of training behind `--`."""
    own, train = list(argv), []
    if "--" in own:
        place = own.index("--")
        own, train = own[:place], own[place + 1 :]
    given = []
    if own and own[0].endswith((".yaml", ".yml")):
        values = yaml.safe_load(Path(own[0]).read_text(encoding="utf-8"))
        if not isinstance(values, dict):
            raise ValueError(f"{own[0]} must hold settings, as `seeds: 10`")
        train = [str(word) for word in values.pop("train", [])] + train
        given = list(words_of(values))
        own = own[1:]
    settings = parse(StudySettings, PROG, [*given, *own])
    return StudySettings(**{**settings.model_dump(), "train": train}) if train else settings


def work(settings: StudySettings) -> None:
    """Trains the missing runs, writes page and rows, prints the tables."""
    from openrlhf_js.study import analysis, page, running
    from openrlhf_js.tiny.supervise import prepare_libraries

    prepare_libraries()
    if settings.print:
        from openrlhf_js.study.stack import write_commands

        running.prepare(settings)
        for command in write_commands(settings):
            say(command)
        say(f"\n{settings.out / 'commands.txt'} and {settings.out / 'array.sh'} (sbatch) hold them")
        return
    records = running.run_all(settings)
    findings = analysis.analyse(records, settings.reference)
    written = page.write(settings.out, records, findings, settings.reference)
    for cell in page.cells_of(findings):
        rows, _ = page.table_of(findings, cell, settings.reference)
        table(rows, list(rows[0])[:4], title=cell.name)
    if len(page.cells_of(findings)) > 1:
        table(page.regret_table(findings), title="over all cells")
    for sentence in page.summary(findings, settings.reference):
        say(sentence)
    say(f"\npage: {written}\nrows: {settings.out / page.ROWS}")
