"""The trees that answers are read into.

Kinds of node and their arguments, where `tree` is any node:

    num Fraction - sym name - text words - inf - field name
    neg tree - add/mul/div/pow tree tree - fact/degree/percent tree - call name trees...
    apply name tree - measure/quantity tree unit - group brackets trees... - list trees...
    rel signs sides... - mod tree modulus - union/minus/meet/both tree tree
    parts labels readings... (each a tuple of trees)

A list is several answers, or conditions that all hold; a union has alternatives. The unit of a
measure, in words, may be left out; that of a quantity may not, since its letters may be variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

CONSTANTS = frozenset(["e", "i", "\\pi"])  # names that stand for a number


class NotRead(Exception):
    """The text cannot be read; the message says why, in a few words."""


class Tree(NamedTuple):
    """A node: its kind and its arguments, as listed at the top of this file."""

    kind: str
    args: tuple[Any, ...]


def node(kind: str, *args: Any) -> Tree:
    """A tree of these arguments: `node("group", "()", x, y)` is a pair."""
    return Tree(kind, args)


def number(value: Fraction | int) -> Tree:
    """A leaf that holds an exact number."""
    return Tree("num", (Fraction(value),))


def items_of(group: Tree) -> tuple[Tree, ...]:
    """What the brackets of a group hold."""
    return group.args[1:]


def relation_node(signs: Iterable[str], sides: Iterable[Tree]) -> Tree:
    """A chain such as `0 < x < 1`, with one side more than signs."""
    return Tree("rel", (tuple(signs), *sides))


def signs_of(relation: Tree) -> tuple[str, ...]:
    """The signs of a relation from left to right."""
    signs: tuple[str, ...] = relation.args[0]
    return signs


def sides_of(relation: Tree) -> tuple[Tree, ...]:
    """The sides of a relation from left to right."""
    return relation.args[1:]


def subtrees(tree: Tree) -> Iterator[Tree]:
    """The tree and all trees in it."""
    yield tree
    for arg in tree.args:
        if isinstance(arg, Tree):
            yield from subtrees(arg)


def names(tree: Tree) -> set[str]:
    """The names in a tree."""
    return {subtree.args[0] for subtree in subtrees(tree) if subtree.kind == "sym"}


def substituted(tree: Tree, name: str, value: Tree) -> Tree:
    """The tree with a value in place of a name."""
    return replaced(tree, node("sym", name), value)


def replaced(tree: Tree, part: Tree, value: Tree) -> Tree:
    """The tree with a value in place of a part."""
    if tree == part:
        return value
    args = [replaced(arg, part, value) if isinstance(arg, Tree) else arg for arg in tree.args]
    return Tree(tree.kind, tuple(args))


def is_group(tree: Tree, brackets: str) -> bool:
    """Whether the tree is a group in these brackets, `()`, `[]`, `{}`, `:` or an interval's."""
    return tree.kind == "group" and tree.args[0] == brackets


def is_set(tree: Tree) -> bool:
    """Whether the tree is a set that lists its members."""
    return is_group(tree, "{}")


def is_equation(tree: Tree) -> bool:
    """Whether the tree is a relation with equals signs alone."""
    return tree.kind == "rel" and set(signs_of(tree)) == {"="}


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())
