"""A model's thinking, apart from its answer."""

from __future__ import annotations

import re
from typing import NamedTuple

TAGS = (
    ("<think>", "</think>"),  # DeepSeek-R1, Qwen3, QwQ
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),  # Seed-OSS
    ("[THINK]", "[/THINK]"),  # Magistral
    ("◁think▷", "◁/think▷"),  # Kimi
    ("<|begin_of_thought|>", "<|end_of_thought|>"),  # Sky-T1
)
# gpt-oss thinks in messages of other channels than `final`.
_CHANNEL = (
    r"<\|channel\|>(?:analysis|commentary|final)[^<>]{0,80}"
    r"(?:<\|constrain\|>\w{1,16})?<\|message\|>"
)
_CHANNEL_MARKS = (_CHANNEL, rf"<\|start\|>assistant{_CHANNEL}", r"<\|end\|>", r"<\|call\|>")
_TAG_MARKS = (re.escape(tag) for pair in TAGS for tag in pair)
# Each alternative begins with its own character, so that the engine skips plain text fast.
_MARK = re.compile("|".join((*_TAG_MARKS, *_CHANNEL_MARKS)))
_LONGEST_MARK = 160
_CLOSINGS = dict(TAGS)
_OPENINGS = {closing: opening for opening, closing in TAGS}


class _Kind(NamedTuple):
    """What a mark does, in which family of marks."""

    opens: bool
    family: str
    ends_message: bool = False  # of any channel: alone, it closes no thought


def _kind_of(mark: str) -> _Kind:
    if mark in _CLOSINGS:
        return _Kind(opens=True, family=mark)
    if mark in _OPENINGS:
        return _Kind(opens=False, family=_OPENINGS[mark])
    if mark in ("<|end|>", "<|call|>"):
        return _Kind(opens=False, family="channel", ends_message=True)
    return _Kind(opens="<|channel|>final" not in mark, family="channel")


def split_thinking(text: str, thinking: str = "", *, anywhere: bool = False) -> tuple[str, str]:
    """The answer and the thinking before it; the answer is "" where the thinking never ended.

    A closing mark without its opening one counts too: chat templates write the opening one into the
    prompt. `thinking` is what the endpoint has split off.

    Args:
        anywhere: every mark counts, so that the answer is the unchanged text behind the last
            closing one. By default thinking stands at the beginning, the answer may mention the
            marks, and what some models put around it goes.
    """
    thoughts = [thinking]
    start = 0  # of the answer, or of the thought that is open
    open_family = ""
    for match in _MARK.finditer(text):
        mark = _kind_of(match[0])
        if open_family:
            if mark.opens or mark.family != open_family:
                continue
            open_family = ""
        elif mark.opens:
            if not anywhere and text[start : match.start()].strip():
                break
            open_family = mark.family
            start = match.end()
            continue
        elif mark.ends_message:
            continue
        elif not anywhere and (thinking or _is_mentioned(text, start, match)):
            break
        thoughts.append(text[start : match.start()].strip())
        start = match.end()
    answer = text[start:]
    if open_family:
        thoughts.append(answer.strip())
        answer = ""
    elif start and not anywhere:
        answer = _unwrapped(answer.strip())
    return answer, "\n\n".join(filter(None, thoughts))


def after_thinking(text: str) -> str:
    """The end of the text that follows the last thought; "" if that was never closed."""
    answer, _ = split_thinking(text, anywhere=True)
    return answer


def with_opened_thinking(prompt: str, response: str) -> str:
    """The response with the mark before it by which the prompt has opened a thought, if it has."""
    end = prompt.rstrip()[-_LONGEST_MARK:]
    for match in _MARK.finditer(end):
        if match.end() == len(end) and _kind_of(match[0]).opens:
            return match[0] + response
    return response


def _is_mentioned(text: str, start: int, closing: re.Match[str]) -> bool:
    """Whether a closing mark is only mentioned: quoted, in code, or within a line."""
    before = text[start : closing.start()]
    after = text[closing.end() :]
    is_quoted = before.endswith(("`", '"', "'")) or before.count("```") % 2 == 1
    begins_line = not before.strip(" \t") or before.endswith("\n")
    ends_line = after[:1] in ("", "\n", "\r")
    return is_quoted or not (begins_line or ends_line)


def _unwrapped(answer: str) -> str:
    """An answer without what some models put around it."""
    begun = answer.removeprefix("<|begin_of_solution|>")
    return begun.removesuffix("<|end_of_solution|>").removesuffix("<|return|>").strip()
