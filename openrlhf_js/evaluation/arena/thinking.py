"""Parts an answer from what its model thought before it, which no judge should see."""

from __future__ import annotations

from typing import NamedTuple

# What models in common use write around their thoughts, always at the beginning.
TAGS = (
    ("<think>", "</think>"),  # DeepSeek-R1, Qwen3, QwQ
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),  # Seed-OSS
    ("[THINK]", "[/THINK]"),  # Magistral
    ("◁think▷", "◁/think▷"),  # Kimi
    ("<|begin_of_thought|>", "<|end_of_thought|>"),  # Sky-T1
    ("<|channel|>analysis<|message|>", "<|end|>"),  # gpt-oss
)
# What stands around the answer itself in some of these, and is no part of it.
_AROUND = (
    ("<|begin_of_solution|>", "<|end_of_solution|>"),
    ("<|start|>assistant<|channel|>final<|message|>", "<|return|>"),
    ("<|channel|>final<|message|>", "<|return|>"),
)
# Any of these, where it is a special token, must not be left out of a text before it is parted.
MARKS = frozenset(mark for pair in TAGS for mark in pair) | {"<|channel|>"}


class Parted(NamedTuple):
    """An answer and the thoughts before it.

    Attributes:
        text: the answer, "" where the thoughts never ended.
        thinking: the thoughts, "" where there are none.
        unclosed: whether the thoughts never ended.
    """

    text: str
    thinking: str
    unclosed: bool


def part(text: str, thinking: str = "") -> Parted:
    """The answer in what a model said.

    Thoughts are what stands between two tags at the beginning, once or several times. A closing tag
    without its opening one ends thoughts, too, where a line begins or ends with it: many chat
    templates write the opening one into the prompt. A tag later in an answer is part of it: it may
    be what the answer is about.

    Args:
        text: all of it.
        thinking: what the endpoint has parted from it already.
    """
    thoughts = [thinking] if thinking else []
    rest = text
    while True:
        body = rest.lstrip()
        tags = next((pair for pair in TAGS if body.startswith(pair[0])), None)
        if tags is None:
            break
        thought, closed, rest = body[len(tags[0]) :].partition(tags[1])
        thoughts.append(thought.strip())
        if not closed:
            return Parted("", _joined(thoughts), True)
    if rest is text and not thinking:
        for start, end in TAGS[:-1]:
            thought, closed, after = rest.partition(end)
            if closed and start not in thought and not _about(thought, after):
                thoughts.append(thought.strip())
                rest = after
                break
    if rest is text:
        return Parted(text, _joined(thoughts), False)
    return Parted(_inside(rest.strip()), _joined(thoughts), False)


def _about(before: str, after: str) -> bool:
    """Whether a tag between these is spoken of: in code, in quotation marks, or within a line."""
    quoted = before.endswith(("`", '"', "'")) or before.count("```") % 2 == 1
    ends = not before.strip(" \t") or before.endswith("\n") or after[:1] in ("", "\n", "\r")
    return quoted or not ends


def _inside(text: str) -> str:
    for start, end in _AROUND:
        if text.startswith(start):
            return text[len(start) :].removesuffix(end).strip()
    return text


def _joined(thoughts: list[str]) -> str:
    return "\n\n".join(each for each in thoughts if each)
