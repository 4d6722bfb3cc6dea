"""Marks that chat templates and models put around thoughts and answers.

A mark opens or closes a thought if it looks like a tag or a special token and its name means
thinking: `<think>`, `[THINK]`, `<|START_THINKING|>`, `<|channel>thought`. There is no list of
models. Marks with other names come from the user, or from the model's chat template.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

_THINKING_NAME = re.compile(
    r"think|thought|(?<!t)reason|analy[sz]|scratch|reflec|monolog|draft|deliberat|contemplat|ponder"
    r"|cogitat|introspect|meditat|rationale|brainstorm|(?:^|_)cot(?:_|$)|^inner(?:_voice)?$"
    r"|\u601d\u8003|\u63a8\u7406"
)
# Names of the marks around an answer, and around a whole reply.
_ANSWER_NAMES = ("answer", "final_answer")
_REPLY_NAMES = ("response", "final_response", "reply", "solution", "output", "final")
_ANSWER_CHANNELS = (*_ANSWER_NAMES, *_REPLY_NAMES, "content")
_named_marks: set[str] = set()  # added by the user, in this process

# gpt-oss thinks in every channel but `final`: `<|channel|>analysis<|message|>`. Gemma's channel is
# `<|channel>thought` ... `<channel|>`. Other models put the word after the start of a turn or an
# unused token: `<|im_start|>think`, `<unused94>thought` ... `<unused95>`.
_CHANNEL = (
    r"(?:\|start\|>assistant<)?\|channel\|?>\s{0,2}(?P<channel>\w{0,30})"
    r"(?:[^<>]{0,80}(?:<\|constrain\|>\w{1,16})?<\|message\|>)?"
)
_TURN = r"(?:\|im_start\|>|unused\d{1,4}>)(?P<turn>\w{0,30})"
_TAG = (
    r"(?P<front>/?[|\uff5c]{0,2} ?/?)(?P<name>[^\W\d][\w:.\u2581-]{1,60})"
    r"(?: [a-z]{2,20})?"  # as in <thought process>
    r"(?:\s{1,3}[\w:-]{1,30}\s?=[^<>\[\]]{0,200}?)?"  # attributes
    r"(?P<back>[\s/]{0,2}[|\uff5c]{0,2})[>\uff1e\u25b7\]]"
)
# An opening bracket, then a cheap lookahead that fails at most brackets.
_MARK = re.compile(
    rf"[<\uff1c\u25c1\[](?=[/|\uff5c ]{{0,4}}[^\W\d]\w)(?:{_CHANNEL}|{_TURN}|{_TAG})"
)
_LONGEST_MARK = 320
_CHANNEL_FAMILY = "<channel"
_THOUGHT = "a thought in a template"
_SEPARATORS = re.compile(r"[-:.\u2581_]+")
_OPENS = re.compile(r"^(?:start|begin|open)(?:_?of)?_?|_?(?:start|begin|open|prefix)$")
_CLOSES = re.compile(r"^(?:end|stop|close)(?:_?of)?_?|_?(?:end|stop|close|suffix)$")


class Kind(NamedTuple):
    """What a mark means, regardless of its position."""

    family: str  # bracket and name, shared by the opening and the closing mark
    opens: bool
    says_thinking: bool
    is_token: bool = False  # the name is between bars
    may_be_heading: bool = False  # `[Analysis]`: opens a thought only if it is closed
    ends_message: bool = False  # of any channel; alone, closes no thought

    @property
    def name(self) -> str:
        """The name without the bracket."""
        return self.family[1:]


class Mark(NamedTuple):
    """A mark in a text."""

    start: int
    end: int
    kind: Kind


def name_marks(names: Iterable[str]) -> None:
    """Makes marks with these names count as marks of thoughts, in this process.

    `musing` covers `<musing>` and `</musing>`, `<|musing_start|>` and `<|musing_end|>`, and so on.
    ValueError if a text cannot be a name.
    """
    for name in names:
        mark = _MARK.fullmatch(name) or _MARK.fullmatch(f"<{name}>")
        if mark is None:
            raise ValueError(
                f"{name!r:.80} cannot name the mark of a thought: give what stands between its "
                "brackets, such as think for <think>"
            )
        kind = _kind_of(mark[0])
        if not kind.says_thinking:  # else it is known without
            _named_marks.add(kind.name)
    _kind_of.cache_clear()


def named_marks() -> tuple[str, ...]:
    """The names that `name_marks` has added in this process, sorted."""
    return tuple(sorted(_named_marks))


def marks_of_template(tokenizer: Any) -> list[str]:
    """The name of the marks that a chat template puts around thoughts; [] if it has none.

    The template renders a conversation with a thought, so any name is found.
    """
    from jinja2 import TemplateError

    thought = dict.fromkeys(("reasoning_content", "reasoning", "thinking"), _THOUGHT)
    messages = [
        {"role": "user", "content": "a question"},
        {"role": "assistant", "content": "an answer", **thought},
    ]
    try:
        text = str(tokenizer.apply_chat_template(messages, tokenize=False))
    except (TemplateError, ValueError, TypeError, AttributeError):  # no template, or other roles
        return []
    before, _, after = text.partition(_THOUGHT)
    before = before.rstrip()
    opening = None
    for match in _MARK.finditer(before[-_LONGEST_MARK:]):
        opening = match[0]
    closing = _MARK.match(after.lstrip())
    if opening is None or closing is None or not before.endswith(opening):
        return []
    kind = _kind_of(closing[0])
    is_pair = kind.name and not kind.opens and _kind_of(opening).family == kind.family
    return [kind.name] if is_pair else []


def opening_mark(prompt: str) -> str:
    """The mark at the end of a prompt that opens a thought; "" if there is none."""
    end = prompt.rstrip()[-_LONGEST_MARK:]
    for mark in thought_marks(end):
        if mark.end == len(end) and mark.kind.opens:
            return end[mark.start :]
    return ""


def is_mark(text: str) -> bool:
    """Whether a text is just a mark of a thought or of an answer."""
    if not _MARK.fullmatch(text):
        return False
    kind = _kind_of(text)
    return kind.name in _ANSWER_NAMES or (kind.says_thinking and not kind.ends_message)


def answer_marks(text: str) -> Iterator[Mark]:
    """The marks of answers in a text, in order: `<answer>`, `</answer>`, `<|END_ANSWER|>`."""
    for match in _MARK.finditer(text):
        kind = _kind_of(match[0])
        if kind.name in _ANSWER_NAMES:
            yield Mark(*match.span(), kind)


def without_reply_marks(answer: str) -> str:
    """An answer without the marks that some models put around it, such as `<response>`."""
    answer = answer.strip()
    first = _MARK.match(answer)
    if first is None:
        return answer
    kind = _kind_of(first[0])
    if kind.name not in _REPLY_NAMES:
        return answer
    answer = answer[first.end() :].rstrip()
    last = _MARK.fullmatch(answer, max(0, answer.rfind(kind.family[0])))
    if last is not None and _kind_of(last[0]).family == kind.family:
        answer = answer[: last.start()]
    return answer.strip()


def thought_marks(text: str) -> Iterator[Mark]:
    """The marks of thoughts in a text, in order."""
    for match in _MARK.finditer(text):
        kind = _kind_of(match[0])
        if kind.says_thinking:
            yield Mark(*match.span(), kind)


@lru_cache(maxsize=4096)
def _kind_of(mark: str) -> Kind:
    """The kind of a mark, from its text."""
    if mark == "<channel|>":
        return Kind(_CHANNEL_FAMILY, opens=False, says_thinking=True)
    if mark in ("<|end|>", "<|call|>"):
        return Kind(_CHANNEL_FAMILY, opens=False, says_thinking=True, ends_message=True)
    parts = _MARK.fullmatch(mark)
    assert parts is not None
    if parts["channel"] is not None:
        opens = parts["channel"].casefold() not in _ANSWER_CHANNELS
        return Kind(_CHANNEL_FAMILY, opens, says_thinking=True)
    if parts["turn"] is not None:
        opens = _THINKING_NAME.search(parts["turn"].casefold()) is not None
        return Kind(
            _CHANNEL_FAMILY, opens, says_thinking=True, is_token=True, ends_message=not opens
        )
    words = _SEPARATORS.sub("_", parts["name"].casefold()).strip("_")
    front = parts["front"].strip()
    back = parts["back"].strip()
    name = _CLOSES.sub("", words)
    closes = name != words or "/" in front + back or bool(back and not front)
    name = _OPENS.sub("", name)
    return Kind(
        family=mark[0] + name,
        opens=not closes,
        says_thinking=name in _named_marks or _THINKING_NAME.search(name) is not None,
        is_token=bool(front.strip("/")),
        may_be_heading=mark[0] == "[" and parts["name"].istitle() and "think" not in name,
    )
