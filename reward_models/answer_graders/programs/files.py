"""Files: atomic writes, rows with their place, fingerprints."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import os
import re
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

ROW_FORMATS = (".jsonl", ".json", ".csv", ".parquet")
NO_TEXT = {  # values that are not text in a file of flags, by YAML's type
    "null": "(?i:null|~|)$",
    "bool": "(?i:true|false)$",
    "float": r"(?i:[-+]?\.inf|\.nan)$",
    "merge": "<<$",
}


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """A binary file that gets its name only if the block ends without an error."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and str(error.filename or partial) == str(partial):
            error.filename = str(path)  # a full disk does not say where
        raise


def make_folder(out: Path) -> None:
    """Makes the folder of results before the work begins; ValueError if it cannot be written to."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise ValueError(f"{out}: {error.strerror}; --out names a folder for results") from None


def write_json(path: Path, value: Any) -> None:
    """Writes indented JSON atomically; NaN and infinity are refused."""
    with atomic_write(path) as file:
        file.write((json.dumps(value, indent=2, allow_nan=False, default=str) + "\n").encode())


class FileRow(NamedTuple):
    """One row of a data file: its place ("line 12"), and its object or what is wrong."""

    place: str
    value: dict[str, Any] | ValueError

    def object(self, path: Path) -> dict[str, Any]:
        """The row's object; ValueError naming file and place if there is none."""
        if isinstance(self.value, ValueError):
            raise ValueError(f"{path}, {self.place}: {self.value}")
        return self.value


def read_rows(path: Path) -> Iterator[FileRow]:
    """The rows of a JSON lines, JSON list, CSV or Parquet file, in constant memory except a list.

    JSON and CSV may be gzipped (`.jsonl.gz`). A bad row is yielded with its error, so that a check
    can list all of them. Raises ValueError if the file's name or format is not one of
    `ROW_FORMATS`.
    """
    readers = {".csv": _csv_rows, ".parquet": _parquet_rows}
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    if suffix not in ROW_FORMATS:
        raise ValueError(f"{path}: its name must end in one of {', '.join(ROW_FORMATS)}")
    return readers.get(suffix, _json_rows)(path)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """The content of a file that may be gzipped."""
    with path.open("rb") as file:
        if path.suffix.lower() != ".gz":
            yield file
            return
        try:
            yield cast(BinaryIO, gzip.GzipFile(fileobj=file))
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path} is not readable as gzip: {error}") from None


def _json_rows(path: Path) -> Iterator[FileRow]:
    with _opened(path) as file:
        if file.read(1024).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
            file.seek(0)
            items = _parsed(file.read())
            if isinstance(items, ValueError):
                yield FileRow("the list", items)
                return
            for number, item in enumerate(items, 1):
                yield FileRow(f"item {number}", _object(item))
            return
        file.seek(0)
        for number, line in enumerate(file, 1):  # bytes: only a newline ends a line
            if line.strip():
                yield FileRow(f"line {number}", _object(_parsed(line)))


def _parsed(text: bytes) -> Any:
    """The JSON value, or the ValueError that says why there is none."""
    try:
        value = json.loads(text.decode("utf-8-sig"))
        json.dumps(value, ensure_ascii=False).encode()  # a lone surrogate is no text
        return value
    except json.JSONDecodeError as error:
        return ValueError(f"not JSON ({error.msg} at column {error.colno})")
    except (RecursionError, ValueError) as error:
        return ValueError(f"not JSON in UTF-8 ({error})")


def _object(value: Any) -> dict[str, Any] | ValueError:
    if isinstance(value, dict | ValueError):
        return value
    return ValueError(f"not a JSON object, but {type(value).__name__}")


def _csv_rows(path: Path) -> Iterator[FileRow]:
    with _opened(path) as file, TextIOWrapper(file, "utf-8-sig", newline="") as text:
        reader = csv.DictReader(text)
        try:
            for row in reader:
                values = {key: value or None for key, value in row.items()}
                yield FileRow(f"line {reader.line_num}", values)
        except (csv.Error, UnicodeDecodeError) as error:
            yield FileRow(f"line {reader.line_num}", ValueError(f"not CSV ({error})"))


def _parquet_rows(path: Path) -> Iterator[FileRow]:
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        with (
            path.open("rb") as source,
            ParquetFile(source, pre_buffer=False, buffer_size=1 << 20) as file,
        ):
            number = 0
            for batch in file.iter_batches(256):
                for value in batch.to_pylist():
                    number += 1
                    yield FileRow(f"row {number}", value)
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path} is not readable as Parquet: {error}") from None


def fingerprint(
    paths: Iterable[Path], progress: Callable[[int], None] = lambda bytes_read: None
) -> str:
    """The sha256 of the names and contents of files, in the order of their names."""
    digest = hashlib.sha256()
    read_bytes = 0
    for path in sorted(paths, key=lambda path: path.name):
        digest.update(path.name.encode() + b"\0")
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
                read_bytes += len(block)
                progress(read_bytes)
    return digest.hexdigest()


def read_yaml(path: Path, *, numbers: bool = True) -> dict[str, Any]:
    """The flags and values in a YAML file; ValueError if the file holds something else.

    Without `numbers`, every value except null, true, false, infinity and NaN stays the text in the
    file, as on a command line; YAML alone reads 0.10 as 0.1, 12:30 as 750, 010 as 8 and `on`
    as true.
    """
    import yaml  # type: ignore[import-untyped]

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """Refuses a name that is given twice: the first value would be lost."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            names = [str(key.value) for key, _ in node.value]
            if twice := {name for name in names if names.count(name) > 1}:
                problem = f"{', '.join(sorted(twice))} is given twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
            return super().construct_mapping(node, deep)

    if not numbers:
        resolvers = [(f"tag:yaml.org,2002:{kind}", re.compile(NO_TEXT[kind])) for kind in NO_TEXT]
        Loader.yaml_implicit_resolvers = {None: resolvers}
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read as YAML: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} must have the names of flags with their values, one a line")
    return values
