"""Samples on disk: one line each, appended as they come, so that stopped work goes on.

The first line says of what the samples are. A line that a kill cut short is dropped. Beside the
samples stands a file of the items, in their order; a longer list of items may follow a shorter one.
A sample that was graded again has a second line, and the last one counts.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from openrlhf_js.evaluation.passk.items import Item
from openrlhf_js.tasks import STATUSES
from openrlhf_js.whole_file import whole_file

FOLDER = "samples"
LENGTH = "length"  # the finish reason of a response that was cut off
# What may change: samples do not depend on it, or no more than on a version of a package.
NOTES = ("model", "url", "device", "versions")
Place = tuple[int, int]  # item, draw; both from 0


class Sample(NamedTuple):
    """One graded response.

    Attributes:
        item: number of the item.
        draw: number of the sample of that item.
        seed: that it was drawn with.
        text: of the response, without what ends it.
        tokens: of the response; None where nobody says.
        finish_reason: `stop`, or `length` where it was cut off.
        status: of `tasks.STATUSES`.
        answer: what was graded, in the form in which answers are compared; None if there is none.
        seconds: its part of the time that sampling took.
        thinking: what came before `text`, where an endpoint tells it apart.
        graded_by: version of this package that graded it.
    """

    item: int
    draw: int
    seed: int
    text: str
    tokens: int | None
    finish_reason: str
    status: str
    answer: str | None
    seconds: float
    thinking: str = ""
    graded_by: str = ""


class SampleFile:
    """The samples of one benchmark; a context manager, which holds them for itself.

    Args:
        folder: gets or has `samples/NAME.jsonl` and `samples/NAME.items.jsonl`.
        name: of the benchmark.
        identity: what the samples depend on, and `NOTES`.
        items: in their order.

    Attributes:
        samples: what is there, by item and draw, without texts.
        identity: of the file, as its first line has it.

    Raises:
        ValueError: samples of something else are there, a file is damaged, or another process
            writes it.
        OSError: the disk does not take it.
    """

    def __init__(self, folder: Path, name: str, identity: Mapping[str, Any], items: Sequence[Item]):
        (folder / FOLDER).mkdir(parents=True, exist_ok=True)
        self.path = folder / FOLDER / f"{name}.jsonl"
        self.samples: dict[Place, Sample] = {}
        self.identity: dict[str, Any] = json.loads(json.dumps(identity))
        self._file: IO[bytes] = self.path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._read()
            self._record(self.path.with_suffix(".items.jsonl"), items)
        except BlockingIOError:
            self._file.close()
            raise ValueError(f"another process samples into {self.path}: let it end") from None
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> SampleFile:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            os.fsync(self._file.fileno())
        finally:
            self._file.close()

    def append(self, samples: Iterable[Sample]) -> None:
        """Adds samples, which then outlive this process; the disk has them all at the end."""
        listed = list(samples)
        self._file.write(b"".join(map(_line, listed)))
        self._file.flush()
        for each in listed:
            self.samples[each.item, each.draw] = each._replace(text="", thinking="")

    def kept(self, places: Iterable[Place]) -> Iterator[Sample]:
        """The samples at these places with their texts, each once, in the order of the file.

        Raises:
            ValueError: a line is damaged.
        """
        left = {*places}
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if left and number > 1:
                    sample = self._parsed(line, number)
                    if (sample.item, sample.draw) in left:
                        left.remove((sample.item, sample.draw))
                        yield sample

    def missing(self, items: int, samples: int) -> int:
        """How many samples of the first items are not there."""
        return sum((i, j) not in self.samples for i in range(items) for j in range(samples))

    def batches(self, items: int, samples: int, rows: int) -> Iterator[list[Place]]:
        """What is missing, in batches of at most `rows`.

        Batches are cut from all there is to sample, not from what is missing: each is sampled
        together with the same others, whatever was stopped before.
        """
        places = [(item, draw) for item in range(items) for draw in range(samples)]
        for start in range(0, len(places), rows):
            missing = [each for each in places[start : start + rows] if each not in self.samples]
            if missing:
                yield missing

    def _read(self) -> None:
        self._file.seek(0)
        whole = 0
        for number, line in enumerate(self._file, 1):  # bytes: only a newline ends a line
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            if number == 1:
                self._compare(line)
                continue
            sample = self._parsed(line, number)  # without texts, which would fill the memory
            self.samples[sample.item, sample.draw] = sample._replace(text="", thinking="")
        self._file.truncate(whole)
        if not whole:
            self._file.write(_json(self.identity))
            self._file.flush()

    def _compare(self, line: bytes) -> None:
        identity = self.identity
        try:
            there = json.loads(line)
        except ValueError:
            there = None
        if not isinstance(there, dict):
            raise self._damaged(1)
        names = [
            name
            for name in sorted({*there, *identity} - {*NOTES})
            if there.get(name) != identity.get(name)
        ]
        if names:
            shown = "\n".join(
                f"  {name}: {there.get(name)!r:.80} there, {identity.get(name)!r:.80} now"
                for name in names
            )
            raise ValueError(
                f"{self.path} has samples of other settings; give another --out, or delete that "
                f"file to sample anew:\n{shown}"
            )
        self.identity = there

    def _parsed(self, line: bytes, number: int) -> Sample:
        try:
            row = json.loads(line)
            found = Sample(**{name: row[name] for name in Sample._fields if name in row})
        except (ValueError, TypeError, RecursionError):
            raise self._damaged(number) from None
        counts = (found.item, found.draw, found.seed, 0 if found.tokens is None else found.tokens)
        if (
            not all(type(each) is int and each >= 0 for each in counts)
            or found.status not in STATUSES
            or not all(isinstance(getattr(found, name), str) for name in _TEXTS)
            or not isinstance(found.answer, str | None)
            or type(found.seconds) not in (int, float)
        ):
            raise self._damaged(number)
        return found

    def _damaged(self, number: int) -> ValueError:
        return ValueError(
            f"{self.path}, line {number}, is damaged: delete that line, and what it held is "
            "sampled anew"
            if number > 1
            else f"{self.path} is no file of samples: delete it, or give another --out"
        )

    def _record(self, path: Path, items: Sequence[Item]) -> None:
        lines = [_json(each._asdict()) for each in items]
        there: list[bytes] = []
        if path.exists() and self.samples:
            with path.open("rb") as file:
                there = list(file)
        named = [(_uid(one), each.uid) for one, each in zip(there, items)]  # noqa: B905
        number = next((i for i, (one, other) in enumerate(named) if one != other), None)
        if number is not None:  # by content: figures may lie elsewhere, once a folder was moved
            raise ValueError(
                f"{self.path} has samples of other items, from number {number + 1} on; give "
                "another --out, or delete that file to sample anew"
            )
        if len(lines) > len(there):
            with whole_file(path) as file:
                file.writelines(lines)


_TEXTS = ("text", "thinking", "graded_by")
_OPTIONAL = (*Sample._field_defaults,)


def _uid(line: bytes) -> Any:
    try:
        return json.loads(line)["uid"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _line(sample: Sample) -> bytes:
    row = sample._asdict()
    return _json({name: row[name] for name in row if row[name] or name not in _OPTIONAL})


def _json(value: Any) -> bytes:
    # Half a character, which no UTF-8 holds, becomes the escape by which JSON writes it.
    return json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace") + b"\n"
