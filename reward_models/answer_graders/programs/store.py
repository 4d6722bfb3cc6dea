"""A store of records on disk: it can be resumed, is locked, and survives a kill.

A store is a file of JSON lines. Its first line is the identity: the settings that its records
depend on, so that records of two settings never mix. Every other line is a record; a record with
the key of an earlier one replaces it. A last line that a kill cut short is reported and dropped.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from answer_graders.programs.console import say

Record = dict[str, Any]
Key = tuple[Hashable, ...]


class Store:
    """Records on disk, held by one process at a time; a context manager.

    A store without a record leaves no file, which would bind the next call to its settings, unless
    `keeps_empty`.

    Args:
        path: the file; it is made, with its folder, if it does not exist.
        identity: the settings that the records depend on.
        key: the fields that tell records apart.
        notes: the fields of the identity whose change does not matter (versions, device).
        keep: the part of a record that stays in memory (`records`); all of it by default.
        may_replace: whether a kept record may replace an earlier one with its key. If not, an
            equal record is a repeated line, which counts once, and a different one is an error.

    Raises:
        ValueError: the file holds records of other settings, is damaged, or is in use.
    """

    def __init__(
        self,
        path: Path,
        identity: Mapping[str, Any],
        key: Sequence[str],
        notes: Sequence[str] = (),
        keep: Callable[[Record], Record] = lambda record: record,
        may_replace: Callable[[Record, Record], bool] = lambda earlier, later: True,
        keeps_empty: bool = False,
    ):
        self.path = path
        self.key_fields = tuple(key)
        self.keep = keep
        self.may_replace = may_replace
        self.keeps_empty = keeps_empty
        self.identity: Record = json.loads(json.dumps(identity, default=str))
        self.records: dict[Key, Record] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._load(notes)
        except BlockingIOError:
            self._file.close()
            raise ValueError(
                f"another process is writing {path}: wait until it has finished"
            ) from None
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.records and not self.keeps_empty:
            self.path.unlink(missing_ok=True)
        self._file.close()

    def __contains__(self, key: Key) -> bool:
        return key in self.records

    def append(self, records: Iterable[Record]) -> None:
        """Adds records; once it returns, they survive a kill of the process or of the machine."""
        added = list(records)
        self._write(b"".join(map(json_line, added)))
        for record in added:
            self.records[self._key(record)] = self.keep(record)

    def _write(self, data: bytes) -> None:
        size = os.fstat(self._file.fileno()).st_size
        try:
            while data:
                data = data[self._file.write(data) :]
            os.fsync(self._file.fileno())
        except BaseException as error:  # a full disk must not leave half a record
            os.ftruncate(self._file.fileno(), size)
            if isinstance(error, OSError):
                error.filename = error.filename or str(self.path)
            raise

    def _key(self, record: Record) -> Key:
        return tuple(record[name] for name in self.key_fields)

    def _load(self, notes: Sequence[str]) -> None:
        whole = 0
        number = 0
        lines: dict[Key, int] = {}
        repeated: list[tuple[int, int]] = []  # a line, and the earlier one that it repeats
        for number, (end, record) in enumerate(_lines(self.path), 1):
            whole = end
            if number == 1:
                self._compare(record, notes)
                continue
            self._check_is_record(record, number)
            key = self._key(record)
            kept = self.keep(record)
            if key in lines and not self.may_replace(self.records[key], kept):
                self._check_is_equal(key, kept, number, lines[key])
                repeated.append((number, lines[key]))
            self.records[key] = kept
            lines[key] = number
        self._drop_after(whole, number)
        if repeated:
            later, earlier = repeated[0]
            say(
                f"{self.path}: {len(repeated):,} lines repeat earlier ones, each of which counts "
                f"once (the first: line {later} repeats line {earlier})",
                error=True,
            )
        if not whole:
            self._write(json_line(self.identity))

    def _check_is_record(self, record: Record, number: int) -> None:
        """ValueError for a line without this store's key, such as the first line of another one."""
        for name in self.key_fields:
            if isinstance(record.get(name, []), list | dict):
                raise ValueError(
                    f"{self.path}, line {number} is no record of this file: it has no {name!r}; "
                    "delete that line, or the file"
                )

    def _check_is_equal(self, key: Key, kept: Record, number: int, earlier: int) -> None:
        """ValueError if a record differs from the one of an earlier line with its key."""
        if kept != self.records[key]:
            names = ", ".join(self.key_fields)
            raise ValueError(
                f"{self.path}, line {number} contradicts line {earlier}, which has the same "
                f"{names}: delete the line that is wrong"
            )

    def _drop_after(self, whole: int, number: int) -> None:
        """Cuts off what a kill left after the last whole line, which is the line `number`."""
        left = os.fstat(self._file.fileno()).st_size - whole
        if left:
            say(
                f"{self.path}, line {number + 1}: an interrupted run left 1 line half written "
                f"({left:,} bytes); it is dropped, and computed again if needed",
                error=True,
            )
            os.ftruncate(self._file.fileno(), whole)

    def _compare(self, identity: Record, notes: Sequence[str]) -> None:
        """ValueError if the file's identity is not this store's."""
        names = sorted((identity.keys() | self.identity.keys()) - set(notes))
        different = [name for name in names if identity.get(name) != self.identity.get(name)]
        if different:
            lines = "\n".join(
                f"  {name}: {identity.get(name)!r:.80} there, {self.identity.get(name)!r:.80} now"
                for name in different
            )
            raise ValueError(
                f"{self.path} holds records of other settings; give another --out or name, or "
                f"delete it to start over:\n{lines}"
            )


def read_store(path: Path) -> tuple[Record, Iterator[Record]]:
    """The identity of a store and its records in order, replaced ones included, without a lock."""
    lines = _lines(path)
    for _, identity in lines:
        return identity, (record for _, record in lines)
    raise ValueError(f"{path} is empty")


def json_line(record: Mapping[str, Any]) -> bytes:
    """A record as one line of UTF-8 JSON; lone surrogates become U+FFFD, NaN is refused."""
    text = json.dumps(record, ensure_ascii=False, allow_nan=False)
    for character in "\u2028\u2029\x85":  # line ends to some readers
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode() + b"\n"


def _lines(path: Path) -> Iterator[tuple[int, Record]]:
    """The identity and then the records, each with the byte offset at which its line ends."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                record = json.loads(line)
            except ValueError:
                record = None
            if not isinstance(record, dict):
                line_or_file = "that line, or the file" if number > 1 else "the file"
                raise ValueError(f"{path}, line {number} is damaged: delete {line_or_file}")
            yield file.tell(), record
