"""The final answer of a response: in the last `\\boxed{}` or `<answer>`, or after the last `####`.

Only the text after the thoughts counts; if a thought is never closed, nothing does.
Each function takes the response without the prompt, and runs in time linear in its length.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from answer_graders.marks import answer_marks, is_mark, without_reply_marks
from answer_graders.thinking import after_thinking

# Each alternative begins with its own character, so that the engine skips plain text fast.
_BRACES = re.compile(
    r"\\(?:\\?(?:boxed|fbox)(?:\s{0,8}(?P<box>\{)|[ \t]{1,8}(?P<word>[^\s{}$\\]+))|[\\{}])|\{|\}"
)
_MAY_BE_ANSWER = re.compile(r"\d|\A[^\W\d_][.,;]?\Z")  # a number, or a letter
_NOTHING = re.compile(r"(?:[\s.\u2026]|\\[lcd]?dots(?![A-Za-z]))*")  # such as \boxed{...}
_BEGIN_OF_BOX = "<|begin_of_box|>"  # GLM's
_END_OF_BOX = "<|end_of_box|>"
_PRESENTATION = re.compile(
    r"""[$`"'{}\u2018\u2019\u201c\u201d]|\\(?:[\\()\[\]\s,;:!]|(?:left|right)(?=\s?[()\[\]])"""
    r"""|(?:boxed|fbox|quad|qquad|(?:text|math)(?:bf|it|rm|tt)?)(?![A-Za-z]))"""
)
# Tokens that end a turn, such as <|im_end|>, </s>, <eos>; never </answer> or </think>.
_END_MARK = re.compile(
    r"<[|｜][^<>\s]{1,40}>|<[^<>\s]{1,40}[|｜]>|</s>|<eos>|<pad>|<end_of_turn>"  # noqa: RUF001
)
_LONGEST_END_MARK = 48


def last_boxed(response: str) -> str | None:
    """The content of the last complete `\\boxed{...}` or `\\fbox{...}`, with balanced braces.

    An empty box, or one that holds only dots, counts only if there is no other. Where boxes are
    nested, the outer one counts. `\\boxed 7` holds the next word, `\\boxed notation` only where no
    box has braces. Some models write `<|begin_of_box|>7<|end_of_box|>` instead. None if there is no
    box.
    """
    if "box" not in response:  # ten times as fast as the pattern
        return None
    if _END_OF_BOX in response:
        response = response.replace(_BEGIN_OF_BOX, r"\boxed{").replace(_END_OF_BOX, "}")
    content: slice | None = None  # one copy at the end: one per box would take quadratic time
    starts: list[int | None] = []  # per open brace: where its content begins if it opens a box
    for match in _BRACES.finditer(response):
        if match["box"]:
            starts.append(match.end())
        elif match["word"]:
            if content is None or _MAY_BE_ANSWER.search(match["word"]):
                content = _later(content, match.span("word"), response)
        elif match[0] == "{":
            starts.append(None)
        elif match[0] == "}" and starts:
            start = starts.pop()
            if start is not None:
                content = _later(content, (start, match.start()), response)
    return None if content is None else response[content]


def last_answer_tag(response: str) -> str | None:
    """The content of the last complete `<answer>...</answer>`, or None.

    Tags around nothing, or around dots, count only if there are no others.
    """
    content = None
    opening = None
    for mark in answer_marks(response):
        if opening is not None and not mark.kind.opens and mark.kind.family == opening.kind.family:
            content = _later(content, (opening.end, mark.start), response)
        opening = mark if mark.kind.opens else None
    return None if content is None else response[content]


def _later(earlier: slice | None, span: tuple[int, int], text: str) -> slice:
    """The later of two parts of a text, or the earlier one if the later one says nothing."""
    if earlier is not None and _NOTHING.fullmatch(text, *span):
        return earlier
    return slice(*span)


def last_hashes(response: str) -> str | None:
    """What follows the last `####` on its line, or None."""
    _, hashes, behind = response.rpartition("####")
    return behind.partition("\n")[0].strip() if hashes else None


def stated_answer(response: str, *places: Callable[[str], str | None]) -> str | None:
    """The content of the first place that the response has, without end tokens, or None.

    Only the text after the thoughts is searched.
    """
    reply = without_reply_marks(after_thinking(response))
    for place in places:
        answer = place(reply)
        if answer is not None:
            answer = answer.strip()
            return (without_end_marks(answer) if answer.endswith(">") else answer) or None
    return None


def boxed_or_tagged(response: str) -> str | None:
    """The content of the last box, or of the last `<answer>` if there is no box."""
    return stated_answer(response, last_boxed, last_answer_tag)


def tagged_or_boxed(response: str) -> str | None:
    """The content of the last `<answer>`, or of the last box if there is no tag."""
    return stated_answer(response, last_answer_tag, last_boxed)


def without_end_marks(text: str, start: int = 0) -> str:
    """The text from `start`, without white space and tokens at its end, such as `<|im_end|>`."""
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
    """An answer without its markup, for tasks that expect no LaTeX: `8*3` for `$8*3$.`.

    Math delimiters, `\\left(`, `\\boxed{}`, `\\text{}`, braces, backticks and quotes become spaces,
    so that what they separate stays apart. Bold stars around the answer and a final full stop are
    dropped.
    """
    text = _PRESENTATION.sub(" ", answer).strip().removesuffix(".").rstrip()
    if text.startswith("**") and text.endswith("**"):
        text = text[2:-2].rstrip().removesuffix(".")
    return text.strip()
