"""Writes a file whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file that takes its name once the block has ended well: nobody ever sees half of it."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException as error:  # an interrupt too must not leave anything behind
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and str(error.filename or partial) == str(partial):
            error.filename = str(path)  # a full disk does not say where
        raise
