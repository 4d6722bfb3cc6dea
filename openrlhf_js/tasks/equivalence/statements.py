"""What an answer says besides a value: its name, its unit, that it is rounded or a residue."""

from __future__ import annotations

from collections.abc import Iterator

from openrlhf_js.tasks.equivalence.tree import (
    Tree,
    is_equation,
    is_group,
    names,
    node,
    number,
    substituted,
    words,
)
from openrlhf_js.tasks.equivalence.vocabulary import Unit, is_sentence

SIGN_UNITS = ("degree", "percent")
_OF_NAMES = words("sin cos tan cot sec csc gcd lcm max min det")  # `\sin A = 1/2` gives the sine
_CONSTANTS = (node("sym", "\\pi"), node("sym", "i"))
_COORDINATES = frozenset("abcpqrxyz")  # names that have an order in a tuple
_FUNCTIONS = frozenset("fghFGHPQRST")  # names that a rule `f(x) = ...` is of
_INDICES = ("i", "j", "k", "m", "n", "t")  # of sequences
_UNKNOWNS = frozenset("xyz")  # `x + y = 5` is a condition rather than the value of a sum
_COMPLEX_NUMBERS = ("z", "w")


def is_name(tree: Tree) -> bool:
    """Whether the tree only names something: `x`, `f(x)`, `f(3)`, `|AB|`, `Area`, `dy/dx`."""
    kind, args = tree
    if kind in ("sym", "apply"):
        return True
    if kind == "text":
        return not is_sentence(args[0].split()) and not args[0].endswith(" of")
    if kind == "group":
        return _names_a_point(tree)
    if kind == "call":
        return _names_a_value(tree)
    if kind in ("mul", "div"):  # a multiple of a name is none; `P(X = 1)` is one
        for arg in args:
            if arg.kind != "rel" and (arg in _CONSTANTS or not is_name(arg)):
                return False
        return True
    is_inverse = kind == "pow" and args[1] == node("neg", number(1))
    return is_inverse and is_name(args[0])


def _names_a_point(group: Tree) -> bool:
    """Whether the group is a point such as `(x, y)`; `(y, x)` is that turned round."""
    coordinates = [arg.args[0] for arg in group.args[1:] if arg.kind == "sym"]
    if not is_group(group, "()") or len(coordinates) != len(group.args) - 1:
        return False
    return coordinates == sorted(coordinates) or not _COORDINATES.issuperset(coordinates)


def _names_a_value(call: Tree) -> bool:
    r"""Whether the function's value is what is named: `\sin A`, `|AB|`, `|S|`, but not `|x|`."""
    function, *arguments = call.args
    if function in _OF_NAMES:
        return all(argument.kind in ("sym", "mul") and is_name(argument) for argument in arguments)
    if function != "abs" or arguments[0].kind not in ("sym", "mul"):
        return False
    for letter in names(arguments[0]):
        if letter not in _COMPLEX_NUMBERS and not letter[0].isupper():
            return False
    return is_name(arguments[0])


def name_the_same(name: Tree, other: Tree) -> bool:
    """Whether two trees name the same: equal names, or `f(x)` and `y`."""
    if not (is_name(name) and is_name(other)):
        return False
    return name == other or {name.kind, other.kind} == {"sym", "mul"}


def _is_sum_of_names(tree: Tree) -> bool:
    """Whether the tree is a sum such as `m + n` or `100m - n`, of which answers give the value."""
    if tree.kind != "add":
        return False
    for term in tree.args:
        value = term.args[0] if term.kind == "neg" else term
        is_multiple = value.kind == "mul" and value.args[0].kind == "num"
        name = value.args[1] if is_multiple else value
        if name.kind != "sym" and not _is_sum_of_names(value):
            return False
    return len(names(tree)) > 1


def stated_values(equation: Tree, with_sums: bool) -> tuple[Tree, ...]:
    """The values that an equation gives to a name: `x = 2 + 3 = 5` gives `2 + 3` and 5.

    `with_sums`: also to a sum of names, as in `m + n = 7`. In a gold answer, and of unknowns such
    as x, that may be a condition.
    """
    sides = equation.args[1:]
    is_alone = len(sides) == 2 and not (with_sums and names(sides[0]).isdisjoint(_UNKNOWNS))
    if is_name(sides[0]) or (_is_sum_of_names(sides[0]) and not is_alone):
        return sides[1:]
    return sides[:-1] if is_name(sides[-1]) else sides


def named_tuple(tree: Tree, other: Tree) -> Tree:
    """The tuple that `x = 1, y = 2` gives, in the order of the names, beside another tuple."""
    if tree.kind != "list" or not is_group(other, "()"):
        return tree
    values: dict[str, Tree] = {}
    for item in tree.args:
        if not is_equation(item) or len(item.args) != 3:
            return tree
        _, name, value = item.args
        if name.kind != "sym" or name.args[0] in values:
            return tree
        values[name.args[0]] = value
    in_order = [values[name] for name in sorted(values)]
    return node("group", "()", *in_order)


def same_variable(answer: Tree, gold: Tree) -> Tree:
    """The answer `f(t) = 2t` in the variable of the gold answer `f(x) = 3x`: `f(x) = 2x`."""
    signs, head, *values = answer.args
    gold_head = gold.args[1]
    function, variable = _rule_head(head)
    gold_function, gold_variable = _rule_head(gold_head)
    is_taken = gold_variable in names(answer)
    if not function or function != gold_function or is_taken:
        return answer
    renamed = [substituted(side, variable, node("sym", gold_variable)) for side in values]
    return node("rel", signs, gold_head, *renamed)


def _rule_head(head: Tree) -> tuple[str, str]:
    """The function and the variable of `f(x)`, or of a sequence such as `a_n`; or empty names."""
    if head.kind == "mul" and all(arg.kind == "sym" for arg in head.args):
        function, variable = (arg.args[0] for arg in head.args)
        is_rule = function in _FUNCTIONS and variable.islower()
        return (function, variable) if is_rule else ("", "")
    if head.kind == "sym":
        sequence, _, index = head.args[0].partition("_")
        if index in _INDICES:
            return f"{sequence}_", index
    return "", ""


def quantity(tree: Tree, other: Unit | None = None) -> tuple[Tree, Unit | None]:
    """The tree as a value with its unit; `5m` beside `6 cm` is no product."""
    if tree.kind in SIGN_UNITS:
        return tree.args[0], (tree.kind,)
    if tree.kind == "mul":
        value, factor = tree.args
        return (value, other) if other and factor.args == other else (tree, None)
    if tree.kind != "measure":
        return tree, None
    value, unit = tree.args
    return quantity(value) if value.kind == "percent" else (value, unit or None)


def gold_statements(tree: Tree) -> Iterator[Tree]:
    r"""A gold answer, and the two of which either will do where it is `exact \approx rounded`."""
    yield tree
    if tree.kind != "rel" or tree.args[0][-1] != "approx":
        return
    signs, *sides = tree.args
    *exact, rounded = sides
    if len(exact) > 1:
        yield node("rel", signs[:-1], *exact)
    elif not is_name(exact[0]):
        yield exact[0]
    yield rounded


def with_equals_sign(relation: Tree) -> Tree:
    r"""`x = 3.14` for `x \approx 3.14`, which gives x no other value."""
    signs, *sides = relation.args
    return node("rel", (*signs[:-1], signs[-1].replace("approx", "=")), *sides)


def without_modulus(tree: Tree) -> Tree:
    r"""The number 3 for `3 \pmod 7` or `x = 3 \pmod 7`, where it is the least residue."""
    if tree.kind != "mod":
        return tree
    value, modulus = tree.args
    if is_equation(value) and len(value.args) == 3 and is_name(value.args[1]):
        value = value.args[2]
    if value.kind != "num" or modulus.kind != "num":
        return tree
    residue = value.args[0]
    is_least = residue.denominator == 1 and 0 <= residue < modulus.args[0]
    return value if is_least else tree
