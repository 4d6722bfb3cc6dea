"""A model's answers while they are made: what is there, what is open, and how they came about."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from openrlhf_js.evaluation.arena import schemas
from openrlhf_js.evaluation.arena.appending import append_line
from openrlhf_js.evaluation.arena.files import Folder, read_answers
from openrlhf_js.evaluation.arena.lines import Warn, records
from openrlhf_js.evaluation.arena.records import Answer, Question, file_name
from openrlhf_js.whole_file import whole_file

CUT_OFF = "length"  # the finish reason of an answer that was cut off
SETTINGS = ".generation.json"  # ends the name of the file of settings
NOTES = ("model", "url", "device", "versions")  # settings that may change from call to call


class Tally(NamedTuple):
    """Answers of a file to some questions.

    Attributes:
        answers: how many.
        cut_off: of them, those that were cut off at the most tokens allowed.
        empty: of them, those without text: their thoughts never ended, or the model said nothing.
    """

    answers: int
    cut_off: int
    empty: int


class AnswerFile:
    """The answers of one model, each added once; a context manager, which holds it for itself.

    Args:
        folder: of the bench.
        model: its name in the pool.
        settings: what the answers depend on, and `NOTES`.
        warn: told of lines that cannot be read.

    Attributes:
        model: what the answers' file names it.
        path: of the answers.

    Raises:
        ValueError: answers made with other settings are there, or another program adds to them.
        OSError: the disk does not take it.
    """

    def __init__(self, folder: Folder, model: str, settings: Mapping[str, Any], warn: Warn):
        self.model = file_name(model)
        self.path = folder.answers(model)
        self._warn = warn
        self._writing = threading.Lock()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = self.path.with_name(f".{self.model}.lock")
        self._lock = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._check(settings)
            found = read_answers(self.path, warn) if self.path.exists() else {}
        except BlockingIOError:
            os.close(self._lock)
            raise ValueError(f"another program is adding to {self.path}: let it end") from None
        except BaseException:
            os.close(self._lock)
            raise
        self._there = set(found)

    def __enter__(self) -> AnswerFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)

    def missing(self, questions: Sequence[Question]) -> Iterator[tuple[int, Question]]:
        """The questions without an answer, each with its number, so that its seed is its own."""
        for number, question in enumerate(questions):
            if question.uid not in self._there:
                yield number, question

    def append(self, line: bytes) -> None:
        """Adds an answer, which is on the disk then; may be called from several threads.

        Raises:
            OSError: it cannot be written.
        """
        with self._writing:
            append_line(self.path, line, self._warn)

    def _check(self, settings: Mapping[str, Any]) -> None:
        """Compares the settings with those of the answers that are there, and writes them."""
        path = self.path.with_name(self.model + SETTINGS)
        there = self.path.exists() and self.path.stat().st_size
        if there and path.exists():
            try:
                before = dict(json.loads(path.read_bytes()))
            except (ValueError, TypeError):
                raise ValueError(f"{path} is damaged; move it away, and the answers too") from None
            for name in sorted({*before, *settings} - {*NOTES}):
                if before.get(name) != settings.get(name):
                    raise ValueError(
                        f"the answers in {self.path} were made with {name} {_short(before, name)}, "
                        f"not {_short(settings, name)}: give this model another --name"
                    )
        elif there:
            raise ValueError(
                f"{self.path} holds answers that another program made: give this model another "
                "--name"
            )
        with whole_file(path) as file:
            file.write(json.dumps(dict(settings), indent=1, ensure_ascii=False).encode() + b"\n")


def _short(settings: Mapping[str, Any], name: str) -> str:
    return f"{settings.get(name)!r:.80}"


def tally(path: Path, questions: Mapping[str, Question]) -> Tally:
    """Counts the answers of a file to these questions.

    Raises:
        OSError: it cannot be read.
    """
    found = {}
    for _, (answer, cut_off) in records(path, _counted, lambda _: None):
        if answer.uid in questions:
            found[answer.uid] = (cut_off, not answer.text)
    return Tally(
        len(found), sum(cut for cut, _ in found.values()), sum(gap for _, gap in found.values())
    )


def _counted(row: Mapping[str, Any], warn: Warn) -> tuple[Answer, bool]:
    return schemas.answer(row, warn), row.get("finish_reason") == CUT_OFF
