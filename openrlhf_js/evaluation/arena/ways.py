"""Keeps apart in a judge's folder what was judged in different ways."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from openrlhf_js.evaluation.arena.files import Folder
from openrlhf_js.evaluation.arena.judge_prompts import Prompt
from openrlhf_js.evaluation.arena.lines import LARGEST_LINE_BYTES
from openrlhf_js.evaluation.arena.protocol import FILE, Protocol, Run, add_run, protocol_of
from openrlhf_js.evaluation.arena.records import file_name

LINES = 50  # of each file of another program that are looked at
_ELSE = "give --judge_name to keep the new judgments in a folder of their own, or judge as before"


def check_same_way(folder: Folder, run: Run, prompts: Mapping[str, Prompt]) -> None:
    """Checks that new judgments may go to those that are there.

    Args:
        run: how the new ones would be made.
        prompts: by category.

    Raises:
        ValueError: those that are there were made in another way; says in what they differ.
        OSError: the record cannot be read.
    """
    before = protocol_of(folder, run.judge)
    if not _judged(folder, run.judge):
        return
    if before is None:
        _check_lines(folder, run, prompts)
    elif Protocol((*before.runs, run)).mixed:
        differences = dict.fromkeys(each for old in before.runs for each in _differences(old, run))
        said = "; ".join(differences) or "they were made in different ways"
        raise ValueError(f"{folder.judged_by(run.judge)} holds other judgments: {said}. {_ELSE}")


def record(folder: Folder, run: Run, models: Sequence[str] = ()) -> None:
    """Records how judgments are made from now on; what led to no judgment is forgotten.

    Args:
        run: how.
        models: whose answers are judged.

    Raises:
        OSError: the record cannot be written. ValueError: what is there is broken.
    """
    if not _judged(folder, run.judge):
        (folder.judged_by(run.judge) / FILE).unlink(missing_ok=True)
    add_run(folder, run, models)


def _judged(folder: Folder, judge: str) -> bool:
    """Whether the folder holds any judgment."""
    return any(path.stat().st_size for path in folder.judged_by(judge).glob("*.jsonl"))


def _differences(old: Run, new: Run) -> list[str]:
    said = {"model": "by the model", "temperature": "at temperature", "max_tokens": "of max_tokens"}
    found = [
        f"{words} {getattr(old, name)}, not {getattr(new, name)}"
        for name, words in said.items()
        if getattr(old, name) != getattr(new, name)
    ]
    for category in old.prompts.keys() & new.prompts.keys():
        if old.prompts[category] != new.prompts[category]:
            found.append(f"with another prompt for {category}")
        if old.baselines.get(category) != new.baselines.get(category):
            found.append(
                f"{category} against {old.baselines.get(category)}, not "
                f"{new.baselines.get(category)}"
            )
    return found


def _check_lines(folder: Folder, run: Run, prompts: Mapping[str, Prompt]) -> None:
    """Compares what the lines of v2.0 have, baselines and system messages: no more is known."""
    for path in sorted(folder.judged_by(run.judge).glob("*.jsonl")):
        with path.open("rb") as file:
            for _ in range(LINES):
                row = _row(file.readline(LARGEST_LINE_BYTES))
                category = str(row.get("category"))
                if category not in prompts:
                    continue
                baseline, ours = row.get("baseline"), run.baselines[category]
                if isinstance(baseline, str) and baseline.rsplit("/", 1)[-1] != file_name(ours):
                    raise ValueError(
                        f"{path} was judged against {baseline:.100} in {category}, not {ours}. "
                        f"{_ELSE}"
                    )
                system = _told(row)
                if system is not None:
                    _compare(str(path), category, system, prompts[category])


def _compare(path: str, category: str, system: str, prompt: Prompt) -> None:
    if system != prompt.system:
        raise ValueError(
            f"{path} was judged with another prompt for {category}. {_ELSE}"
            + ("" if prompt.official else " (openrlhf-js eval arena fetch gets the official one)")
        )


def _row(line: bytes) -> dict[str, Any]:
    """A line's row; an empty one where it cannot be read."""
    try:
        row = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def _told(row: Mapping[str, Any]) -> str | None:
    """The system message of a judgment's games; None where they have none, or several."""
    try:
        (told,) = {
            message["content"]
            for game in row["games"]
            if game
            for message in game["prompt"]
            if message["role"] == "system"
        }
        return told if isinstance(told, str) else None
    except (ValueError, TypeError, KeyError):
        return None
