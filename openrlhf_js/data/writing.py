"""Data sets on disk: JSON lines that OpenRLHF reads, and beside them what they were made from.

A row has the same columns whatever its task, since OpenRLHF reads several files as one table:
`input` (messages), `label` (text), `datasource` (the task, or task/group), and `images` (paths)
where a task shows images. OpenRLHF logs evaluation metrics for each datasource.
"""

from __future__ import annotations

import hashlib
import heapq
import importlib.metadata
import inspect
import json
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from openrlhf_js import __version__
from openrlhf_js.tasks.base import Generated, Item, Loaded, Task
from openrlhf_js.tasks.draws import Draws
from openrlhf_js.tasks.hub import Progress, unseen
from openrlhf_js.whole_file import whole_file

Row = dict[str, Any]
COMMON = ("count", "seed", "split", "progress")  # what tasks take; the rest are their own options

# What tells the kinds of items of a task apart: the second half of their datasource.
GROUPS: dict[str, Callable[[Item], str]] = {
    "countdown": lambda item: str(len(item["numbers"])),
    "knights_knaves": lambda item: str(len(item["people"])),
    "math": lambda item: str(item["source"]),
    "maze": lambda item: f"{len(item['rows'])}x{len(item['rows'][0])}",
}


def datasource(task: Task, item: Item) -> str:
    """The task's name, and its kind of item where it has several: `knights_knaves/6`."""
    group = GROUPS.get(task.NAME)
    return f"{task.NAME}/{group(item)}" if group else task.NAME


def row(task: Task, item: Item) -> Row:
    """One line of a data set.

    Raises:
        ValueError: the item has no label.
    """
    images = {"images": [str(image) for image in item["images"]]} if "images" in item else {}
    return {
        "input": task.prompt(item),
        "label": task.label(item),
        "datasource": datasource(task, item),
        **images,
    }


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
    progress: Progress = unseen,
) -> Iterator[Item]:
    """The problems of a split, exactly `count` of them where it is given.

    Where a task loads its problems, `seed` draws which, and they stay in the data set's order;
    `progress` follows the rows that are read until the first problem comes.

    Raises:
        ValueError: there are fewer than `count`, or the task refuses an option.
    """
    if isinstance(task, Generated):
        if count is None:
            raise ValueError(f"{task.NAME} makes its problems: say how many")
        found = task.generate(count, seed, split, **options)
    else:
        found = task.load(split, **options, progress=progress)
        if count is not None:
            found = _sample(found, count, Draws(f"{task.NAME}/{split}/{seed}/sample"))
    number = 0
    for item in found:
        number += 1
        yield item
    if count is not None and number < count:
        raise ValueError(
            f"{task.NAME} has only {number} such problems in its {split} split, not {count}: "
            "ask for fewer, or for more kinds"
        )


def _sample(found: Iterable[Item], count: int, draws: Draws) -> Iterator[Item]:
    drawn = ((draws.random(), number, item) for number, item in enumerate(found))
    kept = heapq.nsmallest(count, drawn, key=lambda each: each[:2])
    for _, _, item in sorted(kept, key=lambda each: each[1]):
        yield item


@contextmanager
def folder_for(out: Path) -> Iterator[None]:
    """A folder, made where needed; where the block fails, those it made go unless they are used."""
    made = [folder for folder in (out, *out.parents) if not folder.exists()]
    out.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for folder in made:
            with suppress(OSError):
                folder.rmdir()
        raise


def manifest_path(path: Path) -> Path:
    """Where the manifest of a data set stands: beside it."""
    return path.with_suffix(".manifest.json")


def write(
    path: Path, task: Task, found: Iterable[Item], parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Writes a data set and its manifest, both or neither, in memory that does not grow.

    Args:
        path: the file; one that is there already is replaced.
        task: whose items they are.
        found: the items, taken one by one.
        parameters: what they were made from, for the manifest.

    Returns:
        The manifest: parameters, versions, number of rows by datasource, most images of a
        prompt, SHA-256 of the file.

    Raises:
        OSError: the disk does not take it. ValueError: an item has no label, or there is none.
    """
    digest = hashlib.sha256()
    sources: Counter[str] = Counter()
    lengths: Counter[int] = Counter()
    images = 0
    with whole_file(path) as file:
        for item in found:
            made = row(task, item)
            line = json.dumps(made, ensure_ascii=False).encode() + b"\n"
            digest.update(line)
            file.write(line)
            sources[made["datasource"]] += 1
            lengths.update([item["length"]] if "length" in item else [])
            images = max(images, len(made.get("images", [])))
        if not sources:
            raise ValueError(f"{task.NAME} gave no problem")
        manifest = {
            "file": path.name,
            "sha256": digest.hexdigest(),
            "rows": sources.total(),
            "rows_by_datasource": dict(sorted(sources.items())),
            **({"rows_by_length": dict(sorted(lengths.items()))} if lengths else {}),
            "images_per_prompt": images,
            "parameters": dict(parameters),
            "versions": _versions(isinstance(task, Loaded)),
        }
        file.flush()  # a full disk shows here, before the manifest stands
        text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
        with whole_file(manifest_path(path)) as beside:  # a path in it need not be Unicode
            beside.write(text.encode(errors="backslashreplace"))
    return manifest


def _versions(loads: bool) -> dict[str, str]:
    own = {"python": platform.python_version(), "openrlhf_js": __version__}
    return own | ({"datasets": importlib.metadata.version("datasets")} if loads else {})
