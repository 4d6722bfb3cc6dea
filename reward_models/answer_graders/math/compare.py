"""Whether two trees are the same answer.

Lists are compared in any order, tuples in order, sets of reals by the points that they hold,
quantities in one unit, and scalars as exact rationals or by a worker's judge.
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
from answer_graders.math.sets import is_domain, same_set
from answer_graders.math.statements import (
    SIGN_UNITS,
    as_vector,
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
    NotRead,
    Tree,
    is_equation,
    is_group,
    is_set,
    items_of,
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
_PLACES = (2, 5, 11, -3)  # values of a name at which an equation is looked at
_STRUCTURES = words("group list rel mod union minus meet both field text")
_COMMUTATIVE = words("union meet both")  # operations on sets, or on statements


class Undecided(Exception):
    """There is no exact value: a worker has to decide."""


# several answers


def members(tree: Tree) -> list[Tree]:
    """The single answers in a list, set or plus-minus, or the tree itself."""
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
    """Whether each answer satisfies its own one of the tests; the first that fits is taken."""
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
    """The pairs of values of which one must agree; none where the units contradict each other.

    Two units of the same kind are converted, unless the label asks for its own. Where one has no
    unit, a percentage may be its hundredth or, from 1 up, the number before the sign, and degrees
    may be in radians; but what is a product of letters beside it, such as `5 h`, is no quantity.
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
    size = rational(gold_value)
    if sign != "percent" or size is None or abs(size) >= 1:
        yield answer_value, gold_value
    if sign not in SIGN_UNITS:
        return
    if answer_unit:
        yield node(sign, answer_value), gold_value
    else:
        yield answer_value, node(sign, gold_value)


@dataclass(frozen=True)
class Judge:
    """Compares answers by exact rational values, within a difference that is allowed."""

    within: Fraction = Fraction(0)
    unit_is_asked_for: bool = False

    def same_value(self, left: Tree, right: Tree) -> bool:
        """Whether two expressions have one value, or differ by no more than is allowed."""
        left_value = rational(left)
        right_value = rational(right)
        if left_value is None or right_value is None:
            raise Undecided
        return abs(left_value - right_value) <= self.within

    def sizes(self, trees: Sequence[Tree]) -> Sequence[Fraction] | None:
        """Numbers that stand in the same order as the values; None if one has no real value."""
        values = []
        for tree in trees:
            value = rational(tree)
            if value is None:
                raise Undecided
            values.append(value)
        return values

    def fits(self, answer: Tree, golds: Sequence[Tree]) -> bool:
        """Whether an answer is one of the readings of a gold answer."""
        return any(self.same(same_letter(answer, gold, parameter), gold) for gold in golds)

    def same(self, answer: Tree, gold: Tree) -> bool:
        """Whether an answer is the gold answer."""
        if answer.kind == "rel" and "approx" in signs_of(answer):
            before_last = sides_of(answer)[-2]
            is_constant = before_last.kind == "sym" and before_last.args[0] in CONSTANTS
            if is_constant:  # as in `pi = 3.14`, it says both
                is_rounded = self._rounded(answer, before_last)
                says_number = is_rounded and self.same(sides_of(answer)[-1], gold)
                return says_number or self._rounded(answer, gold)
            if not is_name(before_last):
                return self._rounded(answer, gold)
            answer = with_equals_sign(answer)
        if "parts" in (answer.kind, gold.kind):
            return self._parts(answer, gold)
        answer = as_vector(same_letter(answer, gold, integration_constant), gold)
        gold = as_vector(gold, answer)
        if answer == gold:
            return True
        kinds = {answer.kind, gold.kind}
        if "mod" in kinds:
            return self._residues(answer, gold)
        if "rel" in kinds or is_domain(answer) or is_domain(gold):
            return self._relations(answer, gold)
        if "list" in kinds or kinds == {"group"} or is_set(answer) or is_set(gold):
            return self._collections(answer, gold)
        if gold.kind == "sym" and gold.args[0][0].isdigit():  # a base may be left out
            digits, _, _ = gold.args[0].partition("_")
            return answer.kind == "num" and str(answer.args[0]) == digits
        if gold.kind == "num" and answer == node("sym", f"{gold.args[0]}_10"):
            return True
        if answer.kind == gold.kind and gold.kind in _COMMUTATIVE:
            return self._operations(answer, gold)
        if _STRUCTURES & kinds:
            return False
        for answer_value, gold_value in _values(answer, gold, self.unit_is_asked_for):
            if self.equal(answer_value, gold_value):
                return True
        return False

    def equal(self, left: Tree, right: Tree) -> bool:
        """Whether two expressions have the same value, whatever their variables are."""
        if left == right:
            return True
        are_leaves = {left.kind, right.kind} <= {"sym", "num"}
        if are_leaves and not self.within:
            return False
        return self.same_value(left, right)

    def _parts(self, answer: Tree, gold: Tree) -> bool:
        """Whether the values of labelled parts agree; a list has them in the labels' order."""
        if answer.kind == gold.kind:
            has_labels = answer.args[0] == gold.args[0]
        elif answer.kind == "parts":
            has_labels = gold.kind == "list" and are_consecutive(answer.args[0])
        else:
            has_labels = True
        if not has_labels:
            return False
        values = readings_of_parts(answer)
        gold_values = readings_of_parts(gold)
        if len(values) != len(gold_values):
            return False
        for readings, golds in zip(values, gold_values, strict=True):
            if not any(self.fits(reading, golds) for reading in readings):
                return False
        return True

    def _rounded(self, answer: Tree, gold: Tree) -> bool:
        r"""Whether the value in front of the last sign, `\approx`, is right and is rounded well."""
        signs = signs_of(answer)
        *exact_sides, rounded = sides_of(answer)
        error = abs(rational(rounded) or Fraction(0)) / 100
        lenient = replace(self, within=error)
        if signs[-1] != "approx" or not lenient.same(rounded, exact_sides[-1]):
            return False
        if len(exact_sides) == 1:
            return self.same(exact_sides[0], gold)
        return self.same(relation_node(signs[:-1], exact_sides), gold)

    def _residues(self, answer: Tree, gold: Tree) -> bool:
        """Whether both are the same class of residues."""
        if answer.kind != "mod" or gold.kind != "mod":
            return False
        value, modulus = answer.args
        gold_value, gold_modulus = gold.args
        size = rational(modulus)
        if not size or size != rational(gold_modulus):
            return False
        difference = rational(_minus(_last_side(value), _last_side(gold_value)))
        return difference is not None and difference % size == 0

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
        """Whether each answer is its own one of the gold answers."""
        values = _exact_values(answers)
        gold_values = _exact_values(golds)
        if values and gold_values and not self.within:
            return values == gold_values
        tests = [functools.partial(self.same, gold=gold) for gold in golds]
        return matched(answers, tests)

    def _relations(self, answer: Tree, gold: Tree) -> bool:
        """Where one is a relation or a set of reals."""
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
        """Whether both say the same of the same name, or hold for the same points."""
        answer = same_variable(answer, gold)
        name, *values = sides_of(answer)
        gold_sides = sides_of(gold)
        if name_the_same(name, gold_sides[0]):
            return all(self.same(value, gold_sides[-1]) for value in values)
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
        """Whether one is a multiple of the other, not 0: left(x) right(y) = left(y) right(x)."""
        if self.equal(left, number(0)) or self.equal(right, number(0)):
            return False
        left_product = node("mul", left, _elsewhere(right))
        right_product = node("mul", _elsewhere(left), right)
        return self.equal(left_product, right_product)

    def _have_the_same_roots(self, left: Tree, right: Tree) -> bool:
        """Whether both are 0 for the same value of each name, as `1/x + 1/y - 2` and `x+y-2xy` are.

        Only if each is linear, or a quotient of two such, in each of its names.
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


def _exact_values(trees: Sequence[Tree]) -> Counter[Fraction] | None:
    """The numbers that trees are, with how often each is there; None if one is no plain number."""
    values: Counter[Fraction] = Counter()
    for tree in trees:
        value = tree.args[0] if tree.kind == "neg" else tree
        if value.kind != "num":
            return None
        values[-value.args[0] if tree.kind == "neg" else value.args[0]] += 1
    return values


def _with_named_tuples(answer: Tree, gold: Tree) -> tuple[Tree, Tree]:
    """Both as tuples where one names its values, `x = 1, y = 2`, and the other one does not."""
    if is_group(gold, "()"):
        return named_tuple(answer) or answer, gold
    items = items_of(answer) if is_group(answer, "()") else members(answer)
    gold_tuple = None if any(map(is_equation, items)) else named_tuple(gold)
    if gold_tuple:
        return node("group", "()", *items), gold_tuple
    return answer, gold


def _at_places(expression: Tree, name: str) -> list[Tree]:
    """The expression with each of `_PLACES` in the place of a name."""
    return [substituted(expression, name, number(place)) for place in _PLACES]


def _cross_ratios(values: Sequence[Tree]) -> tuple[Tree, Tree]:
    """Two that are equal where the values at `_PLACES` are those of a quotient of linear ones.

    (v1 - v3) (v2 - v4) / (v1 - v4) / (v2 - v3) is that of the places.
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
    """Where a quotient of linear expressions is 0, by its values at three of `_PLACES`."""
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
    """What an operation joins: A, B and C for `A and (B and C)`."""
    if kind and tree.kind != kind:
        return [tree]
    operands: list[Tree] = []
    for operand in tree.args:
        operands += _operands(operand, tree.kind)
    return operands


def _as_equation(tree: Tree) -> Tree | None:
    """An equation itself, and `a b = 0` for the alternatives `a = 0` and `b = 0`; else None."""
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
    """The right side of an equation, or what is none."""
    return sides_of(tree)[-1] if is_equation(tree) else tree


def _difference(equation: Tree) -> Tree | None:
    """The left side of an equation minus its right side, or None where it is no single number."""
    sides = sides_of(equation)
    if len(sides) != 2:
        return None
    return _minus(*sides)


def _elsewhere(tree: Tree) -> Tree:
    """The tree at another point: with other names for its variables."""
    for name in names(tree) - CONSTANTS:
        tree = substituted(tree, name, node("sym", f"other {name}"))
    return tree


def _minus(left: Tree, right: Tree) -> Tree:
    return node("add", left, node("neg", right))
