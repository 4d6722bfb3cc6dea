"""Problems of a published data set: from the Hugging Face hub, or from files of the same layout."""

from __future__ import annotations

import logging
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any

from answer_graders.programs.files import ROW_FORMATS, read_rows
from answer_graders.record import Item

Row = dict[str, Any]


def rows(
    source: str, split: str, columns: Sequence[str], config: str | None = None
) -> Iterator[Row]:
    """The rows of one split, as plain dicts of the named columns; images stay encoded bytes.

    `source` is a hub id or a folder made by `hf download`, which `datasets` reads, or a file (JSON,
    JSON lines, CSV or Parquet), which is read whole. ValueError if it cannot be read.
    """
    path = Path(source).expanduser()
    all_rows: Iterator[Row]
    if path.is_file():
        all_rows = (row.object(path) for row in read_rows(path))
    else:
        all_rows = _hub_rows(source, split, config)
    number = 0
    for number, row in enumerate(all_rows, 1):
        missing = [column for column in columns if column not in row]
        if missing:
            raise ValueError(
                f"{source}, row {number} lacks {', '.join(missing)}; it has {list(row)}"
            )
        yield {column: row[column] for column in columns}
    if not number:
        raise ValueError(f"{source} has no rows: check that it was downloaded or written whole")


def _hub_rows(source: str, split: str, config: str | None) -> Iterator[Row]:
    folder = Path(source).expanduser().resolve()
    is_hub_id = source.count("/") == 1 and folder.suffix not in ROW_FORMATS
    is_local = folder.is_dir()
    if not is_hub_id and not is_local:
        raise ValueError(f"there is no file or folder {source}, and it is no hub id (owner/name)")
    import datasets

    try:
        with quiet_hub():
            data_set = datasets.load_dataset(
                str(folder) if is_local else source,
                config,
                split=split,
                streaming=is_local,  # a local copy need not be copied again
            )
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"{source} does not give its split {split} ({reason}); without the hub, give a folder "
            "of `hf download --repo-type dataset` as --source"
        ) from None
    for arrow_table in data_set.with_format("arrow").iter(256):  # else `datasets` decodes images
        yield from arrow_table.to_pylist()


@contextmanager
def quiet_hub() -> Iterator[None]:
    """Silences the hub client's log of failed attempts: the error reports them."""
    level_before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(level_before)


def distinct(
    rows: Iterable[Row],
    name: str,
    item: Callable[[Row], Item],
    problem: Callable[[Item], str],
    gold: Callable[[Item], str],
) -> Iterator[Item]:
    """Makes items of the rows: each problem once, in the order of first appearance.

    Problems that differ only in white space or Unicode form are the same. A problem with several
    gold answers is left out, since none is known to be right; a warning counts these.
    """
    items: dict[str, Item] = {}
    golds: dict[str, str] = {}
    contested = set()
    for number, row in enumerate(rows, 1):
        try:
            made = item(row)
            answer = gold(made)
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            raise ValueError(f"{name}, row {number}: {error}") from None
        key = " ".join(unicodedata.normalize("NFC", problem(made)).split())
        items.setdefault(key, made)
        if golds.setdefault(key, answer) != answer:
            contested.add(key)
    if contested:
        count = len(contested)
        warnings.warn(f"{name}: {count:,} problems with several answers left out", stacklevel=2)
    for key, made in items.items():
        if key not in contested:
            yield made


def text(row: Row, column: str) -> str:
    """The column's text, stripped; ValueError if it is empty or not text."""
    value = row[column]
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{column!r} must be text that is not empty, not {value!r:.80}")
    return value.strip()


def gold_text(row: Row, column: str) -> str:
    """The column's gold answer as text; numbers become text too: "27" for 27.0 and "27.0"."""
    value = row[column]
    if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
        value = str(value)
    return text({column: value}, column).removesuffix(".0")
