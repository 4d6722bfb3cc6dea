"""The trees that answers are read into.

Kinds of node and their arguments, where `tree` is any node:

    num Fraction - sym name - text words - inf - field name
    neg tree - add/mul/div/pow tree tree - fact/degree/percent tree - call name trees...
    apply name tree - measure/quantity tree unit - group brackets trees... - list trees...
    rel signs sides... - mod tree modulus - union/minus/meet/both tree tree
    described tree conditions - reply word readings (a tuple of trees)
    parts labels readings... (each a tuple of trees)

A list holds several answers, or conditions that must all hold; a union holds alternatives. The unit
of a measure is in words and may be left out; that of a quantity may not, since its letters may be
variables. `kind_of` returns the kind of answer that a whole tree is, as a type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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
    """A tree with these arguments: `node("group", "()", x, y)` is a pair."""
    return Tree(kind, args)


def number(value: Fraction | int) -> Tree:
    """A leaf that holds an exact number."""
    return Tree("num", (Fraction(value),))


def items_of(group: Tree) -> tuple[Tree, ...]:
    """The items inside the brackets of a group."""
    return group.args[1:]


def relation_node(signs: Iterable[str], sides: Iterable[Tree]) -> Tree:
    """A chain such as `0 < x < 1`, with one more side than signs."""
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
    """Whether the tree is a relation with only equals signs."""
    return tree.kind == "rel" and set(signs_of(tree)) == {"="}


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


# kinds of answers


class Rounded(NamedTuple):
    r"""A relation that ends in `exact \approx rounded`."""

    exact: Tree
    rounded: Tree


class Condition(NamedTuple):
    """Another relation, or a set of reals."""

    tree: Tree


class Parts(NamedTuple):
    """Answers with labels, such as (a) and (b)."""

    labels: tuple[int, ...]


class Reply(NamedTuple):
    """Yes or no, and the readings of what follows."""

    word: str
    others: tuple[Tree, ...]


class Described(NamedTuple):
    r"""A set that says what its members are made of: `\{2k | k \in \mathbb{Z}\}`."""

    member: Tree
    conditions: Tree


class Residue(NamedTuple):
    """A residue class, or an equation that states one."""

    value: Tree
    modulus: Tree


class Several(NamedTuple):
    """A list, or a set that lists its members."""

    tree: Tree


class Group(NamedTuple):
    """A tuple, a matrix, an interval or a ratio."""

    tree: Tree


class Statements(NamedTuple):
    """Statements that must all hold."""

    tree: Tree


class Words(NamedTuple):
    """Words, or the name of a field such as the integers."""

    text: str


class Number(NamedTuple):
    """A number that is written out."""

    value: Fraction


class Numeral(NamedTuple):
    """The digits of a whole number, and their base as it is written."""

    digits: str
    base: str


class Expression(NamedTuple):
    """Anything else that has a value, perhaps with a unit."""

    tree: Tree


Kind = (
    Rounded
    | Condition
    | Parts
    | Reply
    | Described
    | Residue
    | Several
    | Group
    | Statements
    | Words
    | Number
    | Numeral
    | Expression
)


def kind_of(tree: Tree) -> Kind:
    """Returns what kind of answer a tree is."""
    return _KINDS.get(tree.kind, Expression)(tree)


def _kind_of_relation(relation: Tree) -> Kind:
    if signs_of(relation)[-1] != "approx":
        return Condition(relation)
    *_, exact, rounded = sides_of(relation)
    return Rounded(exact, rounded)


def _kind_of_list(several: Tree) -> Kind:
    """A list with an inequality is a set of reals."""
    for item in several.args:
        if item.kind == "rel" and not is_equation(item):
            return Condition(several)
    return Several(several)


def _kind_of_symbol(symbol: Tree) -> Kind:
    (name,) = symbol.args
    if not name[:1].isdigit():
        return Expression(symbol)
    digits, _, base = name.partition("_")
    return Numeral(digits, base)


_KINDS: dict[str, Callable[[Tree], Kind]] = {
    "rel": _kind_of_relation,
    **dict.fromkeys(("union", "minus", "meet"), Condition),
    "parts": lambda tree: Parts(tree.args[0]),
    "reply": lambda tree: Reply(*tree.args),
    "described": lambda tree: Described(*tree.args),
    "mod": lambda tree: Residue(*tree.args),
    "list": _kind_of_list,
    "group": lambda tree: Several(tree) if is_set(tree) else Group(tree),
    "both": Statements,
    "text": lambda tree: Words(*tree.args),
    "field": lambda tree: Words(*tree.args),
    "num": lambda tree: Number(*tree.args),
    "sym": _kind_of_symbol,
}
