"""Prompts as training gives them to the policy: rows, drawn in a seeded order, as tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from answer_graders.labels import IMAGE_TAG, check_images, label_text
from answer_graders.programs.files import read_rows

Row = dict[str, Any]


class Prompt(NamedTuple):
    """A prompt's text, gold label, data source ("" for none) and tokens."""

    text: str
    label: str
    group: str
    tokens: list[int]


@dataclass(frozen=True)
class Form:
    """How a row becomes a prompt, as the flags `--data.*` of training define it.

    `input_key` holds text, or with a chat template also a list of messages; `label_key` None means
    no label; rows may lack `group_key`; `input_template` has {} where the prompt goes.
    """

    input_key: str = "input"
    label_key: str | None = "label"
    group_key: str = "datasource"
    apply_chat_template: bool = False
    input_template: str | None = None


def read_prompt_rows(path: Path) -> list[Row]:
    """All rows of a prompt file; ValueError if it has none, or a bad one."""
    rows = [row.object(path) for row in read_rows(path)]
    if not rows:
        raise ValueError(f"{path} holds no prompt")
    return rows


def drawn(rows: Sequence[Row], count: int | None, most: int, seed: int) -> list[Row]:
    """The first `count` rows of a seeded shuffle (None: up to `most`): a larger one extends it."""
    wanted = min(most, len(rows)) if count is None else count
    if wanted > len(rows):
        raise ValueError(f"{wanted} prompts are asked for, and there are {len(rows)}")
    order = np.random.default_rng(seed).permutation(len(rows))
    return [rows[number] for number in order[:wanted]]


def asked(rows: Iterable[Row], form: Form, tokenizer: Any, processor: Any = None) -> list[Prompt]:
    """The prompts of rows; ValueError for a row that cannot become a prompt.

    A vision-language model has a `processor`: a row may then have `images`, a path for each
    `<image>`.
    """
    if form.apply_chat_template and not getattr(tokenizer, "chat_template", None):
        raise ValueError(
            "the model's tokenizer has no chat template, which messages need: take its instruct "
            "variant, or give text as the prompt, without --apply_chat_template"
        )
    return [_prompt(row, form, tokenizer, processor) for row in rows]


def _prompt(row: Row, form: Form, tokenizer: Any, processor: Any) -> Prompt:
    text = _text(row, form, tokenizer, processor)
    image_paths = row.get("images")
    if image_paths:
        images = [Image.open(path) for path in image_paths]
        (tokens,) = processor(text=[text], images=images, add_special_tokens=False).input_ids
    else:
        tokens = tokenizer(text, add_special_tokens=False).input_ids
    label = ""
    if form.label_key is not None:
        label = _value(row, form.label_key, "--label_key")
    if not tokens:
        raise ValueError(f"a prompt is empty: {row!r:.200}")
    try:
        label = label_text(label)
    except ValueError as error:
        raise ValueError(f"{error}: {row!r:.200}") from None
    group = str(row.get(form.group_key) or "")
    return Prompt(text, label, group, list(tokens))


def _text(row: Row, form: Form, tokenizer: Any, processor: Any) -> str:
    images = row.get("images")
    if images and not (processor and form.apply_chat_template):
        raise ValueError(
            "a row has images, which need a model that sees and its chat template: take such a "
            "model for `eval passk`; other programs sample responses to text alone"
        )
    value = _value(row, form.input_key, "--input_key")
    if form.apply_chat_template:
        chat = [{"role": "user", "content": value}] if isinstance(value, str) else value
        if images:
            check_images(chat, images)
            chat = [{**message, "content": _parts(message["content"])} for message in chat]
        from jinja2 import TemplateError

        template = (processor or tokenizer).apply_chat_template
        try:
            return str(template(chat, tokenize=False, add_generation_prompt=True))
        except TemplateError as error:  # some know no system message
            raise ValueError(f"the model's chat template refuses the messages: {error}") from error
    if not isinstance(value, str):
        kind = type(value).__name__
        raise ValueError(
            f"{form.input_key!r} holds {kind}, not text; messages need --apply_chat_template"
        )
    return form.input_template.format(value) if form.input_template else value


def _parts(content: str) -> str | list[dict[str, str]]:
    """The content for a vision model's chat template: text and images, split as OpenRLHF does."""
    if IMAGE_TAG not in content:
        return content
    pieces = [piece.strip() for piece in re.split(f"({IMAGE_TAG})", content) if piece.strip()]
    return [
        {"type": "image"} if piece == IMAGE_TAG else {"type": "text", "text": piece}
        for piece in pieces
    ]


def _value(row: Row, key: str, flag: str) -> Any:
    if row.get(key) is None:
        seen = ", ".join(map(str, row)) or "none"
        raise ValueError(f"a row has nothing under {key!r} ({flag}); keys seen: {seen}")
    return row[key]


def check_lengths(prompts: Sequence[Prompt], max_new_tokens: int, context: int | None) -> None:
    """Raises ValueError for a prompt that leaves no room for a response in the model's context."""
    longest = max(len(prompt.tokens) for prompt in prompts)
    if context is not None and longest + max_new_tokens > context:
        raise ValueError(
            f"a prompt of {longest} tokens leaves no room for {max_new_tokens} new ones: the model "
            f"takes {context} together. Lower --max_new_tokens, or take out the long prompts"
        )
