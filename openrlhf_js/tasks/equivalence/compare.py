"""Whether two trees are the same answer.

Lists are compared in any order, tuples in order, sets of reals by the points that they hold, units
by name, and scalars as exact rationals or by a worker's judge.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from openrlhf_js.tasks.equivalence.exact import rational
from openrlhf_js.tasks.equivalence.sets import is_domain, same_set
from openrlhf_js.tasks.equivalence.statements import (
    SIGN_UNITS,
    is_name,
    name_the_same,
    named_tuple,
    quantity,
    same_variable,
    stated_values,
    with_equals_sign,
)
from openrlhf_js.tasks.equivalence.tree import (
    CONSTANTS,
    NotRead,
    Tree,
    group_node,
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
_STRUCTURES = words("group list rel mod union minus meet field text")


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
    singles: list[Tree] = []
    for item in items:
        if is_set(item):
            singles.append(item)
        else:
            singles += members(item)
    if all(single.kind == "group" for single in singles):  # a set holds nothing twice
        return list(dict.fromkeys(singles))
    return singles


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


def _values(answer: Tree, gold: Tree) -> Iterator[tuple[Tree, Tree]]:
    """The pairs of values of which one must agree; none where the units contradict each other.

    Where one has no unit, a percentage may be its hundredth or, from 1 up, the number before the
    sign, and degrees may be in radians.
    """
    _, unit_in_answer = quantity(answer)
    gold_value, gold_unit = quantity(gold, unit_in_answer)
    answer_value, answer_unit = quantity(answer, gold_unit)
    if answer_unit and gold_unit:
        if answer_unit == gold_unit:
            yield answer_value, gold_value
        return
    sign = " ".join(answer_unit or gold_unit or ())
    size = rational(answer_value if answer_unit else gold_value)
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

    def same(self, answer: Tree, gold: Tree) -> bool:
        """Whether an answer is the gold answer."""
        if answer.kind == "rel" and "approx" in signs_of(answer):
            before_last = sides_of(answer)[-2]
            if not is_name(before_last):
                return self._rounded(answer, gold)
            answer = with_equals_sign(answer)
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
        if _STRUCTURES & kinds:
            return False
        for answer_value, gold_value in _values(answer, gold):
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
        if is_group(gold, "()"):
            answer = named_tuple(answer) or answer
        else:
            items = items_of(answer) if is_group(answer, "()") else members(answer)
            gold_tuple = None if any(map(is_equation, items)) else named_tuple(gold)
            if gold_tuple:
                gold = gold_tuple
                answer = group_node("()", items)
        if answer.kind == gold.kind == "group" and not is_set(answer):
            items = items_of(answer)
            gold_items = items_of(gold)
            if answer.args[0] != gold.args[0] or len(items) != len(gold_items):
                return False
            return all(map(self.same, items, gold_items))
        tests = []
        for gold_member in members(gold):
            tests.append(functools.partial(self.same, gold=gold_member))
        return matched(members(answer), tests)

    def _relations(self, answer: Tree, gold: Tree) -> bool:
        """Where one is a relation or a set of reals."""
        if is_equation(answer) and is_equation(gold):
            return self._equations(answer, gold)
        if is_equation(answer):
            return all(self.same(side, gold) for side in stated_values(answer, with_sums=True))
        if is_equation(gold):
            values = stated_values(gold, with_sums=False)
            gives_value = len(values) < len(sides_of(gold))
            if not gives_value or answer.kind == "rel":
                return False
            return self.same(answer, values[-1])
        try:
            return same_set(answer, gold, self.sizes)
        except NotRead:
            return answer.kind == gold.kind == "list" and self._collections(answer, gold)

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
        return self._vanish_together(left, right)

    def _vanish_together(self, left: Tree, right: Tree) -> bool:
        """Whether one is a multiple of the other, not 0: left(x) right(y) = left(y) right(x)."""
        nothing = number(0)
        if self.equal(left, nothing) or self.equal(right, nothing):
            return False
        other_left = _elsewhere(left)
        other_right = _elsewhere(right)
        if left == other_left or right == other_right:
            return False
        return self.equal(node("mul", left, other_right), node("mul", other_left, right))


def _last_side(tree: Tree) -> Tree:
    """The right side of an equation, or what is none."""
    return sides_of(tree)[-1] if is_equation(tree) else tree


def _difference(equation: Tree) -> Tree | None:
    """The left side of an equation minus its right side, or None where it is no single number."""
    sides = sides_of(equation)
    if len(sides) != 2:
        return None
    left, right = sides
    if left.kind in _STRUCTURES or right.kind in _STRUCTURES:
        return None
    return _minus(left, right)


def _elsewhere(tree: Tree) -> Tree:
    """The tree at another point: with other names for its variables."""
    for name in names(tree) - CONSTANTS:
        tree = substituted(tree, name, node("sym", f"other {name}"))
    return tree


def _minus(left: Tree, right: Tree) -> Tree:
    return node("add", left, node("neg", right))
