"""Prompt files: problems as rows that OpenRLHF reads, written with a manifest, read, checked.

A row has the same columns whatever its task, since OpenRLHF reads several files as one table:
`input` (messages), `label` (text), `datasource` (the task, or task/group), and `images` (paths).
"""

from __future__ import annotations

import hashlib
import heapq
import json
import platform
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from openrlhf_js import __version__
from openrlhf_js.common.files import atomic_write, read_rows, write_json
from openrlhf_js.common.labels import is_message, label_text
from openrlhf_js.common.processors import IMAGE_TAG, load_processor, parts
from openrlhf_js.tasks import task_of
from openrlhf_js.tasks.record import GeneratedProblems, Item, Message, Progress, Task, no_progress


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
        on_item = no_progress  # it reports its rows itself
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


class PromptRow(NamedTuple):
    """A row of a file with its place: an example, or what is wrong with it."""

    place: str
    example: Example | ValueError
    read_bytes: int  # of the file so far


def read(path: Path, input_key: str = "input", label_key: str = "label") -> Iterator[PromptRow]:
    """Every row of a prompt file; ValueError if it is of no known format."""
    for file_row in read_rows(path):
        result: Example | ValueError
        try:
            if isinstance(file_row.value, ValueError):
                raise file_row.value
            result = example(file_row.value, input_key, label_key)
        except ValueError as error:
            result = error
        yield PromptRow(f"{path}, {file_row.place}", result, file_row.read_bytes)


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
    if not isinstance(messages, list) or not messages or not all(map(is_message, messages)):
        raise ValueError(f"{input_key!r} must hold text, or messages with a role and a content")
    return Example(
        messages=messages,
        label=label_text(row[label_key]),
        datasource=datasource,
        task=task_of(datasource),
        images=images,
    )


# --- checks of files -----------------------------------------------------------------------------

Problems = Iterator[tuple[str, str]]  # of a row: what kind of problem, and what it is


@dataclass
class CheckedFiles:
    """Prompt lengths by datasource, 0 where not counted, and problems by kind with their place."""

    tokens: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    problems: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def rows(self) -> list[dict[str, Any]]:
        """A table by datasource."""
        return [
            {
                "datasource": source,
                "items": len(tokens),
                "median_tokens": round(median(tokens)),
                "max_tokens": max(tokens),
            }
            for source, tokens in sorted(self.tokens.items())
        ]


def check(
    paths: Sequence[Path],
    against: Sequence[Path] = (),
    input_key: str = "input",
    label_key: str = "label",
    count_tokens: Callable[[Example], int] = lambda example: 0,
    max_tokens: int = 1024,
    progress: Callable[[int], None] = lambda bytes_read: None,
) -> CheckedFiles:
    """Checks files as one data set, which may not share a prompt with the files `against`.

    The keys are the columns of prompt and label. Of each prompt it remembers a digest and a place.
    """
    checked = CheckedFiles()
    other_places: dict[bytes, str] = {}  # of prompts in the files `against`
    own_places: dict[bytes, str] = {}
    bytes_before = 0
    for path in list(against) + list(paths):
        for line in read(path, input_key, label_key):
            progress(bytes_before + line.read_bytes)
            example = line.example
            if isinstance(example, ValueError):
                checked.problems["bad row"].append(f"{line.place}: {example}")
                continue
            key = fingerprint(example)
            if path not in paths:
                other_places.setdefault(key, line.place)
                continue
            first_place = own_places.setdefault(key, line.place)
            problems = list(_wrong_grades(example))
            if first_place is not line.place:
                problems.append(("repeated prompt", f"the same prompt as {first_place}"))
            if key in other_places:
                problems.append(("overlap", f"the same prompt as {other_places[key]}"))
            problems += _wrong_images(example)
            tokens, size_problems = _prompt_size(example, count_tokens, max_tokens)
            checked.tokens[example.datasource].append(tokens)
            for kind, problem in problems + size_problems:
                checked.problems[kind].append(f"{line.place}: {problem}")
        bytes_before += path.stat().st_size
    return checked


def _prompt_size(
    example: Example, count_tokens: Callable[[Example], int], max_tokens: int
) -> tuple[int, list[tuple[str, str]]]:
    """The tokens of a prompt, 0 where they cannot be counted, and its problems."""
    try:
        if not example.messages[-1]["content"].strip():
            raise ValueError("the last message is empty")
        tokens = count_tokens(example)
    except ValueError as error:
        return 0, [("no prompt", str(error))]
    if tokens <= max_tokens:
        return tokens, []
    return tokens, [("too long", f"the prompt takes {tokens} tokens, more than {max_tokens}")]


def _wrong_grades(example: Example) -> Problems:
    """What is wrong with the grades of the gold answer and of a wrong one."""
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
    tags = sum(message["content"].count(IMAGE_TAG) for message in example.messages)
    if tags != len(example.images):
        yield "image", f"{tags} {IMAGE_TAG} in the prompt, {len(example.images)} images"
    for image in example.images:
        if not Path(image).is_file():
            yield "image", f"no file {image}"


def fingerprint(example: Example) -> bytes:
    """12 bytes that are the same for prompts that differ in white space alone.

    Images count by their content, so that equal questions about two figures are two prompts.
    """
    messages = [[message["role"], message["content"].split()] for message in example.messages]
    images = [
        hashlib.sha256(path.read_bytes()).digest() if path.is_file() else str(path)
        for path in map(Path, example.images)
    ]
    return hashlib.blake2b(repr([messages, images]).encode(), digest_size=12).digest()


class ChatTemplate:
    """Turns messages into the text and the tokens that OpenRLHF hands to the policy."""

    def __init__(self, folder: Path, trust_remote_code: bool = False):
        try:
            self._processor = load_processor(folder, trust_remote_code)
        except (OSError, ValueError) as error:
            raise ValueError(f"no tokenizer in {folder}: {str(error).splitlines()[0]}") from error
        if not getattr(self._processor, "chat_template", None):
            raise ValueError(f"{folder} has no chat template: take the model's instruct variant")

    def text(self, example: Example) -> str:
        """The prompt, up to where the response begins; ValueError if the template refuses it."""
        from jinja2 import TemplateError

        messages = [
            {**message, "content": parts(message["content"])} for message in example.messages
        ]
        template = self._processor.apply_chat_template
        try:
            return str(template(messages, tokenize=False, add_generation_prompt=True))
        except TemplateError as error:
            raise ValueError(f"the chat template refuses it: {error}") from error

    def tokens(self, example: Example) -> int:
        """How many tokens the prompt takes with its images; ValueError if it cannot be made."""
        from PIL import Image

        arguments: dict[str, Any] = {"text": [self.text(example)], "add_special_tokens": False}
        if hasattr(self._processor, "image_processor"):
            try:
                arguments["images"] = [Image.open(image) for image in example.images] or None
            except OSError as error:
                raise ValueError(f"an image cannot be read: {error}") from error
        elif example.images:
            raise ValueError("there are images, but the model takes text only")
        else:
            arguments["verbose"] = False  # the tokenizer's own longest text is not the limit
        return len(self._processor(**arguments)["input_ids"][0])
