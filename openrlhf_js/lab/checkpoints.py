"""One analysis of several checkpoints of a training, side by side."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from openrlhf_js.common.console import say
from openrlhf_js.lab.results import OURS, REFERENCE, LabResult, Row, changes

ERRORS = {"mse": "squared error", "distance": "squared distance to the true gradient"}
STEP = re.compile(r"(?:step|checkpoint)[_-]?(\d+)")


def steps_of(names: Sequence[str]) -> list[int]:
    """The steps in names such as `global_step20_hf`; 0 for the first if it has none, and the
    places in the list unless these are steps that increase."""
    found = [STEP.search(name) for name in names]
    steps = [int(each[1]) if each else -1 for each in found]
    steps[0] = max(steps[0], 0)
    return steps if steps == sorted(set(steps)) else list(range(len(names)))


def along_training(settings: Any, analyse: Callable[[Any], LabResult]) -> LabResult:
    """The results of all `--model`, each sampled and kept in a folder of its name below `--out`."""
    names = [Path(model).name for model in settings.model]
    if len(set(names)) < len(names):
        raise ValueError(
            f"--model {' '.join(names)}: give checkpoints whose folders differ in name"
        )
    found: dict[str, LabResult] = {}
    for name, model in zip(names, settings.model, strict=True):
        say(f"\n{name}", style="bold")
        found[name] = analyse(
            settings.model_copy(update={"model": (model,), "out": settings.out / name})
        )
    return combined(found)


def combined(found: dict[str, LabResult]) -> LabResult:
    """The rows of all checkpoints, each with its name and step; arrays as `NAME/array`."""
    steps = dict(zip(found, steps_of(list(found)), strict=True))
    rows: list[Row] = []
    arrays: dict[str, Any] = {}
    for name, result in found.items():
        rows += [{"checkpoint": name, "step": steps[name], **row} for row in result.rows]
        arrays |= {f"{name}/{key}": array for key, array in result.arrays.items()}
    notes = {**result.notes, "checkpoints": list(found)}
    for key in {"samples", "precise"} & set(notes):
        notes[key] = {name: each.notes[key] for name, each in found.items()}
    names = [name for name in notes["gradients"] if name != REFERENCE]
    shown = next((name for name in OURS if name in names), names[0])
    said = (f"at {name} {changes(rows, checkpoint=name, estimator=shown)}" for name in found)
    what = ERRORS[rows[0]["quantity"]]
    finding = f"Against {REFERENCE}'s {what}, {shown} over training: {'; '.join(said)}."
    return LabResult(rows, finding, arrays, notes)
