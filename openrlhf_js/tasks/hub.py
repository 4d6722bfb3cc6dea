"""Rows of a published data set: from the Hugging Face hub, or from files of the same layout.

Parquet and JSON are read directly: lines keep their numbers for error messages, rows stream, and
the second that importing `datasets` takes is paid only where its own formats are read.
"""

from __future__ import annotations

import json
import logging
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from openrlhf_js.tasks.base import Item

Row = dict[str, Any]

_BATCH_ROWS = 256
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_SPLIT_IN_NAME = re.compile(r"(?:^|[-_.])(train|validation|test)(?:[-_.]|$)")
_NOT_DATA = {"dataset_info.json", "dataset_infos.json", "state.json"}


class MissingColumns(ValueError):
    """The source has rows, but not of the layout that was asked for."""


def rows(
    source: str, split: str, columns: Sequence[str], config: str | None = None
) -> Iterator[Row]:
    """The rows of one split, as plain dicts of the named columns; images stay encoded bytes.

    Args:
        source: a local file (`.parquet`, `.jsonl`, `.json`), taken whole whatever the split; a
            local folder, as downloaded from the hub or written by `datasets`' `save_to_disk`; or
            else a hub id such as `openai/gsm8k`, which `datasets` downloads and caches.
        split: the split's name in the data set.
        columns: what every row must have; other columns are not read.
        config: the data set's configuration, a folder of its name in a downloaded copy.

    Raises:
        ValueError: the source cannot be had or read, has no such split, lacks a column (the
            subclass `MissingColumns`) or is empty.
    """
    path = Path(source).expanduser()
    if path.is_file():
        found = _file_rows(path, columns)
    elif path.is_dir():
        found = _folder_rows(path, split, columns, config)
    else:
        found = _hub_rows(source, split, columns, config)
    first = next(found, None)
    if first is None:
        raise ValueError(f"{source} has no rows: check that it was downloaded or written whole")
    yield first
    yield from found


def distinct(
    rows: Iterable[Row],
    name: str,
    item: Callable[[Row], Item],
    problem: Callable[[Item], str],
    gold: Callable[[Item], str],
    expected: int | None = None,
) -> Iterator[Item]:
    """The items made of the rows, each problem once, in the order of their first rows.

    Problems are the same if their text is, whatever its white space and Unicode form. One whose
    rows give different gold answers is left out: nobody can say which of them is right. A warning
    says how many those are, and how many problems there are where another number was `expected`.
    All of that is known only at the end: the different items are in memory before the first comes.

    Raises:
        ValueError: a row that `item` or `gold` refuses, with its number from 1.
    """
    kept: dict[str, tuple[Item, str]] = {}
    contested = set()
    number = 0
    for number, row in enumerate(rows, 1):
        try:
            made = item(row)
            answer = gold(made)
        except ValueError as error:
            raise ValueError(f"{name}, row {number}: {error}") from None
        key = canonical(problem(made))
        if kept.setdefault(key, (made, answer))[1] != answer:
            contested.add(key)
    count = len(kept) - len(contested)
    if contested or expected not in (None, count):
        wanted = "" if expected is None else f"; {expected:,} are expected"
        left_out = f"; {len(contested):,} more were left out, having several different answers"
        warnings.warn(
            f"{name}: {count:,} distinct problems in {number:,} rows{wanted}"
            + (left_out if contested else ""),
            stacklevel=2,
        )
    yield from (made for key, (made, _) in kept.items() if key not in contested)


def canonical(problem: str) -> str:
    """A problem's text in the one form that white space and Unicode forms do not change."""
    return " ".join(unicodedata.normalize("NFC", problem).split())


def text(row: Row, column: str) -> str:
    """The column's text without space around it; ValueError if it is none, empty or not UTF-8."""
    value = row[column]
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{column!r} must be text that is not empty, not {value!r:.80}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        lone = value[error.start]
        raise ValueError(f"{column!r} holds {lone!r}, half a character: no UTF-8 text") from None
    return value.strip()


def _file_rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    reader = _READERS.get(path.suffix)
    if reader is None:
        raise ValueError(
            f"{path}: can read {', '.join(_READERS)}, not {path.suffix or path.name!r}"
        )
    return reader(path, columns)


def _folder_rows(
    folder: Path, split: str, columns: Sequence[str], config: str | None
) -> Iterator[Row]:
    if (folder / "dataset_dict.json").exists() or (folder / "state.json").exists():
        yield from _saved_rows(folder, split, columns)
    else:
        for path in _split_files(folder, split, config):
            yield from _file_rows(path, columns)


def _split_files(folder: Path, split: str, config: str | None) -> list[Path]:
    """The folder's files of one split, found as the hub finds them: by folder and file names."""
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix in _READERS
        and path.name not in _NOT_DATA
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    if config is not None:  # the folder may also be the configuration's own
        inside = [path for path in files if config in path.relative_to(folder).parts[:-1]]
        files = inside or [path for path in files if path.parent in (folder, folder / "data")]
    named = {
        path: _SPLIT_IN_NAME.search(path.stem) or _SPLIT_IN_NAME.fullmatch(path.parent.name)
        for path in files
    }
    chosen = [path for path, match in named.items() if match and match[1] == split]
    if not any(named.values()) and split == "train":  # as on the hub, where no name says a split
        chosen = files
    if not chosen or len({path.suffix for path in chosen}) > 1:
        problem = "several formats" if chosen else "no file"
        listed = ", ".join(str(path.relative_to(folder)) for path in files[:8]) or "no data file"
        what = f"split {split!r}" + (f" of {config!r}" if config else "")
        raise ValueError(
            f"{folder} has {problem} for {what}; it has {listed}: name the file itself"
        )
    return chosen


def _parquet_rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            _need(columns, file.schema_arrow.names, str(path))
            for batch in file.iter_batches(_BATCH_ROWS, columns=list(columns)):
                yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path} is not readable as parquet: {error}") from None


def _json_rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    """Rows of JSON lines, or of one JSON list over the whole file."""
    with path.open("rb") as file:
        if file.read(1) == b"[":
            file.seek(0)
            for number, row in enumerate(_parsed(file.read(), str(path)), 1):
                yield _checked(row, columns, f"{path}, row {number}")
            return
        file.seek(0)
        for number, line in enumerate(file, 1):  # bytes: only a newline ends a line
            if line.strip():
                where = f"{path}, line {number}"
                yield _checked(_parsed(line, where), columns, where)


def _parsed(data: bytes, where: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON: {error}") from None


def _checked(row: Any, columns: Sequence[str], where: str) -> Row:
    if not isinstance(row, dict):
        raise ValueError(f"{where} is not a JSON object but {row!r:.80}")
    _need(columns, row, where)
    return {column: row[column] for column in columns}


_READERS = {".parquet": _parquet_rows, ".jsonl": _json_rows, ".json": _json_rows}


def _saved_rows(folder: Path, split: str, columns: Sequence[str]) -> Iterator[Row]:
    import datasets

    try:
        saved = datasets.load_from_disk(str(folder))
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder} is not readable as `datasets` saves it: {error}") from None
    if isinstance(saved, datasets.DatasetDict):
        if split not in saved:
            raise ValueError(f"{folder} has no split {split!r}; it has {', '.join(saved)}")
        saved = saved[split]
    return _dataset_rows(saved, columns, str(folder))


@contextmanager
def quiet_hub() -> Iterator[None]:
    """While it lasts, the hub's client does not log each attempt that fails: its error says it.

    To be entered once `huggingface_hub` is imported, which sets the level of its log itself.
    """
    logs = [logging.getLogger(name) for name in ("huggingface_hub", "httpx")]
    levels = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)


def _hub_rows(hub_id: str, split: str, columns: Sequence[str], config: str | None) -> Iterator[Row]:
    if Path(hub_id).suffix in _READERS:
        raise ValueError(f"there is no file {hub_id}")
    if not _HUB_ID.fullmatch(hub_id):
        raise ValueError(f"{hub_id!r} is no file or folder here, nor a hub id such as owner/name")
    import datasets

    try:
        with quiet_hub():
            dataset = datasets.load_dataset(hub_id, config, split=split)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"{hub_id!r} is no file or folder here, and the hub does not give it ({reason}): where "
            f"it does, run `hf download {hub_id} --repo-type dataset --local-dir FOLDER`, bring "
            "FOLDER here and give it as --source FOLDER"
        ) from None
    return _dataset_rows(dataset, columns, hub_id)


def _dataset_rows(dataset: Any, columns: Sequence[str], where: str) -> Iterator[Row]:
    _need(columns, dataset.column_names, where)
    # As Arrow, rows come as they are stored: `datasets` would decode every image.
    stored = dataset.select_columns(list(columns)).with_format("arrow")
    for table in stored.iter(_BATCH_ROWS):
        yield from table.to_pylist()


def _need(columns: Sequence[str], found: Iterable[str], where: str) -> None:
    missing = [column for column in columns if column not in found]
    if missing:
        has = ", ".join(found) or "nothing"
        raise MissingColumns(f"{where} lacks {', '.join(missing)}; it has {has}")
