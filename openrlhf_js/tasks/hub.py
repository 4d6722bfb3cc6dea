"""Rows of a published data set: from the Hugging Face hub, or from files of the same layout."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from openrlhf_js.tasks.files import (
    BATCH_ROWS,
    READERS,
    Row,
    Rows,
    data_files,
    file_rows,
    need,
    split_named,
)

Progress = Callable[[float, int], None]  # told what share of the source is read, in how many rows

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def unseen(share: float, rows: int) -> None:
    """The progress that nobody looks at."""


def rows(
    source: str,
    split: str | None,
    columns: Sequence[str],
    config: str | None = None,
    progress: Progress = unseen,
) -> Iterator[Row]:
    """The rows of one split, as plain dicts of the named columns; images stay encoded bytes.

    Args:
        source: a local file (`.parquet`, `.jsonl`, `.json`); a local folder, as downloaded from the
            hub or written by `datasets`' `save_to_disk`; or else a hub id such as `openai/gsm8k`,
            which `datasets` downloads and caches.
        split: the split's name in the data set. A source that has no splits (`has_splits`) is taken
            whole, with a warning; without one where `split` is None.
        columns: what every row must have; other columns are not read.
        config: the data set's configuration, a folder of its name in a downloaded copy.
        progress: called for every row.

    Raises:
        ValueError: the source cannot be had or read, has no such split, lacks a column (the
            subclass `MissingColumns`) or is empty.
    """
    path = Path(source).expanduser()
    if split is not None and not has_splits(source, config):
        warnings.warn(
            f"{source} does not say which split it is: all of it is taken as {split}, and another "
            "split built from it would be the same",
            stacklevel=2,
        )
    if path.is_file():
        named = split_named(Path(path.name))
        if None not in (named, split) and named != split:
            raise ValueError(
                f"{source} is the {named} split by its name, not {split}: build that, or rename "
                "the file if it holds something else"
            )
        found = file_rows([path], columns)
    elif _is_saved(path):
        found = _saved_rows(path, split, columns)
    elif path.is_dir():
        found = file_rows(_split_files(path, split, config), columns)
    else:
        found = _hub_rows(source, split, columns, config)
    number = 0
    for number, (share, row) in enumerate(found, 1):
        progress(share, number)
        yield row
    if not number:
        raise ValueError(f"{source} has no rows: check that it was downloaded or written whole")


def has_splits(source: str, config: str | None = None) -> bool:
    """Whether a source tells its splits apart, as files without their names cannot."""
    path = Path(source).expanduser()
    if _is_saved(path):
        return (path / "dataset_dict.json").exists()
    if path.is_dir():
        named = _named_files(path, config)
        return not named or any(named.values())
    return not path.is_file() or split_named(Path(path.name)) is not None


def _is_saved(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("dataset_dict.json", "state.json"))


def _named_files(folder: Path, config: str | None) -> dict[Path, str | None]:
    """The folder's files, each with the split that its name says."""
    return {path: split_named(path.relative_to(folder)) for path in data_files(folder, config)}


def _split_files(folder: Path, split: str | None, config: str | None) -> list[Path]:
    """The folder's files of one split, found as the hub finds them: by folder and file names."""
    named = _named_files(folder, config)
    chosen = [path for path in named if named[path] == split] if any(named.values()) else [*named]
    if not chosen or len({path.suffix for path in chosen}) > 1:
        problem = "several formats" if chosen else "no file"
        listed = ", ".join(str(path.relative_to(folder)) for path in [*named][:8])
        what = (f" for split {split!r}" if split else "") + (f" of {config!r}" if config else "")
        todo = "give one of them as the source"
        if not named:
            todo = "was it downloaded whole?"
        elif not chosen:
            todo = f"build another split, or put {split!r} into the name of the file that holds it"
        raise ValueError(f"{folder} has {problem}{what}; it has {listed or 'no data file'}: {todo}")
    return chosen


def _saved_rows(folder: Path, split: str | None, columns: Sequence[str]) -> Rows:
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


def _hub_rows(hub_id: str, split: str | None, columns: Sequence[str], config: str | None) -> Rows:
    if Path(hub_id).suffix in READERS:
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


def _dataset_rows(dataset: Any, columns: Sequence[str], where: str) -> Rows:
    need(columns, dataset.column_names, where)
    # As Arrow, rows come as they are stored: `datasets` would decode every image.
    stored = dataset.select_columns(list(columns)).with_format("arrow")
    number = 0
    for table in stored.iter(BATCH_ROWS):
        for row in table.to_pylist():
            number += 1
            yield number / len(dataset), row
