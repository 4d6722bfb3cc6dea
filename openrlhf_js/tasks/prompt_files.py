"""Prompt files: problems as rows that OpenRLHF reads, written with a manifest, read back.

A row has the same columns whatever its task, since OpenRLHF reads several files as one table:
`input` (messages), `label` (text), `datasource` (the task, or task/group), and `images` (paths).
"""

from __future__ import annotations

import hashlib
import heapq
import inspect
import json
import platform
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from openrlhf_js import __version__
from openrlhf_js.common.files import atomic_write, read_rows, write_json
from openrlhf_js.tasks import base, task_of
from openrlhf_js.tasks.base import Generated, Item, Loaded, Message, Progress, Task

COMMON = ("count", "seed", "split", "progress")  # what tasks take; the rest are their own options

# What tells the kinds of items of a task apart: the second half of their datasource.
GROUPS: dict[str, Callable[[Item], str]] = {
    "countdown": lambda item: str(len(item["numbers"])),
    "knights_knaves": lambda item: str(len(item["people"])),
    "math": lambda item: str(item["source"]),
    "maze": lambda item: f"{len(item['rows'])}x{len(item['rows'][0])}",
    "reasoning_gym": lambda item: str(item["dataset"]),
}


def row(task: Task, item: Item) -> dict[str, Any]:
    """A problem as a row of a prompt file; ValueError if it has no label."""
    group = GROUPS.get(task.NAME)
    made = {
        "input": task.prompt(item),
        "label": task.label(item),
        "datasource": f"{task.NAME}/{group(item)}" if group else task.NAME,
    }
    return {**made, "images": [*item["images"]]} if "images" in item else made


def options_of(task: Generated | Loaded) -> dict[str, Any]:
    """A task's own options with their defaults: the parameters of its `generate` or `load`."""
    source = task.generate if isinstance(task, Generated) else task.load
    return {
        name: parameter.default
        for name, parameter in inspect.signature(source).parameters.items()
        if name not in COMMON
    }


def items(
    task: Generated | Loaded,
    split: str,
    count: int | None,
    seed: int,
    options: Mapping[str, Any],
    progress: Progress = base.no_progress,
) -> Iterator[Item]:
    """The problems of a split, exactly `count` of them where it is given.

    Where a task loads its problems, `seed` draws which, and they stay in the data set's order.
    """
    loaded = not isinstance(task, Generated) or bool(options.get("source"))
    if isinstance(task, Generated):
        if count is None and not loaded:
            raise ValueError(f"{task.NAME} generates its problems: say how many")
        found = task.generate(count or 0, seed, split, **options)
    else:
        found = task.load(split, **options, progress=progress)
    if loaded and count is not None:
        rng = random.Random(f"{task.NAME}/{split}/{seed}/sample")
        drawn = heapq.nsmallest(count, ((rng.random(), n, x) for n, x in enumerate(found)))
        found = (x for _, _, x in sorted(drawn, key=lambda each: each[1]))
    number = 0
    for number, item in enumerate(found, 1):
        if isinstance(task, Generated):
            progress(number)
        yield item
    if number < (count or 0):
        raise ValueError(f"the {split} split of {task.NAME} has {number} problems, not {count}")


def write(
    path: Path, task: Task, found: Iterable[Item], parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Writes a prompt file and then its manifest, which is returned; `parameters` go into it."""
    digest = hashlib.sha256()
    sources: Counter[str] = Counter()
    images = 0
    with atomic_write(path) as file:
        for item in found:
            made = row(task, item)
            line = json.dumps(made, ensure_ascii=False).encode() + b"\n"
            digest.update(line)
            file.write(line)
            sources[made["datasource"]] += 1
            images = max(images, len(made.get("images", [])))
        if not sources:
            raise ValueError(f"{task.NAME} gave no problem")
    manifest = {
        "file": path.name,
        "sha256": digest.hexdigest(),
        "rows": sources.total(),
        "rows_by_datasource": dict(sorted(sources.items())),
        "images_per_prompt": images,
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
    for found in read_rows(path):
        try:
            made: Example | ValueError = example(found.object(path), input_key, label_key)
        except ValueError as error:
            made = found.value if isinstance(found.value, ValueError) else error
        yield Line(f"{path}, {found.place}", made, found.read_bytes)


def example(row: Mapping[str, Any], input_key: str = "input", label_key: str = "label") -> Example:
    """What a row asks, and how its answer is graded; ValueError if OpenRLHF cannot take it."""
    for key in (input_key, label_key, "datasource"):
        if row.get(key) is None:
            raise ValueError(f"no value under the key {key!r}; keys seen: {', '.join(row)}")
    for key in (label_key, "datasource"):
        if not isinstance(row[key], str):
            raise ValueError(f"{key!r} must hold text, not {type(row[key]).__name__}")
    images = row.get("images") or []
    if not isinstance(images, list) or not all(isinstance(image, str) for image in images):
        raise ValueError("'images' must hold a list of paths")
    prompt = row[input_key]
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    if not isinstance(messages, list) or not messages or not all(map(_is_message, messages)):
        raise ValueError(f"{input_key!r} must hold text, or messages with a role and a content")
    return Example(
        messages=messages,
        label=row[label_key],
        datasource=row["datasource"],
        task=task_of(row["datasource"]),
        images=images,
    )


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(value.get(key), str) for key in ("role", "content")
    )
