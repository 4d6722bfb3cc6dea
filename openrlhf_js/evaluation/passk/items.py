"""The items of a benchmark: what is asked, how answers are graded, and a name by content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from openrlhf_js.reward_model.rows import file_rows
from openrlhf_js.tasks import Task, task_of

Message = dict[str, str]
UID_DIGITS = 16


class Item(NamedTuple):
    """One problem.

    Attributes:
        uid: a fingerprint of everything else: equal problems have equal ones.
        input: what is asked: text, or messages.
        label: the gold answer.
        datasource: names the task that grades, such as `math/math500`.
        images: paths of the figures that stand where the text says `<image>`.
    """

    uid: str
    input: str | list[Message]
    label: str
    datasource: str
    images: list[str]

    @property
    def task(self) -> Task:
        """What grades its answers."""
        return task_of(self.datasource)

    @property
    def messages(self) -> list[Message]:
        """What is asked, as a chat."""
        if isinstance(self.input, str):
            return [{"role": "user", "content": self.input}]
        return self.input

    @property
    def text(self) -> str:
        """What is asked, as plain text."""
        return "\n\n".join(message["content"] for message in self.messages)


def items_of_file(path: Path) -> list[Item]:
    """The items of a prompt file, as `openrlhf-js data build` writes it.

    Raises:
        ValueError: it holds none, or a row is none; the message says which and why.
        OSError: it cannot be read.
    """
    found = []
    for row in file_rows(path):
        if isinstance(row.value, ValueError):
            raise ValueError(f"{path}, {row.place}: {row.value}")
        try:
            found.append(item_of(row.value))
        except ValueError as error:
            raise ValueError(f"{path}, {row.place}: {error}") from None
    if not found:
        raise ValueError(f"{path} holds no item: build it with `openrlhf-js data build`")
    return found


def items_of_rows(rows: Iterable[dict[str, Any]]) -> list[Item]:
    """The items of rows.

    Raises:
        ValueError: a row is none.
    """
    return [item_of(row) for row in rows]


def item_of(row: dict[str, Any]) -> Item:
    """The item of one row: `input`, `label`, `datasource` and perhaps `images`.

    Raises:
        ValueError: something is missing or of another form, or no task can grade it.
    """
    for key in ("input", "label", "datasource"):
        if row.get(key) is None:
            seen = ", ".join(map(str, row)) or "none"
            raise ValueError(f"no value under the key {key!r}; keys seen: {seen}")
    label, datasource = row["label"], row["datasource"]
    for key, value in (("label", label), ("datasource", datasource)):
        if not isinstance(value, str):
            raise ValueError(f"{key!r} holds {type(value).__name__}; it must hold text")
    asked = _input(row["input"])
    raw = row.get("images")
    images = [] if raw is None else list(raw)
    if not all(isinstance(image, str) for image in images):
        raise ValueError("'images' must hold a list of paths")
    task_of(datasource).score("", label)  # a label that cannot be graded against is refused here
    # Figures bear the hash of their content as their name: where they lie says nothing.
    content = [asked, label, datasource, [Path(image).name for image in images]]
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:UID_DIGITS]
    return Item(digest, asked, label, datasource, images)


def _input(asked: Any) -> str | list[Message]:
    if isinstance(asked, str):
        return asked
    if not isinstance(asked, list) or not asked:
        raise ValueError("'input' must hold a list of messages, or text")
    for message in asked:
        if not isinstance(message, dict) or not all(
            isinstance(message.get(part), str) for part in ("role", "content")
        ):
            raise ValueError("every message in 'input' must have a role and a content, both text")
    return asked
