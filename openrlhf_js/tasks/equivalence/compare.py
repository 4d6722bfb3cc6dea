"""Whether two trees are the same answer.

Lists are compared in any order, tuples in order, sets of reals by the points that they hold, units
by name, and scalars as exact rationals or by a worker's judge.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, pairwise
from typing import Any

from openrlhf_js.tasks.equivalence import syntax
from openrlhf_js.tasks.equivalence.syntax import NotRead, Tree, Unit, names, node, number, parts

MAX_BITS = 4_000  # of a numerator or denominator: a greatest common divisor takes its square
MAX_MEMBERS = 64
_STRUCTURES = syntax.words("group list rel union minus meet field text")
_SETS: dict[str, Any] = {"union": any, "meet": all, "minus": lambda held: held[0] > held[1]}
_HOLDS = {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge}
_HOLDS |= {"!=": operator.ne}
SIGNS = ("degree", "percent")  # of units
_ANY = node("sym", "_")  # a variable without a name


class Undecided(Exception):
    """There is no exact value: a worker has to decide."""


def rational(tree: Tree) -> Fraction | None:
    """The exact value, or None where it is not rational, not a number, or past the cap."""
    kind, args = tree
    if kind == "num":
        return args[0]
    values = [rational(arg) for arg in args] if kind in OPERATIONS else [None]
    try:
        value = None if None in values else OPERATIONS[kind](*values)
    except (ValueError, ZeroDivisionError):
        return None
    small = value and max(abs(value.numerator), value.denominator).bit_length() <= MAX_BITS
    return value if small or value == 0 else None


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    bits = max(abs(base.numerator), base.denominator).bit_length() - (abs(base) == 1)
    if exponent.denominator > 1 or base == exponent == 0 or bits * abs(exponent) > MAX_BITS:
        raise ValueError
    return base ** int(exponent if abs(base) != 1 else exponent % 2)


OPERATIONS: dict[str, Callable[..., Any]] = {
    **{"neg": operator.neg, "add": operator.add, "mul": operator.mul, "div": operator.truediv},
    **{"pow": _power, "percent": lambda percent: percent / 100},
}


def matched(answers: Sequence[Tree], tests: Sequence[Callable[[Tree], bool]]) -> bool:
    """Whether each answer satisfies its own one of the tests; the first that fits is taken."""
    if len(answers) != len(tests) or len(tests) > MAX_MEMBERS:
        return False
    left = list(answers)
    for test in tests:
        fit = next((answer for answer in left if test(answer)), None)
        if fit is None:
            return False
        left.remove(fit)
    return True


def quantity(tree: Tree, other: Unit | None = None) -> tuple[Tree, Unit | None]:
    """The tree as a value with its unit; `5m` beside `6 cm` is no product."""
    if tree.kind == "mul" and other and tree.args[1].args == other:
        return tree.args[0], other
    if tree.kind == "measure":
        value, unit = tree.args
        return quantity(value) if value.kind == "percent" else (value, unit or None)
    return (tree.args[0], (tree.kind,)) if tree.kind in SIGNS else (tree, None)


def _values(answer: Tree, gold: Tree) -> Iterator[tuple[Tree, Tree]]:
    """The pairs of values of which one must agree; none where the units contradict each other.

    Where one has no unit, a percentage may be its hundredth or, from 1 up, the number before the
    sign, and degrees may be in radians.
    """
    right, wanted = quantity(gold, quantity(answer)[1])
    left, mine = quantity(answer, wanted)
    if mine and wanted:
        if mine == wanted:
            yield left, right
        return
    sign = " ".join(mine or wanted or ())
    size = rational(left if mine else right)
    if sign != "percent" or size is None or abs(size) >= 1:
        yield left, right
    if sign in SIGNS:
        yield (node(sign, left), right) if mine else (left, node(sign, right))


# what a tree is


def is_name(tree: Tree) -> bool:
    """Whether the tree only names something: `x`, `f(x)`, `AB`, `Area`, `(x, y)`, `dy/dx`."""
    kind, args = tree
    if kind == "group":  # `(y, x)` is `(x, y)` turned round
        found = [arg.args[0] for arg in args[1:] if arg.kind == "sym"]
        turned = {*found} <= {*"abcpqrxyz"} and found != sorted(found)
        return args[0] == "()" and len(found) == len(args) - 1 and not turned
    if kind in ("mul", "div"):  # a multiple of a name is none; `P(X = 1)` is one
        constants = node("sym", "\\pi"), node("sym", "i")
        return all(arg.kind == "rel" or (is_name(arg) and arg not in constants) for arg in args)
    if kind == "pow":  # an inverse function
        return is_name(args[0]) and args[1] == node("neg", number(1))
    sentence = kind != "text" or syntax.is_sentence(args[0].split()) or args[0].endswith(" of")
    return kind == "sym" or not sentence


def _is_set(tree: Tree) -> bool:
    return tree.args[:1] == ("{}",)


def _is_domain(tree: Tree) -> bool:
    """Whether the tree is written as a set of reals and in no other way could be read."""
    if tree.kind == "list":
        return any(item.kind == "rel" and {*item.args[0]} != {"="} for item in tree.args)
    return tree.kind in _SETS


def members(tree: Tree) -> list[Tree]:
    """The single answers in a list, set or plus-minus, or the tree itself."""
    if tree.kind == "list" or _is_set(tree):
        items = tree.args[_is_set(tree) :]
        found = list(chain(*([item] if _is_set(item) else members(item) for item in items)))
        tuples = all(item.kind == "group" for item in found)  # a set holds nothing twice
        return list(dict.fromkeys(found)) if tuples else found
    return [tree]


def infinite(tree: Tree) -> float:
    """Plus or minus infinity, or 0."""
    return -infinite(tree.args[0]) if tree.kind == "neg" else math.inf if tree.kind == "inf" else 0


def _sides(tree: Tree) -> tuple[Tree, ...]:
    """The values that an equation gives to a name: `x = 2 + 3 = 5` gives `2 + 3` and 5."""
    sides = tree.args[1:]
    sum_of_names = sides[0].kind == "add" and all(p.kind != "num" for p in parts(sides[0]))
    if is_name(sides[0]) or (sum_of_names and len(sides) > 2):  # `m + n = 5 + 7 = 12`
        return sides[1:]
    return sides[:-1] if is_name(sides[-1]) else sides


def _named_tuple(tree: Tree, other: Tree) -> Tree:
    """The tuple that `x = 1, y = 2` gives, in the order of the names, beside another tuple."""
    items = (item.args for item in tree.args if tree.kind == "list" and item.kind == "rel")
    values = {
        args[1].args[0]: args[2] for args in items if args[0] == ("=",) and args[1].kind == "sym"
    }
    if len(values) != len(tree.args) or other.args[:1] != ("()",):
        return tree
    return node("group", "()", *(values[name] for name in sorted(values)))


@dataclass(frozen=True)
class Judge:
    """Compares answers by exact rational values, within a difference that is allowed."""

    within: Fraction = Fraction(0)

    def values(self, *trees: Tree) -> Iterator[tuple[Any, ...]]:
        """Values by which to compare expressions; none where there are none, or Undecided."""
        found = tuple(map(rational, trees))
        if None in found:
            raise Undecided
        yield found

    def agree(self, left: Any, right: Any) -> bool:
        """Whether two values are the same, or differ by no more than is allowed."""
        return bool(abs(left - right) <= self.within)

    def size(self, tree: Tree) -> Any:
        """A real number that can be compared with others, or None."""
        return infinite(tree) or next(self.values(tree), (None,))[0]

    def same(self, answer: Tree, gold: Tree) -> bool:
        """Whether an answer is the gold answer."""
        if answer.kind == "rel" and "approx" in answer.args[0] and not is_name(answer.args[-2]):
            return self._rounded(answer, gold)
        if answer == gold:
            return True
        kinds = {answer.kind, gold.kind}
        if "rel" in kinds or _is_domain(answer) or _is_domain(gold):
            return self._relations(answer, gold)
        if "list" in kinds or kinds == {"group"} or _is_set(answer) or _is_set(gold):
            return self._collections(answer, gold)
        if gold.kind == "sym" and gold.args[0][0].isdigit():  # a base may be left out
            return answer.kind == "num" and str(answer.args[0]) == gold.args[0].partition("_")[0]
        if gold.kind == "num" and answer.args == (f"{gold.args[0]}_10",):
            return True
        if _STRUCTURES & kinds:
            return False
        return any(self.equal(*pair) for pair in _values(answer, gold))

    def equal(self, left: Tree, right: Tree) -> bool:
        """Whether two expressions have the same value, whatever their variables are."""
        if left == right or ({left.kind, right.kind} <= {"sym", "num"} and not self.within):
            return left == right
        pairs = list(self.values(left, right))
        return bool(pairs) and all(self.agree(*pair) for pair in pairs)

    def _rounded(self, answer: Tree, gold: Tree) -> bool:
        r"""Whether the value in front of the last sign, `\approx`, is right and is rounded well."""
        (*signs, last), (*sides, rounded) = answer.args[0], answer.args[1:]
        error = abs(rational(rounded) or Fraction(0)) / 100
        near = replace(self, within=error).same(rounded, sides[-1])
        exact = Tree("rel", (tuple(signs), *sides)) if signs else sides[0]
        return last == "approx" and near and self.same(exact, gold)

    def _collections(self, answer: Tree, gold: Tree) -> bool:
        answer, gold = _named_tuple(answer, gold), _named_tuple(gold, answer)
        if answer.kind == gold.kind == "group" and not _is_set(answer):
            alike = answer.args[0] == gold.args[0] and len(answer.args) == len(gold.args)
            return alike and all(map(self.same, answer.args[1:], gold.args[1:]))
        tests = [functools.partial(self.same, gold=wanted) for wanted in members(gold)]
        return matched(members(answer), tests)

    def _relations(self, answer: Tree, gold: Tree) -> bool:
        """Where one is a relation or a set of reals."""
        said, wanted = (t.kind == "rel" and set(t.args[0]) == {"="} for t in (answer, gold))
        if said and wanted:
            return self._equations(answer, gold)
        if said:
            return all(self.same(side, gold) for side in _sides(answer))
        if wanted:
            sides = _sides(gold)
            named = len(sides) < len(gold.args) - 1 and answer.kind != "rel"
            return named and self.same(answer, sides[-1])
        try:
            return self._same_set(answer, gold)
        except NotRead:
            return answer.kind == gold.kind == "list" and self._collections(answer, gold)

    def _equations(self, answer: Tree, gold: Tree) -> bool:
        heads = answer.args[1], gold.args[1]
        function = {head.kind for head in heads} == {"sym", "mul"} and all(map(is_name, heads))
        if (heads[0] == heads[1] and is_name(heads[0])) or function:  # `f(x) = ...` is `y = ...`
            return all(self.same(side, gold.args[-1]) for side in answer.args[2:])
        kinds = [side.kind for side in (*answer.args[1:], *gold.args[1:])]
        if len(kinds) != 4 or _STRUCTURES & {*kinds}:
            return False
        # whether the differences of both sides vanish together
        left, right = (node("add", t.args[1], node("neg", t.args[2])) for t in (answer, gold))
        pairs = list(self.values(left, right))
        if any(self.agree(value, 0) for pair in pairs for value in pair):
            return False
        ratios = [one / other for one, other in pairs]
        return len(ratios) > 1 and all(self.agree(ratio, ratios[0]) for ratio in ratios)

    def _same_set(self, answer: Tree, gold: Tree) -> bool:
        """Whether both hold the same of all points where either begins or ends, and between them.

        NotRead if one is no set of reals, or an inequality that is not solved for one variable.
        """
        domains = [_domain(answer), _domain(gold)]
        relations = (part for each in domains for part in parts(each) if part.kind == "rel")
        sides = {side for relation in relations for side in relation.args[1:]}
        sizes = {side: self.size(side) for side in sides if not _unknown(side)}
        unknowns = {_unknown(side) for side in sides - sizes.keys()} - {*_ANY.args}
        if len(unknowns) > 1 or any(names(side) - {"\\pi", "e"} for side in sizes):
            raise NotRead("inequalities that are not solved for one variable")
        if None in sizes.values():
            return False
        ends = {sign * size for size in sizes.values() for sign in (1, -1)}  # of |x| < a
        points = sorted(ends - {math.inf, -math.inf}) or [Fraction(0)]
        points += [(low + high) / 2 for low, high in pairwise(points)]
        points += [min(points) - 1, max(points) + 1]
        return all(len({_holds(each, sizes, x) for each in domains}) == 1 for x in points)


# sets of reals


def _unknown(tree: Tree) -> str | None:
    """The variable `x`, where the tree is `x` or `|x|`."""
    inner = tree.args[1] if tree.args[:1] == ("abs",) else tree
    return inner.args[0] if inner.kind == "sym" and inner.args[0] not in ("\\pi", "e") else None


def _domain(tree: Tree) -> Tree:
    """The set as relations that are joined by set operations; NotRead if it is none of reals."""
    kind, args = tree
    if kind == "list":  # several conditions, or several intervals
        kind = "meet" if any(arg.kind == "rel" for arg in args) else "union"
    if kind in _SETS:
        return node(kind, *map(_domain, args))
    if _is_set(tree):
        return node("union", *(_domain(node("group", "[]", point, point)) for point in args[1:]))
    if kind == "group" and len(args[0]) == 2 == len(args) - 1:
        signs = ["<=" if bracket in "[]" else "<" for bracket in args[0]]
        if ("<=", True) not in zip(signs, (infinite(end) != 0 for end in args[1:]), strict=True):
            tree = node("rel", signs, args[1], _ANY, args[2])
    if tree.kind != "rel" or not _HOLDS.keys() >= {*tree.args[0]}:
        raise NotRead("no set of reals")
    if sum(_unknown(side) is not None for side in tree.args[1:]) != 1:
        raise NotRead("an inequality that is not solved for one variable")
    return tree


def _holds(domain: Tree, sizes: dict[Tree, Any], x: Any) -> bool:
    """Whether a point is in a set of reals."""
    if domain.kind in _SETS:
        return _SETS[domain.kind]([_holds(arg, sizes, x) for arg in domain.args])
    values = [sizes.get(side, abs(x) if side.kind == "call" else x) for side in domain.args[1:]]
    signs = domain.args[0]
    return all(_HOLDS[sign](*two) for sign, two in zip(signs, pairwise(values), strict=True))
