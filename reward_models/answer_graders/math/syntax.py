r"""Parses an answer's canonical text into a tree, or refuses it; nothing is ever run.

Adjacent letters are a product (`ab`), a function (`sin`) or a word (`apples`), depending on the
context. `tree` lists the kinds of node.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

from answer_graders.math.conversion import MOST_PARTS, Part, compound
from answer_graders.math.structures import (
    Rows,
    determinant,
    diagonal,
    rows_of,
    transposed,
    written_out,
)
from answer_graders.math.tokens import FUNCTIONS, Token, decimal, tokens_of
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
    words,
)
from answer_graders.math.units import unit_of
from answer_graders.math.vocabulary import SIZES

_GREEK = words(
    """pi theta alpha beta gamma delta lambda mu omega phi epsilon sigma rho tau psi xi eta zeta
    kappa nu chi Gamma Delta Theta Lambda Phi Psi Omega Sigma ell hbar"""
)
_LIST, _BOTH, _RELATION, _SET, _RATIO, _MEASURE, _SUM, _PRODUCT, _FACTOR, _POWER = range(10)
_ENDS = -1  # precedence of a sign that ends every tree
_INFIX = {  # precedence of a sign, and the kind of its node
    **dict.fromkeys((",", ";", "\\\\", "vee", "and", "or"), (_LIST, "list")),
    "wedge": (_BOTH, "both"),
    **dict.fromkeys(("=", "<", ">", "<=", ">=", "!=", "in", "approx"), (_RELATION, "rel")),
    "pmod": (_RELATION, "mod"),
    "cup": (_SET, "union"),
    "setminus": (_SET, "minus"),
    "cap": (_SET, "meet"),
    ":": (_RATIO, "group"),
    "+": (_SUM, "add"),
    "-": (_SUM, "add"),
    "*": (_PRODUCT, "mul"),
    "/": (_PRODUCT, "div"),
    "^": (_POWER, "pow"),
    "!": (_POWER, "fact"),
    "%": (_POWER, "percent"),
}
_BRACKETS = {"()": "()", "[]": "[]", "\\{\\}": "{}"}
_INTERVALS = {"(]": "(]", "[)": "[)", "][": "()", "]]": "(]", "[[": "[)"}
_BOTH_SIGNS = re.compile(r"\\(pm|mp)(?![a-z])")
_LONGEST_ARGUMENT = 16  # tokens between the parentheses of `f(3) =`
_TRANSPOSE = node("sym", "T")
_REALS = node("group", "()", node("neg", node("inf")), node("inf"))
_CONSTANTS = words("- / , { } frac sqrt pi infty")  # signs allowed between them, besides numbers


def read(
    text: str, thousands: bool = True, units: bool = False, long_compounds: bool = True
) -> Tree:
    """The tree of a canonical text; NotRead if it has none, RecursionError if it is too deep.

    `thousands`: whether commas may group the digits of a number. `units`: reads letters after
    numbers as units, NotRead if there are none. `long_compounds`: whether commas may separate the
    parts of one quantity, as in `2 h, 5 min and 3 s`, which may also be a list.
    """
    if _BOTH_SIGNS.search(text):
        upper_text = _BOTH_SIGNS.sub(_upper_sign, text)
        lower_text = _BOTH_SIGNS.sub(_lower_sign, text)
        upper = read(upper_text, thousands, units, long_compounds)
        lower = read(lower_text, thousands, units, long_compounds)
        if upper.kind == "list" or is_set(upper):
            args = dict.fromkeys(upper.args + lower.args)
            return Tree(upper.kind, tuple(args))
        return node("list", upper, lower)
    tokens = tokens_of(text, thousands, units)
    if units and all(token.kind != "unit" for token in tokens):
        raise NotRead("no unit")
    parser = _Parser(tokens, long_compounds)
    tree = parser.tree()
    parser.expect("end")
    return tree


def _upper_sign(sign: re.Match[str]) -> str:
    return "+" if sign[1] == "pm" else "-"


def _lower_sign(sign: re.Match[str]) -> str:
    return "-" if sign[1] == "pm" else "+"


class _Parser:
    """A Pratt parser: `tree(least)` continues while signs have at least this precedence."""

    def __init__(self, tokens: list[Token], long_compounds: bool = True):
        self.long_compounds = long_compounds
        self.tokens = tokens + 2 * [Token("end", "")]
        self.position = 0
        self.end_of_operand = -1  # the position after the last exponent or command

    @property
    def next(self) -> Token:
        return self.tokens[self.position]

    @property
    def second(self) -> Token:
        return self.tokens[self.position + 1]

    def take(self) -> Token:
        """Moves past the next token, but never past the end, and returns it."""
        token = self.next
        if token.kind != "end":
            self.position += 1
        return token

    def takes(self, *signs: str) -> str:
        """Takes the next token if it is one of these signs, and returns its text, else ""."""
        if self.next.kind == "sign" and self.next.text in signs:
            return self.take().text
        return ""

    def expect(self, text: str) -> None:
        """Takes the next token; NotRead unless it has this text or kind."""
        if text not in (self.next.text, self.next.kind):
            raise NotRead(f"expected {text} before {self.next.text or 'the end'!a}")
        self.take()

    def enclosed(self) -> str:
        """The text of one token, or of the tokens in braces."""
        in_braces = self.takes("{")
        text = self.take().text
        while in_braces and not self.takes("}"):
            if self.next.kind == "end":
                raise NotRead("braces do not match")
            text += self.take().text
        return text

    # signs between trees

    def tree(self, least: int = _LIST) -> Tree:
        tree = self.start(least)
        while True:
            level = self.level()
            if level < least:
                return tree
            tree = self.measured(tree) if level == _MEASURE else self.joined(tree, level)

    def level(self) -> int:
        """The precedence of what comes next."""
        if self.next.kind in ("word", "unit"):
            return _MEASURE
        if self.starts_factor():
            return _PRODUCT
        level, _ = _INFIX.get(self.next.text, (_ENDS, ""))
        return level

    def start(self, least: int) -> Tree:
        """Parses the beginning of a tree."""
        if least <= _RELATION:
            self.takes("=", "approx")  # `= 5`
        sign = self.takes("+", "-")
        if sign:
            value = self.tree(_PRODUCT)
            return negative(value) if sign == "-" else value
        phrase: list[str] = []
        while self.next.kind == "word":
            phrase.append(self.take().text)
        if phrase:
            return node("text", " ".join(phrase))
        return self.primary()

    def measured(self, value: Tree) -> Tree:
        """The value with the unit after it: `million people`, `km / h`, `cm ^ 2`."""
        while True:
            size = SIZES.get(self.next.text.lower().removesuffix("s"))
            if not size:
                break
            value = node("mul", value, number(size))
            self.take()
        if self.next.kind == "unit":
            return self.quantity(value)
        unit: list[str] = []
        while True:
            goes_on = self.next.text in ("/", "*") and self.second.kind in ("word", "name")
            if self.next.kind == "word":
                unit.append(self.take().text)
            elif goes_on:
                unit.append(self.take().text)
                unit.append(self.take().text)
            elif unit and self.takes("^"):
                unit.append("^")
                unit.append(self.enclosed())
            elif unit:
                return node("measure", value, unit_of(" ".join(unit)))
            else:
                return value

    def quantity(self, value: Tree) -> Tree:
        """The value with the unit after it, and with the parts that follow: `1 h 30 min`."""
        if names(value) - CONSTANTS:
            raise NotRead("a number with a unit has no variables")
        unit = self.next.unit
        parts = [self.part(value)]
        end = self.position
        while len(parts) <= MOST_PARTS:
            if self.long_compounds and self.takes(",", "and"):
                self.takes("and")
            if self.next.kind != "number" and self.next.text != "{":
                break
            part = self.primary()
            if self.next.kind != "unit":
                break
            parts.append(self.part(part))
            end_of_parts = self.position
        total = compound(parts) if len(parts) > 1 else None
        if total is None:
            self.position = end
            return node("quantity", value, unit)
        self.position = end_of_parts
        return node("quantity", total, unit)

    def part(self, value: Tree) -> Part:
        """The value with the unit that comes next."""
        token = self.take()
        return Part(value, token.unit, token.text.strip(" \\"))

    def joined(self, left: Tree, level: int) -> Tree:
        """The tree of both sides of the next sign, or of a product without a sign."""
        sign = "*" if self.starts_factor() else self.take().text
        _, kind = _INFIX[sign]
        if kind == "pow":
            if self.takes("circ"):
                return node("degree", left)
            return self.power(left)
        if level == _POWER:
            return node(kind, left)
        if kind == "mod":
            return node("mod", left, self.primary())
        if kind == "list":
            sign = self.last_conjunction(sign)
            if self.takes("ldots"):
                return self.progression(left)
        right = self.tree(level + 1)
        if kind == "list":
            return listed(left, sign, right)
        if kind == "rel":
            return related(left, sign, right)
        if kind == "both" and "rel" in (left.kind, right.kind):
            return node("list", left, right)
        if level == _RATIO:
            return self.ratio(left, right)
        if kind == "mul":
            return product(left, right)
        if sign == "-" and is_set(right):
            return node("minus", left, right)
        if sign == "-":
            right = node("neg", right)
        return node(kind, left, right)

    def last_conjunction(self, sign: str) -> str:
        """The last of several adjacent signs: `, or`."""
        while True:
            conjunction = self.takes("and", "or")
            if not conjunction:
                return sign
            sign = conjunction

    def progression(self, left: Tree) -> Tree:
        r"""The list `1, 2, \ldots, 9` with all its terms; the dots have been taken."""
        self.takes(",", ";")
        self.takes("and", "or")
        terms = left.args if left.kind == "list" else [left]
        return node("list", *written_out(terms, self.tree(_LIST + 1)))

    def power(self, base: Tree) -> Tree:
        """A power; a vector or a matrix to the power of T is transposed."""
        is_column = self.tokens[self.position - 3].text == "]"  # `([1],[2])^`
        exponent = self.exponent()
        if self.next.text == "^" and self.second.text != "circ":  # `2^3^2` is 2^9
            if exponent.kind == "neg":
                raise NotRead("a minus before a power in an exponent")
            self.take()
            exponent = self.power(exponent)
        if exponent == _TRANSPOSE and (is_group(base, "()") or is_group(base, "[]")):
            return transposed(base, is_column and is_group(base, "()"))
        return node("pow", base, exponent)

    def ratio(self, first: Tree, second: Tree) -> Tree:
        """A ratio: a quotient of two terms, or a group of quotients by the last of several."""
        terms = [first, second]
        while self.takes(":"):
            terms.append(self.tree(_RATIO + 1))
        last = terms.pop()
        shares = [node("div", term, last) for term in terms]
        if len(shares) == 1:
            return shares[0]
        return node("group", ":", *shares)

    def exponent(self) -> Tree:
        negated = self.takes("-")
        tree = self.primary()
        self.end_of_operand = self.position
        return node("neg", tree) if negated else tree

    def starts_factor(self) -> bool:
        """Whether the next token continues a product without a sign."""
        kind, text, _ = self.next
        if kind == "number":
            return self.number_is_factor()
        if text == "[":  # may group, or close `[0, 1[`
            return self.second.kind in ("number", "name") or self.second.text == "("
        return kind == "name" or (kind == "sign" and text in _FACTORS)

    def number_is_factor(self) -> bool:
        """Whether a number continues a product: after `n!`, `(n+1)`, `2^3`, or as in `n2^n`."""
        before = self.tokens[self.position - 1]
        if before.text in ("!", ")") or self.position == self.end_of_operand:
            return True
        return self.second.text == "^" and before.kind == "name"

    # what comes between signs

    def primary(self) -> Tree:
        kind, text, _ = self.take()
        if kind == "number":
            return number(decimal(text))
        if kind == "name":
            return self.applied(self.symbol(text))
        if text in ("max", "min") and self.next.text == "=":
            return self.symbol(text)
        if kind == "sign" and text in _COMMANDS:
            tree = _COMMANDS[text](self)
            self.end_of_operand = self.position
            return tree
        if kind == "sign" and text in FUNCTIONS:
            return self.call(text)
        if kind == "sign" and text in _GREEK:
            return self.symbol("\\" + text)
        if text in ("(", "[", "]", "\\{"):
            return self.group(text)
        if text == "{":
            tree = self.tree()
            self.expect("}")
            return tree
        raise NotRead(f"unexpected {ascii(text) if text else 'end'}")

    def symbol(self, name: str) -> Tree:
        """A name with its primes and indices."""
        while True:
            sign = self.takes("'", "_")
            if not sign:
                return node("sym", name)
            name += sign
            if sign == "_":
                name += self.enclosed()

    def applied(self, function: Tree) -> Tree:
        """`f(3)` before an equals sign, which is not a product; else the name alone."""
        if self.next.text != "(":
            return function
        following = self.tokens[self.position + 1 : self.position + _LONGEST_ARGUMENT]
        for token, behind in pairwise(following):
            if token.text == ")" and behind.text == "=":
                return node("apply", function, self.primary())
            if token.kind != "number" and token.text not in _CONSTANTS:
                return function
        return function

    def call(self, name: str) -> Tree:
        r"""A function with its base or power (`\log_2`, `\sin^2`) and its argument."""
        base = power = None
        while True:
            sign = self.takes("_", "^")
            if sign == "_" and name in ("log", "ln", "lg"):
                base = self.exponent()
            elif sign:
                power = self.exponent()
            else:
                break
        arguments = self.arguments()
        if base:
            arguments.append(base)
            name = "log_base"
        rows = _rows_of_determinant(name, arguments)
        tree = determinant(rows) if rows else node("call", name, *arguments)
        return node("pow", tree, power) if power else tree

    def arguments(self) -> list[Tree]:
        """The arguments in brackets after a function, or without brackets the factors after it."""
        opening = self.takes("(", "{")
        if opening:
            arguments = self.items()
            self.expect(")" if opening == "(" else "}")
            return arguments
        argument = self.tree(_FACTOR)
        while self.starts_factor() and self.next.text not in FUNCTIONS | {"(", "["}:
            argument = node("mul", argument, self.tree(_FACTOR))
        return [argument]

    def items(self) -> list[Tree]:
        tree = self.tree()
        if tree.kind == "list":
            return list(tree.args)
        return [tree]

    def group(self, opening: str) -> Tree:
        """A tuple, an interval, a set, or an expression that brackets only group."""
        is_first = self.position == 1
        is_letter = self.next.kind == "name" or self.next.text in _GREEK
        behind_letter = self.second.text if is_letter else ""
        items = [] if self.next.text == "\\}" else self.items()
        if opening == "\\{" and self.takes("mid", "|"):
            return self.described_set(items, behind_letter)
        closed = opening + self.take().text
        brackets = _BRACKETS.get(closed)
        if not brackets and len(items) == 2:
            brackets = _INTERVALS.get(closed)
        if not brackets:
            raise NotRead("brackets do not match")
        if len(items) != 1 or brackets == "{}":
            return node("group", brackets, *items)
        item = items[0]
        if brackets == "()" and is_group(item, "[]"):  # the rows of a matrix
            return node("group", brackets, *items)
        is_whole = is_first and self.next.kind == "end"
        if brackets == "[]" and is_whole and item.kind != "group":
            return node("group", brackets, *items)
        return item

    def described_set(self, head: list[Tree], behind_letter: str) -> Tree:
        r"""`\{ x | conditions \}` and `\{ x \in S | conditions \}` are given by their conditions.

        Before the bar of another set stands what its members are made of: `\{ 2k | k \in S \}`.
        """
        conditions = self.items()
        self.expect("\\}")
        if behind_letter in ("in", "mid", "|"):
            domains = [item for item in head if behind_letter == "in" and item != _REALS]
            are_sets = any(domain.kind != "field" for domain in domains)
            return _one_or_node("meet" if are_sets else "list", conditions + domains)
        member = _one_or_node("list", head)
        if len(names(member) - CONSTANTS) > 1 and any(item.kind != "rel" for item in conditions):
            raise NotRead("it is unclear which letter is in which set")
        return node("described", member, _one_or_node("list", conditions))


_COMMANDS: dict[str, Callable[[_Parser], Tree]] = {
    "frac": lambda parser: node("div", parser.primary(), parser.primary()),
    "binom": lambda parser: node("call", "binom", parser.primary(), parser.primary()),
    "infty": lambda _: node("inf"),
    "diag": lambda parser: diagonal(parser.primary()),
    "emptyset": lambda _: node("group", "{}"),
    "bar": lambda parser: node("sym", "\\bar " + parser.enclosed()),  # a name of its own
    "neg": lambda parser: node("call", "not", parser.primary()),
    "mathbb": lambda parser: node("field", parser.enclosed()),
    "sqrt": lambda parser: node("call", "root", number(2), parser.primary()),
    "root": lambda parser: node("call", "root", parser.primary(), parser.primary()),
}
_FACTORS = FUNCTIONS | _GREEK | words("frac binom bar root ( {")


def _one_or_node(kind: str, trees: list[Tree]) -> Tree:
    """The only tree, or a node of this kind with several."""
    return trees[0] if len(trees) == 1 else node(kind, *trees)


def _rows_of_determinant(function: str, arguments: list[Tree]) -> Rows | None:
    r"""The matrix of `\det(M)`, `\det([1,2],[3,4])` or `|M|`, or None if there is none."""
    if function not in ("det", "abs"):
        return None
    if len(arguments) == 1:
        return rows_of(arguments[0])
    return rows_of(node("group", "()", *arguments))


# the trees of two sides


def listed(left: Tree, sign: str, right: Tree) -> Tree:
    """A longer list, or a union of relations that are alternatives, not a system: `x<1 or x=2`.

    Equations for one name are a list of values, whatever joins them.
    """
    items = list(left.args) if left.kind == "list" else [left]
    items.append(right)
    are_alternatives = sign in ("or", "vee") and all(
        item.kind in ("rel", "union") for item in items
    )
    if are_alternatives and not _are_values_of_one_name(items):
        return node("union", *items)
    return node("list", *items)


def _are_values_of_one_name(alternatives: list[Tree]) -> bool:
    """Whether these are equations such as `x = 1`, `x = 2`, but not `a = 0`, `b = 0`."""
    if not all(is_equation(item) for item in alternatives):
        return False
    first_sides = [sides_of(item)[0] for item in alternatives]
    return any(side.kind != "sym" for side in first_sides) or len(set(first_sides)) == 1


def related(left: Tree, sign: str, right: Tree) -> Tree:
    """A relation, or a chain of them: `0 < x < 1`."""
    is_name = left.kind == "sym" or is_group(left, "()")
    if sign == "in" and is_name:
        return right  # `x in S` states S
    if left.kind == "rel":
        return relation_node([*signs_of(left), sign], [*sides_of(left), right])
    return relation_node([sign], [left, right])


def product(left: Tree, right: Tree) -> Tree:
    """A product; a number before a vector or a matrix multiplies its elements."""
    if is_group(right, "()") and left.kind != "group" and not names(left) - {"\\pi"}:
        return scaled(left, right)
    return node("mul", left, right)


def scaled(factor: Tree, matrix: Tree) -> Tree:
    """A factor times each element of a vector, or of the rows of a matrix."""
    if matrix.kind != "group":
        return node("mul", factor, matrix)
    elements = [scaled(factor, element) for element in items_of(matrix)]
    return node("group", matrix.args[0], *elements)


def negative(value: Tree) -> Tree:
    """The value with its sign changed."""
    if is_group(value, "()"):
        return scaled(number(-1), value)
    return node("neg", value)
