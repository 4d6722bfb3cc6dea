"""Values of prompts in files: those of `lab value`, or a text of one's own."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from openrlhf_js.uncertainty.estimate import Floats

ARRAY = "values"  # in the npz of `lab value`


def read(path: Path) -> Floats:
    """The values of a file: the npz of `lab value`, or text with one value a line.

    Raises:
        ValueError: it holds no values, or something else; names the line.
        OSError: it cannot be read.
    """
    values = _from_npz(path) if path.suffix == ".npz" else _from_text(path)
    if values.size == 0:
        raise ValueError(f"{path} holds no values; it needs one for each prompt")
    if not np.isfinite(values).all():
        place = int((~np.isfinite(values)).argmax())
        raise ValueError(f"value {place + 1} of {path} is {values[place]}; repair it or drop it")
    return values


def _from_npz(path: Path) -> Floats:
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is no npz that can be read: {error}") from error
    if ARRAY not in found or found[ARRAY].ndim != 1:
        names = ", ".join(f"{name} {array.shape}" for name, array in found.items())
        raise ValueError(
            f"{path} has no row of numbers called {ARRAY!r}, as openrlhf-js lab value writes; "
            f"it holds {names or 'nothing'}"
        )
    return found[ARRAY].astype(np.float64)


def _from_text(path: Path) -> Floats:
    values = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise ValueError(f"{path} is no text; give one value a line, or an npz file") from None
    for number, line in enumerate(lines, 1):
        try:
            values += [float(line)] if line.strip() else []
        except ValueError:
            raise ValueError(
                f"line {number} of {path} is {line[:40]!r}, not a number; give one value a line"
            ) from None
    return np.array(values)
