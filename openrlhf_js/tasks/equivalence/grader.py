"""Grade a mathematical answer: at once where that is cheap and exact, else in a worker process."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field

from openrlhf_js.tasks import pool
from openrlhf_js.tasks.base import Score, scored
from openrlhf_js.tasks.equivalence import compare, syntax
from openrlhf_js.tasks.equivalence.compare import Judge, Undecided
from openrlhf_js.tasks.equivalence.spelling import normal
from openrlhf_js.tasks.equivalence.syntax import NotRead, Tree, decimal, node, number, read

MAX_CHARS = 2_000
_NUMERAL = re.compile(r"-?(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d+)?\Z", re.ASCII)


def grade(answer: str | None, label: str) -> Score:
    """The score of an extracted answer, None if there is none; ValueError for a malformed label.

    No answer raises: a bug of ours costs the answer that shows it, not the training run.
    """
    wanted = gold(label)
    if answer is None:
        return scored("no_answer", "no final answer")
    if len(answer) > MAX_CHARS:
        return scored("malformed", f"{len(answer)} characters: at most {MAX_CHARS} are graded")
    right = None
    try:
        text = normal(answer)
        if not text:
            return scored("malformed", "an empty answer")
        with contextlib.suppress(NotRead, Undecided, RecursionError):
            right = decide(text, wanted, Judge())
    except Exception as bug:
        return scored("error", f"{type(bug).__name__} on {answer!a:.80}")
    compared = f"{text!a:.80} against {' ; '.join(each.text for each in wanted)!a:.80}"
    if right is not None:
        return scored("correct" if right else "wrong", compared)
    score = pool.grade("openrlhf_js.tasks.equivalence.numeric:compare", answer, label)
    return score._replace(detail=f"{compared}: {score.detail}")


def decide(text: str, wanted: tuple[Gold, ...], judge: Judge) -> bool:
    """Whether the canonical text is the gold answer; NotRead if one of them cannot be read."""
    first = wanted[0]
    if len(wanted) == 1 and text == first.text:
        return True
    if not all(each.trees for each in wanted):
        raise NotRead("a label that is no plain answer")
    plain = len(wanted) == 1 and not first.within
    if plain and first.trees[0].kind == "num" and _NUMERAL.match(text):  # most answers
        return decimal(text) == first.trees[0].args[0]
    tests = [partial(_fits, replace(judge, within=each.within), each.trees) for each in wanted]
    if re.fullmatch(r"\(?[a-e]\)?", text):  # an option's letter
        answers = [node("sym", text), *readings(text.upper())]
    else:
        answers = readings(_LETTER_UNIT.sub(r"\1 \\\2", text))
    if plain:
        return any(map(tests[0], answers))
    return any(compare.matched(compare.members(answer), tests) for answer in answers)


def _fits(judge: Judge, golds: tuple[Tree, ...], answer: Tree) -> bool:
    return any(judge.same(answer, gold) for gold in golds)


# labels


class Gold(NamedTuple):
    """One of the answers that a label asks for."""

    text: str  # in canonical spelling
    trees: tuple[Tree, ...]  # its readings; none where our grammar ends
    within: Fraction  # the greatest difference that is allowed


class _Fields(BaseModel, extra="forbid", strict=True):
    """A label in JSON."""

    answer: str | Annotated[list[str], Field(min_length=1)]
    unit: str | None = None
    tolerance: str | None = None


@lru_cache(maxsize=1 << 15)
def gold(label: str) -> tuple[Gold, ...]:
    """What a label says: plain text or LaTeX, or a JSON object.

    The object has `answer` (a text, or a list of texts that are all needed, in any order), and
    perhaps `unit` and `tolerance` (numbers between commas). ValueError if the label is malformed.
    """
    if not isinstance(label, str) or not label.strip():
        raise ValueError(f"label is {label!a:.80}: give the gold answer as text, not empty")
    in_json = re.match(r'\s*\{\s*"', label)
    fields = _Fields.model_validate_json(label) if in_json else _Fields(answer=label)
    answers = [fields.answer] if isinstance(fields.answer, str) else fields.answer
    found: list[tuple[str, tuple[Tree, ...]]] = []
    for answer in answers:
        if len(answer) > MAX_CHARS:
            raise ValueError(f"gold answer of {len(answer)} characters: at most {MAX_CHARS}")
        braces = re.sub(r"\\.", "", answer, flags=re.DOTALL)
        if braces.count("{") != braces.count("}"):
            raise ValueError(f"gold answer {answer!a:.80} has braces that do not match")
        text = normal(answer)
        if not text:
            raise ValueError(f"label {label!a:.80} has an empty answer")
        trees = _gold_trees(text, fields.unit or "")
        if (len(answers) > 1 or fields.tolerance) and trees:  # each may be a list: "-1,7"
            found += [(text, (each,)) for each in compare.members(trees[0])]
        else:
            found.append((text, trees))
    allowed = _tolerances(fields.tolerance or "", len(found))
    return tuple(Gold(*each, within) for each, within in zip(found, allowed, strict=True))


check_label = gold  # for its ValueError


def _gold_trees(text: str, unit: str) -> tuple[Tree, ...]:
    for spelling in (normal(f"{text} {unit}"), text):
        with contextlib.suppress(NotRead, RecursionError):
            return tuple(readings(spelling))
    return ()


def _tolerances(text: str, count: int) -> list[Fraction]:
    try:
        values = [decimal(part.strip() or "0") for part in text.split(",")]
    except (NotRead, ValueError):
        raise ValueError(f"tolerance {text!a:.80}: give a decimal number such as 1e-2") from None
    if len(values) not in (1, count):
        raise ValueError(f"tolerance {text!a:.80} is for {len(values)} answers of {count}")
    return (values * count)[:count]


# what a text can stand for


_SO = r"(?:so |thus |therefore |hence )?"
_ANNOUNCED = re.compile(
    rf"{_SO}(?:the |our |my )?(?:final |correct )?"
    r"(?:answer|result|value|total)(?: is| equals|:| =)+[:}\s]*"
    r"|there (?:is|are) (?:exactly |a total of )?(?=\d+ [a-z]+\Z)"
    rf"|{_SO}the (?:[a-z]+ ){{1,8}}(?:is|are|equals):? ?(?=[^ a-zA-Z])"
    r"|(?-i:[A-Z])[A-Za-z ]{1,40}: ?(?=[^ a-zA-Z])"  # `Area: 5`
    r"|(?:an?|the) (?=[a-z]{3})(?!and|sin|cos|tan|log)",
    re.IGNORECASE,
)
_CLOCK = re.compile(r"(\d{1,2})(?: ?: ?([0-5]\d))?(?: ?([aApP])\.? ?[mM]\.?)?\Z")
_CHOICE = re.compile(  # perhaps with its value behind it, which begins as no operation does
    r"(?:(?:[Oo]ption|[Cc]hoice):? )?(?:\(([A-J])\)|([A-J])(?:[.):]|\Z))[ .:]*"
    r"(?=\Z|[^\s.:+^!=/*_'|,<>%])(?!\\(?:cup|cap|setminus|pm|approx|pmod)(?![a-z]))"
)
_LETTER_UNIT = re.compile(  # the whole answer is a number and a unit: `5 m`
    r"\A(-?(?:[^A-Za-z\\,;=<>+-]|\\(?:frac|sqrt|pi)(?![a-z]))+) ([ABCFJKLNVWghlms])\Z"
)
_PROSE = re.compile(r"[A-Za-z0-9 ,.'\"!?&/():;][A-Za-z0-9 ,.'\"!?&/():;-]*")


def readings(text: str) -> list[Tree]:
    """The trees of a canonical text, the most likely first; NotRead if there is none."""
    if announced := _ANNOUNCED.match(text):
        text = text[announced.end() :]
    clock = _CLOCK.match(text)
    if clock and (clock[2] or clock[3]):  # the half of the day is like a unit
        time = node("text", f"{int(clock[1])}:{clock[2] or '00'}")
        return [node("measure", time, (clock[3].lower(),) if clock[3] else ())]
    if yes := re.match(r"(yes|no)[,.](?!.*\b(?:no|not|but|only|if|yes)\b)", text, re.IGNORECASE):
        return [node("text", yes[1].lower())]  # what is said behind it is not weighed
    found: list[Tree] = []
    choice = _CHOICE.match(text)
    value = text[choice.end() :] if choice else ""
    if choice and not re.search(r"[,;]|\b(?:or|and)\b", value):
        letter = node("sym", choice[1] or choice[2])
        if re.fullmatch(r"\(?[A-J]?\)?", value):  # one letter before another is no answer
            return [node("text", text) if value else letter]
        found, text = [letter], value
    try:
        tree = node("text", text) if re.fullmatch("[A-Z]{2,}", text) else read(text)
        found += [_words(tree.args[0])] if tree.kind == "text" else [tree]
    except NotRead:
        if _PROSE.fullmatch(text) and re.search("[A-Za-z]{2}", text):
            found.append(_words(text))
        elif not found:
            raise
    if re.fullmatch("(?=.{2,5}$)A?B?C?D?E?", text):  # several choices
        found.append(node("list", *(node("sym", letter) for letter in text)))
    return found


def _words(text: str) -> Tree:
    """Words in lower case without articles and punctuation, or what they are known to mean."""
    said = [w for w in re.findall("[a-z0-9]+", text.lower()) if w not in ("the", "a", "an")]
    canonical = " ".join(said)
    if canonical in syntax.ORDINALS:
        return number(syntax.ORDINALS[canonical])
    return node("text", {"dne": "does not exist"}.get(canonical, canonical))
