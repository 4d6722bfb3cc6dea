"""Adds lines to a file, each of them whole: what a crash has left half written is moved aside."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

HALF = ".half"  # ends the name of the file that half-written lines go to
_BLOCK_BYTES = 2**16
# not ends of lines to JSON, but to some readers of text
_ESCAPES = {0x2028: "\\u2028", 0x2029: "\\u2029", 0x85: "\\u0085"}


def line_of(row: Mapping[str, Any]) -> bytes:
    """A row as one line of JSON; half characters, which no UTF-8 text can hold, become U+FFFD."""
    text = json.dumps(row, ensure_ascii=False, allow_nan=False).translate(_ESCAPES)
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:
        whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return whole.encode() + b"\n"


def append_line(path: Path, line: bytes, warn: Callable[[str], None] | None = None) -> None:
    """Adds a line, or several, to a file, which may be new; returns once it is on the disk.

    A line before it that was never finished is moved into a file next to it; one that lacks nothing
    but its end gets that. Several programs may add to one file.

    Args:
        path: the file; its folder is made.
        line: ends with a newline. Several lines are written all or none, unless a crash comes
            between.
        warn: told if a half-written line was moved.

    Raises:
        OSError: it cannot be written; the file is as it was.
    """
    assert line.endswith(b"\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        _mend(handle, path, warn)
        _write(handle, line)
        os.fsync(handle)
    except OSError as error:
        error.filename = error.filename or str(path)  # a full disk does not say where
        raise
    finally:
        os.close(handle)


def _write(handle: int, data: bytes) -> None:
    """Writes at the end, all or nothing."""
    size = os.fstat(handle).st_size
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(handle, rest) :]
    except BaseException:  # a full disk or an interrupt must not leave half of it
        os.ftruncate(handle, size)
        raise


def _mend(handle: int, path: Path, warn: Callable[[str], None] | None) -> None:
    size = os.fstat(handle).st_size
    if not size or os.pread(handle, 1, size - 1) == b"\n":
        return
    tail, start = b"", size
    while start and b"\n" not in tail:
        step = min(_BLOCK_BYTES, start)
        start -= step
        tail = os.pread(handle, step, start) + tail
    cut = tail.rfind(b"\n") + 1
    tail, start = tail[cut:], start + cut
    if _is_object(tail):
        _write(handle, b"\n")
        return
    aside = path.with_name(path.name + HALF)
    with aside.open("ab") as file:
        file.write(tail + b"\n")
        file.flush()
        os.fsync(file.fileno())
    os.ftruncate(handle, start)
    if warn:
        warn(f"{path}: its last line was half written; it is moved into {aside}, and done anew")


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line.decode("utf-8-sig")), dict)
    except (ValueError, RecursionError):
        return False
