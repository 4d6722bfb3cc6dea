"""Problems of a published data set: from the Hugging Face hub, or from files of the same layout."""

from __future__ import annotations

import logging
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from openrlhf_js.common.files import read_rows
from openrlhf_js.tasks.base import Item, Progress, no_progress

Row = dict[str, Any]

_FORMATS = (".parquet", ".jsonl", ".json")
_SPLITS = ("train", "validation", "test")
_SPLIT_IN_NAME = re.compile(  # as the hub, too, knows a split by the name of a file or folder
    r"(?:^|[-_. ])(?:(train(?:ing)?)|(valid(?:ation)?|val|dev)|(test(?:ing)?|eval(?:uation)?))"
    r"(?:[-_. ]|$)",
    re.IGNORECASE,
)


def rows(
    source: str,
    split: str | None,
    columns: Sequence[str],
    config: str | None = None,
    progress: Progress = no_progress,
) -> Iterator[Row]:
    """The rows of one split, as plain dicts of the named columns; images stay encoded bytes.

    `source` is a local file (`.parquet`, `.jsonl`, `.json`), a folder as `hf download` leaves it,
    or a hub id; `config` is a folder of its name in a downloaded copy. Files that name no split
    are taken whole, with a warning unless `split` is None.
    """
    path = Path(source).expanduser()
    found = _file_rows(path, split, config) if path.exists() else _hub_rows(source, split, config)
    number = 0
    for number, (place, row) in enumerate(found, 1):
        if missing := [column for column in columns if column not in row]:
            raise ValueError(f"{place} lacks {', '.join(missing)}; it has {', '.join(row)}")
        progress(number)
        yield {column: row[column] for column in columns}
    if not number:
        raise ValueError(f"{source} has no rows: check that it was downloaded or written whole")


def has_splits(source: str, config: str | None = None) -> bool:
    """Whether a source tells its splits apart, as files without their names cannot."""
    path = Path(source).expanduser()
    named = _named_files(path, config) if path.exists() else {}
    return not named or any(named.values())


def _named_files(path: Path, config: str | None) -> dict[Path, str | None]:
    """The data files at a path, of one configuration, each with the split that its name says."""
    if path.is_file():
        path, names = path.parent, [Path(path.name)]
    else:
        found = sorted(file.relative_to(path) for file in path.rglob("*"))
        names = [
            name
            for name in found
            if name.suffix in _FORMATS
            and not name.stem.startswith(("dataset_info", "state"))
            and not any(part.startswith(".") for part in name.parts)
        ]
        if config:  # the folder may also be the configuration's own
            inside = [name for name in names if config in name.parts[:-1]]
            names = inside or [name for name in names if name.parent in (Path(), Path("data"))]
    named: dict[Path, str | None] = {}
    for name in names:
        match = _SPLIT_IN_NAME.search(name.stem) or _SPLIT_IN_NAME.fullmatch(name.parent.name)
        named[path / name] = _SPLITS[(match.lastindex or 0) - 1] if match else None
    return named


def _file_rows(path: Path, split: str | None, config: str | None) -> Iterator[tuple[str, Row]]:
    """Each row of the split's files, with its place."""
    named = _named_files(path, config)
    whole = not any(named.values())
    if split is not None and named and whole:
        warnings.warn(
            f"{path} does not say which split it is: all of it is taken as {split}, and another "
            "split built from it would be the same",
            stacklevel=3,
        )
    files = [file for file in named if whole or named[file] == split]
    files = [*named] if path.is_file() and split is None else files
    if not files:
        raise ValueError(
            f"{path} has no file for split {split!r}{f' of {config!r}' if config else ''}, but "
            f"{', '.join(file.name for file in [*named][:8]) or 'no data file'}: build another "
            "split, or put its name into the name of its file"
        )
    for file in files:
        for row in read_rows(file):
            yield f"{file}, {row.place}", row.object(file)


def _hub_rows(hub_id: str, split: str | None, config: str | None) -> Iterator[tuple[str, Row]]:
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", hub_id) or Path(hub_id).suffix in _FORMATS:
        raise ValueError(f"there is no file or folder {hub_id}, and it is no hub id (owner/name)")
    import datasets

    try:
        with quiet_hub():
            found = datasets.load_dataset(hub_id, config, split=split)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"the hub does not give {hub_id!r} ({reason}): elsewhere, run `hf download {hub_id} "
            "--repo-type dataset --local-dir FOLDER`, and give a copy as --source FOLDER"
        ) from None
    for table in found.with_format("arrow").iter(256):  # `datasets` would decode every image
        for row in table.to_pylist():
            yield hub_id, row


@contextmanager
def quiet_hub() -> Iterator[None]:
    """Silences the hub client's log of failed attempts: the error says it."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def distinct(
    rows: Iterable[Row],
    name: str,
    item: Callable[[Row], Item],
    problem: Callable[[Item], str],
    gold: Callable[[Item], str],
    expected: int | None = None,
) -> Iterator[Item]:
    """The items made of the rows, each problem once, in the order of their first rows.

    Problems are the same if their text is, whatever its white space and Unicode form. One with
    several gold answers is left out, since nobody can say which is right; a warning gives their
    number, and the number of problems where it is not the `expected` one.
    """
    kept: dict[str, tuple[Item, str]] = {}
    contested = set()
    number = 0
    for number, row in enumerate(rows, 1):
        try:
            made = item(row)
            answer = gold(made)
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            raise ValueError(f"{name}, row {number}: {error}") from None
        key = canonical(problem(made))
        if kept.setdefault(key, (made, answer))[1] != answer:
            contested.add(key)
    count = len(kept) - len(contested)
    if contested or expected not in (None, count):
        said = f"{name}: {count:,} distinct problems in {number:,} rows"
        said += "" if expected is None else f"; {expected:,} are expected"
        if contested:
            said += f"; {len(contested):,} more were left out, having several different answers"
        warnings.warn(said, stacklevel=2)
    yield from (made for key, (made, _) in kept.items() if key not in contested)


def canonical(problem: str) -> str:
    """A problem's text in the one form that white space and Unicode forms do not change."""
    return " ".join(unicodedata.normalize("NFC", problem).split())


def text(row: Row, column: str) -> str:
    """The column's text, stripped; ValueError if it is none, or empty."""
    value = row[column]
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{column!r} must be text that is not empty, not {value!r:.80}")
    return value.strip()
