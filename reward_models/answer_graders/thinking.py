"""Splits a model's thinking from its answer; in doubt, text counts as thinking."""

from __future__ import annotations

import re

from answer_graders.marks import Kind, Mark, opening_mark, thought_marks, without_reply_marks

_QUOTES = "`'\"\u2018\u2019\u201c\u201d"
# Around an opening mark that is only mentioned: "we use <think> here", "the model's <think> tags".
_MENTION_BEFORE = re.compile(
    r"\b(?:the|an?|no|any|use[sd]?|using|without|between|called|such as|puts?|writes?|omit|skip"
    r"|wrap|with) \(?\Z",
    re.IGNORECASE,
)
_SENTENCE_GOES_ON = re.compile(r" [a-z(]|[,;.:)!?]")
_MENTION_BEHIND = re.compile(r" (?:tags?|marks?|tokens?|blocks?|elements?|sections?)\b")
_INDENT = 40  # characters at most before a mark that begins its line
_HEADING = re.compile(r"^\[[A-Z][\w ]{1,40}\]", re.MULTILINE)


def split_thinking(text: str, thinking: str = "", *, anywhere: bool = False) -> tuple[str, str]:
    """The answer and the thinking before it; the answer is "" if the thinking never ended.

    A closing mark counts without an opening one: chat templates put the opening mark into the
    prompt. `thinking` is the part that the endpoint has already split off.

    Args:
        anywhere: count every mark that is not merely mentioned, and return the unchanged text after
            the last closing mark. By default, thinking is only at the beginning, the answer may
            mention the marks, and the marks that some models put around it are dropped.
    """
    thoughts = [thinking]
    start = 0  # of the answer, or of the thought that is open
    opening: Kind | None = None
    marks = [mark for mark in thought_marks(text) if not _is_quoted(text, mark)]
    if not marks:
        return text, thinking
    closed_families = {mark.kind.family for mark in marks if not mark.kind.opens}
    last_heading = max((heading.start() for heading in _HEADING.finditer(text)), default=-1)
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
            if kind.family not in closed_families and _is_no_thought(text, mark, last_heading):
                continue
            if anywhere and _is_in_sentence(text, mark):
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
    """The text after the last thought; "" if that thought was never closed."""
    answer, _ = split_thinking(text, anywhere=True)
    return answer


def with_opened_thinking(prompt: str, response: str) -> str:
    """The response, preceded by the mark with which the prompt opens a thought, if any."""
    return opening_mark(prompt) + response


def _is_quoted(text: str, mark: Mark) -> bool:
    """Whether a mark is in quotation marks or brackets, or is a Markdown link."""
    before = text[mark.start - 1 : mark.start]
    after = text[mark.end : mark.end + 1]
    is_link = text[mark.end - 1] == "]" and after == "("
    is_enclosed = before == "(" and after == ")"
    in_quotes = bool(before and after) and before in _QUOTES and after in _QUOTES
    return is_link or is_enclosed or in_quotes


def _is_no_thought(text: str, opening: Mark, last_heading: int) -> bool:
    """Whether an unclosed text that looks like a mark is something else.

    It may be part of a word, as in `x<reason>y`, a bracket within a line, as in `[reflection]`, or
    a heading, such as `[Analysis]` before `[Verdict]`. `last_heading` is where the text's last
    heading begins.
    """
    before = text[opening.start - 1 : opening.start] if opening.start else "\n"
    if before.isalnum():
        return not opening.kind.is_token
    if opening.kind.family[0] != "[" or text[opening.start : opening.end].isupper():
        return False
    line = text[max(0, opening.start - _INDENT) : opening.start].rpartition("\n")[2]
    is_within_line = bool(line.strip())
    is_heading = opening.kind.may_be_heading and last_heading >= opening.end
    return is_within_line or is_heading


def _is_in_sentence(text: str, opening: Mark) -> bool:
    """Whether an opening tag is only mentioned in a sentence."""
    if opening.kind.is_token:
        return False
    before = text[max(0, opening.start - 12) : opening.start]
    is_named = _MENTION_BEFORE.search(before) and _SENTENCE_GOES_ON.match(text, opening.end)
    return bool(is_named or (before.strip() and _MENTION_BEHIND.match(text, opening.end)))


def _is_mentioned(text: str, start: int, closing: Mark) -> bool:
    """Whether a closing mark is only mentioned: quoted, in code, or within a line."""
    before = text[start : closing.start]
    after = text[closing.end : closing.end + 1]
    is_quoted = before.endswith(("`", '"', "'")) or before.count("```") % 2 == 1
    begins_line = not before.strip(" \t") or before.endswith("\n")
    ends_line = after in ("", "\n", "\r")
    return is_quoted or not (begins_line or ends_line)
