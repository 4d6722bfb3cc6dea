"""What stands beside a run's log: its flags and versions, and a quickstart's evaluations."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any, NamedTuple

from openrlhf_js.report.summary import read_scores

CONFIG = "openrlhf_js_config.json"


class Config(NamedTuple):
    """How a run was started, as far as its files tell."""

    flags: dict[str, str]
    changed: frozenset[str] | None
    """The flags that are not at their default; None where only those that were given are known."""
    versions: dict[str, str]
    outcome: str | None
    """How it ended; None while it goes on, and where nobody knows."""


def read_config(folder: Path) -> Config:
    """The configuration of the run whose event files a folder holds; empty where nothing says.

    It is what the training program leaves beside them, or a quickstart's `command.txt`, which has
    only the flags that were given.

    Raises:
        ValueError: the file is damaged.
    """
    recorded = folder / CONFIG
    if recorded.is_file():
        found = _json_object(recorded)
        try:
            flags = {name: _words(value) for name, value in found["flags"].items()}
            versions = {name: str(value) for name, value in found["versions"].items()}
            return Config(flags, frozenset(found["changed"]), versions, found["outcome"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{recorded} is damaged ({type(error).__name__}: {error}); remove it."
            ) from error
    for quickstart in _quickstart_folders(folder):
        command = quickstart / "command.txt"
        if command.is_file():
            return Config(_flags(command.read_text(encoding="utf-8")), None, {}, None)
    return Config({}, None, {}, None)


def read_evaluations(folder: Path, last_step: int | None) -> dict[int, dict[str, float]]:
    """A quickstart's held-out scores before (step 0) and after (the last step), by prompt.

    Raises:
        ValueError: a file is damaged.
    """
    found = {}
    before = folder.parent.parent / "evaluation_before.json"
    if before.is_file() and folder.parent.name == "tensorboard":
        found[0] = _scores(before)
    for quickstart in _quickstart_folders(folder):
        after = quickstart / "evaluation_after.json"
        if after.is_file() and last_step and last_step not in found:
            found[last_step] = _scores(after)
    return found


def _quickstart_folders(folder: Path) -> list[Path]:
    """Where a quickstart keeps the rest of the run that it logs in `tensorboard/<estimator>/`."""
    if folder.parent.name != "tensorboard":
        return []
    return [folder.parent.parent / folder.name, folder.parent.parent]


def _scores(path: Path) -> dict[str, float]:
    try:
        return read_scores(path)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error}); remove it.") from error


def _json_object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); remove it.") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds no JSON object; remove it.")
    return found


def _words(value: Any) -> str:
    """A flag's value as text; numbers in one spelling, so that 1e-6 equals 0.000001."""
    if isinstance(value, list):
        return " ".join(map(_words, value))
    try:
        return str(value) if isinstance(value, bool) else f"{float(value):.12g}"
    except (TypeError, ValueError):
        return str(value)


def _flags(command: str) -> dict[str, str]:
    """Flag and value of each `--flag value ...` in a command line; a switch has the value True."""
    flags: dict[str, list[str]] = {}
    name = None
    for word in shlex.split(command):
        if word.startswith("--"):
            name = word[2:]
            flags[name] = []
        elif name is not None:
            flags[name].append(word)
    return {name: _words(words) or "True" for name, words in flags.items()}
