"""Rows of a data set's files, parquet or JSON, and which of a folder's files are of which split.

They are read directly: lines keep their numbers for error messages, rows stream in little memory,
and the second that importing `datasets` takes is not paid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Rows = Iterator[tuple[float, Row]]  # each with the share of the source that is read with it

BATCH_ROWS = 256
_BUFFER_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"
_SPLITS = {  # the words by which the hub, too, knows a split in the name of a file or folder
    word: split
    for split, words in {
        "train": "train training",
        "validation": "validation valid val dev",
        "test": "test testing eval evaluation",
    }.items()
    for word in words.split()
}
_WORD = "|".join(sorted(_SPLITS, key=len, reverse=True))
_SPLIT_IN_NAME = re.compile(rf"(?:^|[-_. ])({_WORD})(?:[-_. ]|$)", re.IGNORECASE)
_NOT_DATA = {"dataset_info.json", "dataset_infos.json", "state.json"}


class MissingColumns(ValueError):
    """The source has rows, but not of the layout that was asked for."""


def need(columns: Sequence[str], found: Iterable[str], where: str) -> None:
    """Raises MissingColumns if one of the columns is not among those found."""
    missing = [column for column in columns if column not in found]
    if missing:
        has = ", ".join(found) or "nothing"
        raise MissingColumns(f"{where} lacks {', '.join(missing)}; it has {has}")


def split_named(name: Path) -> str | None:
    """`train`, `validation` or `test`, if the name of a file or of its folder says so.

    Args:
        name: the file's path within its data set: where that lies says nothing.
    """
    match = _SPLIT_IN_NAME.search(name.stem) or _SPLIT_IN_NAME.fullmatch(name.parent.name)
    return _SPLITS[match[1].lower()] if match else None


def data_files(folder: Path, config: str | None) -> list[Path]:
    """The files below a folder that hold rows, of one configuration if the folder has several."""
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix in READERS
        and path.name not in _NOT_DATA
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    if config is None:
        return files
    # The folder may also be the configuration's own.
    inside = [path for path in files if config in path.relative_to(folder).parts[:-1]]
    return inside or [path for path in files if path.parent in (folder, folder / "data")]


def file_rows(files: Sequence[Path], columns: Sequence[str]) -> Rows:
    """The rows of the files, one file after the other.

    Raises:
        ValueError: a file is of no known format, or broken, or lacks a column.
    """
    sizes = [path.stat().st_size for path in files]
    done, size = 0, max(1, sum(sizes))
    for path, own in zip(files, sizes, strict=True):
        reader = READERS.get(path.suffix)
        if reader is None:
            raise ValueError(
                f"{path}: can read {', '.join(READERS)}, not {path.suffix or path.name!r}"
            )
        for share, row in reader(path, columns):
            yield (done + share * own) / size, row
        done += own


def _parquet_rows(path: Path, columns: Sequence[str]) -> Rows:
    import pyarrow
    import pyarrow.parquet

    # By default, whole row groups would be in memory, and those can be the whole file.
    streamed = {"pre_buffer": False, "buffer_size": _BUFFER_BYTES}
    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path, **streamed) as file:
            need(columns, file.schema_arrow.names, str(path))
            for batch in file.iter_batches(BATCH_ROWS, columns=list(columns)):
                for row in batch.to_pylist():
                    number += 1
                    yield number / file.metadata.num_rows, row
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path} is not readable as parquet: {error}") from None


def _json_rows(path: Path, columns: Sequence[str]) -> Rows:
    """Rows of JSON lines, or of one JSON list over the whole file."""
    with path.open("rb") as file:
        if file.read(1024).removeprefix(_BOM).lstrip().startswith(b"["):
            file.seek(0)
            listed = _parsed(file.read(), str(path))
            for number, row in enumerate(listed, 1):
                yield number / len(listed), _checked(row, columns, f"{path}, row {number}")
            return
        size, done = path.stat().st_size, 0
        file.seek(0)
        for number, line in enumerate(file, 1):  # bytes: only a newline ends a line
            done += len(line)
            if line.strip():
                where = f"{path}, line {number}"
                yield done / size, _checked(_parsed(line, where), columns, where)


def _parsed(data: bytes, where: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON: {error}") from None


def _checked(row: Any, columns: Sequence[str], where: str) -> Row:
    if not isinstance(row, dict):
        raise ValueError(f"{where} is not a JSON object but {row!r:.80}")
    need(columns, row, where)
    return {column: row[column] for column in columns}


READERS = {".parquet": _parquet_rows, ".jsonl": _json_rows, ".json": _json_rows}
