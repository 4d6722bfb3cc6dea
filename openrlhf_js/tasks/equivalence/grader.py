"""Grade a mathematical answer: at once where that is cheap and exact, else in a worker process."""

from __future__ import annotations

import contextlib
import re
import unicodedata
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field

from openrlhf_js.tasks import pool
from openrlhf_js.tasks.base import Score, scored
from openrlhf_js.tasks.equivalence import compare, syntax
from openrlhf_js.tasks.equivalence.compare import Judge, Verdict
from openrlhf_js.tasks.equivalence.spelling import normal
from openrlhf_js.tasks.equivalence.syntax import NotRead, Tree, decimal, names, node, number, read

__all__ = ["check_label", "grade"]
MAX_CHARS = 2_000
_NUMERAL = re.compile(r"-?(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d+)?\Z", re.ASCII)
_EXACT = Judge()


def grade(answer: str | None, label: str) -> Score:
    """The score of an extracted answer, None if there is none; ValueError for a malformed label.

    No answer raises: a bug of ours costs the answer that shows it, not the training run.
    """
    wanted = gold(label)
    if answer is None:
        return scored("no_answer", "no final answer")
    if len(answer) > MAX_CHARS:
        return scored("malformed", f"{len(answer)} characters: at most {MAX_CHARS} are graded")
    verdict, problem = None, ""
    try:
        text = normal(answer)
        if not text:
            return scored("malformed", "an empty answer")
        verdict = decide(text, wanted, _EXACT)
    except (NotRead, RecursionError) as error:
        problem = str(error)
    except Exception as bug:
        return scored("error", f"{type(bug).__name__} on {_shown(answer)}")
    compared = f"{_shown(text)} against {_shown(' ; '.join(wanted.texts))}"
    if problem and "\\" not in text and all(wanted.trees):
        return scored("malformed", f"{compared}: {problem}")
    if verdict is not None:
        return scored("correct" if verdict else "wrong", compared)
    score = pool.grade("openrlhf_js.tasks.equivalence.numeric:compare", answer, label)
    return score._replace(detail=f"{compared}: {score.detail}")


def decide(text: str, wanted: Gold, judge: Judge) -> Verdict:
    """Whether the canonical text is the gold answer; NotRead if it cannot be read."""
    if (text,) == wanted.texts:
        return True
    if wanted.value is not None and _NUMERAL.match(text):
        return decimal(text) == wanted.value
    if not all(wanted.trees):
        return _unspaced(text) == _unspaced(wanted.texts[0]) or None
    judges = [replace(judge, within=tolerance) for tolerance in wanted.tolerances]
    tests = [partial(_fits, *each) for each in zip(judges, wanted.trees, strict=True)]
    answers = _alternatives(text)
    if len(tests) == 1 and not wanted.tolerances[0]:
        return compare.some(map(tests[0], answers))
    return compare.some(compare.matched(compare.members(answer), tests) for answer in answers)


def _fits(judge: Judge, golds: tuple[Tree, ...], answer: Tree) -> Verdict:
    return compare.some(judge.same(answer, gold) for gold in golds)


def _unspaced(text: str) -> str:
    """The text without the spaces that part no two letters or digits."""
    return re.sub(r" (?![A-Za-z0-9])|(?<![A-Za-z0-9]) ", "", text)


def _shown(text: object) -> str:
    shown = ascii(text)
    return shown if len(shown) <= 80 else shown[:77] + "..."


# labels


class Gold(NamedTuple):
    """A gold answer, which may be several that are all needed."""

    texts: tuple[str, ...]  # in canonical spelling
    trees: tuple[tuple[Tree, ...], ...]  # the readings of each; none where our grammar ends
    tolerances: tuple[Fraction, ...]  # the greatest difference that each allows
    value: Fraction | None  # the one number that it is, if it is written in digits


class _Fields(BaseModel, extra="forbid", strict=True):
    """A label in JSON."""

    answer: str | Annotated[list[str], Field(min_length=1)]
    unit: str | None = None
    tolerance: str | None = None


def check_label(label: str) -> None:
    """ValueError if the label is no gold answer; see `gold`."""
    gold(label)


@lru_cache(maxsize=1 << 15)
def gold(label: str) -> Gold:
    """What a label says: plain text or LaTeX, or a JSON object.

    The object has `answer` (a text, or a list of texts that are all needed, in any order), and
    perhaps `unit` and `tolerance` (a decimal number, or one for each answer with commas between; an
    empty one allows no difference). ValueError if the label is malformed.
    """
    if not isinstance(label, str) or not label.strip():
        raise ValueError(f"label is {_shown(label)}: give the gold answer as text, not empty")
    in_json = re.match(r'\s*\{\s*"', label)
    fields = _Fields.model_validate_json(label) if in_json else _Fields(answer=label)
    answers = [fields.answer] if isinstance(fields.answer, str) else fields.answer
    texts = tuple(normal(_checked(answer)) for answer in answers)
    if not all(texts):
        raise ValueError(f"label {_shown(label)} has an empty answer: give the gold answer as text")
    trees = tuple(_gold_trees(text, fields.unit or "") for text in texts)
    if (len(trees) > 1 or fields.tolerance) and all(trees):  # an item may be a list: "-1,7"
        flat = [
            (text, (member,))
            for text, found in zip(texts, trees, strict=True)
            for member in compare.members(found[0])
        ]
        texts, trees = (tuple(column) for column in zip(*flat, strict=True))
    plain = len(texts) == 1 and not fields.tolerance and _NUMERAL.match(texts[0])
    value = decimal(texts[0]) if plain and len(texts[0]) < 400 else None
    return Gold(texts, trees, _tolerances(fields.tolerance or "", len(texts)), value)


def _checked(answer: str) -> str:
    if len(answer) > MAX_CHARS:
        raise ValueError(f"gold answer of {len(answer)} characters: at most {MAX_CHARS} are graded")
    bad = [char for char in answer if unicodedata.category(char) in ("Cc", "Cs")]
    if bad := [char for char in bad if not char.isspace()]:
        raise ValueError(f"gold answer {_shown(answer)} holds {bad[0]!a}, which no text has")
    braces = re.sub(r"\\.|[^{}]", "", answer, flags=re.DOTALL)
    while "{}" in braces:
        braces = braces.replace("{}", "")
    if braces:
        raise ValueError(f"gold answer {_shown(answer)} has braces that do not match")
    return answer


def _gold_trees(text: str, unit: str) -> tuple[Tree, ...]:
    for spelling in ([f"{text} {normal(unit)}"] if unit else []) + [text]:
        with contextlib.suppress(NotRead):
            return tuple(readings(spelling))
    return ()


def _tolerances(text: str, count: int) -> tuple[Fraction, ...]:
    try:
        values = [decimal(part.strip() or "0") for part in text.split(",")]
    except (NotRead, ValueError):
        raise ValueError(f"tolerance {_shown(text)}: give a decimal number such as 1e-2") from None
    values = [value for value in values if value or count > 1] or [Fraction(0)]
    if len(values) not in (1, count):
        raise ValueError(
            f"tolerance {_shown(text)} has {len(values)} answers, and there are {count}"
        )
    return tuple(values * count)[:count]


# what a text can stand for


_SO = r"(?:\\text ?\{ ?)?(?:so |thus |therefore |hence )?"
_ANNOUNCED = re.compile(
    rf"{_SO}(?:the |our |my )?(?:final |correct )?"
    r"(?:answer|result|value|total)(?: is| equals|:| =)+[:}\s]*"
    r"|(?:\\text ?\{ ?)?there (?:is|are) (?:exactly |a total of )?(?=\d+ [a-z]+\}?\Z)"
    rf"|{_SO}the (?:[a-z]+ ){{1,8}}(?:is|are|equals):?[}} ]*(?=[^ a-zA-Z])"
    r"|\\text ?\{ ?[A-Za-z][A-Za-z ]{1,40}: ?\} ?(?=[^ a-zA-Z])",  # `Area: 5`
    re.IGNORECASE,
)
_CLOCK = re.compile(r"(\d{1,2})(?: ?: ?([0-5]\d))?(?: ?([aApP])\.? ?[mM]\.?)?\Z")
_NOTHING = re.compile(
    r"(?:there (?:is|are|exists?) |has )?no (?:(?:real|such|possible|valid|integer|positive) )*"
    r"(?:solutions?|roots?|values?|numbers?|integers?)(?: exists?)?\Z|none\Z|empty set\Z"
)
_CHOICE = re.compile(  # with its value behind it, which begins as no operation does
    r"(?:\(([A-J])\)|([A-J])[.):])[ .:]*(?=[^\s.:+^!=/*_'|,<>%])"
    r"(?!\\(?:cup|cap|setminus|pm|neq|leq|geq|approx|pmod|mod|rightarrow)(?![a-z]))"
)
_OPTION = re.compile(r"(?:(?:[Oo]ption|[Cc]hoice):? \(?([A-J])\)?|\(?([A-J])\))\Z")
_IN_LETTERS = re.compile(rf"(\S.*?) ([{syntax.LETTER_UNITS}])\Z")
_PROSE = re.compile(r"[A-Za-z0-9 ,.'\"!?&/():;][A-Za-z0-9 ,.'\"!?&/():;-]*")


def _alternatives(text: str) -> list[Tree]:
    """The readings of an answer, which may stand for more than a label: `5 m` for five metres."""
    found = readings(text.upper() if re.fullmatch(r"\(?[a-e]\)?", text) else text)
    found += [node("sym", text)] if len(text) == 1 else []
    if measured := _IN_LETTERS.match(text):
        with contextlib.suppress(NotRead):
            value = read(measured[1])
            if not names(value) - {"\\pi"} and value.kind != "list":
                found.append(node("measure", value, measured[2]))
    return found


def readings(text: str) -> list[Tree]:
    """The trees of a canonical text, the most likely first; NotRead if there is none."""
    if announced := _ANNOUNCED.match(text):
        text = text[announced.end() :]
        text = text[: -(text.endswith("}") and text.count("}") > text.count("{")) or None]
    plain = text
    if "\\text" in text:
        plain = " ".join(re.sub(r"\\text ?\{([^{}]*)\}", r"\1", text).split())
    if option := _OPTION.match(plain):
        return [node("sym", option[1] or option[2])]
    clock = _CLOCK.match(plain)
    if clock and (clock[2] or clock[3]):
        return [node("clock", int(clock[1]), int(clock[2] or 0), (clock[3] or "").lower())]
    if yes := re.match(r"(yes|no)[,.](?!.*\b(?:no|not|but|only|if|yes)\b)", plain, re.IGNORECASE):
        return [node("text", yes[1].lower())]  # what is said behind it is not weighed
    found = []
    choice = _CHOICE.match(plain)
    if choice and not re.search(r"[,;]|\b(?:or|and)\b", plain[choice.end() :]):
        found.append(node("sym", choice[1] or choice[2]))
        text = plain[choice.end() :]
        if re.fullmatch(r"\(?[A-J]\)?", text):  # one option's letter before another's
            return [node("text", plain)]
    try:
        tree = read(text)
        compare.quantity(tree)
        found += [_words(tree.args[0])] if tree.kind == "text" else [tree]
        if (general := _with_one_parameter(tree)) != tree:
            found.append(general)
    except NotRead:
        if _PROSE.fullmatch(plain) and re.search("[A-Za-z]{2}", plain):
            found.append(_words(plain))
        elif not found:
            raise
    if re.fullmatch("(?=.{2,5}$)A?B?C?D?E?", plain):  # several choices
        found.append(node("list", *(node("sym", letter) for letter in plain)))
    return found


def _words(text: str) -> Tree:
    """Words in lower case without articles and punctuation, or what they are known to mean."""
    said = [w for w in re.findall("[a-z0-9]+", text.lower()) if w not in ("the", "a", "an")]
    canonical = " ".join(said)
    if _NOTHING.match(canonical):
        return node("empty")
    if re.fullmatch("(?:all )?reals?(?: numbers)?", canonical):
        return node("field", "R")
    if canonical in syntax.ORDINALS:
        return number(syntax.ORDINALS[canonical])
    return node("text", {"dne": "does not exist"}.get(canonical, canonical))


def _with_one_parameter(tree: Tree) -> Tree:
    r"""The tree with its integer under one name: `k \pi, k \in \mathbb{Z}`, or just `x = n \pi`."""
    found = names(tree) - {"x", "t", "\\theta"}
    found = found - {"\\pi"} if "\\pi" in found and found <= set("kmn") | {"\\pi"} else set()
    if tree.kind == "list" and any(map(compare.is_proviso, tree.args)):
        found = {item.args[1].args[0] for item in tree.args if compare.is_proviso(item)}
    if len(found) != 1:
        return tree
    old = node("sym", found.pop())
    return syntax.replaced(tree, old, node("sym", "integer"))
