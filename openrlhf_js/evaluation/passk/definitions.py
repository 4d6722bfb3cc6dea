"""Benchmarks by name: YAML files that say which items are asked, and how they are sampled."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from openrlhf_js.tasks import TASKS

ENDINGS = (".yaml", ".yml")
LEAST = {"samples": 1, "max_new_tokens": 1, "seed": 0, "count": 1}


@dataclass(frozen=True)
class Drawing:
    """How responses are drawn.

    Attributes:
        samples: k, to each item.
        temperature: above 0.
        top_p: in (0, 1].
        max_new_tokens: of a response.
    """

    samples: int = 16
    temperature: float = 1.0
    top_p: float = 1.0
    max_new_tokens: int = 2048


@dataclass(frozen=True)
class Benchmark:
    """Which items are asked, and how.

    Attributes:
        name: also of its files in the results.
        drawing: how responses are drawn.
        task: of `tasks.TASKS`, where its problems are built; "" for a file.
        split: of the task.
        count: how many of the problems; None: all there are.
        seed: of the problems.
        options: of the task, as `openrlhf-js data build TASK` takes them.
        file: of prompts, where they are in one.
    """

    name: str
    drawing: Drawing = field(default_factory=Drawing)
    task: str = ""
    split: str = "test"
    count: int | None = None
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    file: Path | None = None


_DRAWING = tuple(each.name for each in fields(Drawing))
_KEYS = ("task", "split", "count", "seed", "options", "file", *_DRAWING)
_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("samples", "max_new_tokens", "seed", "count"), (int,)),
    **dict.fromkeys(("temperature", "top_p"), (int, float)),
    **dict.fromkeys(("task", "split", "file"), (str,)),
    "options": (dict,),
}


def read_benchmark(path: Path) -> Benchmark:
    """The benchmark of a YAML file, named after it.

    Raises:
        ValueError: it is no such definition; the message says which key is wrong, and why.
        OSError: it cannot be read.
    """
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} must hold keys and values; keys are {', '.join(_KEYS)}")
    given = {key: value for key, value in found.items() if value is not None}
    if unknown := sorted(map(str, given.keys() - {*_KEYS})):
        raise ValueError(f"{path} has the key {unknown[0]!r}; there are {', '.join(_KEYS)}")
    for key, value in given.items():
        if not isinstance(value, _TYPES[key]) or isinstance(value, bool):
            raise ValueError(f"{path}: {key} is {value!r}; it must be {_words(_TYPES[key])}")
        if isinstance(value, int) and value < LEAST.get(key, value):
            raise ValueError(f"{path}: {key} is {value}; give {LEAST[key]} or more")
    if ("task" in given) == ("file" in given):
        raise ValueError(f"{path} must name either a task or a file of prompts")
    if given.get("task", next(iter(TASKS))) not in TASKS:
        raise ValueError(f"{path}: no task {given['task']!r}; there are {', '.join(sorted(TASKS))}")
    drawing = Drawing(**{key: given.pop(key) for key in _DRAWING if key in given})
    check_drawing(drawing, f"{path}: ")
    if "file" in given:
        given["file"] = path.parent / given["file"]
    return Benchmark(path.stem, drawing, **given)


def check_drawing(drawing: Drawing, where: str = "") -> None:
    """Raises ValueError unless responses can be drawn so."""
    if not 0 < drawing.temperature < float("inf"):
        raise ValueError(
            f"{where}temperature is {drawing.temperature}; give a number above 0, such as 1"
        )
    if not 0 < drawing.top_p <= 1:
        raise ValueError(f"{where}top_p is {drawing.top_p}; give a number above 0, up to 1")


def _words(types: tuple[type, ...]) -> str:
    names = {int: "a whole number", float: "a number", str: "text", dict: "keys and values"}
    return names[types[-1]]
