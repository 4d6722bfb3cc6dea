"""Pairs of responses of which one is preferred, and the texts that a reward model is trained on.

The texts are those of OpenRLHF 0.11.2 (datasets/reward_dataset.py): prompt and response, rendered
by the chat template where one is used, without trailing newlines, then the end-of-sequence token.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from openrlhf_js.common.files import read_rows

Messages = list[dict[str, Any]]
Side = str | Messages
Template = Callable[..., Any]  # a tokenizer's `apply_chat_template`

LARGEST_MARGIN = 3e38  # OpenRLHF keeps margins in float32
LEAST_TO_NORMALISE = 50  # pairs: the std of 100 rewards is known to about 7 %


class Keys(NamedTuple):
    """The columns of a preference file (`--data.prompt_key` and its neighbours)."""

    prompt: str | None = None  # None: both sides include the prompt
    chosen: str = "chosen"
    rejected: str = "rejected"
    subset: str | None = "subset"  # may be missing
    margin: str | None = None  # for the margin loss


@dataclass(frozen=True, slots=True)
class PreferencePair:
    """Two responses to one prompt, all text or all messages."""

    prompt: Side | None  # None: both sides hold the whole conversation
    chosen: Side
    rejected: Side
    place: str  # in the file, such as "line 12"
    subset: str = ""  # group to report separately
    unread_prompt: bool = False  # no key names the column `prompt`, and a side lacks its text


def read_pairs(path: Path | str, *columns: str | None) -> Iterator[PreferencePair]:
    """The pairs of a local file, with the columns of `Keys`; a bad row is a ValueError."""
    path, keys = Path(path), Keys(*columns)  # type: ignore[arg-type]
    for row in read_rows(path):
        try:
            yield pair(row.value, keys, row.place)
        except ValueError as error:
            raise ValueError(f"{path}, {row.place}: {error}") from None


def pair(row: Mapping[str, Any] | ValueError, keys: Keys, place: str) -> PreferencePair:
    """The pair of a row; ValueError if it is not one that OpenRLHF takes."""
    if isinstance(row, ValueError):
        raise row
    for key in (keys.prompt, keys.chosen, keys.rejected):
        if key is not None:
            _check_side(row, key)
    if keys.margin is not None:
        margin: Any = row.get(keys.margin)
        if type(margin) not in (int, float) or not abs(margin) <= LARGEST_MARGIN:
            raise ValueError(f"{keys.margin!r} must hold a finite number, not {margin!r:.60}")
    prompt = None if keys.prompt is None else row[keys.prompt]
    chosen, rejected = row[keys.chosen], row[keys.rejected]
    if len({type(each) for each in (prompt, chosen, rejected) if each is not None}) > 1:
        names = ", ".join(repr(key) for key in keys[:3] if key)
        raise ValueError(f"{names} must all hold text or all hold messages")
    subset = row.get(keys.subset) if keys.subset else None
    subset = "" if subset is None else str(subset)
    return PreferencePair(prompt, chosen, rejected, place, subset, _unread_prompt(row, keys))


def _unread_prompt(row: Mapping[str, Any], keys: Keys) -> bool:
    prompt = row.get("prompt")
    if keys.prompt is not None or "prompt" in keys or not isinstance(prompt, str | list):
        return False
    text = json.dumps(prompt.strip() if isinstance(prompt, str) else prompt)[1:-1]
    return any(text not in json.dumps(row[key]) for key in (keys.chosen, keys.rejected))


def _check_side(row: Mapping[str, Any], key: str) -> None:
    side = row.get(key)
    if side is None:
        seen = ", ".join(map(str, row)) or "none"
        raise ValueError(f"no value under the key {key!r}; keys seen: {seen}")
    messages = side if isinstance(side, list) and side else [None]
    if not isinstance(side, str) and not all(map(_is_message, messages)):
        said = f"{key!r} must hold text, or messages that have a role and a content, both text"
        raise ValueError(f"{said}; not {side!r:.60}")


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(value.get(part), str) for part in ("role", "content")
    )


def response(side: Side) -> str:
    """The response of a side; of text that holds its prompt too, all of it."""
    return side if isinstance(side, str) else side[-1]["content"]


class Texts(NamedTuple):
    """Both sides of a pair as text, each with the prompt.

    `whole` is False where the rendered conversation does not start with the rendered prompt:
    OpenRLHF, which cuts the prompt off by its length, then loses or doubles some text.
    """

    chosen: str
    rejected: str
    whole: bool


def ended(text: str, eos_token: str) -> str:
    """The text with its end-of-sequence token, as OpenRLHF's RewardDataset adds it."""
    text = text.rstrip("\n")
    return text if text.endswith(eos_token) else f"{text} {eos_token}"


def encode(tokenizer: Any, texts: Sequence[str], max_len: int) -> list[list[int]]:
    """The token ids of each text, 1 to `max_len` of them, the last one EOS.

    As `openrlhf.datasets.RewardDataset`: trailing newlines are stripped, EOS follows a space unless
    the text ends with it, the tokenizer cuts at its own truncation side, and the last token becomes
    EOS whatever it was. `openrlhf.cli.serve_rm` only cuts, and so gives other scores than training.
    """
    if not texts:  # tokenizers do not take an empty list
        return []
    ids = tokenizer(
        [ended(text, tokenizer.eos_token) for text in texts],
        max_length=max_len,
        truncation=True,
        padding=False,
        add_special_tokens=False,
    )["input_ids"]
    return [[*each[:-1], tokenizer.eos_token_id] for each in ids]


def rendered(
    pair: PreferencePair, template: Template | None = None, input_template: str | None = None
) -> Texts:
    """Both sides without their ends; ValueError for text with a template, or messages without.

    `input_template` is for prompts that are text.
    """
    sides: tuple[Any, ...] = pair.prompt, pair.chosen, pair.rejected  # all text, or all messages
    given, chosen, rejected = sides
    if template is None:
        if not isinstance(chosen, str):
            raise ValueError("the sides hold messages, which need apply_chat_template")
        prompt = given or ""
        if given is not None and input_template:
            prompt = input_template.format(given)
        return Texts(prompt + chosen, prompt + rejected, True)
    if isinstance(chosen, str):
        raise ValueError("apply_chat_template is for messages, and the sides hold text")
    if given is None:
        return Texts(_applied(template, chosen), _applied(template, rejected), True)
    prompt = _applied(template, given, add_generation_prompt=True)
    full, other = (_applied(template, given + side) for side in (chosen, rejected))
    whole = full.startswith(prompt) and other.startswith(prompt)
    return Texts(prompt + full[len(prompt) :], prompt + other[len(prompt) :], whole)


def _applied(template: Template, messages: Messages, **options: bool) -> str:
    from jinja2 import TemplateError

    try:
        return template(messages, tokenize=False, **options)
    except TemplateError as error:
        raise ValueError(f"the chat template refuses it: {error!s:.200}") from error
