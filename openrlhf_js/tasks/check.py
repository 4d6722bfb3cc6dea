"""Checks prompt files before a training run: gold answers, prompt lengths, repeated prompts."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from openrlhf_js.tasks.hub import quiet_hub
from openrlhf_js.tasks.prompt_files import Example, read

BATCH = 256  # rows that are graded in parallel
IMAGE_TAG = "<image>"  # where in a prompt an image stands, for OpenRLHF
COUNTED = ("items", "graded_right", "repeated", "overlap")


@dataclass
class Findings:
    """Figures by datasource, and the problems of each kind with their place."""

    tallies: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    tokens: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    problems: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, kind: str, place: str, text: object) -> None:
        self.problems[kind].append(f"{place}: {text}")

    def rows(self) -> list[dict[str, Any]]:
        """A table by datasource."""
        made = []
        for source, tally in sorted(self.tallies.items()):
            row = {"datasource": source, **{name: tally[name] for name in COUNTED}}
            if any(tokens := self.tokens[source]):  # all 0 where they are not counted
                row |= {"median_tokens": round(median(tokens)), "max_tokens": max(tokens)}
            made.append(row)
        return made


def check(
    paths: Sequence[Path],
    against: Sequence[Path] = (),
    keys: tuple[str, str] = ("input", "label"),
    count_tokens: Callable[[Example], int] | None = None,
    max_tokens: int = 1024,
    progress: Callable[[int], None] = lambda bytes_read: None,
) -> Findings:
    """Checks files as one data set, which may not share a prompt with the files `against`.

    `keys` are the columns of prompt and label. Of each prompt it remembers a digest and a place.
    """
    found, done = Findings(), 0
    elsewhere: dict[bytes, str] = {}
    seen: dict[bytes, str] = {}
    with ThreadPoolExecutor() as threads:
        for path in [*against, *paths]:
            lines, empty = read(path, *keys), True
            while batch := list(islice(lines, BATCH)):
                empty = False
                work = [line.example if path in paths else None for line in batch]
                for line, problem in zip(batch, threads.map(_grade_problem, work), strict=True):
                    place, example = line.place, line.example
                    if isinstance(example, ValueError):
                        found.add("bad row", place, example)
                        continue
                    key = fingerprint(example)
                    if path not in paths:
                        elsewhere.setdefault(key, place)
                        continue
                    first, other = seen.setdefault(key, place), elsewhere.get(key)
                    found.tallies[example.datasource].update(
                        items=1,
                        graded_right=not problem,
                        repeated=first is not place,
                        overlap=other is not None,
                    )
                    if problem:
                        found.add("wrong grade", place, problem)
                    if first is not place:
                        found.add("repeated prompt", place, f"the same prompt as {first}")
                    if other:
                        found.add("overlap", place, f"the same prompt as {other}")
                    _look_at(example, place, found, count_tokens, max_tokens)
                progress(done + batch[-1].read_bytes)
            if empty:
                found.add("bad row", str(path), "the file holds no row")
            done += path.stat().st_size
    return found


def _grade_problem(example: Example | ValueError | None) -> str:
    """What is wrong with the grades of the gold answer and of a wrong one; "" if nothing."""
    if not isinstance(example, Example):
        return ""
    task, label = example.task, example.label
    try:
        gold = task.score(task.right_response(label), label)
        wrong = task.score(task.wrong_response(label), label)
    except ValueError as error:
        return f"the label is malformed: {error}"
    if gold.value != 1:
        return f"the gold answer scores {gold.value:g} ({gold.status}: {gold.detail})"
    return f"a wrong answer scores {wrong.value:g} ({wrong.detail})" if wrong.value else ""


def _look_at(
    example: Example,
    place: str,
    found: Findings,
    count_tokens: Callable[[Example], int] | None,
    max_tokens: int,
) -> None:
    """Adds problems with images and with the length of the prompt."""
    tags = sum(message["content"].count(IMAGE_TAG) for message in example.messages)
    if tags != len(example.images):
        found.add("image", place, f"{tags} {IMAGE_TAG} in the prompt, {len(example.images)} images")
    for image in example.images:
        if not Path(image).is_file():
            found.add("image", place, f"no file {image}")
    try:
        if not example.messages[-1]["content"].strip():
            raise ValueError("the last message is empty")
        tokens = count_tokens(example) if count_tokens else 0
    except ValueError as error:
        return found.add("no prompt", place, error)
    found.tokens[example.datasource].append(tokens)
    if tokens > max_tokens:
        found.add("too long", place, f"the prompt takes {tokens} tokens, more than {max_tokens}")


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

    def __init__(self, model: str):
        from huggingface_hub import hf_hub_download
        from transformers import AutoProcessor

        try:
            with quiet_hub():
                if not Path(model).is_dir():  # alone, AutoProcessor waits minutes without a network
                    hf_hub_download(model, "tokenizer_config.json")
                self._processor = AutoProcessor.from_pretrained(model)
        except (OSError, ValueError) as error:
            raise ValueError(f"no tokenizer in {model}: {str(error).splitlines()[0]}") from error
        if not getattr(self._processor, "chat_template", None):
            raise ValueError(
                f"the tokenizer in {model} has no chat template: take the model's instruct "
                "variant, or add `chat_template` to its tokenizer_config.json"
            )

    def text(self, example: Example) -> str:
        """The prompt, up to where the response begins; ValueError if the template refuses it."""
        from jinja2 import TemplateError

        messages = [{**each, "content": _parts(each["content"])} for each in example.messages]
        empty = [*messages[:-1], {**messages[-1], "content": ""}]
        render = partial(self._processor.apply_chat_template, tokenize=False)
        try:
            text = render(messages, add_generation_prompt=True)
        except TemplateError as error:
            raise ValueError(f"the chat template refuses it: {error}") from error
        with suppress(TemplateError):  # which is why nothing is left out
            if text == render(empty, add_generation_prompt=True):
                raise ValueError("the chat template renders nothing of it")
        return text

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


def _parts(content: str) -> str | list[dict[str, str]]:
    """What chat templates of multimodal models take: text and images, as OpenRLHF splits them."""
    if IMAGE_TAG not in content:
        return content
    parts = []
    for place, text in enumerate(content.split(IMAGE_TAG)):
        parts += [{"type": "image"}] if place else []
        parts += [{"type": "text", "text": text.strip()}] if text.strip() else []
    return parts
