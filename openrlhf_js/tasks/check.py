"""Checks prompt files before a training run: gold answers, prompt lengths, repeated prompts."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from openrlhf_js.common.processors import IMAGE_TAG, load_processor, parts
from openrlhf_js.tasks.prompt_files import Example, read

Problems = Iterator[tuple[str, str]]  # of a row: what kind of problem, and what it is


@dataclass
class CheckedFiles:
    """Prompt lengths by datasource, 0 where not counted, and problems by kind with their place."""

    tokens: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    problems: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def rows(self) -> list[dict[str, Any]]:
        """A table by datasource."""
        rows = []
        for source, tokens in sorted(self.tokens.items()):
            row = {"datasource": source, "items": len(tokens)}
            rows.append(row | {"median_tokens": round(median(tokens)), "max_tokens": max(tokens)})
        return rows


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
    for path in [*against, *paths]:
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
    images: list[bytes | str] = []
    for image in example.images:
        path = Path(image)
        images.append(hashlib.sha256(path.read_bytes()).digest() if path.is_file() else str(path))
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
