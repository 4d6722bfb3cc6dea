"""Pairs of responses, one of them preferred, and the texts that a reward model is trained on.

The texts are those of OpenRLHF 0.11.2 (datasets/reward_dataset.py): prompt and response, rendered
by the chat template where one is used, without trailing newlines, then the end-of-sequence token.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from answer_graders.labels import is_message
from answer_graders.programs.files import read_rows

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


def read_pairs(path: Path | str, keys: Keys) -> Iterator[PreferencePair]:
    """The pairs of a local file; a bad row is a ValueError."""
    for row in read_rows(Path(path)):
        try:
            yield pair(row.value, keys, row.place)
        except ValueError as error:
            raise ValueError(f"{path}, {row.place}: {error}") from None


def pair(row: Mapping[str, Any] | ValueError, keys: Keys, place: str) -> PreferencePair:
    """The pair of a row; ValueError if it is not one that OpenRLHF takes."""
    if isinstance(row, ValueError):
        raise row
    prompt = None if keys.prompt is None else _side(row, keys.prompt)
    chosen = _side(row, keys.chosen)
    rejected = _side(row, keys.rejected)
    kinds = {type(side) for side in (prompt, chosen, rejected) if side is not None}
    if len(kinds) > 1:
        raise ValueError("prompt and sides must all hold text or all hold messages")
    if keys.margin is not None:
        _check_margin(row.get(keys.margin), keys.margin)
    subset = row.get(keys.subset) if keys.subset else None
    return PreferencePair(
        prompt=prompt,
        chosen=chosen,
        rejected=rejected,
        place=place,
        subset="" if subset is None else str(subset),
        unread_prompt=_has_unread_prompt(row, keys),
    )


def _check_margin(margin: Any, key: str) -> None:
    if type(margin) not in (int, float) or not abs(margin) <= LARGEST_MARGIN:
        raise ValueError(f"{key!r} must hold a finite number, not {margin!r:.60}")


def _has_unread_prompt(row: Mapping[str, Any], keys: Keys) -> bool:
    """Whether the row has a prompt that no key names and that a side does not include."""
    prompt = row.get("prompt")
    if keys.prompt is not None or "prompt" in keys or not isinstance(prompt, str | list):
        return False
    text = _json_content(prompt.strip() if isinstance(prompt, str) else prompt)
    sides = (json.dumps(row[key]) for key in (keys.chosen, keys.rejected))
    return any(text not in side for side in sides)


def _json_content(value: str | list[Any]) -> str:
    """A value as JSON, without the quotation marks or brackets around it."""
    return json.dumps(value)[1:-1]


def _side(row: Mapping[str, Any], key: str) -> Side:
    side = row.get(key)
    if side is None:
        keys = ", ".join(map(str, row))
        raise ValueError(f"no value under the key {key!r}; keys seen: {keys}")
    if isinstance(side, str):
        return side
    if isinstance(side, list) and side and all(map(is_message, side)):
        return side
    raise ValueError(
        f"{key!r} must hold text, or messages that have a role and a content, both text; "
        f"not {side!r:.60}"
    )


def response(side: Side) -> str:
    """The response of a side; for text, all of it, including a prompt that it may hold."""
    return side if isinstance(side, str) else side[-1]["content"]


def ended(text: str, eos_token: str) -> str:
    """The text with its end-of-sequence token, as OpenRLHF's RewardDataset adds it."""
    text = text.rstrip("\n")
    return text if text.endswith(eos_token) else f"{text} {eos_token}"


def encode(tokenizer: Any, texts: Sequence[str], max_len: int) -> list[list[int]]:
    """The token ids of each text, 1 to `max_len` of them, the last one EOS.

    As in `openrlhf.datasets.RewardDataset`, texts are truncated at the tokenizer's truncation side
    and the last token becomes EOS. `openrlhf.cli.serve_rm` only truncates, so its scores differ
    from those of training.
    """
    if not texts:  # tokenizers do not take an empty list
        return []
    whole_texts = [ended(text, tokenizer.eos_token) for text in texts]
    tokenized = tokenizer(whole_texts, add_special_tokens=False, verbose=False)
    kept = slice(-max_len, None) if tokenizer.truncation_side == "left" else slice(max_len)
    encoded = []
    for ids in tokenized["input_ids"]:
        tokens = list(ids[kept])
        tokens[-1] = tokenizer.eos_token_id
        encoded.append(tokens)
    return encoded


class RenderedPair(NamedTuple):
    """Both texts of a pair, without EOS, and whether they start with the prompt."""

    chosen: str
    rejected: str
    starts_with_prompt: bool = True


def rendered(
    pair: PreferencePair, template: Template | None = None, input_template: str | None = None
) -> RenderedPair:
    """The texts of a pair; OpenRLHF takes the response from the rendered prompt's length on.

    `input_template` is for prompts that are text. Raises ValueError for text with a chat template,
    or messages without one.
    """
    prompt: Any = pair.prompt
    chosen: Any = pair.chosen
    rejected: Any = pair.rejected
    if isinstance(chosen, str) != (template is None):
        raise ValueError(
            "--data.apply_chat_template (--apply_chat_template of `rm eval`) is for sides that "
            "hold messages, and for all of them"
        )
    if template is None:
        if prompt is None:
            return RenderedPair(chosen, rejected)
        text = prompt
        if input_template:
            if "{}" not in input_template:
                raise ValueError(f"--input_template {input_template!r} has no {{}} for the prompt")
            text = input_template.format(prompt)
        return RenderedPair(text + chosen, text + rejected)
    if prompt is None:
        return RenderedPair(_applied(template, chosen), _applied(template, rejected))
    text = _applied(template, prompt, add_generation_prompt=True)
    full_chosen = _applied(template, prompt + chosen)
    full_rejected = _applied(template, prompt + rejected)
    return RenderedPair(
        chosen=text + full_chosen[len(text) :],
        rejected=text + full_rejected[len(text) :],
        starts_with_prompt=full_chosen.startswith(text) and full_rejected.startswith(text),
    )


def _applied(template: Template, messages: Messages, **options: bool) -> str:
    from jinja2 import TemplateError

    try:
        return template(messages, tokenize=False, **options)
    except TemplateError as error:
        raise ValueError(f"the chat template refuses it: {error!s:.200}") from error
