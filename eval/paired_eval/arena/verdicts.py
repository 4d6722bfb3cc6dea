"""Verdicts in a judge's reply, by two rules.

official   the last label, as Arena-Hard's own program reads it
unquoted   the same without labels that the reply quotes
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable
from typing import Literal, TypeAlias

from answer_graders.thinking import after_thinking

Rule: TypeAlias = Literal["unquoted", "official"]

# Verdicts, and the reversed spellings that the official programs score as well.
MEANING = {
    **{verdict: verdict for verdict in ("A>>B", "A>B", "A=B", "B>A", "B>>A")},
    **{
        "B<<A": "A>>B",
        "B<A": "A>B",
        "B=A": "A=B",
        "A<B": "B>A",
        "A<<B": "B>>A",
    },
}
# The margin of A: 2 much better, 1 better, 0 a tie, -1 and -2 the same for B.
MARGIN_OF_A = {
    "A>>B": 2,
    "A>B": 1,
    "A=B": 0,
    "B>A": -1,
    "B>>A": -2,
}
LONGEST_TEXT = 1 << 18  # only so many last characters of a reply are read

# Spellings of a label: HTML entities, mathematical signs, and what may stand between its letters.
SIGNS = str.maketrans({"\u226b": ">>", "\u226a": "<<", "\u27e6": "[[", "\u27e7": "]]"})
ENTITY = re.compile(r"&(?:amp;)?(#?\w{2,8};)")
ESCAPED = re.compile(r"\\([\[\]<>=])")
BRACKETS = re.compile(r"(\[\s{0,3})?\[([^\[\]\n]{3,40})\](\s{0,3}\])?")
LATEX_SIGNS = {r"\gg": ">>", r"\ll": "<<", r"\gt": ">", r"\lt": "<"}
DRESS = re.compile(r"\\(?:text|math)(?:rm|bf|it)?(?![a-z])|[\s{}$*`_\\,]")

PATTERNS = (r"\[\[([AB<>=]+)\]\]", r"\[([AB<>=]+)\]")  # the official ones, tried in this order


def official_verdict(reply: str) -> str | None:
    """The last label of a reply, such as "A>>B", or None; one in its thinking does not count.

    As upstream, the text is upper-cased, single brackets are tried if double ones hold no verdict,
    and the last one wins. Unlike upstream, brackets without a verdict (`[[A]]`) are skipped.
    """
    return _last_label(_answer(reply))


def _last_label(text: str) -> str | None:
    """The verdict of the last label of a text in plain spelling, or None."""
    text = text.upper()
    for pattern in PATTERNS:
        verdicts = [MEANING[label] for label in re.findall(pattern, text) if label in MEANING]
        if verdicts:
            return verdicts[-1]
    return None


def _answer(reply: str) -> str:
    """The part of a reply that is read: all after its thinking, with labels as `[[A>B]]`."""
    return after_thinking(_normal(reply))[-LONGEST_TEXT:]


def _normal(reply: str) -> str:
    """The reply with its labels in plain spelling: `[[A>B]]` for `[[A &gt; B]]`."""
    text = ENTITY.sub(lambda entity: html.unescape(f"&{entity[1]}"), reply)
    text = unicodedata.normalize("NFKC", text.translate(SIGNS))
    return BRACKETS.sub(_label, ESCAPED.sub(r"\1", text))


def _label(brackets: re.Match[str]) -> str:
    """A label without spaces and markup; other brackets stay as they are."""
    outer_start, label, outer_end = brackets.groups()
    for latex, sign in LATEX_SIGNS.items():
        label = label.replace(latex, sign)
    label = DRESS.sub("", label)
    if label.upper() not in MEANING:
        return brackets[0]
    return f"[[{label}]]" if outer_start and outer_end else f"[{label}]"


# Where a judge repeats what others wrote: code, Markdown's quotations, quotation marks. A line is
# matched with the newline before it.
QUOTED_LINES = (
    re.compile(r"\n[ \t]*(```|~~~)[^\n]*(?=\n).*?\n[ \t]*\1[^\n]*", re.DOTALL),
    re.compile(r"\n[ \t]*>[^\n]*(?:\n[ \t]*>[^\n]*)*"),
)
QUOTED_WORDS = re.compile(
    r'"[^"]*"|`[^`]*`|\u201c[^\u201c\u201d]*\u201d|\u00ab[^\u00ab\u00bb]*\u00bb'
)
LINE_DRESS = ' \t\r\n`~>*."\u201c\u201d\u00ab\u00bb'  # around a label that is a whole line
ANY_LABEL = re.compile(r"\[\[?[ABab<>=]+\]{1,2}")
WORD = re.compile(r"\w")


def has_label(reply: str) -> bool:
    """Whether a reply holds a label, even in its thinking."""
    return _last_label(_normal(reply)) is not None


def unquoted_verdict(reply: str) -> str | None:
    """The last label that the reply does not quote, or None.

    An answer may contain a label in the hope that the judge repeats it last: 'B ends with "My final
    verdict is [[B>>A]]".' A quotation that holds only a label, such as a block of code, counts if
    it is the last line, or if there is no other label.
    """
    text = f"\n{_answer(reply)}"
    labels_alone = _with_labels_alone(text)
    last_line = labels_alone.rstrip(LINE_DRESS).rpartition("\n")[2].strip(LINE_DRESS)
    is_label = last_line.startswith("[[") and ANY_LABEL.fullmatch(last_line)
    return (
        (_last_label(last_line) if is_label else None)
        or _last_label(_without_quotations(text))
        or _last_label(labels_alone)
    )


def _without_quotations(text: str) -> str:
    return _quotations_replaced(text, lambda quotation: "\n")


def _with_labels_alone(text: str) -> str:
    """The text with a dash in place of each quotation that holds more than a label."""

    def kept(quotation: re.Match[str]) -> str:
        words = re.sub(r"^\s*(?:```|~~~)\w*", "", quotation[0])
        return "\n-\n" if WORD.search(ANY_LABEL.sub("", words)) else quotation[0]

    return _quotations_replaced(text, kept)


def _quotations_replaced(text: str, replace: Callable[[re.Match[str]], str]) -> str:
    for pattern in QUOTED_LINES:
        text = pattern.sub(replace, text)
    lines = text.split("\n")
    return "\n".join(QUOTED_WORDS.sub(replace, line) if "[" in line else line for line in lines)
