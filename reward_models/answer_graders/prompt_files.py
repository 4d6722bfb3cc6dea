"""Prompt files, which hold problems as rows for OpenRLHF: writes (with a manifest), reads, checks.

Rows of every task have the same columns, since OpenRLHF reads several files as one table:
`input` (messages), `label` (text), `datasource` (the task, or task/group), and `images` (paths).
"""

from __future__ import annotations

import hashlib
import json
import platform
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from answer_graders import __version__
from answer_graders.labels import check_images, is_message, label_text
from answer_graders.programs.files import atomic_write, read_rows, write_json
from answer_graders.record import Item, Message, PublishedProblems, Task
from answer_graders.tasks import task_of

Progress = Callable[[int], None]  # called with the number of rows so far


def no_progress(rows: int) -> None:
    """Ignores the progress."""


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


def items(
    task: Task,
    split: str,
    count: int | None,
    seed: int,
    options: Mapping[str, Any],
    progress: Progress = no_progress,
) -> Iterator[Item]:
    """The problems of a split, exactly `count` of them if it is given.

    If a task loads its problems, `seed` decides which are drawn; they stay in the data set's order.
    """
    problems = task.problems
    found: Iterable[Item]
    if isinstance(problems, PublishedProblems):
        found = problems.load(split, **options)
        if count is not None:
            found = _sample(list(found), count, f"{task.name}/{split}/{seed}/sample")
    elif count is None:
        raise ValueError(f"{task.name} generates its problems: say how many")
    else:
        found = problems.generate(count, seed, split, **options)
    number = 0
    for number, item in enumerate(found, 1):
        progress(number)
        yield item
    if count is not None and number < count:
        raise ValueError(f"the {split} split of {task.name} has {number} problems, not {count}")


def _sample(problems: Sequence[Item], count: int, seed: str) -> list[Item]:
    """`count` problems drawn uniformly at random, in their original order."""
    rng = random.Random(seed)
    keys = [rng.random() for _ in problems]
    places = sorted(range(len(problems)), key=keys.__getitem__)
    return [problems[place] for place in sorted(places[:count])]


def write(
    path: Path, task: Task, problems: Iterable[Item], parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Writes a prompt file, then its manifest with the `parameters`; returns the manifest."""
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
        "versions": {"python": platform.python_version(), "answer_graders": __version__},
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


class PromptRow(NamedTuple):
    """A row of a file with its place: an example, or what is wrong with it."""

    place: str
    example: Example | ValueError


def read(path: Path, input_key: str = "input", label_key: str = "label") -> Iterator[PromptRow]:
    """Every row of a prompt file; ValueError if the file format is unknown."""
    for file_row in read_rows(path):
        result: Example | ValueError
        try:
            if isinstance(file_row.value, ValueError):
                raise file_row.value
            result = example(file_row.value, input_key, label_key)
        except ValueError as error:
            result = error
        yield PromptRow(f"{path}, {file_row.place}", result)


def example(row: Mapping[str, Any], input_key: str = "input", label_key: str = "label") -> Example:
    """The prompt of a row and how it is graded; ValueError if OpenRLHF cannot use the row."""
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
    if not isinstance(messages, list) or not messages or not all(map(is_message, messages)):
        raise ValueError(f"{input_key!r} must hold text, or messages with a role and a content")
    return Example(
        messages=messages,
        label=label_text(row[label_key]),
        datasource=datasource,
        task=task_of(datasource),
        images=images,
    )


# Checks of files

Problems = Iterator[tuple[str, str]]  # of a row: the kind of each problem, and a description


@dataclass
class CheckedFiles:
    """Counts of good rows by datasource, and problems with their places by kind."""

    rows_by_datasource: Counter[str] = field(default_factory=Counter)
    problems: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


def check(
    paths: Sequence[Path],
    against: Sequence[Path] = (),
    input_key: str = "input",
    label_key: str = "label",
    progress: Progress = no_progress,
) -> CheckedFiles:
    """Checks files as one data set, which may not share a prompt with the files `against`.

    The keys name the columns of prompt and label. Only a digest and a place are kept per prompt.
    """
    checked = CheckedFiles()
    other_places: dict[bytes, str] = {}  # of prompts in the files `against`
    own_places: dict[bytes, str] = {}
    number = 0
    for path in [*against, *paths]:
        for place, example in read(path, input_key, label_key):
            number += 1
            progress(number)
            if isinstance(example, ValueError):
                checked.problems["bad row"].append(f"{place}: {example}")
                continue
            key = fingerprint(example)
            if path not in paths:
                other_places.setdefault(key, place)
                continue
            problems = list(_wrong_grades(example))
            if key in own_places:
                problems.append(("repeated prompt", f"the same prompt as {own_places[key]}"))
            if key in other_places:
                problems.append(("overlap", f"the same prompt as {other_places[key]}"))
            problems += _wrong_images(example)
            own_places.setdefault(key, place)
            checked.rows_by_datasource[example.datasource] += 1
            for kind, problem in problems:
                checked.problems[kind].append(f"{place}: {problem}")
    return checked


def _wrong_grades(example: Example) -> Problems:
    """Problems with the grades of the gold answer and of a wrong answer."""
    task = example.task
    label = example.label
    try:
        gold = task.score(task.right_response(label), label)
        wrong = task.score(task.wrong_response(label), label)
        is_read = task.reads_label(label)
    except ValueError as error:
        yield "wrong grade", f"the label is malformed: {error}"
        return
    if gold.status != "correct":
        detail = f"{gold.status}: {gold.detail}"
        yield "wrong grade", f"the gold answer scores {gold.value:g} ({detail})"
    elif wrong.status == "correct":
        yield "wrong grade", f"a wrong answer scores {wrong.value:g} ({wrong.detail})"
    elif not is_read:
        yield "unread gold", f"{label!r:.80}: other notations of it may score 0"


def _wrong_images(example: Example) -> Problems:
    try:
        check_images(example.messages, example.images)
    except ValueError as error:
        yield "image", str(error)
    for image in example.images:
        if not Path(image).is_file():
            yield "image", f"no file {image}"


def fingerprint(example: Example) -> bytes:
    """A digest of 12 bytes, equal for prompts that differ only in white space.

    Images count by content, so the same question about two figures makes two prompts.
    """
    messages = [[message["role"], message["content"].split()] for message in example.messages]
    images = [
        hashlib.sha256(path.read_bytes()).digest() if path.is_file() else str(path)
        for path in map(Path, example.images)
    ]
    return hashlib.blake2b(repr([messages, images]).encode(), digest_size=12).digest()
