"""Decides whether two trees are the same answer.

Lists are compared in any order, tuples in order, sets of reals by their points, and quantities in
one unit. Numbers are compared as exact rationals, or by the `Judge` of a worker process.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from answer_graders.math.conversion import SAME, conversions
from answer_graders.math.exact import rational
from answer_graders.math.parts import are_consecutive, readings_of_parts
from answer_graders.math.sets import same_set
from answer_graders.math.statements import (
    SIGN_UNITS,
    as_vector,
    described_letter,
    integration_constant,
    is_name,
    name_the_same,
    named_tuple,
    parameter,
    quantity,
    same_letter,
    same_variable,
    stated_values,
    with_equals_sign,
)
from answer_graders.math.tree import (
    CONSTANTS,
    Condition,
    Described,
    Expression,
    Group,
    NotRead,
    Number,
    Numeral,
    Parts,
    Reply,
    Residue,
    Rounded,
    Several,
    Statements,
    Tree,
    Words,
    is_equation,
    is_group,
    is_set,
    items_of,
    kind_of,
    names,
    node,
    number,
    relation_node,
    sides_of,
    signs_of,
    substituted,
    words,
)

MAX_MEMBERS = 64
_MOST_PLACES = 20  # decimal places of a rounding
_PLACES = (2, 5, 11, -3)  # values of a name at which equations are compared
_COMMUTATIVE = words("union meet both")  # operations on sets, or on statements


class Undecided(Exception):
    """Raised where there is no exact value, so that a worker has to decide."""


# several answers


def members(tree: Tree) -> list[Tree]:
    """Returns the single answers in a list or a set, or the tree itself."""
    if is_set(tree):
        items = items_of(tree)
    elif tree.kind == "list":
        items = tree.args
    else:
        return [tree]
    if is_set(tree) or all(item.kind == "group" for item in items):
        distinct: dict[Tree | Fraction, Tree] = {}
        for item in items:  # a set holds nothing twice
            value = rational(item)
            distinct.setdefault(item if value is None else value, item)
        return list(distinct.values())
    return list(items)


def matched(answers: Sequence[Tree], tests: Sequence[Callable[[Tree], bool]]) -> bool:
    """Whether tests and answers can be paired; each test takes the first answer that passes."""
    if len(answers) != len(tests) or len(tests) > MAX_MEMBERS:
        return False
    unmatched = list(answers)
    for test in tests:
        for answer in unmatched:
            if test(answer):
                unmatched.remove(answer)
                break
        else:
            return False
    return True


def _values(
    answer: Tree, gold: Tree, unit_is_asked_for: bool = False
) -> Iterator[tuple[Tree, Tree]]:
    """Yields pairs of values, of which one must agree; none if the units contradict each other.

    Units of the same kind are converted, unless the label asks for its own. If only one side has a
    unit, degrees may also be compared in radians, and a percentage as its hundredth; the number
    before the sign counts only if the gold number is rational, with a percent sign at least 1.
    Letters that may be factors, as in `5 h`, are not a unit that may be left out.
    """
    answer_value, answer_unit = quantity(answer)
    gold_value, gold_unit = quantity(gold)
    if answer_unit and gold_unit:
        if answer_unit == gold_unit:
            yield answer_value, gold_value
            return
        for conversion in conversions(answer_unit, gold_unit):
            if conversion == SAME or not unit_is_asked_for:
                yield conversion.of(answer_value), gold_value
        return
    if "quantity" in (answer.kind, gold.kind) and not unit_is_asked_for:
        return
    unit = answer_unit or gold_unit or ()
    sign = unit[0][0] if len(unit) == 1 else ""
    if sign not in SIGN_UNITS:
        yield answer_value, gold_value
        return
    size = rational(gold_value)
    is_irrational = size is None and not names(gold_value) - {"\\pi", "e"}
    if not is_irrational and (sign != "percent" or size is None or abs(size) >= 1):
        yield answer_value, gold_value
    if answer_unit:
        yield node(sign, answer_value), gold_value
    else:
        yield answer_value, node(sign, gold_value)


@dataclass(frozen=True)
class Judge:
    """Compares answers by exact rational values, within the allowed difference."""

    within: Fraction = Fraction(0)
    unit_is_asked_for: bool = False

    def same_value(self, left: Tree, right: Tree) -> bool:
        """Whether two expressions have the same value, within the allowed difference."""
        left_value = rational(left)
        right_value = rational(right)
        if left_value is None or right_value is None:
            raise Undecided
        return abs(left_value - right_value) <= self.within

    def sizes(self, trees: Sequence[Tree]) -> Sequence[Fraction] | None:
        """Returns numbers in the same order as the values, or None if a value is not real."""
        values = []
        for tree in trees:
            value = rational(tree)
            if value is None:
                raise Undecided
            values.append(value)
        return values

    def fits(self, answer: Tree, golds: Sequence[Tree]) -> bool:
        """Whether an answer equals the gold answer in one of its readings."""
        return any(self.same(same_letter(answer, gold, parameter), gold) for gold in golds)

    def same(self, answer: Tree, gold: Tree) -> bool:
        """Whether an answer equals the gold answer."""
        answer, gold = _aligned(answer, gold)
        match kind_of(answer), kind_of(gold):
            case Rounded(exact, rounded), _ if not is_name(exact) or _is_constant(exact):
                error = _rounding_error(exact, rounded)
                is_rounded = error is not None and self._rounded(answer, exact, error)
                says_number = is_rounded and self.same(rounded, gold)
                return says_number or self._rounded(answer, gold, _size(rounded) / 100)
            case Rounded(), _:
                return self.same(with_equals_sign(answer), gold)
            case Parts(labels), Parts(gold_labels):
                return labels == gold_labels and self._parts(answer, gold)
            case Parts(labels), _:  # a list has them in the order of the labels
                is_list = gold.kind == "list" and are_consecutive(labels)
                return is_list and self._parts(answer, gold)
            case _, Parts():
                return self._parts(answer, gold)
            case _ if answer == gold:
                return True
            case Reply(word, _), Words(gold_word):  # what follows need not be asked for
                return word == gold_word
            case Reply(word, others), Reply(gold_word, golds):
                is_same_rest = any(self.fits(other, golds) for other in others)
                return word == gold_word and is_same_rest
            case Described(member, conditions), Described(gold_member, gold_conditions):
                return self.same(member, gold_member) and self.same(conditions, gold_conditions)
            case Residue() as residue, Residue() as gold_residue:
                return _same_residues(residue, gold_residue)
            case (Residue(), _) | (_, Residue()):
                return False
            case (Condition(), _) | (_, Condition() | Rounded()):
                return self._relations(answer, gold)
            case (Several(), _) | (_, Several()) | (Group(), Group()):
                return self._collections(answer, gold)
            case Statements(), Statements():
                return self._operations(answer, gold)
            case Number(value), Numeral(digits, _):  # a gold base may be left out
                return str(value) == digits
            case _, Numeral():
                return False
            case Numeral(digits, "10"), Number(value) if digits == str(value):
                return True
            case Number() | Numeral() | Expression(), Number() | Expression():
                pairs = _values(answer, gold, self.unit_is_asked_for)
                return any(self.equal(*pair) for pair in pairs)
            case _:
                return False

    def equal(self, left: Tree, right: Tree) -> bool:
        """Whether two expressions have the same value for all values of their variables."""
        if left == right:
            return True
        are_leaves = {left.kind, right.kind} <= {"sym", "num"}
        if are_leaves and not self.within:
            return False
        return self.same_value(left, right)

    def _parts(self, answer: Tree, gold: Tree) -> bool:
        """Whether the values of labelled parts agree; without labels, elements count as parts."""
        values = readings_of_parts(answer)
        gold_values = readings_of_parts(gold)
        if len(values) != len(gold_values):
            return False
        for readings, golds in zip(values, gold_values, strict=True):
            if not any(self.fits(reading, golds) for reading in readings):
                return False
        return True

    def _rounded(self, answer: Tree, gold: Tree, error: Fraction) -> bool:
        r"""Whether the value before the final `\approx` is right, and the rounding near it."""
        signs = signs_of(answer)
        *exact_sides, rounded = sides_of(answer)
        lenient = replace(self, within=error)
        if not lenient.same(rounded, exact_sides[-1]):
            return False
        if len(exact_sides) == 1:
            return self.same(exact_sides[0], gold)
        return self.same(relation_node(signs[:-1], exact_sides), gold)

    def _collections(self, answer: Tree, gold: Tree) -> bool:
        """Whether both are the same tuple, or have the same members in any order."""
        answer, gold = _with_named_tuples(answer, gold)
        if answer.kind == gold.kind == "group" and not is_set(answer):
            items = items_of(answer)
            gold_items = items_of(gold)
            if answer.args[0] != gold.args[0] or len(items) != len(gold_items):
                return False
            return all(map(self.same, items, gold_items))
        return self._match(members(answer), members(gold))

    def _match(self, answers: Sequence[Tree], golds: Sequence[Tree]) -> bool:
        """Whether the answers are the gold answers, in any order."""
        values = _exact_values(answers)
        gold_values = _exact_values(golds)
        if values and gold_values and not self.within:
            return values == gold_values
        tests = [functools.partial(self.same, gold=gold) for gold in golds]
        return matched(answers, tests)

    def _relations(self, answer: Tree, gold: Tree) -> bool:
        """Whether two answers agree of which one is a relation or a set of reals."""
        answer_condition = _as_equation(answer)
        gold_condition = _as_equation(gold)
        if answer_condition and gold_condition:
            return self._equations(answer_condition, gold_condition)
        if is_equation(answer):
            values = stated_values(answer, with_sums=True)
            says_value = all(self.same(value, gold) for value in values)
            return says_value or self._sets(node("union", answer), gold)
        if is_equation(gold):
            values = stated_values(gold, with_sums=False)
            if len(values) == len(sides_of(gold)):
                return False
            return self.same(answer, values[-1]) or self._sets(answer, node("union", gold))
        return self._sets(answer, gold)

    def _sets(self, answer: Tree, gold: Tree) -> bool:
        """Whether both are the same set of reals, or lists of the same conditions."""
        try:
            return same_set(answer, gold, self.sizes)
        except NotRead:
            if answer.kind != gold.kind:
                return False
            if gold.kind == "list":
                return self._collections(answer, gold)
            return gold.kind in _COMMUTATIVE and self._operations(answer, gold)

    def _operations(self, answer: Tree, gold: Tree) -> bool:
        """Whether both are the same operation on the same operands, in any order."""
        return self._match(_operands(answer), _operands(gold))

    def _equations(self, answer: Tree, gold: Tree) -> bool:
        """Whether two equations give a name the same value, or hold at the same points."""
        answer = same_variable(answer, gold)
        name, *values = sides_of(answer)
        gold_sides = sides_of(gold)
        if name_the_same(name, gold_sides[0]):
            return all(self.same(value, gold_sides[-1]) for value in values)
        if not names(gold) - CONSTANTS:  # as multiples, `1 = 2` and `1 = 3` would agree
            return self._match(sides_of(answer), gold_sides)
        left = _difference(answer)
        right = _difference(gold)
        if left is None or right is None:
            return False
        if self._vanish_together(left, right):
            return True
        solved_for = _solved_name(gold)
        is_asked_for = solved_for is None or _solved_name(answer) in (None, solved_for)
        return is_asked_for and self._have_the_same_roots(left, right)

    def _vanish_together(self, left: Tree, right: Tree) -> bool:
        """Whether one is a nonzero multiple of the other: left(x) right(y) = left(y) right(x)."""
        if self.equal(left, number(0)) or self.equal(right, number(0)):
            return False
        left_product = node("mul", left, _elsewhere(right))
        right_product = node("mul", _elsewhere(left), right)
        return self.equal(left_product, right_product)

    def _have_the_same_roots(self, left: Tree, right: Tree) -> bool:
        """Whether both have the same root in each name, as `1/x + 1/y - 2` and `x+y-2xy` have.

        False unless each is linear in each of its names, or a quotient of such expressions.
        """
        variables = names(left) - CONSTANTS
        if len(variables) < 2 or variables != names(right) - CONSTANTS:
            return False
        return all(self._have_the_same_root(left, right, name) for name in sorted(variables))

    def _have_the_same_root(self, left: Tree, right: Tree, name: str) -> bool:
        left_values = _at_places(left, name)
        right_values = _at_places(right, name)
        for values in (left_values, right_values):
            if not self.equal(*_cross_ratios(values)):
                return False
        return self.equal(_root(left_values), _root(right_values))


def _aligned(answer: Tree, gold: Tree) -> tuple[Tree, Tree]:
    """Both with the same arbitrary letters, and as vectors if one of them is a vector."""
    answer = same_letter(answer, gold, integration_constant)
    answer = as_vector(same_letter(answer, gold, described_letter), gold)
    return answer, as_vector(gold, answer)


def _is_constant(tree: Tree) -> bool:
    return tree.kind == "sym" and tree.args[0] in CONSTANTS


def _size(tree: Tree) -> Fraction:
    """The absolute value of a rational number, perhaps with a unit in words; 0 for others."""
    value = tree.args[0] if tree.kind == "measure" else tree
    return abs(rational(value) or Fraction(0))


def _rounding_error(exact: Tree, rounded: Tree) -> Fraction | None:
    """Half a unit in the last decimal place; None unless there are at least three digits.

    With fewer digits, or none behind the point, a wrong value might round to a right one.
    """
    if exact.kind == "measure" and quantity(exact)[1] != quantity(rounded)[1]:
        return None
    size = _size(rounded)
    for places in range(1, _MOST_PLACES):
        unit = Fraction(1, 10**places)
        if size % unit == 0:
            is_whole = size.denominator == 1
            return None if is_whole or size < 100 * unit else unit / 2
    return None


def _same_residues(answer: Residue, gold: Residue) -> bool:
    """Whether both are the same residue class."""
    modulus = rational(answer.modulus)
    if not modulus or modulus != rational(gold.modulus):
        return False
    difference = rational(_minus(_last_side(answer.value), _last_side(gold.value)))
    return difference is not None and difference % modulus == 0


def _exact_values(trees: Sequence[Tree]) -> Counter[Fraction] | None:
    """Counts how often each number occurs; None if one of the trees is no plain number."""
    values: Counter[Fraction] = Counter()
    for tree in trees:
        value = tree.args[0] if tree.kind == "neg" else tree
        if value.kind != "num":
            return None
        values[-value.args[0] if tree.kind == "neg" else value.args[0]] += 1
    return values


def _with_named_tuples(answer: Tree, gold: Tree) -> tuple[Tree, Tree]:
    """Both as tuples if just one of them names its values, as in `x = 1, y = 2`."""
    if is_group(gold, "()"):
        return named_tuple(answer) or answer, gold
    items = items_of(answer) if is_group(answer, "()") else members(answer)
    gold_tuple = None if any(map(is_equation, items)) else named_tuple(gold)
    if gold_tuple:
        return node("group", "()", *items), gold_tuple
    return answer, gold


def _at_places(expression: Tree, name: str) -> list[Tree]:
    """The expression at each of `_PLACES`, as values of the name."""
    return [substituted(expression, name, number(place)) for place in _PLACES]


def _cross_ratios(values: Sequence[Tree]) -> tuple[Tree, Tree]:
    """Two products that are equal if a quotient of linear expressions has these values.

    Such a quotient keeps the cross-ratio (v1 - v3) (v2 - v4) / (v1 - v4) / (v2 - v3) of `_PLACES`.
    """
    first, second, third, fourth = values
    place_1, place_2, place_3, place_4 = _PLACES
    ratio = Fraction(
        (place_1 - place_3) * (place_2 - place_4), (place_1 - place_4) * (place_2 - place_3)
    )
    left = node("mul", _minus(first, third), _minus(second, fourth))
    right = node("mul", _minus(first, fourth), _minus(second, third))
    return left, node("mul", number(ratio), right)


def _root(values: Sequence[Tree]) -> Tree:
    """The zero of a quotient of linear expressions, from its values at three of `_PLACES`."""
    first, second, third, _ = values
    place_1, place_2, place_3, _ = _PLACES
    ratio = number(Fraction(place_2 - place_1, place_2 - place_3))
    weight_1 = node("mul", third, _minus(second, first))
    weight_3 = node("mul", ratio, node("mul", first, _minus(second, third)))
    numerator = _minus(
        node("mul", number(place_1), weight_1), node("mul", number(place_3), weight_3)
    )
    return node("div", numerator, _minus(weight_1, weight_3))


def _operands(tree: Tree, kind: str = "") -> list[Tree]:
    """The operands of an operation: A, B and C for `A and (B and C)`."""
    if kind and tree.kind != kind:
        return [tree]
    operands: list[Tree] = []
    for operand in tree.args:
        operands += _operands(operand, tree.kind)
    return operands


def _as_equation(tree: Tree) -> Tree | None:
    """The tree as an equation, or None; `a b = 0` for `a = 0 or b = 0`."""
    if is_equation(tree):
        return tree
    if tree.kind != "union":
        return None
    product = number(1)
    for item in tree.args:
        difference = _difference(item) if is_equation(item) else None
        if difference is None:
            return None
        product = node("mul", product, difference)
    return relation_node(["="], [product, number(0)])


def _solved_name(equation: Tree) -> str | None:
    """The name that an equation of two sides is solved for, or None."""
    for side in sides_of(equation):
        if side.kind == "sym":
            return str(side.args[0])
    return None


def _last_side(tree: Tree) -> Tree:
    """The right side of an equation; any other tree itself."""
    return sides_of(tree)[-1] if is_equation(tree) else tree


def _difference(equation: Tree) -> Tree | None:
    """The left side of an equation minus its right side, or None unless it has two sides."""
    sides = sides_of(equation)
    if len(sides) != 2:
        return None
    return _minus(*sides)


def _elsewhere(tree: Tree) -> Tree:
    """The tree with new names for its variables, for its value at another point."""
    for name in names(tree) - CONSTANTS:
        tree = substituted(tree, name, node("sym", f"other {name}"))
    return tree


def _minus(left: Tree, right: Tree) -> Tree:
    return node("add", left, node("neg", right))
