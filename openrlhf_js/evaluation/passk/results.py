"""results.json: what a model has reached on every benchmark, written whole and read with care."""

from __future__ import annotations

import importlib.metadata
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openrlhf_js import __version__
from openrlhf_js.whole_file import whole_file

FILE, FORMAT = "results.json", "openrlhf_js passk 1"
IDENTITY = ("model_sha256", "served_model")  # settings that say which model it is
PACKAGES = ("numpy", "torch", "transformers", "vllm")


def results(model: str, tasks: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What is written.

    Args:
        model: as it was given.
        tasks: by name: `summary.summarise`, and the `settings` that the samples depend on.
    """
    return {"format": FORMAT, "model": model, "tasks": dict(tasks), "versions": versions()}


def merged(folder: Path, found: Mapping[str, Any]) -> dict[str, Any]:
    """New results, with those of other benchmarks that a folder holds of the same model."""
    if not (folder / FILE).is_file():
        return dict(found)
    there = read_results(folder)
    return {**found, "tasks": {**there["tasks"], **found["tasks"]}}


def check_model(there: Mapping[str, Any], settings: Mapping[str, Any], folder: Path) -> None:
    """Raises ValueError if a folder's results are of another model than these settings say."""
    for task in there["tasks"].values():
        for key in IDENTITY:
            if task["settings"].get(key) != settings.get(key):
                raise ValueError(
                    f"{folder} has results of another model, {there['model']!r}; give another --out"
                )


def write_json(path: Path, found: Mapping[str, Any]) -> None:
    """Writes JSON, whole or not at all."""
    text = json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False)
    with whole_file(path) as file:
        file.write(f"{text}\n".encode(errors="backslashreplace"))


def read_results(place: Path) -> dict[str, Any]:
    """What stands in a folder of results, or in its results.json.

    Raises:
        ValueError: there are none, or the file is not of this program.
    """
    path = place / FILE if place.is_dir() else place
    if not path.is_file():
        raise ValueError(
            f"{place} holds no {FILE}: give the --out of `openrlhf-js eval passk` that has ended"
        )
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"{path} is no result of `openrlhf-js eval passk`")
    return found


def versions() -> dict[str, str]:
    """Of Python, of this package, and of what samples."""
    found = {"python": platform.python_version(), "openrlhf_js": __version__}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
