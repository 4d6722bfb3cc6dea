"""Prompt files: problems as rows that OpenRLHF reads, written with a manifest, read back.

A row has the same columns whatever its task, since OpenRLHF reads several files as one table:
`input` (messages), `label` (text), `datasource` (the task, or task/group), and `images` (paths).
"""

from __future__ import annotations

import hashlib
import heapq
import json
import platform
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from openrlhf_js import __version__
from openrlhf_js.common.files import atomic_write, read_rows, write_json
from openrlhf_js.common.labels import label_text
from openrlhf_js.tasks import base
from openrlhf_js.tasks.base import Item, Message, Progress
from openrlhf_js.tasks.catalogue import task_of
from openrlhf_js.tasks.record import GeneratedProblems, Task


def row(task: Task, item: Item) -> dict[str, Any]:
    """A problem as a row of a prompt file; ValueError if it has no label."""
    columns = {
        "input": task.prompt(item),
        "label": task.label(item),
        "datasource": task.datasource(item),
    }
    if "images" in item:
        columns["images"] = list(item["images"])
    return columns


def options_of(task: Task) -> dict[str, Any]:
    """A task's own options with their defaults."""
    return task.problems.defaults() if task.problems else {}


def items(
    task: Task,
    split: str,
    count: int | None,
    seed: int,
    options: Mapping[str, Any],
    progress: Progress = base.no_progress,
) -> Iterator[Item]:
    """The problems of a split, exactly `count` of them where it is given.

    Where a task loads its problems, `seed` draws which, and they stay in the data set's order.
    """
    if task.problems is None:
        raise ValueError(f"{task.name} has no problems: it only grades")
    if isinstance(task.problems, GeneratedProblems):
        is_loaded = bool(options.get("source"))
        if count is None and not is_loaded:
            raise ValueError(f"{task.name} generates its problems: say how many")
        problems = task.problems.generate(count or 0, seed, split, **options)
        on_item = progress
    else:
        is_loaded = True
        problems = task.problems.load(split, **options, progress=progress)
        on_item = base.no_progress  # it reports its rows itself
    if is_loaded and count is not None:
        problems = iter(_sample(problems, count, f"{task.name}/{split}/{seed}/sample"))
    number = 0
    for number, item in enumerate(problems, 1):
        on_item(number)
        yield item
    if count is not None and number < count:
        raise ValueError(f"the {split} split of {task.name} has {number} problems, not {count}")


def _sample(problems: Iterable[Item], count: int, seed: str) -> Sequence[Item]:
    """`count` problems drawn at random, all equally likely, in their own order."""
    rng = random.Random(seed)
    numbered = ((rng.random(), place, problem) for place, problem in enumerate(problems))
    drawn = heapq.nsmallest(count, numbered)  # no two places are equal, so no problems are compared
    drawn.sort(key=lambda entry: entry[1])
    return [problem for _, _, problem in drawn]


def write(
    path: Path, task: Task, problems: Iterable[Item], parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Writes a prompt file and then its manifest, which is returned; `parameters` go into it."""
    digest = hashlib.sha256()
    rows_by_datasource: Counter[str] = Counter()
    images_per_prompt = 0
    with atomic_write(path) as file:
        for problem in problems:
            columns = row(task, problem)
            line = json.dumps(columns, ensure_ascii=False).encode() + b"\n"
            digest.update(line)
            file.write(line)
            rows_by_datasource[columns["datasource"]] += 1
            images_per_prompt = max(images_per_prompt, len(columns.get("images", [])))
        if not rows_by_datasource:
            raise ValueError(f"{task.name} gave no problem")
    manifest = {
        "file": path.name,
        "sha256": digest.hexdigest(),
        "rows": rows_by_datasource.total(),
        "rows_by_datasource": dict(sorted(rows_by_datasource.items())),
        "images_per_prompt": images_per_prompt,
        "parameters": dict(parameters),
        "versions": {"python": platform.python_version(), "openrlhf_js": __version__},
    }
    write_json(path.with_suffix(".manifest.json"), manifest)
    return manifest


@dataclass(frozen=True)
class Example:
    """A row that a model can be trained on."""

    messages: list[Message]
    label: str
    datasource: str
    task: Task
    images: list[str] = field(default_factory=list)


class Line(NamedTuple):
    """A row of a file with its place: an example, or what is wrong with it."""

    place: str
    example: Example | ValueError
    read_bytes: int  # of the file so far


def read(path: Path, input_key: str = "input", label_key: str = "label") -> Iterator[Line]:
    """Every row of a prompt file; ValueError if it is of no known format."""
    for file_row in read_rows(path):
        result: Example | ValueError
        if isinstance(file_row.value, ValueError):
            result = file_row.value
        else:
            try:
                result = example(file_row.value, input_key, label_key)
            except ValueError as error:
                result = error
        yield Line(f"{path}, {file_row.place}", result, file_row.read_bytes)


def example(row: Mapping[str, Any], input_key: str = "input", label_key: str = "label") -> Example:
    """What a row asks, and how its answer is graded; ValueError if OpenRLHF cannot take it."""
    for key in (input_key, label_key, "datasource"):
        if row.get(key) is None:
            raise ValueError(f"no value under the key {key!r}; keys seen: {', '.join(row)}")
    datasource = row["datasource"]
    if not isinstance(datasource, str):
        raise ValueError(f"'datasource' must hold text, not {type(datasource).__name__}")
    images = row.get("images") or []
    if not isinstance(images, list) or not all(isinstance(image, str) for image in images):
        raise ValueError("'images' must hold a list of paths")
    prompt = row[input_key]
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    if not isinstance(messages, list) or not messages or not all(map(_is_message, messages)):
        raise ValueError(f"{input_key!r} must hold text, or messages with a role and a content")
    return Example(
        messages=messages,
        label=label_text(row[label_key]),
        datasource=datasource,
        task=task_of(datasource),
        images=images,
    )


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(value.get(key), str) for key in ("role", "content")
    )
