"""A model's thinking, apart from its answer; in doubt a text is a thought."""

from __future__ import annotations

import re

from openrlhf_js.common.marks import (
    Kind,
    Mark,
    opening_mark,
    thought_marks,
    without_reply_marks,
)

_QUOTES = "`'\"\u2018\u2019\u201c\u201d"
_IN_SENTENCE = re.compile(r"[\w,;] \(?\Z")  # what stands before a mark that is only mentioned
_SENTENCE_GOES_ON = re.compile(r" [a-z(]|[,;.:)!?]")


def split_thinking(text: str, thinking: str = "", *, anywhere: bool = False) -> tuple[str, str]:
    """The answer and the thinking before it; the answer is "" where the thinking never ended.

    A closing mark without its opening one counts too: chat templates write the opening one into the
    prompt. `thinking` is what the endpoint has split off.

    Args:
        anywhere: every mark counts that is not only mentioned, so that the answer is the unchanged
            text behind the last closing one. By default thinking stands at the beginning, the
            answer may mention the marks, and what some models put around it goes.
    """
    thoughts = [thinking]
    start = 0  # of the answer, or of the thought that is open
    opening: Kind | None = None
    marks = [mark for mark in thought_marks(text) if not _is_quoted(text, mark)]
    if not marks:
        return text, thinking
    last_closings = {mark.kind.family: mark.start for mark in marks if not mark.kind.opens}
    for mark in marks:
        kind = mark.kind
        if opening is not None:
            by_message = kind.ends_message and opening.is_token
            if kind.opens or (kind.family != opening.family and not by_message):
                continue
            opening = None
        elif kind.opens:
            if not anywhere and text[start : mark.start].strip():
                break
            is_heading = kind.may_be_heading and last_closings.get(kind.family, -1) < mark.start
            if is_heading or (anywhere and _is_in_sentence(text, mark)):
                continue
            opening = kind
            start = mark.end
            continue
        elif kind.ends_message:
            continue
        elif not anywhere and (thinking or _is_mentioned(text, start, mark)):
            break
        thoughts.append(text[start : mark.start].strip())
        start = mark.end
    answer = text[start:]
    if opening is not None:
        thoughts.append(answer.strip())
        answer = ""
    elif start and not anywhere:
        answer = without_reply_marks(answer.strip().removesuffix("<|return|>"))
    return answer, "\n\n".join(filter(None, thoughts))


def after_thinking(text: str) -> str:
    """The end of the text that follows the last thought; "" if that was never closed."""
    answer, _ = split_thinking(text, anywhere=True)
    return answer


def with_opened_thinking(prompt: str, response: str) -> str:
    """The response with the mark before it by which the prompt has opened a thought, if it has."""
    return opening_mark(prompt) + response


def _is_quoted(text: str, mark: Mark) -> bool:
    """Whether a mark stands between quotation marks, or is a link of Markdown."""
    before = text[mark.start - 1 : mark.start]
    after = text[mark.end : mark.end + 1]
    is_link = text[mark.end - 1] == "]" and after == "("
    return is_link or (bool(before and after) and before in _QUOTES and after in _QUOTES)


def _is_in_sentence(text: str, opening: Mark) -> bool:
    """Whether an opening mark is only mentioned: words of its sentence stand on both sides."""
    before = text[max(0, opening.start - 3) : opening.start]
    return bool(_IN_SENTENCE.search(before) and _SENTENCE_GOES_ON.match(text, opening.end))


def _is_mentioned(text: str, start: int, closing: Mark) -> bool:
    """Whether a closing mark is only mentioned: quoted, in code, or within a line."""
    before = text[start : closing.start]
    after = text[closing.end : closing.end + 1]
    is_quoted = before.endswith(("`", '"', "'")) or before.count("```") % 2 == 1
    begins_line = not before.strip(" \t") or before.endswith("\n")
    ends_line = after in ("", "\n", "\r")
    return is_quoted or not (begins_line or ends_line)
