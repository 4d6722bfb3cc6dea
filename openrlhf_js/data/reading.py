"""Reads data sets line by line: what stands on each, or why it is no row of a data set."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from openrlhf_js.tasks import task_of
from openrlhf_js.tasks.base import Message, Task

GZIP = b"\x1f\x8b"
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # JSON's escape of half a character
IMAGE_TAG = "<image>"  # where in a prompt an image stands, for OpenRLHF


class Keys(NamedTuple):
    """The columns that hold prompt and label, as `--data.input_key` and `--data.label_key` say."""

    input: str = "input"
    label: str = "label"


KEYS = Keys()


@dataclass(frozen=True)
class Example:
    """A row that a model can be trained on."""

    messages: list[Message]
    label: str
    datasource: str
    task: Task
    images: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All that the messages say."""
        return "\n".join(message["content"] for message in self.messages)


class Line(NamedTuple):
    """One line of a file: an example, or what is wrong with it."""

    number: int
    size_bytes: int
    example: Example | None
    problem: str


def read(path: Path, keys: Keys = KEYS) -> Iterator[Line]:
    """Every line that is not blank, numbered from 1.

    Only `\\n` ends a line: text may hold other characters that Python would split at.

    Raises:
        OSError: the file cannot be read. ValueError: it is compressed.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if number == 1 and line.startswith(GZIP):
                raise ValueError(f"{path} is compressed, which OpenRLHF does not read: gunzip it")
            if not line.strip():
                continue
            try:
                yield Line(number, len(line), example(_parsed(line), keys), "")
            except ValueError as error:
                yield Line(number, len(line), None, str(error))


def _parsed(line: bytes) -> Any:
    try:
        row = json.loads(line.decode("utf-8-sig"))
        if SURROGATE.search(line):
            json.dumps(row, ensure_ascii=False).encode()
        return row
    except UnicodeEncodeError as error:
        lone = error.object[error.start]
        raise ValueError(f"holds {lone!r}, half a character: no UTF-8 text") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 text ({error.reason} at byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error.msg} at column {error.colno})") from None
    except RecursionError:
        raise ValueError("not JSON of a row (nested too deeply)") from None
    except ValueError:
        raise ValueError("not JSON of a row (a number is too long)") from None


def example(row: Any, keys: Keys = KEYS) -> Example:
    """What a row asks and how its answer is graded.

    Raises:
        ValueError: something is missing, or is not what OpenRLHF and the graders take.
    """
    if not isinstance(row, dict):
        raise ValueError(f"not a JSON object, but {type(row).__name__}")
    for key in (keys.input, keys.label, "datasource"):
        if row.get(key) is None:
            seen = ", ".join(row) or "none"
            raise ValueError(f"no value under the key {key!r}; keys seen: {seen}")
    label, datasource = row[keys.label], row["datasource"]
    for key, value in ((keys.label, label), ("datasource", datasource)):
        if not isinstance(value, str):
            raise ValueError(f"{key!r} holds {type(value).__name__}; it must hold text")
    images = row.get("images") or []
    if not isinstance(images, list) or not all(isinstance(image, str) for image in images):
        raise ValueError("'images' must hold a list of paths")
    messages = _messages(row[keys.input], keys.input)
    return Example(messages, label, datasource, task_of(datasource), images)


def _messages(prompt: Any, key: str) -> list[Message]:
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]  # as OpenRLHF takes it
    if not isinstance(prompt, list) or not prompt:
        raise ValueError(f"{key!r} must hold a list of messages, or text")
    for message in prompt:
        if not isinstance(message, dict) or not all(
            isinstance(message.get(part), str) for part in ("role", "content")
        ):
            raise ValueError(f"every message in {key!r} must have a role and a content, both text")
    return prompt


def size_of(image: str) -> tuple[int, int]:
    """Width and height of an image file, in pixels.

    Raises:
        ValueError: there is no such file, or it is no image.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(image) as opened:
            return opened.size
    except UnidentifiedImageError:
        raise ValueError(f"not an image: {image}") from None
    except OSError as error:
        raise ValueError(f"no image: {image} ({error.strerror or error})") from None
