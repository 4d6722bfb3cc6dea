"""Grade a mathematical answer: at once where that is cheap and exact, else in a worker process."""

from __future__ import annotations

import contextlib
import re
import unicodedata
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field

from openrlhf_js.tasks import pool
from openrlhf_js.tasks.base import Score, scored
from openrlhf_js.tasks.equivalence import compare
from openrlhf_js.tasks.equivalence.compare import Judge, Verdict
from openrlhf_js.tasks.equivalence.spelling import normal
from openrlhf_js.tasks.equivalence.syntax import (
    FUNCTIONS,
    LETTER_UNITS,
    SIZES,
    NotRead,
    Tree,
    decimal,
    names,
    node,
    number,
    read,
    replaced,
)

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
        if wanted.value is not None and _NUMERAL.match(text):
            verdict = decimal(text.lstrip("-")) * (-1 if text[0] == "-" else 1) == wanted.value
        elif text:
            verdict = decide(text, wanted, _EXACT)
    except (NotRead, RecursionError) as error:
        problem = str(error)
    except Exception as bug:
        return scored("error", f"{type(bug).__name__} on {_shown(answer, 60)}")
    if not text:
        return scored("malformed", "an empty answer")
    compared = f"{_shown(text, 60)} against {_shown(' ; '.join(wanted.texts), 60)}"
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
    readable = all(wanted.trees)
    if not readable and _unspaced(text) == _unspaced(wanted.texts[0]):
        return True
    answers = _alternatives(text)
    if not readable:
        return None

    def fits(trees: tuple[Tree, ...], tolerance: Fraction | None) -> Callable[[Tree], Verdict]:
        if tolerance is None:
            return lambda answer: compare.some(judge.same(answer, t) for t in trees)
        return lambda answer: compare.some(judge.close(answer, t, tolerance) for t in trees)

    tests = [fits(*each) for each in zip(wanted.trees, wanted.tolerances, strict=True)]
    if wanted.tolerances == (None,):
        return compare.some(map(tests[0], answers))
    return compare.some(compare.matched(compare.members(answer), tests) for answer in answers)


def _unspaced(text: str) -> str:
    """The text without the spaces that part no two letters or digits."""
    return re.sub(r" (?![A-Za-z0-9])|(?<![A-Za-z0-9]) ", "", text)


def _shown(text: object, most: int = 80) -> str:
    shown = ascii(text) if most == 80 else ascii(text)[1:-1].replace("\\\\", "\\")
    return shown if len(shown) <= most else shown[: most - 3] + "..."


# labels


class Gold(NamedTuple):
    """A gold answer, which may be several that are all needed."""

    texts: tuple[str, ...]  # in canonical spelling
    trees: tuple[tuple[Tree, ...], ...]  # the readings of each; none where our grammar ends
    tolerances: tuple[Fraction | None, ...]  # the greatest difference that each allows
    value: Fraction | None  # the one number that it is, if it is a plain rational one


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
    unit, tolerance = fields.unit or "", fields.tolerance or ""
    texts = tuple(normal(_checked(answer)) for answer in answers)
    if not all(texts):
        raise ValueError(f"label {_shown(label)} has an empty answer: give the gold answer as text")
    trees = tuple(_gold_trees(text, unit) for text in texts)
    if (len(trees) > 1 or tolerance) and all(trees):  # an item may itself be a list: "-1,7"
        flat = [
            (text, (member,))
            for text, found in zip(texts, trees, strict=True)
            for member in compare.members(found[0])
        ]
        texts, trees = (tuple(column) for column in zip(*flat, strict=True))
    single = len(trees) == 1 and trees[0] and trees[0][0].kind in ("num", "neg") and not tolerance
    value = compare.rational(trees[0][0]) if single else None
    return Gold(texts, trees, _tolerances(tolerance, len(texts)), value)


class _Fields(BaseModel, extra="forbid", strict=True):
    """A label in JSON."""

    answer: str | Annotated[list[str], Field(min_length=1)]
    unit: str | None = None
    tolerance: str | None = None


def _checked(answer: str) -> str:
    if len(answer) > MAX_CHARS:
        raise ValueError(f"gold answer of {len(answer)} characters: at most {MAX_CHARS} are graded")
    odd = (char for char in answer if unicodedata.category(char) in ("Cc", "Cs"))
    if bad := next((char for char in odd if not char.isspace()), None):
        raise ValueError(f"gold answer {_shown(answer)} holds {bad!a}, which no text has")
    depth = 0
    for brace in re.findall(r"\\.|[{}]", answer, re.DOTALL):
        depth += (brace == "{") - (brace == "}")
        if depth < 0:
            break
    if depth:
        raise ValueError(f"gold answer {_shown(answer)} has braces that do not match")
    return answer


def _gold_trees(text: str, unit: str) -> tuple[Tree, ...]:
    found: tuple[Tree, ...] = ()
    with contextlib.suppress(NotRead):
        found = tuple(readings(text))
        if unit:
            measured = readings(f"1 {normal(unit)}")[0]
            return tuple(_with_unit(tree, measured) for tree in found)
    return found


def _with_unit(tree: Tree, measured: Tree) -> Tree:
    """The tree in a unit, which is given as a tree of kind `measure`, `deg` or `pct`."""
    if tree.kind == "list":
        return Tree("list", tuple(_with_unit(item, measured) for item in tree.args))
    if tree.kind in ("measure", "deg", "pct", "text", "group", "rel"):
        return tree
    if measured.kind == "measure":
        return node("measure", tree, measured.args[1])
    return node(measured.kind, tree) if measured.kind in ("deg", "pct") else tree


def _tolerances(text: str, count: int) -> tuple[Fraction | None, ...]:
    try:
        values = [decimal(part.strip()) if part.strip() else None for part in text.split(",")]
    except (NotRead, ValueError):
        raise ValueError(f"tolerance {_shown(text)}: give a decimal number such as 1e-2") from None
    if len(values) == 1:
        return tuple(values * count)
    given = [value for value in values if value is not None]
    if len(values) == count or (count == 1 and len(given) == 1):
        return tuple(values if len(values) == count else given)
    raise ValueError(
        f"tolerance {_shown(text)} is for {len(values)} answers, and there are {count}"
    )


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
    r"(?:solutions?|roots?|values?|numbers?|integers?)(?: exists?)?\Z"
)
_CHOICE = re.compile(  # with its value behind it, which begins as no operation does
    r"(?:\(([A-J])\)|([A-J])[.):])[ .:]*(?=[^\s.:+^!=/*_'|,<>%])"
    r"(?!\\(?:cup|cap|setminus|pm|neq|leq|geq|approx|pmod|mod|rightarrow)(?![a-z]))"
)
_OPTION = re.compile(r"(?:[Oo]ption|[Cc]hoice):? \(?([A-J])\)?\Z|\(?([A-J])\)\Z")
_PROSE = re.compile(r"[A-Za-z]+(?:[ '-]+[A-Za-z]+)+\Z")
_NOT_PROSE = FUNCTIONS | SIZES.keys() | {"and", "or", "to", "pi", "in"}
_IN_LETTERS = re.compile(rf"(\S.*?) ([{LETTER_UNITS}])\Z")
_MEANT: dict[str, Tree] = {
    **{words: node("empty") for words in ("none", "empty set")},
    **{words: node("field", "R") for words in ("all real numbers", "all reals", "real numbers")},
    "dne": node("text", "does not exist"),
    "all prime numbers": node("text", "all primes"),
    "positive infinity": node("inf"),
    "negative infinity": node("neg", node("inf")),
}


def _alternatives(text: str) -> list[Tree]:
    """The readings of an answer, which may stand for more than a label: `5 m` for five metres."""
    if choice := re.fullmatch(r"\(?([a-e])\)?", text):
        return [node("sym", choice[1]), node("sym", choice[1].upper())]
    found = readings(text)
    measured = _IN_LETTERS.match(text)
    if measured:
        with contextlib.suppress(NotRead):
            value = read(measured[1])
            if not names(value) - {"\\pi"} and value.kind != "list":
                found.append(node("measure", value, measured[2]))
    return found


def readings(text: str) -> list[Tree]:
    """The trees of a canonical text, the likeliest first; NotRead if it can be read in no way."""
    if announced := _ANNOUNCED.match(text):
        text = text[announced.end() :]
        text = text[: -(text.endswith("}") and text.count("}") > text.count("{")) or None]
    plain = text
    if "\\text" in text:
        plain = " ".join(re.sub(r"\\text ?\{([^{}]*)\}", r"\1", text).split())
    if option := _OPTION.match(plain):
        return [node("sym", option[1] or option[2])]
    if special := _clock(plain):
        return [special]
    found = []
    choice = _CHOICE.match(plain)
    if choice and not re.search(r"[,;]|\b(?:or|and)\b", plain[choice.end() :]):
        found.append(node("sym", choice[1] or choice[2]))
        text = plain[choice.end() :]
        if re.fullmatch(r"\(?[A-J]\)?", text):  # one option's letter before another's
            return [node("text", plain)]
    prose = _PROSE.match(plain) and len(plain) > 5
    if prose and not _NOT_PROSE & set(re.split("[^A-Za-z]+", plain)):
        return [_words(plain)]
    try:
        tree = read(text)
        if tree.kind == "measure":
            compare.quantity(tree)
        found.append(_words(tree.args[0]) if tree.kind == "text" else tree)
        if (general := _with_one_parameter(tree)) != tree:
            found.append(general)
        if re.search(r"\d,[1-9]\d\d", text) and tree.kind != "measure":
            found.append(read(text, grouped=False))
    except NotRead:
        words = re.fullmatch(r"[A-Za-z0-9 ,.'\"!?&/():;][A-Za-z0-9 ,.'\"!?&/():;-]*", plain)
        if words and re.search("[A-Za-z]{2}", plain):
            found.append(_words(plain))
        elif not found:
            raise
    if re.fullmatch("(?=.{2,5}$)A?B?C?D?E?", plain):  # several choices
        found.append(node("list", *(node("sym", letter) for letter in plain)))
    return found


def _words(text: str) -> Tree:
    """Words in lower case without articles and punctuation, or what they are known to mean."""
    words = [w for w in re.findall("[a-z0-9]+", text.lower()) if w not in ("the", "a", "an")]
    words = words[len(words) == 2 and words[0] in ("on", "in", "at") :]  # `on Tuesday`
    canonical = " ".join(words)
    if _NOTHING.match(canonical):
        return node("empty")
    return _MEANT.get(canonical, node("text", canonical))


def _clock(plain: str) -> Tree | None:
    """A time of day: its hour, its minute and its half, `a` or `p`, where they are said."""
    match = _CLOCK.match(plain)
    if not match or not (match[2] or match[3]) or int(match[1]) > 24 - 12 * bool(match[3]):
        return None
    hour, minute = number(int(match[1])), number(int(match[2] or 0))
    return node("clock", hour, minute, (match[3] or "").lower())


def _with_one_parameter(tree: Tree) -> Tree:
    r"""The tree with the integer that a proviso introduces under one name, whatever it was called.

    `k \pi, k \in \mathbb{Z}` and `n \pi, n \in \mathbb{Z}` are then the same. The solutions of an
    equation between angles may leave the proviso out: `x = \frac{\pi}{4} + n \pi`.
    """
    items = tree.args if tree.kind == "list" else ()
    if provisos := [item for item in items if compare.is_proviso(item)]:
        found = {item.args[1].args[0] for item in provisos if item.args[1].kind == "sym"}
    else:
        found = names(tree) if "\\pi" in names(tree) else set()
        found -= {"\\pi", "x", "t", "\\theta"}
    if len(found) != 1 or not (provisos or found <= set("kmn")):
        return tree
    old = node("sym", found.pop())
    return replaced(tree, lambda part: node("sym", "integer") if part == old else None)
