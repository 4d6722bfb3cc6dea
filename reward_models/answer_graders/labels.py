"""Contents of data rows: labels as graders read them, messages, and image placeholders."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

IMAGE_TAG = "<image>"  # marks the place of an image in a prompt, for OpenRLHF


def label_text(label: Any) -> str:
    """A label as plain text: text as it is, and a whole number as its decimal digits.

    JSON, CSV and Parquet store whole numbers as integers, and 42 has one spelling. Other numbers
    have several (0.5, 0.50), so they raise a ValueError that asks for text.
    """
    is_whole_number = isinstance(label, int) and not isinstance(label, bool)
    if isinstance(label, str) or is_whole_number:
        return str(label)
    raise ValueError(
        f'a label must be text, as in "42", or a whole number, got {type(label).__name__}: '
        f"{label!r:.80}; write it as text, or leave the row out"
    )


def is_message(value: Any) -> bool:
    """Whether a value is a message of a conversation: a role and a content, both text."""
    if not isinstance(value, dict):
        return False
    return isinstance(value.get("role"), str) and isinstance(value.get("content"), str)


def call_grader(
    reward_func: Callable[..., Any],
    queries: Sequence[str],
    prompts: Sequence[str],
    labels: Sequence[Any],
    datasources: Sequence[str],
) -> Any:
    """Returns the result of a reward function; passes `datasources` if it has that parameter."""
    if "datasources" in inspect.signature(reward_func).parameters:
        return reward_func(queries, prompts, labels, datasources=datasources)
    return reward_func(queries, prompts, labels)


def check_images(messages: Sequence[Mapping[str, Any]], images: Sequence[str]) -> None:
    """Raises ValueError unless the messages have one `<image>` for each image."""
    tags = sum(message["content"].count(IMAGE_TAG) for message in messages)
    if tags != len(images):
        raise ValueError(f"a prompt has {len(images)} images, and {tags} times {IMAGE_TAG}")
