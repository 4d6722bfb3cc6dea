"""Every reply that a judge was paid for, on disk before anything else is done with it.

One line of JSON for each reply, with or without a verdict. A reply is found again by what was
asked: the sha256 of the judge's model, the parameters and the messages. So whoever asks the same
again, after a kill or for another model with the same answer, has the reply for nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from openrlhf_js.evaluation.arena.appending import line_of
from openrlhf_js.evaluation.arena.lines import Warn
from openrlhf_js.evaluation.arena.prices import Bill, Worst
from openrlhf_js.evaluation.replies import Reply


class Entry(NamedTuple):
    """A reply that had a verdict: where its line is, so that its text need not be kept in memory.

    Attributes:
        verdict: one of `verdict.VERDICTS`.
        start, size: of its line, in bytes.
    """

    verdict: str
    start: int
    size: int


class Ledger:
    """The replies of one judge on one bench; a context manager.

    Args:
        path: made if it is not there, and only ever added to.
        verdict_of: reads a reply's verdict. It is asked again for replies of earlier calls, so
            that better patterns find verdicts that were paid for already.
        warn: told of lines that cannot be read; they are left as they are.
        write: False only reads: nothing is made, and nobody else is kept away.

    Attributes:
        verdicts: by key, of those that had one.
        silent: how many replies without a verdict there are, by key.
        bills: what was paid, by the model that it was first paid for.
        lost: what replies that never came cost at worst, by model.

    Raises:
        ValueError: another process writes it.
        OSError: it cannot be read or made.
    """

    def __init__(
        self, path: Path, verdict_of: Callable[[str], str | None], warn: Warn, *, write: bool = True
    ):
        self.path = path
        self.verdicts: dict[str, Entry] = {}
        self.silent: Counter[str] = Counter()
        self.bills: dict[str, Bill] = defaultdict(Bill)
        self.lost: dict[str, Bill] = defaultdict(Bill)
        self._verdict_of = verdict_of
        self._size = 0
        self._file: BinaryIO | None = None
        if write:
            path.parent.mkdir(parents=True, exist_ok=True)
        elif not path.exists():
            return
        self._file = path.open("a+b" if write else "rb", buffering=0)
        try:
            if write:
                self._lock()
            self._read(warn, write)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file:
            self._file.close()

    def add(self, key: str, model: str, prompt_bytes: int, reply: Reply, **more: Any) -> str | None:
        """Writes a reply down, and then returns its verdict.

        It outlives the end of this process, and that of the machine once `sync` has been called.
        The verdict is not written: patterns may change, and some take so long that a kill could
        come before the reply is safe.

        Args:
            key: of `key_of`.
            model: for whose judgment it was paid.
            prompt_bytes: of the messages.
            more: to be written too.

        Raises:
            OSError: it cannot be written; what was half written is taken back.
        """
        return self._add(_Row(key, model, prompt_bytes, reply), more)

    def lose(self, key: str, model: str, prompt_bytes: int, worst: Worst, **more: Any) -> None:
        """Writes down that a reply never came, for which the endpoint may charge nevertheless.

        Args:
            key, model, prompt_bytes, more: as of `add`.
            worst: that the reply can have cost.

        Raises:
            OSError: as `add`.
        """
        reply = Reply("", "", "", worst.prompt_tokens, worst.completion_tokens)
        self._add(_Row(key, model, prompt_bytes, reply, lost=True), more)

    def sync(self) -> None:
        """Waits until what was written is on the disk; another thread may add meanwhile."""
        assert self._file
        os.fsync(self._file.fileno())

    def text(self, key: str) -> str:
        """What the judge said, where it gave a verdict."""
        assert self._file
        entry = self.verdicts[key]
        return json.loads(os.pread(self._file.fileno(), entry.size, entry.start))["text"]

    def paid(self, models: Iterable[str]) -> Bill:
        """What was paid for these models."""
        return sum((self.bills[model] for model in models if model in self.bills), Bill())

    def paid_at_worst(self, models: Iterable[str]) -> Bill:
        """What was paid for these models if all replies that were lost were charged for."""
        lost = (self.lost[model] for model in models if model in self.lost)
        return sum(lost, self.paid(models))

    def _add(self, row: _Row, more: Mapping[str, Any]) -> str | None:
        asked = {"key": row.key, "model": row.model, **more, "prompt_bytes": row.prompt_bytes}
        mark = {"lost": True} if row.lost else {}
        line = line_of({**asked, **mark, **row.reply._asdict()})
        try:
            self._write(line)
        except OSError as error:
            error.filename = str(self.path)  # a full disk does not say where
            raise
        return self._keep(row, len(line))

    def _write(self, line: bytes) -> None:
        assert self._file
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except BaseException:  # a full disk or an interrupt must not leave half of it
            self._file.truncate(self._size)
            raise

    def _keep(self, row: _Row, size: int) -> str | None:
        """Counts a line that is in the file, and returns its verdict."""
        start, self._size = self._size, self._size + size
        if row.lost:
            self.lost[row.model].add(row.reply, row.prompt_bytes)
            return None
        self.bills[row.model].add(row.reply, row.prompt_bytes)
        verdict = self._verdict_of(row.reply.text)
        if verdict:
            self.verdicts[row.key] = Entry(verdict, start, size)
        else:
            self.silent[row.key] += 1
        return verdict

    def _lock(self) -> None:
        assert self._file
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"{self.path} is being written: another call judges the same bench with the same "
                "judge; wait for its end, or stop it"
            ) from None

    def _read(self, warn: Warn, write: bool) -> None:
        assert self._file
        self._file.seek(0)
        with open(self._file.fileno(), "rb", closefd=False) as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n"):
                    if _is_row(line):  # only its end is missing, as an editor may leave it
                        if write:
                            self._file.write(b"\n")
                        self._read_line(line + b"\n", f"{self.path}, line {number}", warn)
                        break
                    warn(f"{self.path}, line {number}: a reply that a kill cut short; left out")
                    break
                self._read_line(line, f"{self.path}, line {number}", warn)
        if write:
            self._file.truncate(self._size)

    def _read_line(self, line: bytes, where: str, warn: Warn) -> None:
        try:
            row = _parsed(json.loads(line))
        except (ValueError, RecursionError):
            warn(f"{where}: no reply of a judge; left out, so it may be asked and paid again")
            self._size += len(line)
            return
        self._keep(row, len(line))


def key_of(judge: str, parameters: Mapping[str, Any], messages: Sequence[Mapping[str, str]]) -> str:
    """The sha256 of what a judge is asked, in hex digits."""
    asked = {"judge": judge, "parameters": dict(parameters), "messages": list(messages)}
    text = json.dumps(asked, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _is_row(line: bytes) -> bool:
    try:
        _parsed(json.loads(line))
    except (ValueError, RecursionError):
        return False
    return True


class _Row(NamedTuple):
    key: str
    model: str
    prompt_bytes: int
    reply: Reply
    lost: bool = False


def _parsed(row: Any) -> _Row:
    """What a line holds; raises ValueError if that is no reply."""
    if not isinstance(row, dict):
        raise ValueError("not a row")
    texts: list[Any] = [row.get(name) for name in ("key", "model", "text", "thinking")]
    counts: list[Any] = [row.get(name) for name in ("prompt_tokens", "completion_tokens")]
    size: Any = row.get("prompt_bytes")
    whole = all(each is None or type(each) is int for each in (size, *counts))
    if not whole or not all(isinstance(each, str) for each in texts):
        raise ValueError("not the row of a reply")
    key, model, text, thinking = texts
    reply = Reply(text, thinking, "", *counts)
    return _Row(key, model, size or 0, reply, lost=row.get("lost") is True)
