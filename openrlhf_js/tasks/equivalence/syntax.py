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
from collections.abc import Callable, Iterator
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
_SPELT = dict(pi="pi", theta="theta", inf="infty", oo="infty", infinity="infty", Infinity="infty")
_FACTORS = FUNCTIONS | _GREEK | words("frac binom lfloor lceil bar begin")
_MONEY = words("usd euro gbp yen cents USD EUR GBP CAD AUD JPY CNY INR CHF Rs")
_SHORT_WORDS = words(
    """cm mm km kg mg ft yd lb lbs oz hr hrs min mins sec secs ml mL dL kL mi pm am mph kmh kph sq
    cu ms ounce no yes ton tons day days men cup pen box egg odd even amp amps Hz kHz MHz Pa kPa kJ
    kW an mol deg rad rads degree year mile feet foot inch gal pt qt AM PM Yes No GB MB KB TB"""
)
LETTER_UNITS = "msghLlNJWAVKCFB"
_COUNTING = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
    fifteen sixteen seventeen eighteen nineteen twenty"""
NUMBER_WORDS = {word: value for value, word in enumerate(_COUNTING.split())}
ORDINALS = {word + "th": value for word, value in NUMBER_WORDS.items()}
ORDINALS |= dict(first=1, third=3, fifth=5, eighth=8, ninth=9, twelfth=12)
SIZES = dict(dozen=12, hundred=100, thousand=1000, million=10**6, billion=10**9, trillion=10**12)
_RELATIONS = {sign: sign for sign in ("=", "<", ">", "<=", ">=", "!=", "in")}
_RELATIONS |= {"==": "=", "leq": "<=", "geq": ">=", "neq": "!=", "rightarrow": "=", "equiv": "="}
_RELATIONS |= {"approx": "~", "sim": "~"}
_SEPARATORS = (",", ";", "\\\\", "vee", "and", "or")
_SET_SIGNS = {"cup": "union", "setminus": "minus", "cap": "meet"}
_CLOSING = {"(": ")", "[": "]", "]": "[", "\\{": "\\}"}
_SCALARS = words("num sym neg add mul div pow call measure pct deg fact inf")
_CLOSING |= {"langle": "rangle", "lfloor": "rfloor", "lceil": "rceil"}


class NotRead(Exception):
    """The text cannot be read; the message says why, in a few words."""


class Token(NamedTuple):
    """kind: number, base, name, command, word, money, sign or end."""

    kind: str
    text: str
    value: Fraction = Fraction(0)


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


def parts(tree: Tree) -> Iterator[Tree]:
    """The tree and all trees in it."""
    yield tree
    for arg in tree.args:
        if isinstance(arg, Tree):
            yield from parts(arg)


def names(tree: Tree) -> set[str]:
    """The names in a tree."""
    return {part.args[0] for part in parts(tree) if part.kind == "sym"}


def has(tree: Tree, kind: str) -> bool:
    """Whether a node of this kind stands in the tree."""
    return any(part.kind == kind for part in parts(tree))


def replaced(tree: Tree, change: Callable[[Tree], Tree | None]) -> Tree:
    """The tree with what `change` returns in the place of the parts for which it is not None."""
    new = change(tree)
    if new is not None:
        return new
    args = (replaced(arg, change) if isinstance(arg, Tree) else arg for arg in tree.args)
    return Tree(tree.kind, tuple(args))


# tokens

_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<base>\d[0-9A-F]*_(?:[2-9](?!\d)|\{(?:[2-9]|1[0-6]|[a-z]{3,})\}))"
    r"|(?P<repeating>\d*\.\d*\\bar\s?(?:\{\d+\}|\d)|\d+\.\(\d+\))"
    r"|(?P<number>(?:\d{1,3}(?:,\d{3})+(?!\d|,\d)(?:\.\d+)?|\d+(?:\.\d+|\.(?![\d.]))?|\.\d+)"
    r"(?:[eE][+-]?\d+(?![a-zA-Z\d]))?)"
    r"|(?P<text>\\text\s?\{[^{}]*\})"
    r"|(?P<command>\\(?:[a-zA-Z]+|[\\{}|&]))"
    r"|(?P<letters>[A-Za-z]{3,}(?:-(?!sin|cos|tan|sqrt|log|ln|pi)[a-z]{2,})+|[A-Za-z]+)"
    r"|(?P<sign><=|>=|!=|==|[-+*/^_=<>()\[\]{},;:|!%&'])"
)


def _scan(text: str, found: list[Token], in_text: bool) -> list[Token]:
    position, spaced = 0, False
    while position < len(text):
        match = _TOKEN.match(text, position)
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
                and found[-1].text[-1] in "})0123456789"
            ):
                found.append(Token("word", content.strip()))  # `150\mathrm{m}`
            else:
                _scan(content, found, in_text=len(content.strip(" ().")) > 1)
        elif kind == "letters":
            alone = position == len(text) or text[position] in " ,;.^/)}"
            found.extend(_letters(piece, found, alone and (spaced or not found), in_text))
        elif kind != "space":
            found.append(_token(kind, piece))
        spaced = kind == "space" or (kind == "text" and content.endswith(" "))
    return found


def _token(kind: str, piece: str) -> Token:
    if kind == "number":
        return Token(kind, piece, decimal(piece))
    if kind == "repeating":  # whole.fixed cycle cycle...
        whole, fixed, cycle = re.findall(r"(\d*)\.(\d*?)\D*(\d|(?<=[{(])\d+)\D?\Z", piece)[0]
        tail = Fraction(int(cycle), (10 ** len(cycle) - 1) * 10 ** len(fixed))
        return Token("number", piece, decimal(f"{whole or 0}.{fixed or 0}") + tail)
    if kind == "base":
        numeral, name = re.findall("[0-9A-F]+|[a-z]+", piece)
        base = NUMBER_WORDS.get(name) or int(name if name.isdigit() else 0)
        if len(numeral) > MAX_DIGITS or max(int(digit, 16) for digit in numeral) >= base:
            raise NotRead(f"{piece[:40]} is no number in its base")
        return Token(kind, f"{numeral.lstrip('0') or '0'}_{base}", Fraction(int(numeral, base)))
    name = piece[1:]
    if kind == "command" and not name.isalpha():
        return Token("sign", {"|": "|", "&": ","}.get(name, piece))
    kind = "money" if kind == "command" and name in _MONEY else kind
    return Token(kind, piece if kind == "sign" else name)


def _letters(run: str, before: list[Token], alone: bool, in_text: bool) -> list[Token]:
    """The tokens of letters that stand together."""
    last = before[-1] if before else Token("start", "")
    if run in _MONEY and run[0].isupper():
        return [Token("money", run.lower())]
    if run.lower() in ("and", "or", "to"):
        return [Token("sign", run.lower().replace("to", ":"))]
    if (run in FUNCTIONS and (run != "min" or last.kind != "number")) or run in _SPELT:
        return [Token("command", _SPELT.get(run, run))]
    if run.lower() in NUMBER_WORDS and last.kind != "word":
        return [Token("number", run, Fraction(NUMBER_WORDS[run.lower()]))]
    after_value = last.kind in ("number", "word", "money") or last.text in (")", "}", "circ")
    is_word = (
        len(run) >= 4
        or run in _SHORT_WORDS
        or (len(run) == 3 and alone)
        or (len(run) >= 2 and last.kind == "word")
        or (in_text and (after_value or run not in "ABCDEFGHJ"))
        or (run == "in" and last.kind == "number")  # inches
        or (run in LETTER_UNITS and last.text == "/" and before[-2:][0].kind == "word")
    )
    return [Token("word", run)] if is_word else [Token("name", letter) for letter in run]


def decimal(piece: str) -> Fraction:
    """The exact value of a decimal numeral, which may have group commas and an exponent."""
    mantissa, _, exponent = piece.replace(",", "").lower().partition("e")
    if len(mantissa) > MAX_DIGITS or len(exponent) > 4 or abs(int(exponent or 0)) > MAX_DIGITS:
        raise NotRead(f"a number of more than {MAX_DIGITS} digits")
    return Fraction(mantissa) * Fraction(10) ** int(exponent or 0)


# grammar


def read(text: str) -> Tree:
    """The tree of a canonical text; NotRead if it has none."""
    parser = _Parser([*_scan(text, [], in_text=False), Token("end", "")])
    try:
        tree = parser.listed()
    except RecursionError:
        raise NotRead("nested too deep") from None
    parser.expect("end")
    return tree


class _Parser:
    def __init__(self, found: list[Token]):
        self.tokens = found
        self.at = 0
        self.bars = sum(token.text == "|" for token in found)  # that are still to come
        self.in_set = False
        self.money = ""  # before the present value

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

    def enclosed(self) -> str:
        """The text of one token, or of those in braces."""
        if not self.takes("{"):
            return self.take().text
        pieces = []
        while not self.sees("}") and self.next.kind != "end":
            pieces.append(self.take().text)
        self.expect("}")
        return "".join(pieces)

    def listed(self) -> Tree:
        items = self.items()
        return items[0] if len(items) == 1 else Tree("list", tuple(items))

    def items(self) -> list[Tree]:
        items = [self.relation()]
        while sign := self.takes(*_SEPARATORS):
            while self.sees(*_SEPARATORS):  # `, or`
                sign = self.take().text
            item = self.relation()
            both = items[-1], item
            if sign in ("or", "vee") and all(t.kind == "rel" and t.args[0] != ("=",) for t in both):
                item = node("union", items.pop(), item)  # alternatives, not a system
            items.append(item)
        return items

    def relation(self) -> Tree:
        self.takes("=", "approx")  # `= 5`
        sides, operators = [self.union()], []
        while sign := self.takes(*_RELATIONS):
            operators.append(_RELATIONS[sign])
            sides.append(self.union())
        return node("rel", tuple(operators), *sides) if operators else sides[0]

    def union(self) -> Tree:
        tree = self.ratio()
        while sign := self.takes(*_SET_SIGNS):
            tree = node(_SET_SIGNS[sign], tree, self.ratio())
        return tree

    def ratio(self) -> Tree:
        terms = [self.measure()]
        while not self.in_set and self.takes(":"):
            terms.append(self.measure())
        return terms[0] if len(terms) == 1 else Tree("ratio", tuple(terms))

    def measure(self) -> Tree:
        """A sum with a unit behind it, or words alone."""
        said: list[str] = []
        if self.next.kind == "word":
            while self.next.kind in ("word", "name", "number") or self.sees("'"):
                said.append(self.take().text)
            return node("text", " ".join(said))
        self.money = ""
        value = self.sum()
        while size := SIZES.get(self.next.text.lower().removesuffix("s")):
            value = node("mul", value, number(size))
            self.take()
        while True:  # `km / h`, `cm ^ 2`
            if self.next.kind in ("word", "money"):
                said.append(self.take().text)
            elif self.sees("/", "*") and self.ahead(2)[1].kind in ("word", "name"):
                said += [self.take().text, self.take().text]
            elif said and self.takes("^"):
                said += ["^", self.enclosed()]
            else:
                break
        if self.money and said not in ([], ["usd"], ["dollars"]):
            said.insert(0, self.money)
        return node("measure", value, " ".join(said) or self.money) if said or self.money else value

    def sum(self) -> Tree:
        tree = None
        while tree is None or self.sees("+", "-", "pm", "mp"):
            sign = self.takes("+", "-", "pm", "mp")
            right = self.product()
            right = node("neg", right) if sign in ("-", "mp") else right
            if sign in ("pm", "mp"):
                tree = node("pm", tree or number(0), right)
            else:
                tree = right if tree is None else node("add", tree, right)
        return tree

    def product(self) -> Tree:
        tree = self.factor()
        while True:
            if self.takes("*"):
                tree = node("mul", tree, self.signed_factor())
            elif self.sees("/") and self.ahead(2)[1].kind != "word":  # else a price per hour
                self.take()
                tree = node("div", tree, self.signed_factor())
            elif self.is_mixed(tree):
                part = self.primary()
                part = node("div", part, self.primary()) if self.takes("/") else part
                tree = self.postfixed(node("add", tree, part))
            elif self.starts_factor():
                tree = node("mul", tree, self.factor())
            else:
                return tree

    def is_mixed(self, tree: Tree) -> bool:
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
        if token.kind == "number":  # beside another it is no product
            return self.tokens[self.at - 1].text == "!"
        if token.text == "[":  # which may group, or close `[0, 1[`
            return self.ahead(2)[1].kind in ("number", "name") or self.ahead(2)[1].text == "("
        return token.text in ("(", "{") or (token.text == "|" and self.bars % 2 == 0 < self.bars)

    def factor(self) -> Tree:
        return self.postfixed(self.primary())

    def postfixed(self, tree: Tree) -> Tree:
        while sign := self.takes("^", "!", "%"):
            if sign != "^":
                tree = node("fact" if sign == "!" else "pct", tree)
            elif self.takes("circ"):
                tree = node("deg", tree)
            else:
                tree = node("pow", tree, self.exponent())
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
        if kind == "money":
            self.money = text
            return self.primary()
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
        raise NotRead(f"unexpected {ascii(text) if text else 'end'}")

    def symbol(self, name: str) -> Tree:
        while sign := self.takes("'", "_"):
            name += sign + (self.enclosed() if sign == "_" else "")
        return node("sym", name)

    def call(self, name: str) -> Tree:
        """A function with its base or power (`\\log_2`, `\\sin^2`) and its argument."""
        base = power = None
        while sign := self.takes("_", "^"):
            if sign == "_" and name in ("log", "ln", "lg"):
                base = self.exponent()
            else:
                power = self.exponent()
        if power == node("neg", number(1)) and name in ("sin", "cos", "tan"):
            name, power = "arc" + name, None
        tree = node("call", name, *self.arguments())
        if base is not None:
            tree = node("call", "log_base", *tree.args[1:], base)
        return tree if power is None else node("pow", tree, power)

    def arguments(self) -> list[Tree]:
        if opening := self.takes("(", "{"):
            items = self.items()
            self.expect(")" if opening == "(" else "}")
            return items
        tree = self.factor()
        while self.starts_factor() and not (self.next.text in FUNCTIONS or self.sees("(", "[")):
            tree = node("mul", tree, self.factor())
        return [tree]

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
        kind = self.enclosed()
        if kind == "array":
            self.enclosed()
        if not re.fullmatch("[pbB]?matrix|array|smallmatrix|cases", kind):
            raise NotRead(f"environment {kind[:20]!a}")
        rows = []
        while not self.takes("end"):
            rows.append(tuple(self.items_of_row()))
            while self.takes("\\\\"):
                pass
        self.enclosed()
        if len({len(row) for row in rows}) != 1:
            raise NotRead("rows of unequal length")
        return Tree("matrix", tuple(rows))

    def items_of_row(self) -> Iterator[Tree]:
        yield self.relation()
        while self.takes("&", ","):
            self.takes("&")
            yield self.relation()


_COMMANDS: dict[str, Callable[[_Parser], Tree]] = {
    "frac": lambda parser: node("div", parser.braced(), parser.braced()),
    "binom": lambda parser: node("call", "binom", parser.braced(), parser.braced()),
    "infty": lambda _: node("inf"),
    "emptyset": lambda _: node("empty"),
    "bar": lambda parser: node("sym", "\\bar " + parser.enclosed()),  # a name of its own
    "mathbb": lambda parser: node("field", parser.enclosed()),
    **{"sqrt": _Parser.root, "begin": _Parser.environment},
}
