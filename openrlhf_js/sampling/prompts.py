"""Prompts as training would give them to the policy: from rows, in a drawn order, as tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from openrlhf_js.reward_model.rows import file_rows

Row = dict[str, Any]


class Prompt(NamedTuple):
    """What a model is asked, and how its answer is graded.

    Attributes:
        text: as the model is given it.
        label: gold.
        group: data source, "" if there is none.
        tokens: of the text.
    """

    text: str
    label: str
    group: str
    tokens: list[int]


@dataclass(frozen=True)
class Form:
    """How a row becomes a prompt, as the flags `--data.*` of training say it.

    Attributes:
        input_key: column of the prompt: text, or with a chat template also a list of messages.
        label_key: column of the gold label; None: no label, "".
        group_key: column of the data source; rows may lack it.
        apply_chat_template: whether the tokenizer's own template is put around it.
        input_template: text with {} in the prompt's place; None: nothing around it.
    """

    input_key: str = "input"
    label_key: str | None = "label"
    group_key: str = "datasource"
    apply_chat_template: bool = False
    input_template: str | None = None


def rows_of(path: Path) -> list[Row]:
    """All rows of a prompt file.

    Raises:
        ValueError: it holds none, or a line is none. OSError: it cannot be read.
    """
    found: list[Row] = []
    for row in file_rows(path):
        if isinstance(row.value, ValueError):
            raise ValueError(f"{path}, {row.place}: {row.value}")
        found.append(row.value)
    if not found:
        raise ValueError(f"{path} holds no prompt")
    return found


def drawn(rows: Sequence[Row], count: int | None, most: int, seed: int) -> list[Row]:
    """The first rows of a seeded shuffle, so that fewer are always the first of more.

    Args:
        rows: all there are.
        count: how many; None: `most`, or all if there are fewer.
        most: see there.
        seed: of the shuffle.

    Raises:
        ValueError: there are fewer than `count`.
    """
    wanted = min(most, len(rows)) if count is None else count
    if wanted > len(rows):
        raise ValueError(
            f"--prompts_count {wanted}, but there are {len(rows)} prompts; ask for fewer"
        )
    order = np.random.default_rng(seed).permutation(len(rows))
    return [rows[number] for number in order[:wanted]]


def asked(rows: Iterable[Row], form: Form, tokenizer: Any) -> list[Prompt]:
    """The prompts of rows.

    Args:
        rows: of the data.
        form: how they become prompts.
        tokenizer: the policy's.

    Raises:
        ValueError: a row lacks something, or is of a form that the policy cannot be given.
    """
    if form.apply_chat_template and not getattr(tokenizer, "chat_template", None):
        raise ValueError(
            "the model's tokenizer has no chat template: leave out --apply_chat_template, or add "
            "`chat_template` to its tokenizer_config.json"
        )
    found = []
    for row in rows:
        text = _text(row, form, tokenizer)
        tokens = tokenizer(text, add_special_tokens=False).input_ids
        if not tokens:
            raise ValueError(f"a prompt is empty, without a single token: {row!r:.200}")
        label = "" if form.label_key is None else _value(row, form.label_key, "--label_key")
        if not isinstance(label, str):
            raise ValueError(
                f"the label {label!r:.100} under {form.label_key!r} is {type(label).__name__}; it "
                "must be text"
            )
        found.append(Prompt(text, label, str(row.get(form.group_key) or ""), list(tokens)))
    return found


def _text(row: Row, form: Form, tokenizer: Any) -> str:
    if row.get("images"):
        raise ValueError("a row has images: these engines sample from models of text only")
    value = _value(row, form.input_key, "--input_key")
    if form.apply_chat_template:
        chat = [{"role": "user", "content": value}] if isinstance(value, str) else value
        text: str = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        return text
    if not isinstance(value, str):
        raise ValueError(
            f"{form.input_key!r} holds {type(value).__name__}, not text; messages need "
            "--apply_chat_template"
        )
    return form.input_template.format(value) if form.input_template else value


def _value(row: Row, key: str, flag: str) -> Any:
    if row.get(key) is None:
        seen = ", ".join(map(str, row)) or "none"
        raise ValueError(f"a row has nothing under {key!r} ({flag}); keys seen: {seen}")
    return row[key]


def check_lengths(prompts: Sequence[Prompt], max_new_tokens: int, context: int | None) -> None:
    """Raises ValueError for a prompt that leaves a response no room in the model's context.

    Args:
        prompts: that are to be sampled.
        max_new_tokens: of a response.
        context: tokens of prompt and response together that the model can take; None: any number.
    """
    if context is None:
        return
    long = [each for each in prompts if len(each.tokens) + max_new_tokens > context]
    if long:
        worst = max(len(each.tokens) for each in long)
        raise ValueError(
            f"{len(long)} of {len(prompts)} prompts, of up to {worst} tokens, leave no room for "
            f"{max_new_tokens} new ones: the model takes {context} together. Lower "
            f"--max_new_tokens to {context - worst} or less, or take the long prompts out of the "
            "data"
            if worst < context
            else f"{len(long)} of {len(prompts)} prompts are too long, with up to {worst} tokens: "
            f"the model takes {context} together with the response. Take them out of the data"
        )
