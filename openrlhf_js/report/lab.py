"""The pictures of the variance lab, from the files that its commands have saved."""

from __future__ import annotations

import hashlib
import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from openrlhf_js.report import style

FIGURES = {  # of each command: draw(summary, arrays) -> Figure
    "value": "openrlhf_js.report.lab_value:draw",
    "mse": "openrlhf_js.report.lab_mse:draw",
    "gradient": "openrlhf_js.report.lab_gradient:draw",
    "sweep": "openrlhf_js.report.lab_sweep:draw",
    "heterogeneity": "openrlhf_js.report.lab_heterogeneity:draw",
    "simulate": "openrlhf_js.report.lab_simulate:draw",
}


def lab_results(folder: Path) -> list[Path]:
    """The results of lab commands anywhere under a folder, in alphabetical order.

    Raises:
        ValueError: there is no such folder.
    """
    if not folder.is_dir():
        raise ValueError(f"no folder {folder}; give the --out of a lab command, or one above it.")
    # By its name first: data and checkpoints may hold JSON of any size.
    named = (path for name in FIGURES for path in folder.rglob(f"{name}.json"))
    return sorted(path for path in named if _summary(path))


def _summary(path: Path) -> dict[str, Any] | None:
    """What a lab command wrote, None if another program did."""
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # a file of another program, or one that is being written
        return None
    known = isinstance(written, dict) and written.get("lab") in [*FIGURES]
    return written if known else None


def read(path: Path) -> dict[str, Any]:
    """The summary of one result.

    Raises:
        ValueError: the file is not a lab command's.
    """
    summary = _summary(path)
    if summary is None:
        raise ValueError(
            f"{path} is not a result of openrlhf-js lab: it names none of {', '.join(FIGURES)}."
        )
    return summary


def drawn(path: Path) -> Figure:
    """The picture of one result.

    Args:
        path: NAME.json; its arrays stand beside it, in NAME.npz.

    Raises:
        ValueError: the file is not a lab command's, its arrays are not there or of another call,
            or one of the two is damaged.
    """
    summary = read(path)
    beside = path.with_suffix(".npz")
    if not beside.is_file():
        raise ValueError(f"{path} has no {beside.name} beside it; copy both, or run the lab again.")
    module, function = FIGURES[summary["lab"]].split(":")
    draw = getattr(importlib.import_module(module), function)
    written = hashlib.sha256(beside.read_bytes()).hexdigest()
    if written != summary.get("arrays_sha256"):
        raise ValueError(
            f"{beside} is not the one that {path.name} was written with; run the lab again."
        )
    try:
        with np.load(beside, allow_pickle=False) as arrays, rc_context(style.HOUSE):
            figure: Figure = draw(summary, dict(arrays))
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} is damaged or of another version ({type(error).__name__}: {error}); run the "
            "lab again."
        ) from error
    return figure


def title(path: Path) -> str:
    """What a report calls one result: its folder's name and its own."""
    return f"{path.resolve().parent.name}: {path.stem}"


def table(summary: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The columns and cells of the rows in a summary, as words."""
    rows = summary.get("rows") or []
    columns = tuple(dict.fromkeys(name for row in rows for name in row))
    return columns, [tuple(_cell(row.get(name)) for name in columns) for row in rows]


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def picture(path: Path, out_png: Path) -> Path:
    """Draws one result, NAME.json, into a PNG and returns the PNG's path."""
    return style.save_png(drawn(path), out_png)
