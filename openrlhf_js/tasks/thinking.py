"""A model's thinking, apart from its answer."""

from __future__ import annotations

import re

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
_CHANNEL = r"(?:<\|start\|>assistant)?<\|channel\|>"
_MARK = re.compile(
    rf"(?P<opening>{'|'.join(re.escape(opening) for opening, _ in TAGS)}"
    rf"|{_CHANNEL}(?:analysis|commentary)[^<>]{{0,80}}(?:<\|constrain\|>\w{{1,16}})?<\|message\|>)"
    rf"|(?P<closing>{'|'.join(re.escape(closing) for _, closing in TAGS)}"
    rf"|{_CHANNEL}final[^<>]{{0,80}}<\|message\|>)"
    r"|(?P<message_end><\|(?:end|call)\|>)"
)
_CLOSINGS = dict(TAGS) | {closing: closing for _, closing in TAGS}
_CHANNELS = "channels"


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
    awaited = ""  # what closes that
    for mark in _MARK.finditer(text):
        closing = _CLOSINGS.get(mark[0], _CHANNELS)
        is_opening = mark.lastgroup == "opening"
        if awaited:
            if is_opening or closing != awaited:
                continue
            awaited = ""
        elif is_opening:
            if not anywhere and text[start : mark.start()].strip():
                break
            awaited = closing
            start = mark.end()
            continue
        elif mark.lastgroup == "message_end":
            continue
        elif not anywhere and (thinking or _is_mentioned(text, start, mark)):
            break
        thoughts.append(text[start : mark.start()].strip())
        start = mark.end()
    answer = text[start:]
    if awaited:
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
    for mark in _MARK.finditer(end):
        if mark.lastgroup == "opening" and mark.end() == len(end):
            return mark[0] + response
    return response


def without_marks(text: str) -> str:
    """The text with its thoughts as a part of the answer."""
    return _MARK.sub(" ", text)


_LONGEST_MARK = 160


def _is_mentioned(text: str, start: int, mark: re.Match[str]) -> bool:
    """Whether a closing mark is only mentioned: quoted, in code, or within a line."""
    before = text[start : mark.start()]
    after = text[mark.end() :]
    is_quoted = before.endswith(("`", '"', "'")) or before.count("```") % 2 == 1
    begins_line = not before.strip(" \t") or before.endswith("\n")
    ends_line = after[:1] in ("", "\n", "\r")
    return is_quoted or not (begins_line or ends_line)


def _unwrapped(answer: str) -> str:
    """An answer without what some models put around it."""
    begun = answer.removeprefix("<|begin_of_solution|>")
    return begun.removesuffix("<|end_of_solution|>").removesuffix("<|return|>").strip()
