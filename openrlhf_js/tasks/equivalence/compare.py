"""Whether two trees are the same answer: True, False, or None where the judge cannot tell.

Lists are compared in any order, tuples in order, equations as equations, sets of reals by the
points that they hold, units by name, and scalars as exact rationals or by a worker's judge.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, pairwise
from typing import Any

from openrlhf_js.tasks.equivalence.syntax import NotRead, Tree, names, node, number, parts, words

Verdict = bool | None
Unit = tuple[str, ...]  # names of units, their powers and signs
MAX_BITS = 4_000  # of a numerator or denominator: a greatest common divisor takes its square
MAX_MEMBERS = 64
_STRUCTURES = words("group list ratio matrix rel union minus meet empty field text clock")
_SETS = {"union": operator.or_, "minus": operator.sub, "meet": operator.and_}
_HOLDS = {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge}
_HOLDS |= {"!=": operator.ne}


def rational(tree: Tree) -> Fraction | None:
    """The exact value, or None where it is not rational, not a number, or past the cap."""
    kind, args = tree
    if kind in ("num", "base"):
        return args[0]
    values = [rational(arg) for arg in args] if kind in _EXACT else [None]
    try:
        value = None if None in values else _EXACT[kind](*values)
    except (ValueError, ZeroDivisionError):
        return None
    small = value and max(abs(value.numerator), value.denominator).bit_length() <= MAX_BITS
    return value if small or value == 0 else None


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    bits = max(abs(base.numerator), base.denominator).bit_length() - (abs(base) == 1)
    if exponent.denominator > 1 or base == exponent == 0 or bits * abs(exponent) > MAX_BITS:
        raise ValueError
    return base ** int(exponent if abs(base) != 1 else exponent % 2)


def _factorial(n: Fraction) -> Fraction:
    if n.denominator > 1 or not 0 <= n <= MAX_BITS / 10:
        raise ValueError
    return Fraction(math.factorial(int(n)))


_EXACT: dict[str, Callable[..., Fraction]] = {
    **{"neg": operator.neg, "add": operator.add, "mul": operator.mul, "div": operator.truediv},
    **{"pct": lambda percent: percent / 100, "pow": _power, "fact": _factorial},
}


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
        for answer in left:
            verdicts.append(is_gold(answer))
            if verdicts[-1]:
                left.remove(answer)
                break
        else:
            if None not in verdicts:
                return False
            undecided = True
    return None if undecided else True


# units

_SYNONYMS = """m meter metre,km kilometer kilometre,cm centimeter centimetre,mm millimeter,
in inch inche,ft foot feet,yd yard,mi mile,s sec second,min minute,h hr hour,year yr,kg kilogram,
g gram,mg milligram,lb pound,oz ounce,l liter litre,ml milliliter,gallon gal,quart qt,
dollar usd buck,euro eur,yen jpy,rupee rs inr,degree deg,radian rad,percent pct percentage,
2 square sq squared,3 cubic cu cubed,/ per"""
_NAMES = {word: group.split()[0] for group in _SYNONYMS.split(",") for word in group.split()}
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
    said = text.split()
    if len(said) > 10 or is_sentence(said) or said[-1:] == ["^"]:
        raise NotRead("a number in a sentence")
    found = tuple(_NAMES.get(_singular(w), _singular(w)) for w in said if w not in _SKIPPED)
    if said and not any(name[0].isalpha() for name in found):
        raise NotRead("words that are no unit")
    return found


def quantity(tree: Tree) -> tuple[Tree, Unit | None]:
    """The tree as a value with its unit; NotRead if the words behind a number are no unit."""
    if tree.kind == "measure":
        value, measured = tree.args[0], unit(tree.args[1]) or None
        return quantity(value) if value.kind == "pct" else (value, measured)
    measured = {"deg": _DEGREE, "pct": _PERCENT}.get(tree.kind)
    return (tree.args[0], measured) if measured else (tree, None)


def _in_unit_of(tree: Tree, mine: Unit | None, other: Unit | None) -> tuple[Tree, Unit | None]:
    """`5m` beside `6 cm` is five metres rather than a product."""
    if other and not mine and tree.kind == "mul" and tree.args[1].args == other:
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


# what a tree is


def is_name(tree: Tree) -> bool:
    """Whether the tree only names something: `x`, `f(x)`, `AB`, `Area`, `(x, y)`, `dy/dx`."""
    kind, args = tree
    if kind == "group":  # `(y, x)` is `(x, y)` turned round
        if args[:2] != ("(", ")") or not all(map(is_name, args[2:])):
            return False
        found = "".join(str(arg.args[0]) for arg in args[2:])
        return [*found] == sorted(found) or not re.fullmatch("[a-dp-su-z]{1,3}", found)
    if kind in ("mul", "div", "ratio"):  # a multiple of a name is none
        return all(is_name(arg) and arg.args[0] not in ("\\pi", "i") for arg in args)
    if kind == "pow":  # an inverse function
        return is_name(args[0]) and args[1] == node("neg", number(1))
    said = args[0].split() if kind == "text" else ["of"]
    return kind == "sym" or (not is_sentence(said) and said[-1] != "of" and len(said[-1]) > 1)


def _is_set(tree: Tree) -> bool:
    return tree.kind == "empty" or (tree.kind == "group" and tree.args[0] == "\\{")


def _is_interval(tree: Tree) -> bool:
    return tree.kind == "group" and len(tree.args) == 4 and tree.args[0] in ("(", "[")


def is_proviso(tree: Tree) -> bool:
    r"""Whether the tree only says what a variable runs over: `k \in \mathbb{Z}`."""
    return tree.kind == "rel" and tree.args[0] == ("in",) and tree.args[2].kind == "field"


def _is_domain(tree: Tree) -> bool:
    """Whether the tree is written as a set of reals and in no other way could be read."""
    if tree.kind == "list":
        signs = (set(item.args[0]) if item.kind == "rel" else set() for item in tree.args)
        return any(each - {"=", "in"} for each in signs)
    return tree.kind in _SETS or tree.kind == "field"


def members(tree: Tree) -> list[Tree]:
    """The single answers in a list, set or plus-minus, or the tree itself."""
    if tree.kind == "list" or _is_set(tree):
        items = [item for item in tree.args[_is_set(tree) * 2 :] if not is_proviso(item)]
        found = list(chain(*([item] if _is_set(item) else members(item) for item in items)))
        tuples = all(item.kind == "group" for item in found)  # a set holds nothing twice
        return list(dict.fromkeys(found)) if tuples else found
    sign = tree.args[0] if tree.kind == "rel" else ()
    if set(sign) == {"="} or (sign == ("in",) and is_name(tree.args[1])):
        found = members(tree.args[-1])
        return [tree] if found == [tree.args[-1]] else found
    return [tree]


def infinite(tree: Tree) -> float:
    """Plus or minus infinity, or 0."""
    return -infinite(tree.args[0]) if tree.kind == "neg" else math.inf if tree.kind == "inf" else 0


def _sides(tree: Tree) -> tuple[Tree, ...]:
    """The values that an equation or chain gives to a name: `x = 2 + 3 = 5` gives `2 + 3` and 5."""
    sides = tree.args[1:]
    sum_of_names = sides[0].kind == "add" and all(p.kind != "num" for p in parts(sides[0]))
    if is_name(sides[0]) or (sum_of_names and len(sides) > 2):  # `m + n = 5 + 7 = 12`
        return sides[1:]
    return sides[:-1] if is_name(sides[-1]) else sides


def _plain(tree: Tree) -> Tree:
    r"""What `x \in (1, 2)`, `P(1, 2)` and `V = 36 \pi \approx 113` name; a column as a tuple."""
    kind, args = tree
    if kind == "mul" and args[1].kind == "group" and len(args[1].args) > 3:
        return args[1] if args[0].kind == "sym" and args[0].args[0][0].isupper() else tree
    if kind == "rel" and args[0] == ("in",) and is_name(args[1]):
        return args[2]
    if kind == "rel" and "~" in args[0]:  # a rounding behind a value is not weighed
        at = args[0].index("~")
        return Tree("rel", (args[0][:at], *args[1 : at + 2])) if at else args[1 + is_name(args[1])]
    if kind == "matrix" and all(len(row) == 1 for row in args):
        return node("group", "(", ")", *(row[0] for row in args))
    return tree


def _quotients(tree: Tree) -> list[Tree]:
    """The terms of a ratio over its last; a number is the ratio of two that it is equal to."""
    *terms, last = tree.args if tree.kind == "ratio" else (tree, number(1))
    return [node("div", term, last) for term in terms]


def _named_tuple(tree: Tree, other: Tree) -> Tree:
    """The tuple that `x = 1, y = 2` gives, in the order of the names, beside another tuple."""
    if tree.kind != "list" or other.kind != "group" or other.args[0] != "(":
        return tree
    named = (item.args for item in tree.args if item.kind == "rel" and item.args[0] == ("=",))
    values = {args[1].args[0]: args[2] for args in named if args[1].kind == "sym"}
    if len(values) != len(tree.args):
        return tree
    return node("group", "(", ")", *(values[name] for name in sorted(values)))


@dataclass(frozen=True)
class Judge:
    """Compares answers by exact rational values, within a difference that is allowed."""

    within: Fraction = Fraction(0)

    def values(self, *trees: Tree) -> Iterator[tuple[Any, ...]]:
        """Values by which to compare expressions; none where this judge has none."""
        found = tuple(map(rational, trees))
        if None not in found:
            yield found

    def agree(self, left: Any, right: Any) -> bool:
        """Whether two values are the same, or differ by no more than is allowed."""
        return bool(abs(left - right) <= self.within)

    def size(self, tree: Tree) -> Any:
        """A real number that can be compared with others, or None."""
        return infinite(tree) or next(self.values(tree), (None,))[0]

    def same(self, answer: Tree, gold: Tree) -> Verdict:
        """Whether an answer is the gold answer."""
        if answer.kind == "rel" and "~" in answer.args[0] and not is_name(answer.args[-2]):
            return self._rounded(answer, gold)
        answer, gold = _plain(answer), _plain(gold)
        if answer == gold:
            return True
        kinds = {answer.kind, gold.kind}
        if "rel" in kinds or _is_domain(answer) or _is_domain(gold):
            return self._relations(answer, gold)
        if "list" in kinds or _is_set(answer) or _is_set(gold):
            return self._collections(answer, gold)
        if kinds == {"clock"}:  # the half of the day may be left out
            return answer.args[:2] == gold.args[:2] and "" in answer.args + gold.args
        if kinds == {"group"}:
            return answer.args[:2] == gold.args[:2] and self._pairwise(answer.args, gold.args, 2)
        if kinds == {"matrix"} and [*map(len, answer.args)] == [*map(len, gold.args)]:
            return self._pairwise(sum(answer.args, ()), sum(gold.args, ()))
        if gold.kind == "base":  # the base may be left out, but not changed
            digits = gold.args[1].partition("_")[0]
            return answer.kind == "num" and str(answer.args[0]) == digits
        if "ratio" in kinds:
            return self._pairwise(_quotients(answer), _quotients(gold))
        if _STRUCTURES & kinds:
            return False
        return some(self.equal(*pair) for pair in _values(answer, gold))

    def equal(self, left: Tree, right: Tree) -> Verdict:
        """Whether two expressions have the same value, whatever their variables are."""
        if left == right:
            return True
        found = None
        for pair in self.values(left, right):
            if not self.agree(*pair):
                return False
            found = True
        # two that differ of numbers, variables and infinities are unequal
        marks = (rational(t) is not None or t.kind == "sym" or infinite(t) for t in (left, right))
        return False if not found and not self.within and all(marks) else found

    def _rounded(self, answer: Tree, gold: Tree) -> Verdict:
        r"""Whether the value in front of the last sign, `\approx`, is right and is rounded well."""
        (*signs, last), (*sides, rounded) = answer.args[0], answer.args[1:]
        size = rational(quantity(rounded)[0]) or Fraction(0)
        error = min(Fraction(1, size.denominator), abs(size) / 20)
        near = replace(self, within=error).same(rounded, sides[-1])
        exact = Tree("rel", (tuple(signs), *sides)) if signs else sides[0]
        return last == "~" and every((near, self.same(exact, gold)))

    def _proportional(self, answer: Tree, gold: Tree) -> Verdict:
        """Whether the differences of both sides vanish together."""
        left, right = (node("add", t.args[1], node("neg", t.args[2])) for t in (answer, gold))
        if left == right:
            return True
        pairs = list(self.values(left, right))
        if any(self.agree(value, 0) for pair in pairs for value in pair):
            return False
        ratios = [one / other for one, other in pairs]
        if len(ratios) < 2:
            return None
        return all(self.agree(ratio, ratios[0]) for ratio in ratios)

    def _pairwise(self, answers: Sequence[Any], golds: Sequence[Any], start: int = 0) -> Verdict:
        both = zip(answers[start:], golds[start:], strict=False)
        return len(answers) == len(golds) and every(self.same(*pair) for pair in both)

    def _relations(self, answer: Tree, gold: Tree) -> Verdict:
        """Where one is a relation or a set of reals."""
        said, wanted = (t.kind == "rel" and set(t.args[0]) == {"="} for t in (answer, gold))
        if said and wanted:
            return self._equations(answer, gold)
        if said:
            return every(self.same(side, gold) for side in _sides(answer))
        if wanted:
            sides = _sides(gold)
            named = len(sides) < len(gold.args) - 1 and answer.kind != "rel"
            return named and self.same(answer, sides[-1])
        try:
            return self._same_set(answer, gold)
        except NotRead:
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
        return self._proportional(answer, gold)

    def _collections(self, answer: Tree, gold: Tree) -> Verdict:
        answer, gold = _named_tuple(answer, gold), _named_tuple(gold, answer)
        if answer.kind == gold.kind == "group" and not _is_set(answer):
            return answer.args[:2] == gold.args[:2] and self._pairwise(answer.args, gold.args, 2)
        tests = [functools.partial(self.same, gold=wanted) for wanted in members(gold)]
        return matched(members(answer), tests)

    # sets of reals

    def _same_set(self, answer: Tree, gold: Tree) -> Verdict:
        """Whether both hold the same of all points where either begins or ends, and between them.

        NotRead if one is no set of reals, or an inequality that is not solved for one variable.
        """
        sizes, unknowns = {}, set()
        for leaf in chain(_leaves(answer), _leaves(gold)):
            if (unknown := _unknown(leaf)) is None:
                sizes[leaf] = self.size(leaf)
            else:
                unknowns.add(unknown)
        if len(unknowns) > 1:
            raise NotRead("inequalities of several variables")
        if None in sizes.values():
            return None
        ends = {sign * size for size in sizes.values() for sign in (1, -1)}  # of |x| < a
        points = sorted(ends - {math.inf, -math.inf}) or [Fraction(0)]
        points += [(low + high) / 2 for low, high in pairwise(points)]
        points += [min(points) - 1, max(points) + 1]
        return _held(answer, sizes, points) == _held(gold, sizes, points)


def _unknown(tree: Tree) -> str | None:
    """The variable `x`, where the tree is `x` or `|x|`."""
    inner = tree.args[1] if tree.args[:1] == ("abs",) else tree
    return inner.args[0] if inner.kind == "sym" and inner.args[0] not in ("\\pi", "e") else None


def _leaves(tree: Tree) -> Iterator[Tree]:
    """Where a set of reals begins and ends, and its variable; NotRead if the tree is none."""
    kind, args = tree
    if kind in ("list", *_SETS) or tree == node("field", "R"):
        inner = args if kind != "field" else ()
    elif kind == "rel" and args[0] == ("in",) and is_name(args[1]):
        inner = args[2:]
    else:
        solved = kind == "rel" and set(args[0]) <= _HOLDS.keys() and any(map(_unknown, args[1:]))
        compound = _is_interval(tree) or _is_set(tree)
        inner = ()
        for leaf in args[2:] if compound else args[1:] if solved else [tree]:
            unfit = names(leaf) - {"\\pi", "e"} and not (solved and _unknown(leaf))
            if leaf.kind in _STRUCTURES or unfit:
                raise NotRead("no set of reals, or an inequality that is not solved")
            yield leaf
        both = zip(args[:2], args[2:4], strict=False)
        if compound and any(bracket in ("[", "]") and infinite(end) for bracket, end in both):
            raise NotRead("an interval that holds infinity")
    for arg in inner:
        yield from _leaves(arg)


def _held(tree: Tree, sizes: dict[Tree, Any], points: Sequence[Any]) -> frozenset[int]:
    """Which of the points are in a set of reals."""
    kind, args = tree
    if kind == "field":
        return frozenset(range(len(points)))
    if _is_interval(tree):
        signs = ("<=" if args[0] == "[" else "<", "<=" if args[1] == "]" else "<")
        return _held(node("rel", signs, args[2], node("sym", "x"), args[3]), sizes, points)
    if kind == "rel" and args[0] == ("in",):
        return _held(args[2], sizes, points)
    if kind == "rel":
        found = set()
        for i, point in enumerate(points):
            ways = {"sym": point, "call": abs(point)}
            values = [sizes[side] if side in sizes else ways[side.kind] for side in args[1:]]
            if all(_HOLDS[sign](*two) for sign, two in zip(args[0], pairwise(values), strict=True)):
                found.add(i)
        return frozenset(found)
    parts = [_held(arg, sizes, points) for arg in args if kind in _SETS or kind == "list"]
    if kind in _SETS:
        return _SETS[kind](*parts)
    if kind == "list":  # all together, or each for itself
        return frozenset.intersection(*parts) or frozenset().union(*parts)
    values = [sizes.get(leaf) for leaf in (args[2:] if _is_set(tree) else [tree])]
    return frozenset(i for i, point in enumerate(points) if point in values)
