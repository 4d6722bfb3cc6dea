"""A file that is only ever added to, whatever happened to its last line."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path

import pytest

from openrlhf_js.evaluation.arena import appending
from openrlhf_js.evaluation.arena.appending import append_line

A, B, C = b'{"a": 1}\n', b'{"b": 2}\n', b'{"c": 3}\n'


def test_a_new_file_in_a_new_folder(tmp_path: Path) -> None:
    path = tmp_path / "x" / "y.jsonl"
    append_line(path, A)
    append_line(path, B)
    assert path.read_bytes() == A + B
    assert [each.name for each in path.parent.iterdir()] == ["y.jsonl"]


def test_half_a_line_is_moved_aside(tmp_path: Path) -> None:
    path = tmp_path / "y.jsonl"
    path.write_bytes(A + b'{"b": "' + b"x" * 200_000)  # longer than what is read at once
    said: list[str] = []
    append_line(path, C, said.append)
    assert path.read_bytes() == A + C
    half = tmp_path / "y.jsonl.half"
    assert half.read_bytes() == b'{"b": "' + b"x" * 200_000 + b"\n"
    assert said == [
        f"{path}: its last line was half written; it is moved into {half}, and done anew"
    ]
    path.write_bytes(path.read_bytes() + b"{")
    append_line(path, B, said.append)
    assert path.read_bytes() == A + C + B
    assert half.read_bytes().endswith(b"x\n{\n")


def test_nothing_but_half_a_line(tmp_path: Path) -> None:
    path = tmp_path / "y.jsonl"
    path.write_bytes(b'{"a"')
    append_line(path, C)
    assert path.read_bytes() == C


def test_a_line_that_lacks_only_its_end_gets_it(tmp_path: Path) -> None:
    path = tmp_path / "y.jsonl"
    path.write_bytes(A + B[:-1])
    append_line(path, C, pytest.fail)
    assert path.read_bytes() == A + B + C


def test_a_full_disk_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "y.jsonl"
    append_line(path, A)
    write = os.write

    def full(handle: int, data: memoryview) -> int:
        if len(data) < 5:
            raise OSError(28, "No space left on device")
        return write(handle, data[:5])

    monkeypatch.setattr(appending.os, "write", full)
    with pytest.raises(OSError, match="No space left") as caught:
        append_line(path, B)
    assert caught.value.filename == str(path)
    monkeypatch.undo()
    assert path.read_bytes() == A


def _many(path: Path, name: str) -> None:
    for number in range(50):
        append_line(path, json.dumps({name: number, "text": "x" * 5000}).encode() + b"\n")


def test_several_programs_add_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "y.jsonl"
    start = multiprocessing.get_context("fork").Process
    programs = [start(target=_many, args=(path, name)) for name in "ab"]
    for each in programs:
        each.start()
    for each in programs:
        each.join(30)
    rows = [json.loads(line) for line in path.open("rb")]
    for name in "ab":
        assert [row[name] for row in rows if name in row] == list(range(50))
