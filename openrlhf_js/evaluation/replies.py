"""What a chat completion says, read from the bytes of an answer."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

EXCERPT_CHARACTERS = 200
MOST_TOKENS = 10**9  # of one reply; a larger count is none


class Reply(NamedTuple):
    """One chat completion.

    Attributes:
        text: what the model said, "" where it said nothing: it used all its tokens for thinking,
            or a filter took the text (`finish_reason` tells).
        thinking: what the endpoint gave apart as thinking, "" for nothing.
        finish_reason: such as "stop", "length" or "content_filter"; "" where the endpoint says
            none.
        prompt_tokens, completion_tokens: as the endpoint counts them; None where it does not. What
            the total has besides is taken for tokens of the completion: Gemini's endpoint counts
            thinking, which is paid for, in the total alone.
    """

    text: str
    thinking: str
    finish_reason: str
    prompt_tokens: int | None
    completion_tokens: int | None


class NoReply(ValueError):
    """An answer with status 200 that holds no chat completion; the message says what is wrong."""


def read_reply(body: bytes) -> Reply:
    """The chat completion in an answer of status 200.

    Raises:
        NoReply: it is HTML, no JSON, JSON of another form, or has no choice. A choice without
            text is a reply nevertheless: it has been paid for, and asking again may not mend it.
    """
    try:
        return _read(json.loads(body))
    except NoReply:
        raise
    except (ValueError, RecursionError):
        raise NoReply("no JSON") from None


def _read(found: Any) -> Reply:
    choices = found.get("choices") if isinstance(found, dict) else None
    if not isinstance(choices, list):
        raise NoReply("JSON without choices")
    if not choices:
        raise NoReply("an empty list of choices")
    choice = choices[0] if isinstance(choices[0], dict) else {}
    message = choice.get("message")
    if not isinstance(message, dict):
        raise NoReply("a choice without a message")
    usage = found.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    prompt, completion, total = (
        _count(usage.get(f"{name}_tokens")) for name in ("prompt", "completion", "total")
    )
    if prompt is not None and total is not None and total > prompt:
        completion = max(completion or 0, total - prompt)
    return Reply(
        text=_text(message.get("content"), "text"),
        thinking=_text(message.get("reasoning_content"), "text")
        or _text(message.get("reasoning"), "text")
        or _text(message.get("content"), "thinking", parts_only=True),
        finish_reason=_text(choice.get("finish_reason"), "text"),
        prompt_tokens=prompt,
        completion_tokens=completion,
    )


def excerpt(text: str) -> str:
    """The beginning of an answer, on one line and quoted, for an error message."""
    line = " ".join(text[: 4 * EXCERPT_CHARACTERS].split())
    return repr(line[:EXCERPT_CHARACTERS]) if line else "nothing"


def _text(content: Any, kind: str, *, parts_only: bool = False) -> str:
    """Text that UTF-8 can hold, of a string or of a list's parts of that kind; else ""."""
    if isinstance(content, list):
        parts = [part.get(kind) for part in content if isinstance(part, dict)]
        content = "".join(part if isinstance(part, str) else _text(part, "text") for part in parts)
    elif parts_only or not isinstance(content, str):
        return ""
    return content.encode(errors="replace").decode()  # a lone surrogate has no UTF-8


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else None
