r"""Read an answer's canonical text into a tree: a number, expression, list, tuple, relation, matrix...

A hand-written recursive descent over a fixed grammar: it builds tuples and calls nothing, so a text
can do no more than be refused. Depth and length are capped.

Kinds of node and their arguments, where `tree` is any node:

    num Fraction · base (value, text) · sym name · text words · inf · empty · field name
    neg tree · add tree tree · mul tree tree · div tree tree · pow tree tree · pm tree tree
    fact tree · deg tree · pct tree · call name trees... · measure (tree, unit)...
    group opening closing trees... · list trees... · ratio trees... · matrix rows...
    rel operators sides... · union tree tree · minus tree tree · meet tree tree
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from openrlhf_js.tasks.math_tokens import FUNCTIONS, NotRead, Token, recurring, tokens

MAX_DEPTH = 40
_RELATIONS = {
    "=": "=", "==": "=", "<": "<", ">": ">", "<=": "<=", ">=": ">=", "!=": "!=", "leq": "<=", "geq": ">=",
    "neq": "!=", "in": "in", "equiv": "=", "approx": "=", "sim": "=", "rightarrow": "=",
}  # fmt: skip
_OPENING = {
    "(": ")",
    "[": "]",
    "\\{": "\\}",
    "langle": "rangle",
    "lfloor": "rfloor",
    "lceil": "rceil",
}
_SET_SIGNS = {"cup": "union", "setminus": "minus", "cap": "meet"}
_MATRICES = frozenset("matrix pmatrix bmatrix vmatrix Bmatrix array smallmatrix".split())
_CONSTANTS = frozenset(
    "pi theta alpha beta gamma delta lambda mu omega phi epsilon sigma rho tau".split()
)
_CONSTANTS |= frozenset(
    "psi xi eta zeta kappa nu chi Gamma Delta Theta Lambda Phi Psi Omega Sigma ell".split()
)
_MANY = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12}


class Tree(NamedTuple):
    """A node: its kind and its arguments, as listed at the top of this file."""

    kind: str
    args: tuple[Any, ...]


def number(value: Fraction | int) -> Tree:
    """A leaf that holds an exact number."""
    return Tree("num", (Fraction(value),))


def read(text: str, grouped: bool = True) -> Tree:
    """The tree of a canonical text (`math_text.normal`).

    Raises:
        NotRead: if the grammar has no place for it.
    """
    parser = _Parser(tokens(text, grouped))
    tree = parser.listed()
    parser.expect("end")
    return tree


class _Parser:
    def __init__(self, found: list[Token]):
        self.tokens = found
        self.at = 0
        self.depth = 0
        self.bars = sum(token.text == "|" for token in found)
        self.in_set = 0

    # Moving over the tokens

    @property
    def next(self) -> Token:
        return self.tokens[self.at]

    def take(self) -> Token:
        token = self.tokens[self.at]
        self.at += token.kind != "end"
        self.bars -= token.text == "|"
        return token

    def sees(self, *texts: str) -> bool:
        token = self.next
        return token.text in texts and token.kind in ("sign", "command")

    def takes(self, *texts: str) -> bool:
        found = self.sees(*texts)
        if found:
            self.take()
        return found

    def expect(self, text: str) -> None:
        token = self.take()
        if token.text != text and token.kind != text:
            raise NotRead(f"expected {text} before {ascii(token.text or 'the end')}")

    # Lists, relations and sets

    def listed(self) -> Tree:
        items = self.items()
        return items[0] if len(items) == 1 else Tree("list", tuple(items))

    def items(self) -> list[Tree]:
        items = [self.relation()]
        while self.separator():
            items.append(self.relation())
        return items

    def separator(self) -> bool:
        start = self.at
        while self.next.kind == "separator" or self.sees(",", ";", "\\\\", "vee"):
            self.take()
        return self.at > start

    def relation(self) -> Tree:
        if self.sees("=", "approx"):  # `= 5`
            self.take()
        sides, operators = [self.union()], []
        while self.next.text in _RELATIONS and self.next.kind in ("sign", "command"):
            operators.append(_RELATIONS[self.take().text])
            sides.append(self.union())
        return Tree("rel", (tuple(operators), *sides)) if operators else sides[0]

    def union(self) -> Tree:
        tree = self.ratio()
        while self.next.kind == "command" and self.next.text in _SET_SIGNS:
            tree = Tree(_SET_SIGNS[self.take().text], (tree, self.ratio()))
        return tree

    def ratio(self) -> Tree:
        parts = [self.measure()]
        while not self.in_set and self.sees(":"):
            self.take()
            parts.append(self.measure())
        return parts[0] if len(parts) == 1 else Tree("ratio", tuple(parts))

    # Sums, products, powers

    def measure(self) -> Tree:
        """A sum with units behind it (`5 feet 6 inches`) or money before it; or words alone."""
        if self.next.kind == "word" and not self.next.text.lower() == "rs":
            return Tree("text", (" ".join(self.words()),))
        parts = []
        while True:
            negative = (
                self.sees("-") and self.tokens[self.at + 1].kind == "money" and bool(self.take())
            )
            money = (
                self.take().text
                if self.next.kind == "money" or self.next.text.lower() == "rs"
                else ""
            )
            value = self.sum()
            value = Tree("neg", (value,)) if negative else value
            unit = self.unit()
            if unit and unit.split(" ")[0].lower() in _MANY:
                many, _, unit = unit.partition(" ")
                value = Tree("mul", (value, number(_MANY[many.lower()])))
            if money and unit not in ("", "usd", "dollars"):
                unit = f"{money} {unit}"
            parts.append((value, unit or money))
            if not (unit and self.next.kind == "number"):
                break
        if parts == [(parts[0][0], "")]:
            return parts[0][0]
        return Tree("measure", tuple(parts))

    def words(self) -> list[str]:
        words = []
        while self.next.kind in ("word", "name", "number") or self.sees("'"):
            words.append(self.take().text)
        return words

    def unit(self) -> str:
        pieces: list[str] = []
        while self.next.kind in ("word", "money") or (
            (pieces or self.sees("/")) and self.unit_sign()
        ):
            pieces.append(self.take().text)
            if pieces[-1] == "^":
                braced = self.takes("{")
                minus = "-" if self.takes("-") else ""
                pieces.append(minus + self.take().text)
                if braced:
                    self.expect("}")
        return " ".join(pieces)

    def unit_sign(self) -> bool:
        after = self.tokens[min(self.at + 1, len(self.tokens) - 1)]
        if self.sees("/", "*"):
            return after.kind in ("word", "name")
        return self.sees("^") or (
            self.next.kind == "name" and self.tokens[self.at - 1].text in "/*"
        )

    def sum(self) -> Tree:
        if self.depth > MAX_DEPTH:
            raise NotRead(f"nested deeper than {MAX_DEPTH}")
        self.depth += 1
        tree = self.signed()
        while self.sees("+", "-", "pm", "mp"):
            sign = self.take().text
            right = self.product()
            tree = _added(tree, sign, right)
        self.depth -= 1
        return tree

    def signed(self) -> Tree:
        if self.sees("+", "-", "pm", "mp"):
            sign = self.take().text
            return _added(None, sign, self.signed_once())
        return self.product()

    def signed_once(self) -> Tree:
        if self.takes("-"):
            return Tree("neg", (self.product(),))
        return self.product()

    def product(self) -> Tree:
        tree = self.factor()
        plain_ratio = False  # a/b of two numbers: what follows multiplies the whole
        while True:
            if self.takes("*"):
                tree = _multiplied(tree, self.signed_factor())
            elif self.sees("/") and self.tokens[self.at + 1].kind == "word":
                return tree  # a price per hour
            elif self.takes("/"):
                right = self.signed_factor()
                plain_ratio = tree.kind == "num" and right.kind == "num"
                while not plain_ratio and self.starts_factor():
                    right = Tree("mul", (right, self.factor()))
                tree = Tree("div", (tree, right))
            elif self.mixed(tree):
                tree = self.with_fraction(tree)
            elif self.starts_factor():
                tree = _multiplied(tree, self.factor())
            elif self.takes("bmod", "mod"):
                tree = Tree("call", ("mod", tree, self.factor()))
            elif self.takes("pmod"):
                tree = Tree("measure", ((tree, f"mod{self.braced().args[0]}"),))
            else:
                return tree

    def with_fraction(self, tree: Tree) -> Tree:
        """The mixed number that goes on with `\\frac{1}{2}` or `1/2`, with its percent or degree sign."""
        part = self.primary()
        part = Tree("div", (part, self.primary())) if self.takes("/") else part
        return self.postfixed(Tree("add", (tree, part)))

    def mixed(self, tree: Tree) -> bool:
        """Whether a proper fraction follows a whole number: `3\\frac{1}{2}`, `3 1/2`."""
        if (
            tree.kind != "num"
            or tree.args[0].denominator != 1
            or self.tokens[self.at - 1].kind != "number"
        ):
            return False
        ahead = self.tokens[self.at : self.at + 7]
        kinds = [token.kind for token in ahead]
        if kinds[:3] == ["number", "sign", "number"] and ahead[1].text == "/":
            return 0 < ahead[0].value < ahead[2].value
        shape = [token.text if token.kind != "number" else "0" for token in ahead]
        if shape == ["frac", "{", "0", "}", "{", "0", "}"]:
            return 0 < ahead[2].value < ahead[5].value
        return False

    def signed_factor(self) -> Tree:
        return Tree("neg", (self.factor(),)) if self.takes("-") else self.factor()

    def starts_factor(self) -> bool:
        token = self.next
        if token.kind == "name":
            return True
        if token.kind == "command":
            return token.text in FUNCTIONS | _CONSTANTS | {
                "frac",
                "sqrt",
                "binom",
                "sum",
                "prod",
                "lfloor",
                "lceil",
                "bar",
                "begin",
            }
        if (
            token.kind == "number"
        ):  # two numbers side by side are no product, save after a closing sign
            return self.tokens[self.at - 1].text in (")", "}", "]") and not token.spaced
        return token.text in ("(", "{") or (
            token.text == "|" and self.bars % 2 == 0 and self.bars > 0
        )

    def factor(self) -> Tree:
        return self.postfixed(self.primary())

    def postfixed(self, tree: Tree) -> Tree:
        while True:
            if self.sees("^"):
                self.take()
                if self.takes("circ") or self.degree():
                    tree = Tree("deg", (tree,))
                else:
                    tree = Tree("pow", (tree, self.exponent()))
            elif self.takes("!"):
                tree = (
                    Tree("fact", (tree,)) if not self.takes("!") else Tree("call", ("fact2", tree))
                )
            elif self.takes("%"):
                tree = Tree("pct", (tree,))
            else:
                return tree

    def degree(self) -> bool:
        if (
            self.sees("{")
            and self.tokens[self.at + 1].text == "circ"
            and self.tokens[self.at + 2].text == "}"
        ):
            self.at += 3
            return True
        return False

    def exponent(self) -> Tree:
        if self.takes("{"):
            tree = self.sum()
            self.expect("}")
            return tree
        return Tree("neg", (self.primary(),)) if self.takes("-") else self.primary()

    # What holds together

    def primary(self) -> Tree:
        token = self.take()
        if token.kind == "number":
            return self.dotted(token)
        if token.kind == "base":
            return Tree("base", (token.value, token.text))
        if token.kind == "name":
            return self.symbol(token.text)
        if token.kind == "command" and token.text in _COMMANDS:
            return _COMMANDS[token.text](self)
        if token.kind == "command" and token.text in FUNCTIONS:
            return self.call(token.text)
        if token.kind == "command" and token.text in _CONSTANTS:
            return self.symbol("\\" + token.text)
        if token.text in _OPENING and token.kind in ("sign", "command"):
            return self.group(token.text)
        if token.text == "{":
            tree = self.listed()
            self.expect("}")
            return tree
        if token.text == "|":
            tree = self.sum()
            self.expect("|")
            return Tree("call", ("abs", tree))
        raise NotRead(f"unexpected {ascii(token.text) if token.text else 'end'}")

    def dotted(self, token: Token) -> Tree:
        """A number, which is a recurring decimal if dots follow: `0.333...`."""
        if "." not in token.text or not (self.sees("...", "ldots")):
            return number(token.value)
        self.take()
        whole, _, part = token.text.partition(".")
        for size in range(1, len(part) // 2 + 1):
            cycle = part[-size:]
            if part.endswith(cycle * 2) and (size > 1 or part.endswith(cycle * 3)):
                return number(recurring(whole, part[:-size], cycle))
        raise NotRead("an unfinished decimal")

    def symbol(self, name: str) -> Tree:
        while self.takes("'"):
            name += "'"
        if self.takes("_"):
            if self.takes("{"):
                inner = []
                while not self.sees("}") and self.next.kind != "end":
                    inner.append(self.take().text)
                self.expect("}")
                name += "_" + " ".join(inner)
            else:
                name += "_" + self.take().text
        return Tree("sym", (name,))

    def group(self, opening: str) -> Tree:
        if self.depth > MAX_DEPTH:
            raise NotRead(f"nested deeper than {MAX_DEPTH}")
        self.depth += 1
        braces = opening == "\\{" or opening == "{"
        in_set, self.in_set = self.in_set, int(opening == "\\{")
        if opening == "\\{" and self.takes("\\}"):
            tree = Tree("empty", ())
        else:
            items = self.items()
            if braces and self.takes("mid", "|", ":"):  # set builder: what holds of x is the set
                items = self.items()
                self.expect("\\}")
                tree = items[0] if len(items) == 1 else Tree("list", tuple(items))
            else:
                tree = self.closed(opening, items)
        self.in_set = in_set
        self.depth -= 1
        return tree

    def closed(self, opening: str, items: list[Tree]) -> Tree:
        closing = self.take().text
        if opening in ("lfloor", "lceil"):
            if closing != _OPENING[opening] or len(items) > 1:
                raise NotRead(f"expected {_OPENING[opening]}")
            return Tree("call", (opening[1:], items[0]))
        if opening in "([" and len(items) == 1 and closing == _OPENING[opening]:
            bare = opening == "(" or items[0].kind == "matrix"
            return items[0] if bare else Tree("group", ("[", "]", items[0]))
        if opening == "[" and all(item.kind == "group" and item.args[0] == "[" for item in items):
            return _rectangular([item.args[2:] for item in items])
        half_open = opening in "([" and closing in ")]" and len(items) == 2
        if closing != _OPENING[opening] and not (half_open and closing):
            raise NotRead(f"{opening} closed by {closing or 'nothing'}")
        pair = ("(", ")") if opening == "langle" else (opening, closing)
        return Tree("group", (*pair, *items))

    def call(self, name: str) -> Tree:
        """A function with its base or power (`\\log_2`, `\\sin^2`) and its argument, bracketed or not."""
        base = power = None
        while self.sees("_", "^"):
            if self.take().text == "_":
                base = self.exponent()
            else:
                power = self.exponent()
        arguments = self.arguments()
        if power == Tree("neg", (number(1),)) and name in ("sin", "cos", "tan"):
            name, power = "arc" + name, None
        tree = Tree("call", (name, *arguments) if base is None else ("log_base", *arguments, base))
        return tree if power is None else Tree("pow", (tree, power))

    def arguments(self) -> tuple[Tree, ...]:
        if self.sees("(", "{"):
            closing = ")" if self.take().text == "(" else "}"
            in_set, self.in_set = self.in_set, 0
            items = self.items()
            self.in_set = in_set
            self.expect(closing)
            return tuple(items)
        tree = self.factor()
        while self.starts_factor() and not (self.next.text in FUNCTIONS or self.sees("(")):
            tree = Tree("mul", (tree, self.factor()))
        return (tree,)

    def braced(self) -> Tree:
        """A command's argument: `{...}`, or one number, letter or command."""
        if self.takes("{"):
            tree = self.sum()
            self.expect("}")
            return tree
        return self.primary()

    def fraction(self) -> Tree:
        return Tree("div", (self.braced(), self.braced()))

    def root(self) -> Tree:
        degree = number(2)
        if self.takes("["):
            degree = self.sum()
            self.expect("]")
        return Tree("call", ("root", self.braced(), degree))

    def series(self, name: str) -> Tree:
        """`\\sum_{k=1}^{n} term`, where the term is the product that follows."""
        self.expect("_")
        self.expect("{")
        variable = self.symbol(self.take().text)
        self.expect("=")
        first = self.sum()
        self.expect("}")
        self.expect("^")
        last = self.exponent()
        return Tree("series", (variable, first, last, self.product(), name))

    def matrix(self) -> Tree:
        self.expect("{")
        kind = "".join(self.take_until("}"))
        if kind not in _MATRICES:
            raise NotRead(f"environment {ascii(kind[:20])}")
        if kind == "array" and self.takes("{"):
            self.take_until("}")
        rows: list[tuple[Tree, ...]] = []
        while not self.takes("end"):
            row = [self.sum()]
            while self.takes("&"):
                row.append(self.sum())
            rows.append(tuple(row))
            self.takes("\\\\")
        self.expect("{")
        self.take_until("}")
        tree = _rectangular(rows)
        return _determinant(tree.args) if kind == "vmatrix" else tree

    def take_until(self, text: str) -> list[str]:
        pieces = []
        while not self.sees(text) and self.next.kind != "end":
            pieces.append(self.take().text)
        self.expect(text)
        return pieces

    def field(self) -> Tree:
        self.expect("{")
        return Tree("field", ("".join(self.take_until("}")),))


_COMMANDS = {
    "frac": _Parser.fraction,
    "sqrt": _Parser.root,
    "binom": lambda parser: Tree("call", ("binom", parser.braced(), parser.braced())),
    "sum": lambda parser: parser.series("sum"),
    "prod": lambda parser: parser.series("prod"),
    "begin": _Parser.matrix,
    "mathbb": _Parser.field,
    "bar": lambda parser: parser.braced(),
    "infty": lambda parser: Tree("inf", ()),
    "emptyset": lambda parser: Tree("empty", ()),
}


def _multiplied(left: Tree, right: Tree) -> Tree:
    if right.kind == "matrix" and left.kind != "matrix":
        return Tree(
            "matrix",
            tuple(tuple(Tree("mul", (left, entry)) for entry in row) for row in right.args),
        )
    return Tree("mul", (left, right))


def _rectangular(rows: Sequence[tuple[Tree, ...]]) -> Tree:
    if len({len(row) for row in rows}) != 1:
        raise NotRead("rows of unequal length")
    return Tree("matrix", tuple(rows))


def _determinant(rows: tuple[tuple[Tree, ...], ...]) -> Tree:
    """The determinant, written out along the first column."""
    if not len(rows) == len(rows[0]) <= 4:
        raise NotRead("a determinant that is not of size 1 to 4")
    if len(rows) == 1:
        return rows[0][0]
    total = number(0)
    for i, row in enumerate(rows):
        minor = _determinant(tuple(other[1:] for other in (*rows[:i], *rows[i + 1 :])))
        term = Tree("mul", (row[0], minor))
        total = Tree("add", (total, Tree("neg", (term,)) if i % 2 else term))
    return total


def _added(left: Tree | None, sign: str, right: Tree) -> Tree:
    if sign in ("pm", "mp"):
        right = Tree("neg", (right,)) if sign == "mp" else right
        return Tree("pm", (left or number(0), right))
    right = Tree("neg", (right,)) if sign == "-" else right
    return right if left is None else Tree("add", (left, right))
