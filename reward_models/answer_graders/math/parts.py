"""Labelled parts of an answer: `(a) 3, (b) 4`, `Part 1: 3, Part 2: 4`, `i) 3 ii) 4`."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Sequence

from answer_graders.math.tree import Tree, is_group, items_of, node
from answer_graders.math.vocabulary import NUMBER_WORDS, ORDINALS

_ROMAN = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi", "xii")
_LETTERS = {letter: place for place, letter in enumerate(string.ascii_lowercase, start=1)}
_NUMBERINGS: tuple[dict[str, int], ...] = (
    {str(place): place for place in range(1, 100)},
    {numeral: place for place, numeral in enumerate(_ROMAN, start=1)},
    _LETTERS,
    NUMBER_WORDS,
    ORDINALS | {"second": 2},
)
_NAME = r"(?:[a-zA-Z]|[ivx]{2,5}|[IVX]{2,5}|\d{1,2}|one|two|three|four|five)"
_PIECE = re.compile(  # a label, in the group named after its style; or a bracket
    rf"""(?x) (?:(?<![^\s,;])|(?<=\\\\)) (?:
        \((?P<enclosed>{_NAME})\)(?:\.(?=\s))?
        | (?P<closed>{_NAME})\)
        | (?P<dotted>{_NAME})\.(?=\s)
        | (?P<colon>[a-zA-Z]|[ivx]{{2,5}}|[IVX]{{2,5}}):
        | (?:[Pp]art|[Qq]uestion|[Pp]roblem|[Ee]xercise|[Aa]nswer|[Cc]ase)\ ?
          \(?(?P<word>{_NAME})\)? (?:\ ?[:.=]|\ is\b|(?<=\)))
        | Q\.?\ ?(?P<question>\d{{1,2}})[:.)]
        | (?P<ordinal>[Ff]irst|[Ss]econd|[Tt]hird|[Ff]ourth|[Ff]ifth)
          (?:\ (?:part|answer|question|value))?:
    ) | [(\[{{)\]}}]"""
)
_ANNOUNCED = re.compile(r"(?:the |final |my )*answers?(?: is| are)?:? ", re.IGNORECASE)
_NO_VALUE = re.compile(r"(?:[*/^<>!|_)].*|.*[-+*/^=<>(_])?\Z", re.DOTALL)  # an operand is missing


def labelled_parts(text: str) -> dict[int, str]:
    """The parts of a canonical text by label number, in order; empty if it has none.

    The text must begin with a label, and all labels must have one style.
    """
    labels = _labels(text)
    if len(labels) < 2:
        return {}
    numbers = _numbers([str(label[str(label.lastgroup)]) for label in labels])
    ends = [label.start() for label in labels[1:]] + [len(text)]
    values = []
    for label, end in zip(labels, ends, strict=True):
        values.append(_value(text[label.end() : end]))
    if not numbers or any(map(_NO_VALUE.match, values)):
        return {}
    return dict(sorted(zip(numbers, values, strict=True)))


def _labels(text: str) -> list[re.Match[str]]:
    """The labels in a text that begins with one; labels inside brackets do not count."""
    announced = _ANNOUNCED.match(text)
    starts = (0, announced.end() if announced else 0)
    labels: list[re.Match[str]] = []
    end = depth = 0
    for piece in _PIECE.finditer(text):
        if not labels and piece.start() > starts[1]:
            break
        style = piece.lastgroup
        is_first = not labels and piece.start() in starts
        is_next = labels and style == labels[0].lastgroup and text[end : piece.start()].strip()
        if style and depth == 0 and (is_first or is_next):
            labels.append(piece)
            end = piece.end()
        else:
            depth += sum(map(piece[0].count, "([{")) - sum(map(piece[0].count, ")]}"))
    return labels


def _numbers(names: Sequence[str]) -> list[int]:
    """The numbers of labels, if all differ and belong to one numbering; else none.

    Roman numerals begin with i; otherwise, letters that could be Roman numerals are letters.
    """
    names = [name.lower() for name in names]
    for numbering in _NUMBERINGS:
        is_roman = "ii" in numbering
        if numbering.keys() >= set(names) and (not is_roman or "i" in names):
            return [numbering[name] for name in names] if len(set(names)) == len(names) else []
    return []


def _value(text: str) -> str:
    """A value without the separators between it and the labels around it."""
    value = text.lstrip(" ,;:=").rstrip(" ,;.\\")
    return value.removesuffix(" and").rstrip(" ,;")


def parts_tree(parts: dict[int, str], readings_of: Callable[[str], Sequence[Tree]]) -> Tree:
    """The parts with their labels and all readings of each value."""
    return node("parts", tuple(parts), *(tuple(readings_of(value)) for value in parts.values()))


def are_consecutive(labels: Sequence[int]) -> bool:
    """Whether labels are consecutive, from the first on: (a), (b), (c)."""
    return list(labels) == list(range(1, len(labels) + 1))


def readings_of_parts(tree: Tree) -> list[tuple[Tree, ...]]:
    """The readings of each part; a tree without labels has its elements as parts."""
    if tree.kind == "parts":
        return list(tree.args[1:])
    if tree.kind == "list":
        return [(item,) for item in tree.args]
    if is_group(tree, "()"):
        return [(item,) for item in items_of(tree)]
    return [(tree,)]
