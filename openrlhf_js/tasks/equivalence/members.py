"""The single answers in a list, a set or a plus-minus, and the names that some are given."""

from __future__ import annotations

from openrlhf_js.tasks.equivalence.tree import Tree, number
from openrlhf_js.tasks.equivalence.units import SENTENCE

_PI = Tree("sym", ("\\pi",))
_OF_ANGLES = {_PI, *(Tree("sym", (name,)) for name in ("x", "t", "\\theta"))}
_VALUES = {_PI, Tree("sym", ("i",))}
_RUNS = [[Tree("sym", (name,)) for name in run] for run in ("abcd", "pqrs", "uvw", "xyz")]
_MULTIPLES = frozenset((
    "half", "twice", "thrice", "double", "triple", "minus", "negative", "opposite", "reciprocal",
    "inverse", "root", "square", "cube",
))  # fmt: skip
_COUNTERS = {Tree("sym", (name,)) for name in "kmn"}


def members(tree: Tree) -> list[Tree]:
    """The single answers in a list, set or plus-minus, or the tree itself."""
    if tree.kind == "empty":
        return []
    if tree.kind == "list" or _is_set(tree):
        items = tree.args if tree.kind == "list" else tree.args[2:]
        values = [item for item in items if not _is_proviso(item)]
        return [
            member for item in values for member in ([item] if _is_set(item) else members(item))
        ]
    if tree.kind == "rel" and is_many(tree.args[-1]):
        named = tree.args[0] == ("in",) and is_name(tree.args[1])
        if named or set(tree.args[0]) == {"="}:
            return members(tree.args[-1])
    if _has_sign(tree):
        return [_signed(tree, False), _signed(tree, True)]
    return [tree]


def _is_set(tree: Tree) -> bool:
    return tree.kind == "empty" or (tree.kind == "group" and tree.args[0] == "\\{")


def _is_proviso(tree: Tree) -> bool:
    r"""Whether the tree only says what a variable runs over: `k \in \mathbb{Z}`."""
    return tree.kind == "rel" and tree.args[0] == ("in",) and tree.args[2].kind == "field"


def with_one_parameter(tree: Tree) -> Tree:
    r"""The tree with the integer that a proviso introduces under one name, whatever it was called.

    `k \pi, k \in \mathbb{Z}` and `n \pi, n \in \mathbb{Z}` are then the same. The solutions of an
    equation between angles may leave the proviso out: `x = \frac{\pi}{4} + n \pi`.
    """
    provisos = [item for item in tree.args if _is_proviso(item)] if tree.kind == "list" else []
    if provisos:
        names = {item.args[1] for item in provisos}
    else:
        names = _names(tree) - _OF_ANGLES if _PI in _names(tree) else set()
    name = names.pop() if len(names) == 1 else None
    if name is None or name.kind != "sym" or not (provisos or name in _COUNTERS):
        return tree
    return _renamed(tree, name, Tree("sym", ("integer",)))


def _names(tree: Tree) -> set[Tree]:
    if tree.kind == "sym":
        return {tree}
    return set().union(*(_names(arg) for arg in tree.args if isinstance(arg, Tree)))


def renaming(tree: Tree, old: Tree, new: Tree) -> Tree | None:
    """The tree with a new name for a variable; None if another one has that name."""
    return None if new in _names(tree) else _renamed(tree, old, new)


def _renamed(tree: Tree, old: Tree, new: Tree) -> Tree:
    if tree == old:
        return new
    args = (_renamed(arg, old, new) if isinstance(arg, Tree) else arg for arg in tree.args)
    return Tree(tree.kind, tuple(args))


def is_name(tree: Tree) -> bool:
    """Whether the tree only names something: `x`, `f(x)`, `AB`, `Area`, `(x, y)`, `dy/dx`."""
    if tree.kind == "group":
        return tree.args[0] == "(" and tree.args[1] == ")" and _in_order(tree.args[2:])
    if tree.kind in ("mul", "div"):  # a multiple of a name is none
        return not _VALUES.intersection(tree.args) and all(map(is_name, tree.args))
    if tree.kind == "call":
        return tree.args[0] == "abs" and is_name(tree.args[1])
    if tree.kind == "pow":  # an inverse function
        return is_name(tree.args[0]) and tree.args[1] == Tree("neg", (number(1),))
    if tree.kind == "text":
        first, *_, last = tree.args[0].split() * 2
        multiple = first.lower() in _MULTIPLES and (
            len(last) == 1 or last == "of" or not last.islower()
        )  # `half of x`
        return not multiple and not SENTENCE.intersection(tree.args[0].lower().split())
    return tree.kind == "sym"


def _in_order(names: tuple[Tree, ...]) -> bool:
    """Whether all are names in the order that names have: `(y, x)` is `(x, y)` turned round."""
    runs = [[name for name in names if name in run] for run in _RUNS]
    return all(map(is_name, names)) and all(run == sorted(run) for run in runs)


def is_many(tree: Tree) -> bool:
    """Whether the tree is written as several answers, or none."""
    return tree.kind == "list" or _is_set(tree) or _has_sign(tree)


def named_tuple(tree: Tree) -> Tree:
    """The tuple that `x = 1, y = 2` gives, in the order of the names; else the list itself."""
    if not all(
        item.kind == "rel" and item.args[0] == ("=",) and item.args[1].kind == "sym"
        for item in tree.args
    ):
        return tree
    values = {item.args[1].args[0]: item.args[2] for item in tree.args}
    if len(values) != len(tree.args):
        return tree
    return Tree("group", ("(", ")", *(values[name] for name in sorted(values))))


def _has_sign(tree: Tree) -> bool:
    return tree.kind == "pm" or any(isinstance(arg, Tree) and _has_sign(arg) for arg in tree.args)


def _signed(tree: Tree, negative: bool) -> Tree:
    """The tree with every plus-minus read as a plus, or every one as a minus."""
    args = tuple(_signed(arg, negative) if isinstance(arg, Tree) else arg for arg in tree.args)
    if tree.kind == "pm":
        left, right = args
        right = Tree("neg", (right,)) if negative else right
        return right if left == number(0) else Tree("add", (left, right))
    return Tree(tree.kind, args)


def is_name_sum(tree: Tree) -> bool:
    """Whether the tree adds up names: `m + n`."""
    return tree.kind == "add" and all(is_name(arg) or is_name_sum(arg) for arg in tree.args)


def has_ellipsis(tree: Tree) -> bool:
    """Whether something is left out in it: `1 + 2 + ... + n`."""
    return tree == Tree("sym", ("...",)) or any(
        isinstance(arg, Tree) and has_ellipsis(arg) for arg in tree.args
    )
