"""Whether two trees are the same answer: True, False, or None where the judge cannot tell.

Structure is compared here: lists in any order, tuples in order, equations as equations, sets of
reals by the points that they hold, units by name. Scalars are compared as exact rational numbers,
which is cheap; the judge in `numeric`, which needs a worker, extends this to all that has a value.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

from openrlhf_js.tasks.equivalence.syntax import (
    NotRead,
    Tree,
    has,
    names,
    node,
    number,
    replaced,
    words,
)

Verdict = bool | None
Unit = tuple[str, ...]  # names of units, their powers and signs
Region = Callable[[Sequence[Any]], frozenset[int]]  # which of some points are in a set
MAX_BITS = 4_000  # of a numerator or denominator: a greatest common divisor takes its square
MAX_MEMBERS = 64
_STRUCTURES = words("group list ratio matrix rel union minus meet empty field text clock")
_SETS = {"union": operator.or_, "minus": operator.sub, "meet": operator.and_}
_HOLDS = {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge}
_HOLDS |= {"!=": operator.ne}
_EXACT: dict[str, Callable[..., Fraction]] = {
    **{"neg": operator.neg, "add": operator.add, "mul": operator.mul, "div": operator.truediv},
    "pct": lambda percent: percent / 100,
}


def rational(tree: Tree, max_bits: int = MAX_BITS) -> Fraction | None:
    """The exact value, or None where it is not rational, not a number, or past the cap."""
    try:
        return _value(tree, max_bits)
    except (ValueError, ZeroDivisionError):
        return None


def _value(tree: Tree, max_bits: int) -> Fraction:
    kind, args = tree
    if kind in ("num", "base"):
        return args[0]
    if kind not in ("neg", "add", "mul", "div", "pct", "pow", "fact") and args[:1] != ("root",):
        raise ValueError
    first, *rest = (_value(arg, max_bits) for arg in (args[1:] if kind == "call" else args))
    if kind in _EXACT:
        value = _EXACT[kind](first, *rest)
    elif kind == "fact":
        if first.denominator > 1 or not 0 <= first <= max_bits / 10:
            raise ValueError
        value = Fraction(math.factorial(int(first)))
    elif kind == "pow":
        bits = max(abs(first.numerator), first.denominator).bit_length() - (abs(first) == 1)
        if rest[0].denominator > 1 or first == rest[0] == 0 or bits * abs(rest[0]) > max_bits:
            raise ValueError
        value = first ** int(rest[0] if abs(first) != 1 else rest[0] % 2)
    else:
        value = Fraction(math.isqrt(first.numerator), math.isqrt(first.denominator))
        if rest != [2] or value**2 != first:
            raise ValueError
    if max(abs(value.numerator), value.denominator).bit_length() > max_bits:
        raise ValueError
    return value


def every(verdicts: Iterable[Verdict]) -> Verdict:
    """The conjunction, which stops at the first False."""
    result: Verdict = True
    for verdict in verdicts:
        if verdict is False:
            return False
        result = result if verdict else None
    return result


def some(verdicts: Iterable[Verdict]) -> Verdict:
    """The disjunction, which stops at the first True."""
    denied = every(None if verdict is None else not verdict for verdict in verdicts)
    return None if denied is None else not denied


def matched(answers: Sequence[Tree], golds: Sequence[Callable[[Tree], Verdict]]) -> Verdict:
    """Whether each answer satisfies its own one of the tests, in some order.

    Equality is transitive, so that the first fit may be taken; within a tolerance it nearly is.
    """
    if len(answers) != len(golds) or len(golds) > MAX_MEMBERS:
        return False
    left, undecided = list(answers), False
    for is_gold in golds:
        verdicts = []
        for i, answer in enumerate(left):
            verdicts.append(is_gold(answer))
            if verdicts[-1]:
                del left[i]
                break
        else:
            if None not in verdicts:
                return False
            undecided = True
    return None if undecided else True


_SYNONYMS = """m meter metre,km kilometer kilometre,cm centimeter centimetre,mm millimeter,
in inch inche,ft foot feet,yd yard,mi mile,s sec second,min minute,h hr hour,year yr,kg kilogram,
g gram,mg milligram,lb pound,oz ounce,l liter litre,ml milliliter,gallon gal,quart qt,
dollar usd buck,euro eur,yen jpy,rupee rs inr,degree deg,radian rad,percent pct percentage,
2 square sq squared,3 cubic cu cubed,/ per"""
_NAMES = {word: group.split()[0] for group in _SYNONYMS.split(",") for word in group.split()}
_SPEEDS = {"mph": "mi / h", "kmh": "km / h", "kph": "km / h"}
# A number in a sentence is no number with a unit, nor is one whose value or sense the words change.
_SENTENCE = words(
    """is are was not no none than more less least most if when where over time isn't but except
    plus minus because since however wait maybe either neither between below under beneath factorial
    doubled tripled halved divided raised too root double twice thrice triple negative wrong
    opposite incorrect false invalid impossible fewer inverse reciprocal zero one two three four
    five six seven eight nine ten eleven twelve dozen hundred thousand million billion trillion half
    halve third quarter score gross"""
)
_SKIPPED = words("of the a an ^ * { } 1")
_DEGREE: Unit = ("degree",)
_PERCENT: Unit = ("percent",)


def _singular(word: str) -> str:
    word = word if len(word) == 1 and word not in "LSGH" else word.lower()
    return word[:-1] if len(word) > 2 and word[-1] == "s" != word[-2] else word


def is_sentence(said: Iterable[str]) -> bool:
    """Whether words say something of a number rather than what is counted: `12 below zero`."""
    return any({w, _singular(w)} & _SENTENCE or _singular(w)[-2:] == "th" for w in said)


@functools.lru_cache(maxsize=1024)
def unit(text: str) -> Unit:
    """The unit that words such as `km / h`, `square feet`, `cm ^ 2` or `red apples` stand for.

    Words that are no known unit stand for themselves, so that `5 apples` is not `5 oranges`.
    """
    text = re.sub(r"\b(square|sq|cubic|cu) (\w+)", r"\2 \1", text)
    said = " ".join(_SPEEDS.get(word, word) for word in text.split()).split()
    if len(said) > 10 or is_sentence(said) or said[-1:] == ["^"]:
        raise NotRead("a number in a sentence")
    found = tuple(_NAMES.get(_singular(w), _singular(w)) for w in said if w not in _SKIPPED)
    if said and not any(name[0].isalpha() for name in found):
        raise NotRead("words that are no unit")
    return found


def quantity(tree: Tree) -> tuple[Tree, Unit | None]:
    """The tree as a value with its unit; NotRead if the words behind a number are no unit."""
    kind, args = tree
    if kind == "mul" and args[0].kind == "deg" and args[1] in (node("sym", "C"), node("sym", "F")):
        kind, args = "measure", (args[0], args[1].args[0])
    if kind == "measure":
        value, words = args
        if value.kind == "deg" and words in ("C", "F"):
            return value.args[0], unit("degree " + words)
        measured = unit(words) or None
        return (value.args[0], _PERCENT) if value.kind == "pct" else (value, measured)
    if kind in ("deg", "pct"):
        return args[0], _DEGREE if kind == "deg" else _PERCENT
    if kind == "neg":
        value, measured = quantity(args[0])
        return (node("neg", value), measured) if measured else (tree, None)
    return tree, None


def _in_unit_of(tree: Tree, mine: Unit | None, other: Unit | None) -> tuple[Tree, Unit | None]:
    """`5m` beside `6 cm` is five metres rather than a product."""
    if mine is None and other and tree.kind == "mul" and tree.args[1].kind == "sym":
        name = tree.args[1].args[0]
        if name.isalpha() and unit(name) == other:
            return tree.args[0], other
    return tree, mine


def _values(answer: Tree, gold: Tree) -> Iterator[tuple[Tree, Tree]]:
    """The pairs of values of which one must agree; none where the units contradict each other.

    A unit may be missing on one side. A percentage may then be meant as its hundredth or, from 1
    up, as the number before the sign; degrees may then be meant in radians.
    """
    (left, mine), (right, wanted) = quantity(answer), quantity(gold)
    left, mine = _in_unit_of(left, mine, wanted)
    right, wanted = _in_unit_of(right, wanted, mine)
    if mine is None or wanted is None:
        sign = {_PERCENT: "pct", _DEGREE: "deg"}.get(mine or wanted or ())
        size = rational(left if mine else right)
        if sign != "pct" or size is None or abs(size) >= 1:
            yield left, right
        if sign:
            yield (node(sign, left), right) if mine else (left, node(sign, right))
    elif mine == wanted:
        yield left, right


def is_name(tree: Tree) -> bool:
    """Whether the tree only names something: `x`, `f(x)`, `AB`, `Area`, `(x, y)`, `dy/dx`."""
    kind, args = tree
    if kind == "group":  # `(y, x)` is `(x, y)` turned round
        if args[:2] != ("(", ")") or not all(map(is_name, args[2:])):
            return False
        found = "".join(str(arg.args[0]) for arg in args[2:])
        ordered = found == "".join(sorted(found))
        return ordered or len(found) > 3 or not set(found) <= set("abcdpqrsuvwxyz")
    if kind in ("mul", "div", "ratio"):  # a multiple of a name is none
        return all(is_name(arg) and arg.args[0] not in ("\\pi", "i") for arg in args)
    if kind == "call":
        return args[0] == "abs" and is_name(args[1])
    if kind == "pow":  # an inverse function
        return is_name(args[0]) and args[1] == node("neg", number(1))
    words = args[0].split() if kind == "text" else ["of"]
    return kind == "sym" or (not is_sentence(words) and words[-1] != "of" and len(words[-1]) > 1)


def _is_set(tree: Tree) -> bool:
    return tree.kind == "empty" or (tree.kind == "group" and tree.args[0] == "\\{")


def _is_interval(tree: Tree) -> bool:
    return tree.kind == "group" and len(tree.args) == 4 and tree.args[0] in ("(", "[")


def is_many(tree: Tree) -> bool:
    """Whether the tree is written as several answers, or none."""
    return tree.kind == "list" or _is_set(tree) or has(tree, "pm")


def is_proviso(tree: Tree) -> bool:
    r"""Whether the tree only says what a variable runs over: `k \in \mathbb{Z}`."""
    return tree.kind == "rel" and tree.args[0] == ("in",) and tree.args[2].kind == "field"


def _is_domain(tree: Tree) -> bool:
    """Whether the tree is written as a set of reals and in no other way could be read."""
    if tree.kind != "list":
        return tree.kind in _SETS or tree.kind == "field"
    signs = [set(item.args[0]) if item.kind == "rel" else set() for item in tree.args]
    if {"!="} in signs:  # `x \geq 0, x \neq 1`, `x \neq 0, 1`
        return not any("=" in each for each in signs)
    return all(each - {"=", "in"} for each in signs)


def members(tree: Tree) -> list[Tree]:
    """The single answers in a list, set or plus-minus, or the tree itself."""
    if tree.kind in ("empty", "list") or _is_set(tree):
        items = [item for item in tree.args[_is_set(tree) * 2 :] if not is_proviso(item)]
        parts = ([item] if _is_set(item) else members(item) for item in items)
        return list(itertools.chain(*parts))
    if tree.kind == "rel" and is_many(tree.args[-1]):
        named = tree.args[0] == ("in",) and is_name(tree.args[1])
        if named or set(tree.args[0]) == {"="}:
            return members(tree.args[-1])
    return [_signed(tree, False), _signed(tree, True)] if has(tree, "pm") else [tree]


def _signed(tree: Tree, negative: bool) -> Tree:
    """The tree with every plus-minus read as a plus, or every one as a minus."""

    def change(part: Tree) -> Tree | None:
        if part.kind != "pm":
            return None
        left, right = (_signed(arg, negative) for arg in part.args)
        right = node("neg", right) if negative else right
        return right if left == number(0) else node("add", left, right)

    return replaced(tree, change)


def infinite(tree: Tree) -> float:
    """Plus or minus infinity, or 0."""
    return -infinite(tree.args[0]) if tree.kind == "neg" else math.inf if tree.kind == "inf" else 0


def _sides(tree: Tree) -> tuple[Tree, ...]:
    """The values that an equation or chain gives to a name: `x = 2 + 3 = 5` gives `2 + 3` and 5."""
    sides = tree.args[1:]
    sum_of_names = sides[0].kind == "add" and not has(sides[0], "num") and len(sides) > 2
    if is_name(sides[0]) or sum_of_names:  # `m + n = 5 + 7 = 12`
        return sides[1:]
    return sides[:-1] if is_name(sides[-1]) else sides


def _plain(tree: Tree) -> Tree:
    r"""What `x \in (1, 2)` and `P(1, 2)` name; `2 = x` as `x = 2`, a column as a tuple."""
    kind, args = tree
    if kind == "mul" and args[1].kind == "group" and len(args[1].args) > 3:
        return args[1] if args[0].kind == "sym" and args[0].args[0][0].isupper() else tree
    if kind == "rel" and args[0] == ("in",) and is_name(args[1]):
        return args[2]
    if kind == "rel" and args[0] == ("=",) and args[2].kind == "sym" and not names(args[1]):
        return node("rel", ("=",), args[2], args[1])
    if kind == "matrix" and all(len(row) == 1 for row in args):
        return node("group", "(", ")", *(row[0] for row in args))
    return tree


def _named_tuple(tree: Tree, other: Tree) -> Tree:
    """The tuple that `x = 1, y = 2` gives, in the order of the names, beside another tuple."""
    if tree.kind != "list" or other.kind != "group" or other.args[0] != "(":
        return tree
    items = [item.args for item in map(_plain, tree.args) if item.kind == "rel"]
    named = [args for args in items if args[0] == ("=",) and args[1].kind == "sym"]
    values = {args[1].args[0]: args[2] for args in named}
    if len(values) != len(tree.args):
        return tree
    return node("group", "(", ")", *(values[name] for name in sorted(values)))


class Judge:
    """Compares answers by exact rational values."""

    def pairs(self, left: Tree, right: Tree) -> list[tuple[Any, Any]]:
        """Values by which to compare two expressions; none where this judge has none."""
        values = rational(left), rational(right)
        return [] if None in values else [values]

    def agree(self, left: Any, right: Any, within: Fraction = Fraction(0)) -> bool:
        """Whether two values are the same, or differ by no more than is allowed."""
        return bool(abs(left - right) <= within)

    def size(self, tree: Tree) -> Any:
        """A real number that can be compared with others, or None."""
        return rational(tree)

    def same(self, answer: Tree, gold: Tree) -> Verdict:
        """Whether an answer is the gold answer."""
        answer, gold = _plain(answer), _plain(gold)
        if answer == gold:
            return True
        kinds = {answer.kind, gold.kind}
        if any(tree.kind == "rel" and "~" in tree.args[0] for tree in (answer, gold)):
            return self._rounded(answer, gold)
        if "rel" in kinds or _is_domain(answer) or _is_domain(gold):
            return self._relations(answer, gold)
        if is_many(answer) or is_many(gold):
            return self._collections(answer, gold)
        if kinds == {"ratio"} or kinds == {"ratio", "clock"}:
            return self._ratios(answer, gold)
        if kinds == {"clock"}:  # the half of the day may be left out
            return answer.args[:2] == gold.args[:2] and "" in answer.args + gold.args
        if kinds == {"group"}:
            return answer.args[:2] == gold.args[:2] and self._pairwise(answer.args, gold.args, 2)
        if kinds == {"matrix"} and [*map(len, answer.args)] == [*map(len, gold.args)]:
            return self._pairwise(sum(answer.args, ()), sum(gold.args, ()))
        if gold.kind == "base":  # the base may be left out, but not changed
            if answer.kind == "num":
                return str(answer.args[0]) == gold.args[1].partition("_")[0]
            return False  # equal ones are the same tree
        answer, gold = (
            node("div", *tree.args) if tree.kind == "ratio" and len(tree.args) == 2 else tree
            for tree in (answer, gold)
        )
        if _STRUCTURES & {answer.kind, gold.kind}:
            return False
        return some(self.equal(*pair) for pair in _values(answer, gold))

    def close(self, answer: Tree, gold: Tree, tolerance: Fraction) -> Verdict:
        """Whether a number is the gold number within the tolerance."""
        gold = _sides(gold)[-1] if gold.kind == "rel" else gold
        if answer.kind == "rel":
            equation = set(answer.args[0]) <= {"=", "~"}
            return equation and every(self.close(side, gold, tolerance) for side in _sides(answer))
        if _STRUCTURES & {answer.kind, gold.kind}:
            return False
        found = (self.pairs(*values) for values in _values(answer, gold))
        return some(
            all(self.agree(*pair, tolerance) for pair in pairs) if pairs else None
            for pairs in found
        )

    def equal(self, left: Tree, right: Tree) -> Verdict:
        """Whether two expressions have the same value, whatever their variables are."""
        if left == right:
            return True
        if pairs := self.pairs(left, right):
            return all(self.agree(*pair) for pair in pairs)
        # two that differ of numbers, variables and infinities are unequal
        marks = (rational(t) is not None or t.kind == "sym" or infinite(t) for t in (left, right))
        return False if all(marks) else None

    def _proportional(self, answer: Tree, gold: Tree, positive: bool) -> Verdict:
        """Whether the differences of both sides vanish together, or have one sign if so asked."""
        left, right = (node("add", t.args[1], node("neg", t.args[2])) for t in (answer, gold))
        if left == right:
            return True
        pairs = self.pairs(left, right)
        if any(self.agree(value, 0) for pair in pairs for value in pair):
            return False
        ratios = [one / other for one, other in pairs]
        if len(ratios) < 2:
            return None
        if positive and (ratios[0].imag or ratios[0] <= 0):
            return False
        return all(self.agree(ratio, ratios[0]) for ratio in ratios)

    def _pairwise(self, answers: Sequence[Any], golds: Sequence[Any], start: int = 0) -> Verdict:
        both = zip(answers[start:], golds[start:], strict=False)
        return len(answers) == len(golds) and every(self.same(*pair) for pair in both)

    def _ratios(self, answer: Tree, gold: Tree) -> Verdict:
        if "clock" in (answer.kind, gold.kind):  # a time is not reduced
            return answer.args == gold.args[:2] or answer.args[:2] == gold.args
        first, wanted = answer.args[0], gold.args[0]
        return len(answer.args) == len(gold.args) and every(
            self.same(node("mul", part, wanted), node("mul", other, first))
            for part, other in zip(answer.args[1:], gold.args[1:], strict=True)
        )

    def _rounded(self, answer: Tree, gold: Tree) -> Verdict:
        """Where a value stands with its rounding: either may be meant, if they are close."""
        tree = gold if gold.kind == "rel" and "~" in gold.args[0] else answer
        at = tree.args[0].index("~") + 1
        halves = [
            Tree("rel", (signs, *sides)) if signs else sides[0]
            for signs, sides in (
                (tree.args[0][: at - 1], tree.args[1 : at + 1]),
                (tree.args[0][at:], tree.args[at + 1 :]),
            )
        ]
        if tree == gold or is_name(halves[0]):
            other = answer if tree == gold else gold
            return some(self.same(other, half) for half in halves if not is_name(half))
        exact, rounded = (_sides(half) if half.kind == "rel" else (half,) for half in halves)
        size = rational(rounded[0].args[0] if rounded[0].kind == "measure" else rounded[0])
        if size is None:
            return False
        error = min(Fraction(1, size.denominator), abs(size) / 20) if size else Fraction(1, 2)
        near = (self.close(one, other, error) for one in exact for other in rounded)
        return every((some(self.same(half, gold) for half in halves), *near))

    def _relations(self, answer: Tree, gold: Tree) -> Verdict:
        """Where one is a relation or a set of reals."""
        said, wanted = (t.kind == "rel" and set(t.args[0]) == {"="} for t in (answer, gold))
        if said and wanted:
            return self._equations(answer, gold)
        if said:
            return every(self.same(side, gold) for side in _sides(answer))
        if wanted:
            named = is_name(gold.args[1]) and answer.kind != "rel"
            return named and self.same(answer, gold.args[-1])
        try:
            return self._same_set(answer, gold)
        except NotRead:
            pass
        if answer.kind == gold.kind == "rel" and len(answer.args) == len(gold.args) == 3:
            turn = {">": "<", ">=": "<="}
            answer, gold = (
                node("rel", (turn[t.args[0][0]],), t.args[2], t.args[1])
                if t.args[0][0] in turn
                else t
                for t in (answer, gold)
            )
            plain = not _STRUCTURES & {side.kind for side in answer.args[1:] + gold.args[1:]}
            return (
                answer.args[0] == gold.args[0]
                and plain
                and self._proportional(answer, gold, answer.args[0] != ("!=",))
            )
        return answer.kind == gold.kind == "list" and self._collections(answer, gold)

    def _equations(self, answer: Tree, gold: Tree) -> Verdict:
        heads = answer.args[1], gold.args[1]
        function = {head.kind for head in heads} == {"sym", "mul"} and all(map(is_name, heads))
        if (heads[0] == heads[1] and is_name(heads[0])) or function:  # `f(x) = ...` is `y = ...`
            return every(self.same(side, gold.args[-1]) for side in answer.args[2:])
        sides = (*answer.args[1:], *gold.args[1:])
        if len(sides) != 4 or _STRUCTURES & {side.kind for side in sides}:
            ratios = {side.kind for side in sides} == {"ratio"}
            return ratios and self._pairwise(answer.args, gold.args, 1)
        return self._proportional(answer, gold, False)

    def _collections(self, answer: Tree, gold: Tree) -> Verdict:
        for one, other in ((answer, gold), (gold, answer)):
            fields = one.args if one.kind == "list" else ()
            whole = any(is_proviso(item) and item.args[2].args[0] in "ZNQ" for item in fields)
            if whole and (_is_interval(other) or _is_domain(other)):
                return False
        answer, gold = _named_tuple(answer, gold), _named_tuple(gold, answer)
        if answer.kind == gold.kind == "group" and not is_many(answer):
            return answer.args[:2] == gold.args[:2] and self._pairwise(answer.args, gold.args, 2)
        left, right = members(answer), members(gold)
        tuples = all(item.kind == "group" for item in (*left, *right))
        if tuples or "group" in (answer.kind, gold.kind):  # a set holds nothing twice
            left, right = list(dict.fromkeys(left)), list(dict.fromkeys(right))
        return matched(left, [functools.partial(self.same, gold=wanted) for wanted in right])

    # sets of reals

    def _same_set(self, answer: Tree, gold: Tree) -> Verdict:
        """Whether both hold the same of all points where either begins or ends, and between them.

        NotRead if one is no set of reals, or an inequality that is not solved for one variable.
        """
        unknowns: list[set[str]] = [set(), set()]
        ends: set[Any] = set()
        regions = [
            self._region(t, own, ends) for t, own in zip((answer, gold), unknowns, strict=True)
        ]
        if max(map(len, unknowns)) > 1:
            raise NotRead("inequalities of several variables")
        if all(unknowns) and unknowns[0] != unknowns[1]:
            return False
        if None in ends:
            return None
        points = sorted(ends - {math.inf, -math.inf}) or [Fraction(0)]
        points += [(low + high) / 2 for low, high in pairwise(points)]
        points += [min(points) - 1, max(points) + 1]
        return regions[0](points) == regions[1](points)

    def _region(self, tree: Tree, unknowns: set[str], ends: set[Any]) -> Region:
        """Tells which of some points are in a set; adds where it begins or ends, its variable."""
        kind, args = tree

        def size(end: Tree) -> Any:
            ends.add(found := infinite(end) or self.size(end))
            return found

        def those(test: Callable[[Any], bool]) -> Region:
            return lambda points: frozenset(i for i, point in enumerate(points) if test(point))

        if _is_interval(tree):
            low, high = map(size, args[2:])
            if (args[0] == "[" and low == -math.inf) or (args[1] == "]" and high == math.inf):
                raise NotRead("an interval that holds infinity")
            after = _HOLDS["<=" if args[0] == "[" else "<"]
            before = _HOLDS["<=" if args[1] == "]" else "<"]
            return those(lambda point: after(low, point) and before(point, high))
        if _is_set(tree) or kind not in _STRUCTURES:  # points
            values = [size(item) for item in (args[2:] if _is_set(tree) else [tree])]
            return those(lambda point: point in values)
        if tree == node("field", "R"):
            return those(lambda point: True)
        if kind == "rel" and args[0] == ("in",) and is_name(args[1]):
            return self._region(args[2], unknowns, ends)
        if kind == "rel":
            return those(self._inequality(tree, size, unknowns, ends))
        if kind != "list" and kind not in _SETS:
            raise NotRead("no set of reals")
        if kind != "list":
            parts = [self._region(arg, unknowns, ends) for arg in args]
            return lambda points: _SETS[kind](*(part(points) for part in parts))
        negated = [arg for arg in args if arg.kind == "rel" and arg.args[0] == ("!=",)]
        wholes = [arg for arg in args if arg.kind in ("rel", "group", *_SETS) or not negated]
        wholes = [self._region(arg, unknowns, ends) for arg in wholes if arg not in negated]
        values = [arg for arg in args if arg.kind not in ("rel", "group", *_SETS) and negated]
        if values and wholes:
            raise NotRead("numbers beside inequalities")
        negated += [
            node("rel", ("!=",), negated[0].args[1], value) for value in values
        ]  # `x != 0, 1`
        holes = [self._region(arg, unknowns, ends) for arg in negated]

        def listed(points: Sequence[Any]) -> frozenset[int]:
            """What inequalities give together, or each for itself, less the points after a `!=`."""
            held = [part(points) for part in wholes]
            everywhere = frozenset(range(len(points)))
            together = everywhere.intersection(*held) or frozenset().union(*held)
            return together.intersection(*(part(points) for part in holes))

        return listed

    def _inequality(
        self, tree: Tree, size: Callable[[Tree], Any], unknowns: set[str], ends: set[Any]
    ) -> Callable[[Any], bool]:
        """The test of an inequality in which a variable, or its absolute value, stands alone."""
        signs, *sides = tree.args
        inner = [t.args[1] if t.kind == "call" and t.args[0] == "abs" else t for t in sides]
        alone = [t for t in (inner[1:2] if len(inner) > 2 else inner) if t.kind == "sym"]
        others = {i: t for i, t in enumerate(sides) if alone and alone[0].args[0] not in names(t)}
        if set(signs) - _HOLDS.keys() or len(others) + 1 != len(sides):
            raise NotRead("no inequality, or one that is not solved")
        unknowns.add(alone[0].args[0])
        sizes = {i: size(side) for i, side in others.items()}
        ends.update(None if value is None else -value for value in sizes.values())  # of |x| < a

        def holds(point: Any) -> bool:
            own = (point if side == alone[0] else abs(point) for side in sides)
            values = [sizes.get(i, value) for i, value in enumerate(own)]
            both = zip(signs, pairwise(values), strict=True)
            return all(_HOLDS[sign](*pair) for sign, pair in both)

        return holds
