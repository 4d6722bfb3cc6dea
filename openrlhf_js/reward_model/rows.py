"""Rows of a local file, each with its place, or with what is wrong there."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ENDINGS = (".jsonl", ".json", ".csv", ".parquet")
_BATCH_ROWS = 256
_BLANK = b"\xef\xbb\xbf \t\r\n"  # a byte order mark, and space


class Row(NamedTuple):
    """One row of a data set.

    Attributes:
        number: from 1: of the line; of the item, where the file is one list; of the row in Parquet.
        unit: which of them it is, "line", "item" or "row".
        value: an object, or the error that says why there is none.
        size_bytes: what it takes of the file; 0 where that is not known.
    """

    number: int
    unit: str
    value: dict[str, Any] | ValueError
    size_bytes: int

    @property
    def place(self) -> str:
        """Such as "line 12"."""
        return f"{self.unit} {self.number}"


def file_rows(path: Path, columns: Sequence[str] = ()) -> Iterator[Row]:
    """The rows of a file, blank lines left out.

    Args:
        path: ends in one of `ENDINGS`, by which it is read. JSON is one object a line, or one list.
        columns: those to read, where the format lets others be skipped; all if there are none.

    Raises:
        OSError: the file cannot be read. ValueError: it is not of the format that its name says.
    """
    reader = {".csv": _csv_rows, ".parquet": _parquet_rows}.get(path.suffix, _json_rows)
    if path.suffix not in ENDINGS:
        raise ValueError(f"{path}: its name must end in one of {', '.join(ENDINGS)}")
    return reader(path, columns)


def _json_rows(path: Path, _: Sequence[str]) -> Iterator[Row]:
    with path.open("rb") as file:
        first = next(filter(None, (line.strip(_BLANK) for line in file)), b"")
        is_list = first.startswith(b"[")
        file.seek(0)
        if is_list:
            yield from _json_list(file.read())
            return
        for number, line in enumerate(file, 1):  # bytes: only a newline ends a line
            if line.strip(_BLANK):
                yield Row(number, "line", _object(_parsed(line)[0]), len(line))


def _json_list(text: bytes) -> Iterator[Row]:
    whole, line = _parsed(text)
    if isinstance(whole, ValueError):
        yield Row(line, "line", whole, len(text))
        return
    share = len(text) // max(1, len(whole))
    for number, item in enumerate(whole, 1):
        yield Row(number, "item", _object(item), share)


def _parsed(text: bytes) -> tuple[Any, int]:
    """The value, or the ValueError that says why there is none and the line that it is about."""
    try:
        return json.loads(text.decode("utf-8-sig")), 1
    except UnicodeDecodeError as error:
        return ValueError(f"not UTF-8 text ({error.reason} at byte {error.start})"), 1
    except json.JSONDecodeError as error:
        return ValueError(f"not JSON ({error.msg} at column {error.colno})"), error.lineno
    except RecursionError:
        return ValueError("not JSON of a row (nested too deeply)"), 1
    except ValueError:
        return ValueError("not JSON of a row (a number is too long)"), 1


def _object(value: Any) -> dict[str, Any] | ValueError:
    if isinstance(value, dict | ValueError):
        return value
    return ValueError(f"not a JSON object, but {type(value).__name__}")


def _csv_rows(path: Path, _: Sequence[str]) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        try:
            for row in reader:
                yield Row(reader.line_num, "line", {k: v or None for k, v in row.items()}, 0)
        except (csv.Error, UnicodeDecodeError) as error:
            yield Row(reader.line_num, "line", ValueError(f"not CSV as UTF-8 text ({error})"), 0)


def _parquet_rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as file:
            there = [name for name in columns if name in file.schema_arrow.names] or None
            size = path.stat().st_size // max(1, file.metadata.num_rows)
            number = 0
            for batch in file.iter_batches(_BATCH_ROWS, columns=there):
                for value in batch.to_pylist():
                    number += 1
                    yield Row(number, "row", value, size)
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path} is not readable as Parquet: {error}") from None
