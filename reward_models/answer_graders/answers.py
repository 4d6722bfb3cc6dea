"""The final answer of a response: in the last `\\boxed{}` or `<answer>`, or after the last `####`.

Only what follows the thoughts counts, and nothing where a thought is never closed.
Each function takes the response alone, never the prompt, and time in proportion to its length.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from answer_graders.marks import answer_marks, is_mark, without_reply_marks
from answer_graders.thinking import after_thinking

# Each alternative begins with its own character, so that the engine skips plain text fast.
_BRACES = re.compile(
    r"\\(?:(?:boxed|fbox)(?:\s{0,8}(?P<box>\{)|[ \t]{1,8}(?P<word>[^\s{}$\\]+))|[\\{}])|\{|\}"
)
_BEGIN_OF_BOX = "<|begin_of_box|>"  # GLM's
_END_OF_BOX = "<|end_of_box|>"
_PRESENTATION = re.compile(
    r"""[$`"'{}\u2018\u2019\u201c\u201d]|\\(?:[\\()\[\]\s,;:!]|(?:left|right)(?=\s?[()\[\]])"""
    r"""|(?:boxed|fbox|quad|qquad|(?:text|math)(?:bf|it|rm|tt)?)(?![A-Za-z]))"""
)
# What tokenizers end a turn with, such as <|im_end|>, </s>, <eos>; never </answer> or </think>.
_END_MARK = re.compile(
    r"<[|｜][^<>\s]{1,40}>|<[^<>\s]{1,40}[|｜]>|</s>|<eos>|<pad>|<end_of_turn>"  # noqa: RUF001
)
_LONGEST_END_MARK = 48


def last_boxed(response: str) -> str | None:
    """The content of the last complete `\\boxed{...}` or `\\fbox{...}`, with balanced braces.

    Of nested boxes the outer one counts. `\\boxed 7` holds the next word. None without any. Some
    models write `<|begin_of_box|>7<|end_of_box|>`.
    """
    if "box" not in response:  # at a tenth of the pattern's time
        return None
    if _END_OF_BOX in response:
        response = response.replace(_BEGIN_OF_BOX, r"\boxed{").replace(_END_OF_BOX, "}")
    content: slice | None = None  # cut out at the end: a copy for each would be quadratic
    starts: list[int | None] = []  # of every open brace: where its box begins, if it is a box's
    for match in _BRACES.finditer(response):
        if match["box"]:
            starts.append(match.end())
        elif match["word"]:
            content = slice(match.start("word"), match.end("word"))
        elif match[0] == "{":
            starts.append(None)
        elif match[0] == "}" and starts:
            start = starts.pop()
            if start is not None:
                content = slice(start, match.start())
    return None if content is None else response[content]


def last_answer_tag(response: str) -> str | None:
    """The content of the last complete `<answer>...</answer>`, or None."""
    content = None
    opening = None
    for mark in answer_marks(response):
        if opening is not None and not mark.kind.opens and mark.kind.family == opening.kind.family:
            content = response[opening.end : mark.start]
        opening = mark if mark.kind.opens else None
    return content


def last_hashes(response: str) -> str | None:
    """What follows the last `####` on its line, or None."""
    _, hashes, behind = response.rpartition("####")
    return behind.partition("\n")[0].strip() if hashes else None


def stated_answer(response: str, *places: Callable[[str], str | None]) -> str | None:
    """What the first of the places that the response has holds, without end tokens, or None.

    The places are looked for behind the thoughts.
    """
    reply = without_reply_marks(after_thinking(response))
    for place in places:
        answer = place(reply)
        if answer is not None:
            answer = answer.strip()
            return (without_end_marks(answer) if answer.endswith(">") else answer) or None
    return None


def boxed_or_tagged(response: str) -> str | None:
    """What the last box holds, or without one the last `<answer>`."""
    return stated_answer(response, last_boxed, last_answer_tag)


def tagged_or_boxed(response: str) -> str | None:
    """What the last `<answer>` holds, or without one the last box."""
    return stated_answer(response, last_answer_tag, last_boxed)


def without_end_marks(text: str, start: int = 0) -> str:
    """The text from `start` without the space and the tokens that end it, such as `<|im_end|>`."""
    end = len(text)
    while end > start:
        if text[end - 1].isspace():
            end -= 1
            continue
        mark = text.rfind("<", max(start, end - _LONGEST_END_MARK), end)
        if mark < 0 or not _END_MARK.fullmatch(text, mark, end):
            break
        if text.startswith(_END_OF_BOX, mark) or is_mark(text[mark:end]):
            break
        end = mark
    return text[start:end]


def plain(answer: str) -> str:
    """An answer without its presentation, for tasks that expect no LaTeX: `8*3` of `$8*3$.`.

    Math delimiters, `\\left(`, `\\boxed{}`, `\\text{}`, braces, backticks and quotes become spaces,
    so that none joins what it separates. Bold stars around it and a last full stop go.
    """
    text = _PRESENTATION.sub(" ", answer).strip().removesuffix(".").rstrip()
    if text.startswith("**") and text.endswith("**"):
        text = text[2:-2].rstrip().removesuffix(".")
    return text.strip()
