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
    keys: tuple[str, str] = ("input", "label"),
    count_tokens: Callable[[Example], int] = lambda example: 0,
    max_tokens: int = 1024,
    progress: Callable[[int], None] = lambda bytes_read: None,
) -> CheckedFiles:
    """Checks files as one data set, which may not share a prompt with the files `against`.

    `keys` are the columns of prompt and label. Of each prompt it remembers a digest and a place.
    """
    found, done = CheckedFiles(), 0
    elsewhere: dict[bytes, str] = {}
    seen: dict[bytes, str] = {}

    def problems_of(example: Example, place: str) -> Problems:
        yield from _wrong_grades(example)
        key = fingerprint(example)
        if (first := seen.setdefault(key, place)) is not place:
            yield "repeated prompt", f"the same prompt as {first}"
        if key in elsewhere:
            yield "overlap", f"the same prompt as {elsewhere[key]}"
        yield from _wrong_images(example)
        tokens = 0
        try:
            if not example.messages[-1]["content"].strip():
                raise ValueError("the last message is empty")
            tokens = count_tokens(example)
        except ValueError as error:
            yield "no prompt", str(error)
        found.tokens[example.datasource].append(tokens)
        if tokens > max_tokens:
            yield "too long", f"the prompt takes {tokens} tokens, more than {max_tokens}"

    for path in [*against, *paths]:
        for place, example, read_bytes in read(path, *keys):
            progress(done + read_bytes)
            if isinstance(example, ValueError):
                found.problems["bad row"].append(f"{place}: {example}")
            elif path not in paths:
                elsewhere.setdefault(fingerprint(example), place)
            else:
                for kind, text in problems_of(example, place):
                    found.problems[kind].append(f"{place}: {text}")
        done += path.stat().st_size
    return found


def _wrong_grades(example: Example) -> Problems:
    """What is wrong with the grades of the gold answer and of a wrong one."""
    task, label = example.task, example.label
    try:
        gold = task.score(task.right_response(label), label)
        wrong = task.score(task.wrong_response(label), label)
        if gold.value != 1:
            said = f"the gold answer scores {gold.value:g} ({gold.status}: {gold.detail})"
            yield "wrong grade", said
        elif wrong.value:
            yield "wrong grade", f"a wrong answer scores {wrong.value:g} ({wrong.detail})"
    except ValueError as error:
        yield "wrong grade", f"the label is malformed: {error}"


def _wrong_images(example: Example) -> Problems:
    tags = sum(message["content"].count(IMAGE_TAG) for message in example.messages)
    if tags != len(example.images):
        yield "image", f"{tags} {IMAGE_TAG} in the prompt, {len(example.images)} images"
    yield from (("image", f"no file {p}") for p in example.images if not Path(p).is_file())


def fingerprint(example: Example) -> bytes:
    """12 bytes that are the same for prompts that differ in white space alone.

    Images count by their content, so that equal questions about two figures are two prompts.
    """
    said = [[message["role"], message["content"].split()] for message in example.messages]
    paths = map(Path, example.images)
    shown = [hashlib.sha256(p.read_bytes()).digest() if p.is_file() else str(p) for p in paths]
    return hashlib.blake2b(repr([said, shown]).encode(), digest_size=12).digest()


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

        messages = [{**each, "content": parts(each["content"])} for each in example.messages]
        template = self._processor.apply_chat_template
        try:
            return str(template(messages, tokenize=False, add_generation_prompt=True))
        except TemplateError as error:
            raise ValueError(f"the chat template refuses it: {error}") from error

    def tokens(self, example: Example) -> int:
        """How many tokens the prompt takes with its images; ValueError if it cannot be made."""
        from PIL import Image

        given: dict[str, Any] = {"text": [self.text(example)], "add_special_tokens": False}
        if hasattr(self._processor, "image_processor"):
            try:
                given["images"] = [Image.open(image) for image in example.images] or None
            except OSError as error:
                raise ValueError(f"an image cannot be read: {error}") from error
        elif example.images:
            raise ValueError("there are images, but the model takes text only")
        else:
            given["verbose"] = False  # the tokenizer's own longest text is not the limit
        return len(self._processor(**given)["input_ids"][0])
