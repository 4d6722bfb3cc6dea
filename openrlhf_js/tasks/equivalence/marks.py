"""Words, times of day and numerals in a base: the same if they are written the same, or nearly."""

from __future__ import annotations

import re

from openrlhf_js.tasks.equivalence.tree import Tree

_COPULA = re.compile(r" (?:is|are) ")
_VERDICTS = {"yes": False, "no": True}  # and whether the sentence behind it denies something
_REFUSALS = frozenset(("not", "cannot", "never", "impossible", "no", "t"))
_HEDGES = frozenset((
    "if", "but", "and", "or", "unless", "except", "only", "yes", "maybe", "perhaps", "sometimes",
    "wait", "when", "however", "other", "otherwise",
))  # fmt: skip
_DENIALS = frozenset(("no", "not", "none", "never", "neither", "if", "nothing", "nobody"))


def same_words(answer: str, gold: str) -> bool:
    """Whether the words are the same, or one side has them as a sentence: `it is even`."""
    if answer in _VERDICTS or gold in _VERDICTS:
        answer, gold = _verdict(answer), _verdict(gold)
    return answer == gold or _said(answer) == gold or answer == _said(gold)


def _verdict(text: str) -> str:
    """The yes or no that a sentence begins with, `yes it is possible`, and does not take back."""
    word, *rest = text.split()
    if word not in _VERDICTS or len(rest) < 2 or _HEDGES.intersection(rest):
        return text
    if not "".join(rest).isalpha():
        return text
    return word if _VERDICTS[word] == bool(_REFUSALS.intersection(rest)) else text


def _said(text: str) -> str | None:
    """What a sentence says of its subject, unless it denies something."""
    subject, *said = _COPULA.split(text, maxsplit=1)
    return said[0] if said and not _DENIALS.intersection(subject.split()) else None


def same_time(answer: Tree, gold: Tree) -> bool:
    """Times of day; one without its half of the day fits both halves of the other."""
    if answer.kind != gold.kind:
        return False
    (left, left_half, *_), (right, right_half, *_) = answer.args, gold.args
    if bool(left_half) == bool(right_half):
        return left == right
    bare = left if right_half else right
    return left == right or (60 <= bare < 13 * 60 and left % 720 == right % 720)


def same_numeral(answer: Tree, gold: Tree) -> bool:
    """Numerals where the gold one is in a base, which the answer may leave out but not change."""
    if answer.kind == "base":
        return answer.args[1] == gold.args[1]
    return answer.kind == "num" and str(answer.args[0]) == gold.args[1].partition("_")[0]
