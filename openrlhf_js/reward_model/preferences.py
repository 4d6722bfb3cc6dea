"""Pairs of responses of which one is preferred, and the texts that a reward model is trained on.

The texts are those of OpenRLHF (0.11.2, datasets/reward_dataset.py): prompt and response with the
chat template where one is used, without line ends behind them, with the end-of-sequence token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from openrlhf_js.reward_model.rows import file_rows

Messages = list[dict[str, Any]]
Side = str | Messages
Template = Callable[..., Any]  # a tokenizer's `apply_chat_template`

LARGEST_MARGIN = 3e38  # upstream has them in float32


class Keys(NamedTuple):
    """The columns of a preference file, as `--data.prompt_key` and its neighbours name them."""

    prompt: str | None = None  # None: the prompt is part of both sides
    chosen: str = "chosen"
    rejected: str = "rejected"
    subset: str | None = "subset"  # may be missing
    margin: str | None = None  # where the loss wants a number of each pair


@dataclass(frozen=True, slots=True)
class Pair:
    """Two responses to one prompt, as text or as messages.

    Attributes:
        prompt: None where both sides hold the whole conversation.
        chosen: the preferred side; of the same kind as the others.
        rejected: the other side.
        line: its number in the file, from 1.
        subset: what evaluation groups it by; empty where the file does not say.
    """

    prompt: Side | None
    chosen: Side
    rejected: Side
    line: int
    subset: str = ""


def read_pairs(
    path: Path | str,
    prompt_key: str | None = None,
    chosen_key: str = "chosen",
    rejected_key: str = "rejected",
    subset_key: str | None = "subset",
) -> Iterator[Pair]:
    """The pairs of a local file (JSON, JSONL, CSV or Parquet), one after the other.

    Args:
        path: the file.
        prompt_key: the prompt's column; None if the prompt is part of both sides.
        chosen_key: the preferred side's.
        rejected_key: the other side's.
        subset_key: what evaluation groups by, where there is such a column; None for none.

    Raises:
        OSError: the file cannot be read.
        ValueError: a row is no pair, with its place, or there is none.
    """
    path = Path(path)
    keys = Keys(prompt_key, chosen_key, rejected_key, subset_key)
    row = None
    for row in file_rows(path, [key for key in keys if key]):
        try:
            yield pair(row.value, keys, row.number)
        except ValueError as error:
            raise ValueError(f"{path}, {row.place}: {error}") from None
    if row is None:
        raise ValueError(f"{path} holds no pair")


def pair(row: Mapping[str, Any] | ValueError, keys: Keys, line: int) -> Pair:
    """What a row holds.

    Raises:
        ValueError: a side is missing or not of a kind that OpenRLHF takes; `row` itself, if it is
            an error.
    """
    if isinstance(row, ValueError):
        raise row
    for key in (keys.prompt, keys.chosen, keys.rejected):
        if key is not None:
            _check_side(row, key)
    if keys.margin is not None:
        _check_margin(row, keys.margin)
    prompt = None if keys.prompt is None else row[keys.prompt]
    chosen, rejected = row[keys.chosen], row[keys.rejected]
    kinds = {type(each) for each in (prompt, chosen, rejected) if each is not None}
    if len(kinds) > 1:
        names = ", ".join(repr(key) for key in keys[:3] if key)
        raise ValueError(f"{names} must all hold text or all hold messages, not some of each")
    subset = row.get(keys.subset) if keys.subset else None
    return Pair(prompt, chosen, rejected, line, "" if subset is None else str(subset))


def _check_side(row: Mapping[str, Any], key: str) -> None:
    side = row.get(key)
    if side is None:
        seen = ", ".join(map(str, row)) or "none"
        raise ValueError(f"no value under the key {key!r}; keys seen: {seen}")
    if isinstance(side, str):
        _check_text(side, key)
    elif not isinstance(side, list) or not side:
        raise ValueError(f"{key!r} must hold text or a list of messages, not {side!r:.60}")
    else:
        for number, message in enumerate(side, 1):
            if not isinstance(message, dict) or not all(
                isinstance(message.get(part), str) for part in ("role", "content")
            ):
                raise ValueError(
                    f"message {number} in {key!r} must have a role and a content, both text"
                )
            _check_text(message["content"], key)


def _check_margin(row: Mapping[str, Any], key: str) -> None:
    margin: Any = row.get(key)
    if type(margin) not in (int, float) or not abs(margin) <= LARGEST_MARGIN:
        raise ValueError(f"{key!r} must hold a finite number, not {margin!r:.60}")


def _check_text(text: str, key: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        lone = text[error.start]
        raise ValueError(f"{key!r} holds {lone!r}, half a character: no UTF-8 text") from None


class Texts(NamedTuple):
    """Both sides of a pair as text.

    Attributes:
        chosen: prompt and preferred response.
        rejected: prompt and the other one.
        whole: False where the template's generation prompt is not how it begins the response, so
            that OpenRLHF, which cuts the prompt off by its length, has lost or doubled some of it.
    """

    chosen: str
    rejected: str
    whole: bool


def texts(
    pair: Pair,
    template: Template | None = None,
    eos_token: str | None = None,
    input_template: str | None = None,
) -> tuple[str, str]:
    """Both sides as OpenRLHF's reward model training gives them to its tokenizer.

    Args:
        pair: as `read_pairs` gives it.
        template: the tokenizer's `apply_chat_template`; None if the sides are text already.
        eos_token: the tokenizer's; None leaves the end as it is, for what adds it later.
        input_template: `--data.input_template`, into which the prompt is put; not with `template`.

    Returns:
        The chosen text and the rejected one.

    Raises:
        ValueError: messages without a template or text with one, or the template refuses them.
    """
    made = rendered(pair, template, input_template)
    if eos_token is None:
        return made.chosen, made.rejected
    return ended(made.chosen, eos_token), ended(made.rejected, eos_token)


def ended(text: str, eos_token: str) -> str:
    """The text with its end-of-sequence token, as OpenRLHF's RewardDataset adds it."""
    text = text.rstrip("\n")
    return text if text.endswith(eos_token) else f"{text} {eos_token}"


def rendered(
    pair: Pair, template: Template | None = None, input_template: str | None = None
) -> Texts:
    """Both sides without their ends, and whether the prompt is whole; see `texts`."""
    if template is None:
        prompt = "" if pair.prompt is None else _text(pair.prompt)
        if pair.prompt is not None and input_template:
            prompt = input_template.format(prompt)
        return Texts(prompt + _text(pair.chosen), prompt + _text(pair.rejected), True)
    chosen, rejected = _messages(pair.chosen), _messages(pair.rejected)
    if pair.prompt is None:
        return Texts(_applied(template, chosen), _applied(template, rejected), True)
    messages = _messages(pair.prompt)
    prompt = _applied(template, messages, add_generation_prompt=True)
    full, other = (_applied(template, messages + side) for side in (chosen, rejected))
    whole = full.startswith(prompt) and other.startswith(prompt)
    return Texts(prompt + full[len(prompt) :], prompt + other[len(prompt) :], whole)


def _text(side: Side) -> str:
    if isinstance(side, str):
        return side
    raise ValueError("the sides hold messages, which need --data.apply_chat_template")


def _messages(side: Side) -> Messages:
    if isinstance(side, list):
        return side
    raise ValueError(
        "--data.apply_chat_template is for messages, and the sides hold text: leave it out, or "
        'write each side as a list of {"role": ..., "content": ...}'
    )


def _applied(template: Template, messages: Messages, **options: bool) -> str:
    from jinja2 import TemplateError

    try:
        return template(messages, tokenize=False, **options)
    except TemplateError as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"the chat template refuses it: {reason}") from error
