"""Progress: a bar with a note on a terminal, and lines elsewhere."""

import re

import pytest

from answer_graders.programs import console
from answer_graders.programs.console import progress, say


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(console, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(console, "LINE_SECONDS", 0.0)


def test_lines_say_what_is_done_and_what_is_left(capsys):
    with progress("judging", 8, "games") as bar:
        bar.advance(2, "$1.00 of about $4.00")
    with progress("reading") as bar:
        bar.advance(3)
    assert capsys.readouterr().err.splitlines() == [
        "judging: 2 of 8 games, $1.00 of about $4.00, 0:00:00 left",
        "reading: 3 rows",
    ]


def test_a_message_stands_above_the_bar(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, to rich
    with progress("judging", 8, "games") as bar:
        bar.advance(2, "a [note] of ours")
        say("stopping", error=True)
    say("stopped", error=True)
    printed = capsys.readouterr().err
    assert "2 of 8 games" in printed
    assert "a [note] of ours" in printed
    assert re.search(r"\x1b\[2Kstopping\n", printed)  # the bar was erased, and is drawn anew below
    assert printed.endswith("stopped\n")
