r"""Read an answer's canonical text into a tree.

The text is cut into tokens, and a recursive descent over a fixed grammar makes a tree of them. It
builds tuples and calls nothing, so that a text can do no more than be refused. Letters that stand
together are a product (`ab`), a function (`sin`) or a word (`apples`), depending on their context.

Kinds of node and their arguments, where `tree` is any node:

    num Fraction - base value text - sym name - text words - inf - empty - field name
    neg tree - add/mul/div/pow/pm tree tree - fact/deg/pct tree - call name trees...
    measure tree unit - matrix rows... - clock hour minute half - group opening closing trees...
    list/ratio trees... - rel operators sides... - union/minus/meet tree tree
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

MAX_DIGITS = 400  # of one number
MAX_TOKENS = 600


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


FUNCTIONS = words(
    """sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh ln log lg exp gcd lcm max min
    sqrt det cis"""
)
_GREEK = words(
    """pi theta alpha beta gamma delta lambda mu omega phi epsilon sigma rho tau psi xi eta zeta
    kappa nu chi Gamma Delta Theta Lambda Phi Psi Omega Sigma ell hbar"""
)
_CONSTANTS = {"pi": "pi", "theta": "theta", "inf": "infty", "oo": "infty"}
_CONSTANTS |= {"infinity": "infty", "Infinity": "infty"}
_FACTORS = FUNCTIONS | _GREEK | words("frac binom lfloor lceil bar begin")
_MONEY = words("usd euro gbp yen cents USD EUR GBP CAD AUD JPY CNY INR CHF Rs")
_SHORT_WORDS = words(
    """cm mm km kg mg ft yd lb lbs oz hr hrs min mins sec secs ml mL dL kL mi pm am mph kmh kph sq
    cu ms ounce no yes ton tons day days men cup pen box egg odd even amp amps Hz kHz MHz Pa kPa kJ
    kW mol deg rad rads degree year mile feet foot inch gal pt qt AM PM Yes No GB MB KB TB"""
)
LETTER_UNITS = "msghLlNJWAVKCFB"
_COUNTING = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
    fifteen sixteen seventeen eighteen nineteen twenty"""
NUMBER_WORDS = {word: value for value, word in enumerate(_COUNTING.split())}
SIZES = dict(dozen=12, hundred=100, thousand=1000, million=10**6, billion=10**9, trillion=10**12)
_RELATIONS = {sign: sign for sign in ("=", "<", ">", "<=", ">=", "!=", "in")}
_RELATIONS |= {"==": "=", "leq": "<=", "geq": ">=", "neq": "!=", "rightarrow": "=", "equiv": "="}
_RELATIONS |= {"approx": "~", "sim": "~"}
_SET_SIGNS = {"cup": "union", "setminus": "minus", "cap": "meet"}
_CLOSING = {"(": ")", "[": "]", "]": "[", "\\{": "\\}"}
_SCALARS = words("num sym neg add mul div pow call measure pct deg fact inf")
_CLOSING |= {"langle": "rangle", "lfloor": "rfloor", "lceil": "rceil"}


class NotRead(Exception):
    """The text cannot be read; the message says why, in a few words."""


class Token(NamedTuple):
    """kind: number, base, name, command, word, money, separator, sign or end."""

    kind: str
    text: str
    value: Fraction = Fraction(0)
    spaced: bool = False  # whether space stands before it


class Tree(NamedTuple):
    """A node: its kind and its arguments, as listed at the top of this file."""

    kind: str
    args: tuple[Any, ...]


def node(kind: str, *args: Any) -> Tree:
    """A tree of these arguments."""
    return Tree(kind, args)


def number(value: Fraction | int) -> Tree:
    """A leaf that holds an exact number."""
    return Tree("num", (Fraction(value),))


def names(tree: Tree) -> set[str]:
    """The names in a tree."""
    if tree.kind == "sym":
        return {tree.args[0]}
    return set().union(*(names(arg) for arg in tree.args if isinstance(arg, Tree)))


def has(tree: Tree, kind: str) -> bool:
    """Whether a node of this kind stands in the tree."""
    return tree.kind == kind or any(has(arg, kind) for arg in tree.args if isinstance(arg, Tree))


def replaced(tree: Tree, change: Callable[[Tree], Tree | None]) -> Tree:
    """The tree with what `change` returns in the place of the parts for which it is not None."""
    new = change(tree)
    if new is not None:
        return new
    args = (replaced(arg, change) if isinstance(arg, Tree) else arg for arg in tree.args)
    return Tree(tree.kind, tuple(args))


# tokens

_NUMBER = r"\d+(?:\.\d+|\.(?![\d.]))?|\.\d+"
_BASE = r"(?:\d|\{\s?\(?(?:\\text\{)?\(?(?:\d{1,2}|[a-z ]{3,}\d{0,2})\}?\)?\s?\d{0,2}\s?\})"
_TOKEN, _GROUPED_TOKEN = (
    re.compile(
        r"(?P<space>\s+)"
        r"|(?P<base>(?<![0-9A-F])(?!\d*[A-F][0-9A-F]*_(?:\d|\{\d\}))"  # `2C_1` is a product
        rf"(?=[A-F]*\d|[A-F]{{2}})[0-9A-F]+_{_BASE})"
        r"|(?P<repeating>\d*\.\d*\\bar\s?(?:\{\d+\}|\d)|\d+\.\(\d+\))"
        rf"|(?P<number>(?:{numeral})(?:[eE][+-]?\d+(?![a-zA-Z\d]))?)"
        r"|(?P<text>\\text\s?\{[^{}]*\})"
        r"|(?P<command>\\(?:[a-zA-Z]+|[\\{}|&]))"
        r"|(?P<letters>[A-Za-z]{3,}(?:-(?!sin|cos|tan|sqrt|log|ln|pi)[a-z]{2,})+|[A-Za-z]+)"
        r"|(?P<sign>\.\.\.+|<=|>=|!=|==|[-+*/^_=<>()\[\]{},;:|!%&'])"
    )
    for numeral in (_NUMBER, r"\d{1,3}(?:,\d{3})+(?!\d|,\d)(?:\.\d+)?|" + _NUMBER)
)


def _scan(text: str, pattern: re.Pattern[str], found: list[Token], in_text: bool) -> list[Token]:
    position, spaced = 0, False
    while position < len(text):
        match = pattern.match(text, position)
        if match is None:
            raise NotRead(f"unexpected {text[position]!a}")
        if len(found) > MAX_TOKENS:
            raise NotRead("too long")
        position = match.end()
        kind, piece = str(match.lastgroup), match[0]
        if kind == "text":
            content = piece[piece.index("{") + 1 : -1]
            if (
                content.strip() in {*LETTER_UNITS}
                and found
                and found[-1].text[-1:] in "})0123456789"
            ):
                found.append(Token("word", content.strip()))  # `150\mathrm{m}`
            else:
                _scan(content, pattern, found, in_text=len(content.strip(" ().")) > 1)
            spaced = content.endswith(" ")
        elif kind == "letters":
            alone = position == len(text) or text[position] in " ,;.^/)}"
            found.extend(_letters(piece, found, spaced, alone, in_text))
        elif kind != "space":
            found.append(_token(kind, piece, spaced))
        spaced = kind == "space" or (kind == "text" and spaced)
    return found


def _token(kind: str, piece: str, spaced: bool) -> Token:
    if kind == "number":
        return Token(kind, piece, decimal(piece), spaced)
    if kind == "repeating":
        whole, _, part = re.sub(r"\\bar| ", "", piece).partition(".")
        fixed, cycle = re.findall(r"(\d*?)[{(]?(\d|(?<=[{(])\d+)[})]?\Z", part)[0]
        return Token("number", piece, _recurring(whole, fixed, cycle), spaced)
    if kind == "base":
        numeral, _, name = re.sub(r"[ {}()]|\\text|base", "", piece).partition("_")
        base = int(name) if name.isdigit() else NUMBER_WORDS.get(name, 0)
        if len(numeral) > MAX_DIGITS or not max(int(d, 16) for d in numeral) < base <= 16:
            raise NotRead(f"{piece[:40]} is no number in a base from 2 to 16")
        text = f"{numeral.lstrip('0') or '0'}_{base}"
        return Token("base", text, Fraction(int(numeral, base)), spaced)
    name = piece[1:]
    if kind == "command" and name in _MONEY:
        return Token("money", name, spaced=spaced)
    if kind == "command" and not name.isalpha():
        return Token("sign", {"|": "|", "&": ","}.get(name, piece), spaced=spaced)
    return Token(kind, name if kind == "command" else piece[:3], spaced=spaced)


def _letters(
    run: str, before: list[Token], spaced: bool, alone: bool, in_text: bool
) -> list[Token]:
    """The tokens of letters that stand together."""
    last = before[-1] if before else Token("start", "")
    if run in _MONEY and run[0].isupper():
        return [Token("money", run.lower(), spaced=spaced)]
    if run.lower() in ("and", "or"):
        return [Token("separator", run.lower())]
    if run == "to":
        return [Token("sign", ":", spaced=spaced)]
    minutes = run == "min" and alone and last.kind == "number"
    if (run in FUNCTIONS and not minutes) or run in _CONSTANTS:
        return [Token("command", _CONSTANTS.get(run, run), spaced=spaced)]
    if run.lower() in NUMBER_WORDS and last.kind != "word":
        return [Token("number", run, Fraction(NUMBER_WORDS[run.lower()]), spaced)]
    after_value = last.kind in ("number", "word", "money") or last.text in (")", "}", "circ")
    is_word = (
        len(run) >= 4
        or run in _SHORT_WORDS
        or (len(run) == 3 and alone and (spaced or not before))
        or (len(run) >= 2 and last.kind == "word")
        or (in_text and (after_value or run not in "ABCDEFGHJ"))
        or (run == "in" and alone and last.kind == "number")  # inches
        or (run in LETTER_UNITS and last.text == "/" and before[-2:][0].kind == "word")
    )
    if is_word:
        return [Token("word", run, spaced=spaced)]
    return [Token("name", letter, spaced=spaced and i == 0) for i, letter in enumerate(run)]


def decimal(piece: str) -> Fraction:
    """The exact value of a decimal numeral, which may have group commas and an exponent."""
    mantissa, _, exponent = piece.replace(",", "").lower().partition("e")
    if len(mantissa) > MAX_DIGITS or len(exponent) > 4 or abs(int(exponent or 0)) > MAX_DIGITS:
        raise NotRead(f"a number of more than {MAX_DIGITS} digits")
    return Fraction(mantissa) * Fraction(10) ** int(exponent or 0)


def _recurring(whole: str, fixed: str, cycle: str) -> Fraction:
    """The value of whole.fixed cycle cycle cycle..."""
    tail = Fraction(int(cycle), (10 ** len(cycle) - 1) * 10 ** len(fixed))
    return decimal(f"{whole or 0}.{fixed or 0}") + tail


# grammar


def read(text: str, grouped: bool = True) -> Tree:
    """The tree of a canonical text; `grouped`: `1,234` is one number. NotRead if it has none."""
    found = _scan(text, _GROUPED_TOKEN if grouped else _TOKEN, [], in_text=False)
    parser = _Parser([*found, Token("end", "")])
    try:
        tree = parser.listed()
    except RecursionError:
        raise NotRead("nested too deep") from None
    parser.expect("end")
    return tree


def _matrix(rows: list[tuple[Tree, ...]]) -> Tree:
    if len({len(row) for row in rows}) != 1:
        raise NotRead("rows of unequal length")
    return Tree("matrix", tuple(rows))


class _Parser:
    def __init__(self, found: list[Token]):
        self.tokens = found
        self.at = 0
        self.bars = sum(token.text == "|" for token in found)  # that are still to come
        self.in_set = False

    @property
    def next(self) -> Token:
        return self.tokens[self.at]

    def ahead(self, count: int) -> list[Token]:
        return self.tokens[self.at : self.at + count]

    def take(self) -> Token:
        """Moves past the next token and returns it; the end is never passed."""
        token = self.tokens[self.at]
        self.at += token.kind != "end"
        self.bars -= token.text == "|"
        return token

    def sees(self, *texts: str) -> bool:
        """Whether the next token is one of these signs or commands."""
        token = self.tokens[self.at]
        return token.text in texts and token.kind in ("sign", "command")

    def takes(self, *texts: str) -> str:
        return self.take().text if self.sees(*texts) else ""

    def expect(self, text: str) -> None:
        token = self.take()
        if text not in (token.text, token.kind):
            raise NotRead(f"expected {text} before {token.text or 'the end'!a}")

    def take_until(self, text: str) -> list[str]:
        pieces = []
        while not self.sees(text) and self.next.kind != "end":
            pieces.append(self.take().text)
        self.expect(text)
        return pieces

    def listed(self) -> Tree:
        items = self.items()
        return items[0] if len(items) == 1 else Tree("list", tuple(items))

    def items(self) -> list[Tree]:
        items = [self.relation()]
        while True:
            separators = set()
            while self.next.kind == "separator" or self.sees(",", ";", "\\\\", "vee"):
                separators.add(self.take().text)
            if not separators:
                return items
            items.append(self.relation())
            inequalities = [each.kind == "rel" and each.args[0] != ("=",) for each in items[-2:]]
            if {"or", "vee"} & separators and all(inequalities):  # alternatives, not a system
                items[-2:] = [node("union", *items[-2:])]

    def relation(self) -> Tree:
        self.takes("=", "approx")  # `= 5`
        sides, operators = [self.union()], []
        while self.next.text in _RELATIONS and self.next.kind in ("sign", "command"):
            operators.append(_RELATIONS[self.take().text])
            sides.append(self.union())
        return node("rel", tuple(operators), *sides) if operators else sides[0]

    def union(self) -> Tree:
        tree = self.ratio()
        while self.next.kind == "command" and self.next.text in _SET_SIGNS:
            tree = node(_SET_SIGNS[self.take().text], tree, self.ratio())
        return tree

    def ratio(self) -> Tree:
        parts = [self.measure()]
        while not self.in_set and self.takes(":"):
            parts.append(self.measure())
        return parts[0] if len(parts) == 1 else Tree("ratio", tuple(parts))

    def measure(self) -> Tree:
        """A sum with a unit behind it, or money before it; or words alone."""
        if self.next.kind == "word":
            said = []
            while self.next.kind in ("word", "name", "number") or self.sees("'"):
                said.append(self.take().text)
            return node("text", " ".join(said))
        minus = self.sees("-") and self.ahead(2)[1].kind == "money" and self.take().text
        money = self.take().text if self.next.kind == "money" else ""
        value = self.sum()
        value = node("neg", value) if minus else value
        while size := SIZES.get(self.next.text.lower().removesuffix("s")):
            value = node("mul", value, number(size))
            self.take()
        unit = self.unit()
        if money and unit not in ("", "usd", "dollars"):
            unit = f"{money} {unit}"
        return node("measure", value, unit or money) if unit or money else value

    def unit(self) -> str:
        """The words of a unit and the signs between them: `km / h`, `cm ^ 2`."""
        pieces: list[str] = []
        while self.next.kind in ("word", "money") or self.unit_sign(pieces):
            pieces.append(self.take().text)
        return " ".join(pieces)

    def unit_sign(self, pieces: list[str]) -> bool:
        if not pieces or self.next.kind == "end":
            return self.sees("/") and self.ahead(2)[1].kind in ("word", "name")
        inside = pieces[-1] in ("/", "*", "^", "{", "-") or pieces[-2:-1] == ["{"]
        return (
            inside or self.sees("^") or (self.sees("/", "*") and self.ahead(2)[1].kind != "number")
        )

    def sum(self) -> Tree:
        tree = None
        while tree is None or self.sees("+", "-", "pm", "mp"):
            sign = self.takes("+", "-", "pm", "mp")
            double = tree is None and sign and self.takes("-")  # `--5`, but not `---5`
            right = node("neg", self.product()) if double else self.product()
            right = node("neg", right) if sign in ("-", "mp") else right
            if sign in ("pm", "mp"):
                tree = node("pm", tree or number(0), right)
            else:
                tree = right if tree is None else node("add", tree, right)
        return tree

    def product(self) -> Tree:
        tree = self.factor()
        plain_ratio = False  # a/b of two numbers: what follows multiplies the whole
        while True:
            if self.takes("*"):
                tree = _multiplied(tree, self.signed_factor())
            elif self.sees("/") and self.ahead(2)[1].kind == "word":
                return tree  # a price per hour
            elif self.takes("/"):
                right = self.signed_factor()
                plain_ratio = tree.kind == "num" and right.kind == "num"
                while not plain_ratio and self.starts_factor():
                    right = node("mul", right, self.factor())
                tree = node("div", tree, right)
            elif self.mixed(tree):
                part = self.primary()
                part = node("div", part, self.primary()) if self.takes("/") else part
                tree = self.postfixed(node("add", tree, part))
            elif self.starts_factor():
                tree = _multiplied(tree, self.factor())
            else:
                return tree

    def mixed(self, tree: Tree) -> bool:
        """Whether a proper fraction follows a whole number: `3\\frac{1}{2}`, `3 1/2`."""
        whole = tree.kind == "num" and tree.args[0].denominator == 1
        if not whole or self.tokens[self.at - 1].kind != "number":
            return False
        ahead = self.ahead(7)
        shape = "".join("0" if token.kind == "number" else token.text for token in ahead)
        if shape.startswith("0/0"):
            return 0 < ahead[0].value < ahead[2].value
        return shape == "frac{0}{0}" and 0 < ahead[2].value < ahead[5].value

    def signed_factor(self) -> Tree:
        return node("neg", self.factor()) if self.takes("-") else self.factor()

    def starts_factor(self) -> bool:
        token = self.next
        if token.kind in ("name", "command"):
            return token.kind == "name" or token.text in _FACTORS
        before = self.tokens[self.at - 1].text
        if token.kind == "number":  # beside another it is no product, save after a bracket
            return before == "!" or (before in (")", "}", "]") and not token.spaced)
        if token.text == "[":  # which may group, or close `[0, 1[`
            return self.ahead(2)[1].kind in ("number", "name") or self.ahead(2)[1].text == "("
        return token.text in ("(", "{") or (token.text == "|" and self.bars % 2 == 0 < self.bars)

    def factor(self) -> Tree:
        return self.postfixed(self.primary())

    def postfixed(self, tree: Tree) -> Tree:
        while sign := self.takes("^", "!", "%"):
            circ = [token.text for token in self.ahead(3)] == ["{", "circ", "}"]
            if sign == "^" and (circ or self.takes("circ")):
                self.at += circ * 3
                tree = node("deg", tree)
            elif sign == "^":
                tree = node("pow", tree, self.exponent())
            else:
                tree = node("fact" if sign == "!" else "pct", tree)
        return tree

    def exponent(self) -> Tree:
        return node("neg", self.primary()) if self.takes("-") else self.braced()

    def braced(self) -> Tree:
        """A command's argument: `{...}`, or one number, letter or command."""
        if not self.takes("{"):
            return self.primary()
        tree = self.sum()
        self.expect("}")
        return tree

    def primary(self) -> Tree:
        token = self.take()
        kind, text = token.kind, token.text
        if kind == "number":
            return number(token.value)
        if kind == "base":
            return node("base", token.value, text)
        if kind == "name" or (text in ("max", "min") and self.sees("=")):  # which was asked for
            return self.symbol(text)
        if kind == "command" and text in _COMMANDS:
            return _COMMANDS[text](self)
        if kind == "command" and text in FUNCTIONS:
            return self.call(text)
        if kind == "command" and text in _GREEK:
            return self.symbol("\\" + text)
        if text in _CLOSING and kind in ("sign", "command"):
            return self.group(text)
        if text in ("{", "|"):
            tree = self.listed() if text == "{" else node("call", "abs", self.sum())
            self.expect("}" if text == "{" else "|")
            return tree
        if text == "...":
            return node("sym", "...")
        raise NotRead(f"unexpected {ascii(text) if text else 'end'}")

    def symbol(self, name: str) -> Tree:
        while sign := self.takes("'", "_"):
            name += sign
            if sign == "_":
                name += " ".join(self.take_until("}")) if self.takes("{") else self.take().text
        return node("sym", name)

    def call(self, name: str) -> Tree:
        """A function with its base or power (`\\log_2`, `\\sin^2`) and its argument."""
        base = power = None
        while sign := self.takes("_", "^"):
            if sign == "_" and name in ("log", "ln", "lg"):
                base = self.exponent()
            else:
                power = self.exponent()
        arguments = self.arguments()
        if power == node("neg", number(1)) and name in ("sin", "cos", "tan"):
            name, power = "arc" + name, None
        tree = node("call", name, *arguments)
        if base is not None:
            tree = node("call", "log_base", *arguments, base)
        return tree if power is None else node("pow", tree, power)

    def arguments(self) -> tuple[Tree, ...]:
        if opening := self.takes("(", "{"):
            in_set, self.in_set = self.in_set, False
            items = self.items()
            self.in_set = in_set
            self.expect(")" if opening == "(" else "}")
            return tuple(items)
        tree = self.factor()
        while self.starts_factor() and not (self.next.text in FUNCTIONS or self.sees("(", "[")):
            tree = node("mul", tree, self.factor())
        return (tree,)

    def group(self, opening: str) -> Tree:
        braces, first = opening == "\\{", self.at == 1
        if braces and self.takes("\\}"):
            return node("empty")
        in_set, self.in_set = self.in_set, braces
        items = self.items()
        if braces and self.takes("mid", "|", ":"):  # set builder: what holds of x is the set
            reals = node("field", "R")
            provisos = [each for each in items if each.kind == "rel" and each.args[2] != reals]
            items = [*self.items(), *provisos]
            self.expect("\\}")
            tree = items[0] if len(items) == 1 else Tree("list", tuple(items))
        else:
            tree = self.closed(opening, items)
            if opening == "[" and first and self.next.kind == "end" and tree.kind in _SCALARS:
                tree = node("group", "[", "]", tree)  # else square brackets only group
        self.in_set = in_set
        return tree

    def closed(self, opening: str, items: list[Tree]) -> Tree:
        closing = self.take().text
        if len(items) == 2 and opening in "[]" and closing in "[]":  # `]0, 1]`
            opening, closing = opening.replace("]", "("), closing.replace("[", ")")
        half_open = opening in "([" and closing in (")", "]") and len(items) == 2
        if not half_open and closing != _CLOSING[opening]:
            raise NotRead(f"{opening} closed by {closing or 'nothing'}")
        square = [item for item in items if item.kind == "group" and item.args[:2] == ("[", "]")]
        if opening + closing == "[]" and len(square) == len(items):
            return _matrix([item.args[2:] for item in square])
        if len(items) == 1 and opening[0] in "([l":
            return node("call", opening[1:], items[0]) if opening[0] == "l" else items[0]
        opening, closing = ("(", ")") if opening == "langle" else (opening, closing)
        return node("group", opening, closing, *items)

    def root(self) -> Tree:
        degree = number(2)
        if self.takes("["):
            degree = self.sum()
            self.expect("]")
        return node("call", "root", self.braced(), degree)

    def environment(self) -> Tree:
        self.expect("{")
        kind = "".join(self.take_until("}"))
        if kind == "array" and self.takes("{"):
            self.take_until("}")
        rows: list[tuple[Tree, ...]] = []
        while not self.takes("end"):
            row = [self.relation() if kind == "cases" else self.sum()]
            while self.takes("&", ","):
                self.takes("&")
                row.append(self.relation() if kind == "cases" else self.sum())
            rows.append(tuple(row))
            while self.takes("\\\\"):
                pass
        self.expect("{")
        self.take_until("}")
        if kind == "cases":  # a system, or values with their conditions
            items = (row[0] if len(row) == 1 else node("group", "(", ")", *row) for row in rows)
            return Tree("list", tuple(items))
        if not re.fullmatch("[pbB]?matrix|array|smallmatrix", kind):
            raise NotRead(f"environment {kind[:20]!a}")
        return _matrix(rows)

    def bar(self) -> Tree:
        r"""A name of its own: `\bar{x}`, `\bar{AB}`."""
        letters = self.take_until("}") if self.takes("{") else [self.take().text]
        return node("sym", "\\bar " + "".join(letters))

    def field(self) -> Tree:
        self.expect("{")
        return node("field", "".join(self.take_until("}")))


_COMMANDS: dict[str, Callable[[_Parser], Tree]] = {
    "frac": lambda parser: node("div", parser.braced(), parser.braced()),
    "binom": lambda parser: node("call", "binom", parser.braced(), parser.braced()),
    "ldots": lambda _: node("sym", "..."),
    "infty": lambda _: node("inf"),
    "emptyset": lambda _: node("empty"),
    **{"sqrt": _Parser.root, "begin": _Parser.environment},
    **{"bar": _Parser.bar, "mathbb": _Parser.field},
}


def _multiplied(left: Tree, right: Tree) -> Tree:
    """The product, which for a number and a matrix is a matrix."""
    if right.kind == "matrix" and left.kind != "matrix":
        return Tree("matrix", tuple(tuple(node("mul", left, x) for x in row) for row in right.args))
    return node("mul", left, right)
