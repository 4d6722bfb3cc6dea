"""What an answer states besides a value: its name, its unit, a rounding, a modulus."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from answer_graders.math.tree import (
    CONSTANTS,
    Tree,
    is_equation,
    is_group,
    items_of,
    names,
    node,
    number,
    relation_node,
    sides_of,
    signs_of,
    substituted,
    subtrees,
    words,
)
from answer_graders.math.units import Unit
from answer_graders.math.vocabulary import is_sentence

SIGN_UNITS = ("degree", "percent")
_OF_NAMES = words("sin cos tan cot sec csc gcd lcm max min det")  # `\sin A = 1/2` gives the sine
_CONSTANTS = (node("sym", "\\pi"), node("sym", "i"))
_COORDINATES = frozenset("abcpqrxyz")  # names that have a fixed order in a tuple
_FUNCTIONS = frozenset("fghFGHPQRST")  # names of functions in rules `f(x) = ...`
_INDICES = ("i", "j", "k", "m", "n", "t")  # of sequences
_UNKNOWNS = frozenset("xyz")  # `x + y = 5` is a condition rather than the value of a sum
MOST_PARTS = 60  # of a tree that is searched for metres
NO_RULE = ("", "")
_AXES = ("i", "j", "k")
_INTEGRATION_CONSTANTS = (node("sym", "C"), node("sym", "c"))
_INTEGRATED = frozenset(["x", "y", "z", "t", "u", "v", "s", "\\theta"])  # variables
_COMPLEX_NUMBERS = ("z", "w")


def is_name(tree: Tree) -> bool:
    """Whether the tree only names something: `x`, `f(x)`, `f(3)`, `|AB|`, `Area`, `dy/dx`."""
    kind, args = tree
    if kind in ("sym", "apply"):
        return True
    if kind == "text":
        return not is_sentence(args[0].split())
    if kind == "group":
        return _names_a_point(tree)
    if kind == "call":
        return _names_a_value(tree)
    if kind in ("mul", "div"):  # a multiple of a name is no name; `P(X = 1)` is one
        for factor in args:
            if factor.kind != "rel" and (factor in _CONSTANTS or not is_name(factor)):
                return False
        return True
    if kind == "pow":
        base, exponent = args
        return exponent == node("neg", number(1)) and is_name(base)
    return False


def _names_a_point(point: Tree) -> bool:
    """Whether the group names a point, as `(x, y)` does; `(y, x)` is its mirror image."""
    if not is_group(point, "()"):
        return False
    coordinates: list[str] = []
    for item in items_of(point):
        if item.kind != "sym":
            return False
        coordinates.append(item.args[0])
    if not _COORDINATES.issuperset(coordinates):
        return True
    return coordinates == sorted(coordinates)


def _names_a_value(call: Tree) -> bool:
    r"""Whether the call names a value: `\sin A`, `|AB|`, `|S|`, but not `|x|`."""
    function = call.args[0]
    arguments = call.args[1:]
    if function in _OF_NAMES:
        for argument in arguments:  # `\sin \pi` is a number
            is_letters = argument.kind in ("sym", "mul") and names(argument) - CONSTANTS
            if not is_letters or not is_name(argument):
                return False
        return True
    if function != "abs":
        return False
    content = arguments[0]
    if content.kind not in ("sym", "mul"):
        return False
    for letter in names(content):
        if letter not in _COMPLEX_NUMBERS and not letter[0].isupper():
            return False
    return is_name(content)


def name_the_same(name: Tree, other: Tree) -> bool:
    """Whether two trees name the same thing: equal names, or `f(x)` and `y`."""
    if not (is_name(name) and is_name(other)):
        return False
    if name == other:
        return True
    rules = [tree for tree in (name, other) if _rule_head(tree) != NO_RULE]
    return len(rules) == 1 and {name.kind, other.kind} == {"sym", "mul"}


def _is_sum_of_names(tree: Tree) -> bool:
    """Whether the tree is a sum such as `m + n` or `100m - n`, whose value may be the answer."""
    if tree.kind != "add":
        return False
    for term in tree.args:
        value = term.args[0] if term.kind == "neg" else term
        name = value
        if value.kind == "mul" and value.args[0].kind == "num":
            _, name = value.args
        if name.kind != "sym" and not _is_sum_of_names(value):
            return False
    return len(names(tree)) > 1


def stated_values(equation: Tree, with_sums: bool) -> tuple[Tree, ...]:
    """The values that an equation gives to a name: `x = 2 + 3 = 5` gives `2 + 3` and 5.

    `with_sums`: also the values of sums of names, as in `m + n = 7`. In a gold answer, or with
    unknowns such as x, that may be a condition.
    """
    sides = sides_of(equation)
    first = sides[0]
    if is_name(first):
        return sides[1:]
    may_be_condition = not with_sums or not names(first).isdisjoint(_UNKNOWNS)
    is_condition = may_be_condition and len(sides) == 2
    if _is_sum_of_names(first) and not is_condition:
        return sides[1:]
    if is_name(sides[-1]):
        return sides[:-1]
    return sides


def named_tuple(tree: Tree) -> Tree | None:
    """The tuple for `x = 1, y = 2`; None if the tree names no values.

    Coordinates are in the order of their names, other values in the order listed.
    """
    values: dict[Tree, Tree] = {}
    for item in tree.args if tree.kind == "list" else ():
        sides = sides_of(item) if is_equation(item) else ()
        if len(sides) != 2 or not is_name(sides[0]) or sides[0] in values:
            return None
        values[sides[0]] = sides[1]
    if not values:
        return None
    named = list(values.items())
    if all(name.kind == "sym" and name.args[0][0] in _COORDINATES for name in values):
        named.sort(key=lambda item: item[0].args)
    return node("group", "()", *(value for _, value in named))


def as_vector(tree: Tree, other: Tree) -> Tree:
    """The group (2, -3, 1) for `2i - 3j + k`, if `other` is a group of two or three elements."""
    if not is_group(other, "()"):
        return tree
    components = _components(tree)
    axes = _AXES[: len(items_of(other))]
    if len(components) < 2 or not components.keys() <= set(axes):
        return tree
    return node("group", "()", *(components.get(axis, number(0)) for axis in axes))


def _components(tree: Tree) -> dict[str, Tree]:
    """The factors of i, j and k in a sum of their multiples; empty for other trees."""
    kind, args = tree
    if kind == "sym":
        return {args[0]: number(1)} if args[0] in _AXES else {}
    if kind == "neg":
        return {axis: node("neg", factor) for axis, factor in _components(args[0]).items()}
    if kind == "add":
        first, second = map(_components, args)
        is_sum = first and second and first.keys().isdisjoint(second)
        return first | second if is_sum else {}
    if kind not in ("mul", "div"):
        return {}
    vector, factor = args
    if kind == "mul" and names(vector).isdisjoint(_AXES):
        factor, vector = args
    if not names(factor).isdisjoint(_AXES):
        return {}
    return {axis: node(kind, own, factor) for axis, own in _components(vector).items()}


def same_letter(answer: Tree, gold: Tree, letter_of: Callable[[Tree], str]) -> Tree:
    """The answer with the gold answer's letter, if both have one: `x + C` for `x + c`."""
    letter = letter_of(gold)
    own_letter = letter_of(answer)
    if letter and own_letter:
        return substituted(answer, own_letter, node("sym", letter))
    return answer


def parameter(tree: Tree) -> str:
    r"""The k, m or n of a general solution, the only letter besides \pi and `x =`, or ""."""
    letters = names(tree) - CONSTANTS
    for kind, args in subtrees(tree):
        if kind == "rel":
            letters -= {side.args[0] for side in args[1:] if side.kind == "sym"}
    if letters not in ({"k"}, {"m"}, {"n"}) or "\\pi" not in names(tree):
        return ""
    (letter,) = letters
    return "" if letter == "m" and _may_be_metres(tree) else letter


def described_letter(tree: Tree) -> str:
    r"""The k of `\{2k | k \in \mathbb{Z}\}`, the only letter of such a set, or ""."""
    letters = names(tree) - CONSTANTS
    if tree.kind != "described" or len(letters) != 1:
        return ""
    (letter,) = letters
    return letter


def _may_be_metres(tree: Tree) -> bool:
    r"""Whether an m follows \pi in a product, or the tree is too large to check."""
    parts = list(subtrees(tree))
    products = [args for kind, args in parts if kind == "mul"]
    return len(parts) > MOST_PARTS or any(
        "\\pi" in names(left) and "m" in names(right) for left, right in products
    )


def integration_constant(tree: Tree) -> str:
    """The `C` or `c` that is added to an expression in a usual variable such as x, or ""."""
    expression = sides_of(tree)[-1] if is_equation(tree) else tree
    constants = [term.args[0] for term in _terms(expression) if term in _INTEGRATION_CONSTANTS]
    if len(constants) != 1:
        return ""
    others = names(expression) - {constants[0], "e", "\\pi"}
    return constants[0] if others and others <= _INTEGRATED else ""


def _terms(tree: Tree) -> Iterator[Tree]:
    """The terms of a sum; none for other trees."""
    if tree.kind == "add":
        for operand in tree.args:
            yield operand
            yield from _terms(operand)


def same_variable(answer: Tree, gold: Tree) -> Tree:
    """The answer `f(t) = 2t` in the variable of the gold answer `f(x) = 3x`: `f(x) = 2x`."""
    head, *values = sides_of(answer)
    gold_head = sides_of(gold)[0]
    function, variable = _rule_head(head)
    gold_function, gold_variable = _rule_head(gold_head)
    is_taken = gold_variable in names(answer)
    if not function or function != gold_function or is_taken:
        return answer
    renamed = relation_node(signs_of(answer), [gold_head, *values])
    return substituted(renamed, variable, node("sym", gold_variable))


def _rule_head(head: Tree) -> tuple[str, str]:
    """The function and variable of `f(x)` or of a sequence such as `a_n`, or `NO_RULE`."""
    if head.kind == "mul":
        first, second = head.args
        if first.kind == second.kind == "sym":
            function = first.args[0]
            variable = second.args[0]
            if function in _FUNCTIONS and variable.islower():
                return function, variable
    if head.kind == "sym":
        sequence, _, index = head.args[0].partition("_")
        if index in _INDICES:
            return f"{sequence}_", index
    return NO_RULE


def quantity(tree: Tree) -> tuple[Tree, Unit | None]:
    """The value of the tree, and its unit if it has one."""
    if tree.kind in SIGN_UNITS:
        (value,) = tree.args
        return value, ((tree.kind, 1),)
    if tree.kind not in ("measure", "quantity"):
        return tree, None
    value, unit = tree.args
    if value.kind == "percent":
        return quantity(value)
    return value, unit or None


def gold_statements(tree: Tree) -> Iterator[Tree]:
    r"""A gold answer; if it is `exact \approx rounded`, also either side, since each is right."""
    yield tree
    if tree.kind != "rel":
        return
    *signs, last_sign = signs_of(tree)
    if last_sign != "approx":
        return
    *exact_sides, rounded = sides_of(tree)
    if len(exact_sides) > 1:
        yield relation_node(signs, exact_sides)
    elif not is_name(exact_sides[0]) or exact_sides[0] in _CONSTANTS:
        yield exact_sides[0]
    yield rounded


def with_equals_sign(statement: Tree) -> Tree:
    r"""`x = 3.14` for `x \approx 3.14`, where no exact value of x is given."""
    signs = list(signs_of(statement))
    signs[-1] = signs[-1].replace("approx", "=")
    return relation_node(signs, sides_of(statement))


def without_modulus(tree: Tree) -> Tree:
    r"""The number 3 for `3 \pmod 7` or `x = 3 \pmod 7`, if it is the least residue."""
    if tree.kind != "mod":
        return tree
    value, modulus = tree.args
    if is_equation(value) and len(sides_of(value)) == 2:
        name, residue = sides_of(value)
        if is_name(name):
            value = residue
    if value.kind != "num" or modulus.kind != "num":
        return tree
    size = value.args[0]
    is_least = size.denominator == 1 and 0 <= size < modulus.args[0]
    if is_least:
        return value
    return tree
