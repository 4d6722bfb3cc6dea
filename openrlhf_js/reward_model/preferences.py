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
MARGIN_TOKENS = 1024  # read beyond those that a cut keeps
CHARACTERS_PER_TOKEN = 8  # read at first; few texts have so many
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
    prompt = None if keys.prompt is None else _side(row, keys.prompt)
    chosen, rejected = _side(row, keys.chosen), _side(row, keys.rejected)
    if len({type(each) for each in (prompt, chosen, rejected) if each is not None}) > 1:
        raise ValueError("prompt and sides must all hold text or all hold messages")
    if keys.margin is not None:
        margin: Any = row.get(keys.margin)
        if type(margin) not in (int, float) or not abs(margin) <= LARGEST_MARGIN:
            raise ValueError(f"{keys.margin!r} must hold a finite number, not {margin!r:.60}")
    subset = row.get(keys.subset) if keys.subset else None
    subset = "" if subset is None else str(subset)
    return PreferencePair(prompt, chosen, rejected, place, subset, _unread_prompt(row, keys))


def _unread_prompt(row: Mapping[str, Any], keys: Keys) -> bool:
    prompt = row.get("prompt")
    if keys.prompt is not None or "prompt" in keys or not isinstance(prompt, str | list):
        return False
    text = json.dumps(prompt.strip() if isinstance(prompt, str) else prompt)[1:-1]
    return any(text not in json.dumps(row[key]) for key in (keys.chosen, keys.rejected))


def _side(row: Mapping[str, Any], key: str) -> Side:
    side = row.get(key)
    if side is None:
        raise ValueError(f"no value under the key {key!r}; keys seen: {', '.join(map(str, row))}")
    messages = side if isinstance(side, list) and side else [None]
    if isinstance(side, str) or all(map(_is_message, messages)):
        return side
    said = f"{key!r} must hold text, or messages that have a role and a content, both text"
    raise ValueError(f"{said}; not {side!r:.60}")


def _is_message(value: Any) -> bool:
    parts = [value.get("role"), value.get("content")] if isinstance(value, dict) else [None]
    return all(isinstance(part, str) for part in parts)


def response(side: Side) -> str:
    """The response of a side; of text that holds its prompt too, all of it."""
    return side if isinstance(side, str) else side[-1]["content"]


def ended(text: str, eos_token: str) -> str:
    """The text with its end-of-sequence token, as OpenRLHF's RewardDataset adds it."""
    text = text.rstrip("\n")
    return text if text.endswith(eos_token) else f"{text} {eos_token}"


def encode(tokenizer: Any, texts: Sequence[str], max_len: int) -> list[list[int]]:
    """The token ids of each text, 1 to `max_len` of them, the last one EOS.

    As `openrlhf.datasets.RewardDataset`: the tokenizer cuts at its truncation side, the last token
    becomes EOS. `openrlhf.cli.serve_rm` only cuts, and so gives other scores than training.
    """
    if not texts:  # tokenizers do not take an empty list
        return []
    whole = [ended(text, tokenizer.eos_token) for text in texts]
    ids = cut(tokenizer, whole, max_len, (max_len + MARGIN_TOKENS) * CHARACTERS_PER_TOKEN)
    return [[*each[:-1], tokenizer.eos_token_id] for each in ids]


def cut(
    tokenizer: Any, texts: Sequence[str], max_len: int, characters: int
) -> Iterator[Sequence[int]]:
    """The token ids to which a tokenizer cuts each text, of which it reads no more than it needs.

    Of a long text it reads `characters` at the end that is kept: eight times as many, and again,
    until they hold `MARGIN_TOKENS` more than `max_len`. What is left unread can change the last
    word that is read, which is in that margin. So the ids are those of the whole text, unless one
    word, or run of digits or spaces, has more than `MARGIN_TOKENS` tokens.
    """
    keeps_end = tokenizer.truncation_side == "left"
    kept = slice(-max_len, None) if keeps_end else slice(max_len)
    read = slice(-characters, None) if keeps_end else slice(characters)
    parts = [text[read] for text in texts]
    options = {"add_special_tokens": False, "verbose": False}
    for text, part, ids in zip(texts, parts, tokenizer(parts, **options)["input_ids"], strict=True):
        if len(part) < len(text) and len(ids) < max_len + MARGIN_TOKENS:
            yield from cut(tokenizer, [text], max_len, 8 * characters)
        else:
            yield ids[kept]


def rendered(
    pair: PreferencePair, template: Template | None = None, input_template: str | None = None
) -> tuple[str, str, bool]:
    """Both texts without their ends, and whether they start with the prompt.

    OpenRLHF cuts the prompt off by its length. `input_template` is for prompts that are text.
    ValueError for text with a template, or messages without.
    """
    sides: tuple[Any, ...] = pair.prompt, pair.chosen, pair.rejected  # all text, or all messages
    given, chosen, rejected = sides
    if isinstance(chosen, str) != (template is None):
        raise ValueError("apply_chat_template is for sides that hold messages, and for all of them")
    if template is None:
        prompt = given or ""
        if given is not None and input_template:
            prompt = input_template.format(given)
        return prompt + chosen, prompt + rejected, True
    if given is None:
        return _applied(template, chosen), _applied(template, rejected), True
    prompt = _applied(template, given, add_generation_prompt=True)
    full, other = (_applied(template, given + side) for side in (chosen, rejected))
    whole = full.startswith(prompt) and other.startswith(prompt)
    return prompt + full[len(prompt) :], prompt + other[len(prompt) :], whole


def _applied(template: Template, messages: Messages, **options: bool) -> str:
    from jinja2 import TemplateError

    try:
        return template(messages, tokenize=False, **options)
    except TemplateError as error:
        raise ValueError(f"the chat template refuses it: {error!s:.200}") from error
