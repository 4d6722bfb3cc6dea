"""Verdicts in a judge's reply, by two rules.

official   the last label anywhere, as Arena-Hard's own program reads it
stated     the last label that the judge states; a label that it lists, quotes or rejects is none
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Literal, TypeAlias

from openrlhf_js.tasks.thinking import after_thinking

Rule: TypeAlias = Literal["stated", "official"]

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
# How A fared: 2 much better, 1 better, 0 a tie, -1 and -2 the same for B.
MARGIN_OF_A = {
    "A>>B": 2,
    "A>B": 1,
    "A=B": 0,
    "B>A": -1,
    "B>>A": -2,
}
LONGEST_TEXT = 1 << 18  # characters of a reply that are read, from its end

# Spellings of a label: entities, signs of mathematics, and what may stand between its letters.
SIGNS = str.maketrans({"\u226b": ">>", "\u226a": "<<", "\u27e6": "[[", "\u27e7": "]]"})
ENTITY = re.compile(r"&(?:amp;)?(#?\w{2,8};)")
ESCAPED = re.compile(r"\\([\[\]<>=])")
BRACKETS = re.compile(r"(\[\s{0,3})?\[([^\[\]\n]{3,40})\](\s{0,3}\])?")
LATEX_SIGNS = {r"\gg": ">>", r"\ll": "<<", r"\gt": ">", r"\lt": "<"}
DRESS = re.compile(r"\\(?:text|math)(?:rm|bf|it)?(?![a-z])|[\s{}$*`_\\,]")

PATTERNS = (r"\[\[([AB<>=]+)\]\]", r"\[([AB<>=]+)\]")  # the official ones, tried in this order


def official_verdict(reply: str) -> str | None:
    """The last label of a reply, such as "A>>B", or None; one in its thinking does not count.

    As upstream: the text is upper-cased, single brackets are tried if double ones hold no verdict,
    the last one wins. Unlike upstream, brackets without a verdict, such as `[[A]]`, are skipped.
    """
    text = _answer(reply).upper()
    for pattern in PATTERNS:
        verdicts = [MEANING[label] for label in re.findall(pattern, text) if label in MEANING]
        if verdicts:
            return verdicts[-1]
    return None


def _answer(reply: str) -> str:
    """What is read of a reply: what follows its thinking, with labels as `[[A>B]]`."""
    return after_thinking(_normal(reply))[-LONGEST_TEXT:]


def _normal(reply: str) -> str:
    """The reply with its labels in plain spelling: `[[A>B]]` for `[[A &gt; B]]`."""
    text = ENTITY.sub(lambda entity: html.unescape(f"&{entity[1]}"), reply)
    text = unicodedata.normalize("NFKC", text.translate(SIGNS))
    return BRACKETS.sub(_label, ESCAPED.sub(r"\1", text))


def _label(brackets: re.Match[str]) -> str:
    """A label without what stands between its letters; other brackets as they are."""
    outer_start, label, outer_end = brackets.groups()
    for latex, sign in LATEX_SIGNS.items():
        label = label.replace(latex, sign)
    label = DRESS.sub("", label)
    if label.upper() not in MEANING:
        return brackets[0]
    return f"[[{label}]]" if outer_start and outer_end else f"[{label}]"


_SPELLINGS = "|".join(sorted(MEANING, key=len, reverse=True))
LABEL = re.compile(rf"\[\[?(?P<label>{_SPELLINGS})\]{{1,2}}", re.IGNORECASE)
# Marks before a label of a quotation that was cut to it, and of one that never held more.
CUT = '"'
SET_APART = "'"

# Where a judge repeats what others wrote: code, Markdown's quotations, quotation marks. Lines begin
# with their line end.
QUOTED_LINES = (
    re.compile(r"\n[ \t]*(```|~~~)[^\n]*(?=\n).*?\n[ \t]*\1[^\n]*", re.DOTALL),
    re.compile(r"\n[ \t]*>[^\n]*(?:\n[ \t]*>[^\n]*)*"),
)
QUOTED_WORDS = re.compile(
    r'"[^"]*"|`[^`]*`|\u201c[^\u201c\u201d]*\u201d|\u00ab[^\u00ab\u00bb]*\u00bb'
)
INTRODUCTION = re.compile(r":[ \t*_]*\n\s*")  # belongs to what it introduces
SENTENCE_END = re.compile(r"[.!?][\"')*_\]]*\s+")
CLAUSE_END = re.compile(r"[,;\u2013\u2014]")
WORD = re.compile(r"\w")
LONGEST_LEAD = 300  # characters before a label that decide whether it is stated

BETWEEN_LISTED = re.compile(r"[^\w.!?]*(?:\d+[.)]\s*)?(?:(?:or|and|nor|to|vs|versus)\b)?[^\w.!?]*")
LONGEST_GAP = 200  # characters from one listed label to the next
LISTED = 4  # labels in the order of the scale, each with its meaning

ANNOUNCED = re.compile(
    r"\b(?:verdict|judge?ment|decision|conclu\w+|final\w*|overall|therefore|thus|hence|so|better|"
    r"superior|stronger|wins?|winner|tie|tied|equal\w*|same|choose|choice is|pick|go with|rate|"
    r"rating|ranking|result|outcome|preference|vote|settle|reflection|but|rather(?! than)|"
    r"instead(?! of)|answer is|label is|boxed|revised|now|it is|it['\u2019]s)\b",
    re.IGNORECASE,
)
ANNOUNCED_BEHIND = re.compile(r"[\s*_]*(?:[:(\u2013\u2014-]|(?:is|as) (?:my|the)\b)")
# What makes the label right behind it a rejected one, or somebody else's.
_OTHERS = (
    r"(?:\b(?:[Nn]ot|[Nn]ever|[Nn]either|nor|than|instead of|between|considered|almost|nearly|"
    r"close to|tempted|said|(?:would|could|might|should) have|says|saying|writes|wrote|written|"
    r"states|claims|contains?|containing|includes?|including|quotes?|quoting|ends|ended|ending|"
    r"begins|asks|asked|tells|told|instructs|requests|demands|insists|repeats|prints|outputs|"
    r"options?|choices|labels|such as|e\.g|[Ee]xamples?)\b|n['\u2019]t\b)"
)
_FILLERS = (
    r"(?:a|(?i:the|an|its|their|this|that|my|own|very|is|are|was|been|be|it|as|by|of|for|to|with|"
    r"in|at the end|me|us|judge|reader|user|output|answer|response|text|line|words?|string|tag|"
    r"label|verdict|final|last|judge?ment|statement|sentence|phrase|say|give|call|choose|quite|"
    r"just|even))"
)
MENTIONED = re.compile(rf"{_OTHERS}(?:\W+{_FILLERS}\b)*\W*$")
_PARTS = r"(?:line|text|words|sentence|verdict|ending|output|note|claim)"
OF_AN_ANSWER = re.compile(
    rf"\b(?:[AB]['\u2019]s(?:\W+\w+)?\W+{_PARTS}|{_PARTS} (?:of|in) (?:\w+\W+){{0,2}}[AB])"
    r"\W*(?:is|was|reads)?\W*$"
)
SUPPOSED = re.compile(
    r"\b(?:[Ii]f(?! (?:I|we)\b)|[Uu]nless|[Hh]ad (?:the|it|they|either|both|assistant|[AB])\b)"
)
EXPLAINED = re.compile(  # what follows a label that is not stated
    r"\W*(?:would|could|might|should|if|when|means?|appears|stands|seems|is (?:what|not|too)|isn|"
    r"in (?:its|the|A|B|assistant))\b",
    re.IGNORECASE,
)
REFUSED = re.compile(
    r"(?:^\W*|\b(?:I|we|it)\b\W+(?:\w+\W+){0,2}?)(?:can ?not|can['\u2019]t|could not|"
    r"couldn['\u2019]t|unable to|impossible to|not able to|decline to|refuse to|will not|"
    r"won['\u2019]t)\W+(?:\w+\W+){0,2}?(?:decide|judge|choose|determine|evaluate|compare|pick|"
    r"(?:give|reach|render|issue) an?)\b|^\W*no (?:final )?verdict\b",
    re.IGNORECASE,
)
IN_WORDS = re.compile(
    r"\b(?:[Ff]inal\w*|[Oo]verall|[Vv]erdict|[Rr]eflection|[Cc]onclu\w+|[Tt]herefore|[Tt]hus|"
    r"[Aa]ctually|[Uu]ltimately)\b.{0,80}?\b(?P<winner>[AB])\W+"
    r"(?:wins|(?:is|was)\W+(?!not\b)(?:\w+\W+)?(?:better|superior|stronger|the winner))\b"
)


def has_label(reply: str) -> bool:
    """Whether a reply holds a label, stated or not, even in its thinking."""
    return LABEL.search(_normal(reply)) is not None


def stated_verdict(reply: str) -> str | None:
    """The verdict that a judge states last; None where it states none, or it cannot be told.

    A label is stated that is announced ("my final verdict is [[A>B]]") or stands alone in its
    sentence. One that is quoted, listed with others, rejected or ascribed to an answer is not. A
    judge that then says that it cannot decide, or names the other winner, has no verdict. Labels of
    which none of this can be said count if all are the same, and nothing else is stated.
    """
    text = _answer(reply)
    if not LABEL.search(text):
        return None
    text = INTRODUCTION.sub(": ", _with_quotations_cut(text))
    later: list[str] = []  # sentences
    unclear = set()
    for sentence in _sentences_from_the_end(_without_lists(text)):
        kinds = list(_kinds(sentence)) if "[" in sentence else []
        stated = [_meaning(label) for label, kind in kinds if kind == "stated"]
        if stated:
            contradicted = any(_names_another_winner(words, stated[-1]) for words in later)
            return None if contradicted else stated[-1]
        if REFUSED.search(sentence):
            return None
        unclear |= {_meaning(label) for label, kind in kinds if kind == "unclear"}
        later.append(sentence)
    return unclear.pop() if len(unclear) == 1 else None


def _meaning(label: re.Match[str]) -> str:
    return MEANING[label["label"].upper()]


def _with_quotations_cut(text: str) -> str:
    """The text with each quotation that holds labels cut to its verdict, or to nothing."""
    text = f"\n{text}"
    for pattern in QUOTED_LINES:
        text = pattern.sub(lambda quotation: f"\n{_cut(quotation)}", text)
    lines = text.split("\n")
    return "\n".join(QUOTED_WORDS.sub(_cut, line) if "[" in line else line for line in lines)


def _cut(quotation: re.Match[str]) -> str:
    """A quotation's only label, between marks; nothing of one that holds several verdicts."""
    content = quotation[0]
    verdicts = {_meaning(label) for label in LABEL.finditer(content)}
    if not verdicts:
        return content
    if len(verdicts) > 1:
        return ""
    mark = CUT if WORD.search(LABEL.sub("", content)) else SET_APART
    return f"{mark}[[{verdicts.pop()}]]{mark}"


def _sentences_from_the_end(text: str) -> Iterator[str]:
    for line in reversed(text.split("\n")):
        yield from reversed(SENTENCE_END.split(line))


def _without_lists(text: str) -> str:
    """The text without labels that are listed: side by side, or the scale with its meanings."""

    def gap(label: re.Match[str], following: re.Match[str]) -> str:
        return text[label.end() : min(following.start(), label.end() + LONGEST_GAP)]

    def side_by_side(label: re.Match[str], following: re.Match[str]) -> bool:
        return BETWEEN_LISTED.fullmatch(gap(label, following)) is not None

    def in_order(direction: int) -> Callable[[re.Match[str], re.Match[str]], bool]:
        def follows(label: re.Match[str], following: re.Match[str]) -> bool:
            step = MARGIN_OF_A[_meaning(following)] - MARGIN_OF_A[_meaning(label)]
            return direction * step > 0 and len(gap(label, following)) < LONGEST_GAP

        return follows

    labels = list(LABEL.finditer(text))
    listed: list[re.Match[str]] = []
    for group in _groups(labels, side_by_side):
        if len({_meaning(label) for label in group}) > 1:
            listed += group
    for direction in (-1, 1):
        for group in _groups(labels, in_order(direction)):
            if len(group) >= LISTED:
                listed += group
    if not listed:
        return text
    starts = {label.start() for label in listed}
    return LABEL.sub(lambda label: "" if label.start() in starts else label[0], text)


def _groups(
    labels: Sequence[re.Match[str]], belong: Callable[[re.Match[str], re.Match[str]], bool]
) -> Iterator[list[re.Match[str]]]:
    """The labels in stretches in which each belongs to the one before it."""
    group = list(labels[:1])
    for label, following in pairwise(labels):
        if not belong(label, following):
            yield group
            group = []
        group.append(following)
    yield group


def _kinds(sentence: str) -> Iterator[tuple[re.Match[str], str]]:
    """The labels of a sentence, each with its kind: "stated", "mentioned" or "unclear"."""
    labels = list(LABEL.finditer(sentence))
    ends = [0, *(label.end() for label in labels)]
    starts = [*(label.start() for label in labels), len(sentence)]
    for number, label in enumerate(labels):
        lead = sentence[max(ends[number], label.start() - LONGEST_LEAD) : label.start()]
        tail = sentence[label.end() : starts[number + 1]]
        yield label, _kind(lead, tail, mark=lead[-1:] if lead[-1:] in (CUT, SET_APART) else "")


def _kind(lead: str, tail: str, mark: str) -> str:
    """What a label is that stands between these words of its sentence."""
    clauses = [clause for clause in CLAUSE_END.split(lead) if WORD.search(clause)]
    clause = clauses[-1] if clauses else ""
    if any(pattern.search(clause) for pattern in (MENTIONED, OF_AN_ANSWER, SUPPOSED)):
        return "mentioned"
    if ANNOUNCED.search(clause):
        return "stated"
    if SUPPOSED.search(lead) or EXPLAINED.match(tail):
        return "mentioned"
    if ANNOUNCED.search(lead) or (not clauses and ANNOUNCED_BEHIND.match(tail)):
        return "stated"
    if not clauses and not WORD.search(tail):
        return "unclear" if mark == CUT else "stated"
    return "mentioned" if mark else "unclear"


def _names_another_winner(sentence: str, verdict: str) -> bool:
    """Whether a sentence concludes, without a label, that another answer is the better one."""
    found = IN_WORDS.search(sentence)
    return found is not None and not verdict.startswith(f"{found['winner']}>")
