"""Checks prompt files before a training run: gold answers, prompt lengths, repeated prompts."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from openrlhf_js.tasks.hub import quiet_hub
from openrlhf_js.tasks.prompt_files import Example, read

BATCH = 256  # rows that are graded in parallel
IMAGE_TAG = "<image>"  # where in a prompt an image stands, for OpenRLHF
COUNTED = ("items", "gold_right", "wrong_refused", "repeated", "overlap")


@dataclass
class Report:
    """What a check found: figures by datasource, and the first problems of each kind."""

    shown: int = 3  # problems of each kind that are kept
    tallies: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    tokens: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    problems: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    counts: Counter[str] = field(default_factory=Counter)  # of problems, by kind

    def add(self, kind: str, place: str, text: object) -> None:
        """Counts a problem, and keeps it if it is among the first of its kind."""
        self.counts[kind] += 1
        if len(self.problems[kind]) < self.shown:
            self.problems[kind].append(f"{place}: {text}")

    def rows(self) -> list[dict[str, Any]]:
        """A table by datasource."""
        made = []
        for source, tally in sorted(self.tallies.items()):
            row = {"datasource": source, **{name: tally[name] for name in COUNTED}}
            if tokens := self.tokens[source]:
                row |= {"median_tokens": round(median(tokens)), "max_tokens": max(tokens)}
            made.append(row)
        return made


def check(
    paths: Sequence[Path],
    against: Sequence[Path] = (),
    keys: tuple[str, str] = ("input", "label"),
    count_tokens: Callable[[Example], int] | None = None,
    max_tokens: int = 1024,
    shown: int = 3,
    progress: Callable[[int], None] = lambda bytes_read: None,
) -> Report:
    """Checks files as one data set; of each prompt it keeps a digest and its place.

    Args:
        paths: the files.
        against: files that may not share a prompt with them.
        keys: the columns of prompt and label.
        count_tokens: of a prompt; None leaves lengths out.
        max_tokens: of the longest prompt.
        shown: problems of each kind to keep.
        progress: called with the number of bytes read so far.

    Raises:
        OSError, ValueError: a file cannot be read.
    """
    report = Report(shown)
    elsewhere: dict[bytes, str] = {}
    seen: dict[bytes, str] = {}
    done = 0
    with ThreadPoolExecutor() as threads:
        for path in [*against, *paths]:
            lines, empty = read(path, *keys), True
            while batch := list(islice(lines, BATCH)):
                empty = False
                examples = [line.example for line in batch]
                graded = [((), "")] * BATCH if path in against else threads.map(_graded, examples)
                for (place, example, _), (passed, problem) in zip(batch, graded, strict=False):
                    if isinstance(example, ValueError):
                        report.add("bad row", place, example)
                    elif path in against:
                        elsewhere.setdefault(fingerprint(example), place)
                    else:
                        report.tallies[example.datasource].update(("items", *passed))
                        if problem:
                            report.add("wrong grade", place, problem)
                        _look_for(example, place, seen, elsewhere, report)
                        _look_at(example, place, count_tokens, max_tokens, report)
                progress(done + batch[-1].read_bytes)
            if empty:
                report.add("bad row", str(path), "the file holds no row")
            done += path.stat().st_size
    return report


def _graded(example: Example | ValueError) -> tuple[tuple[str, ...], str]:
    """Which of the gold answer and a wrong one are graded as they should, and what is wrong."""
    if isinstance(example, ValueError):
        return (), ""
    task, label = example.task, example.label
    try:
        gold = task.score(task.right_response(label), label)
        wrong = task.score(task.wrong_response(label), label)
    except ValueError as error:
        return (), f"the label is malformed: {error}"
    passed = {"gold_right": gold.value == 1, "wrong_refused": wrong.value == 0}
    problem = ""
    if gold.value != 1:
        problem = f"the gold answer scores {gold.value:g} ({gold.status}: {gold.detail})"
    elif wrong.value != 0:
        problem = f"a wrong answer scores {wrong.value:g} ({wrong.detail})"
    return tuple(name for name, fine in passed.items() if fine), problem


def _look_for(
    example: Example,
    place: str,
    seen: dict[bytes, str],
    elsewhere: dict[bytes, str],
    report: Report,
) -> None:
    """Where else the prompt of an example stands."""
    key = fingerprint(example)
    tally = report.tallies[example.datasource]
    first = seen.setdefault(key, place)
    if first is not place:
        tally["repeated"] += 1
        report.add("repeated prompt", place, f"the same prompt as {first}")
    if key in elsewhere:
        tally["overlap"] += 1
        report.add("overlap", place, f"the same prompt as {elsewhere[key]}")


def _look_at(
    example: Example,
    place: str,
    count_tokens: Callable[[Example], int] | None,
    max_tokens: int,
    report: Report,
) -> None:
    """Images and length of a prompt."""
    tags = sum(message["content"].count(IMAGE_TAG) for message in example.messages)
    if tags != len(example.images):
        problem = f"{tags} {IMAGE_TAG} in the prompt, but {len(example.images)} images"
        report.add("image", place, problem)
    try:
        for image in example.images:
            size_of(image)
    except ValueError as error:
        report.add("image", place, error)
    if count_tokens is None:
        return
    try:
        tokens = count_tokens(example)
    except ValueError as error:
        report.add("no prompt", place, error)
        return
    report.tokens[example.datasource].append(tokens)
    if tokens > max_tokens:
        report.add("too long", place, f"the prompt takes {tokens} tokens, more than {max_tokens}")


def fingerprint(example: Example) -> bytes:
    """12 bytes that are the same for prompts that differ in white space alone.

    Images count by their content, so that equal questions about two figures are two prompts.
    """
    digest = hashlib.blake2b(digest_size=12)
    for message in example.messages:
        digest.update(f"{message['role']}\0{' '.join(message['content'].split())}\0".encode())
    for image in example.images:
        try:
            digest.update(hashlib.blake2b(Path(image).read_bytes()).digest())
        except OSError:  # reported where images are looked at
            digest.update(image.encode())
    return digest.digest()


def size_of(image: str) -> tuple[int, int]:
    """Width and height of an image file, in pixels; ValueError if there is none."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(image) as opened:
            return opened.size
    except UnidentifiedImageError:
        raise ValueError(f"not an image: {image}") from None
    except OSError as error:
        raise ValueError(f"no image: {image} ({error.strerror or error})") from None


class ChatTemplate:
    """Turns messages into the text that OpenRLHF hands to the policy, and counts its tokens.

    Args:
        model: folder or hub id of a model, or of its tokenizer. ValueError if it has no chat
            template.
    """

    def __init__(self, model: str):
        from huggingface_hub import hf_hub_download
        from transformers import AutoProcessor

        try:
            try:
                self._processor = AutoProcessor.from_pretrained(model, local_files_only=True)
            except (OSError, ValueError):
                if Path(model).is_dir():
                    raise
                with quiet_hub():  # alone, AutoProcessor tries six files for half a minute each
                    hf_hub_download(model, "tokenizer_config.json")
                    self._processor = AutoProcessor.from_pretrained(model)
        except (OSError, ValueError) as error:
            raise ValueError(f"no tokenizer in {model}: {str(error).splitlines()[0]}") from error
        if not getattr(self._processor, "chat_template", None):
            raise ValueError(
                f"the tokenizer in {model} has no chat template, which training with "
                "--data.apply_chat_template needs: take the model's instruct variant, or add "
                "`chat_template` to its tokenizer_config.json"
            )

    def text(self, example: Example) -> str:
        """The prompt, up to where the response begins; ValueError if the template refuses it."""
        from jinja2 import TemplateError

        messages = [{**each, "content": _parts(each["content"])} for each in example.messages]
        try:
            return self._processor.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
        except TemplateError as error:
            raise ValueError(f"the chat template refuses it: {error}") from error

    def tokens(self, example: Example) -> int:
        """How many tokens the prompt takes with its images; ValueError if it cannot be made."""
        text = self.text(example)
        if not hasattr(self._processor, "image_processor"):
            if example.images:
                raise ValueError("there are images, but the model takes text only")
            # Not verbose: the tokenizer's own longest text is not the budget.
            tokens = self._processor(text=text, add_special_tokens=False, verbose=False)
            return len(tokens["input_ids"])
        from PIL import Image

        try:
            images = [Image.open(image) for image in example.images]
        except OSError as error:
            raise ValueError(f"an image cannot be read: {error}") from error
        made = self._processor(text=[text], images=images or None, add_special_tokens=False)
        return len(made["input_ids"][0])


def _parts(content: str) -> str | list[dict[str, str]]:
    """What chat templates of multimodal models take: text and images, as OpenRLHF splits them."""
    if IMAGE_TAG not in content:
        return content
    parts: list[dict[str, str]] = []
    for number, text in enumerate(content.split(IMAGE_TAG)):
        parts += [{"type": "image"}] if number else []
        parts += [{"type": "text", "text": text.strip()}] if text.strip() else []
    return parts
