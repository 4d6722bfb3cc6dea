r"""Read an answer's canonical text into a tree, which is refused or built but never run.

Letters that stand together are a product (`ab`), a function (`sin`) or a word (`apples`), depending
on their context. Kinds of node and their arguments, where `tree` is any node:

    num Fraction - base value text - sym name - text words - inf - empty - field name
    neg tree - add/mul/div/pow tree tree - fact/deg/pct tree - call name trees...
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
_OPERATIONS = {"cup": "union", "setminus": "minus", "cap": "meet"}
_OPERATIONS |= {"+": "add", "*": "mul", "/": "div"}
_LIST, _RELATION, _SET, _RATIO, _MEASURE, _SUM, _PRODUCT, _FACTOR, _POWER = range(9)
_LEVELS = {  # how tightly a sign binds
    **dict.fromkeys(_SEPARATORS, _LIST),
    **dict.fromkeys(_RELATIONS, _RELATION),
    **{"cup": _SET, "setminus": _SET, "cap": _SET, ":": _RATIO, "+": _SUM, "-": _SUM},
    **{"*": _PRODUCT, "/": _PRODUCT, "^": _POWER, "!": _POWER, "%": _POWER},
}
_CLOSING = {"(": ")", "[": "]", "]": "[", "\\{": "\\}"}
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


def replaced(tree: Tree, old: Tree, new: Tree) -> Tree:
    """The tree with one subtree in the place of another."""
    if tree == old:
        return new
    args = (replaced(arg, old, new) if isinstance(arg, Tree) else arg for arg in tree.args)
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

_BOTH_SIGNS = re.compile(r"\\(pm|mp)(?![a-z])")


def read(text: str) -> Tree:
    """The tree of a canonical text; NotRead if it has none."""
    if _BOTH_SIGNS.search(text):
        plus = read(_BOTH_SIGNS.sub(lambda sign: "+" if sign[1] == "pm" else "-", text))
        minus = read(_BOTH_SIGNS.sub(lambda sign: "-" if sign[1] == "pm" else "+", text))
        if plus.kind == "list" or plus.args[:1] == ("\\{",):
            return Tree(plus.kind, tuple(dict.fromkeys(plus.args + minus.args)))
        return node("list", plus, minus)
    parser = _Parser([*_scan(text, [], in_text=False), Token("end", "")])
    try:
        tree = parser.tree()
    except RecursionError:
        raise NotRead("nested too deep") from None
    parser.expect("end")
    return tree


class _Parser:
    """A Pratt parser: `tree(least)` goes on while signs bind at least so tightly."""

    def __init__(self, found: list[Token]):
        self.tokens = found
        self.at = 0
        self.bars = sum(token.text == "|" for token in found)  # that are still to come
        self.in_set = False

    @property
    def next(self) -> Token:
        return self.tokens[self.at]

    @property
    def second(self) -> Token:
        return self.tokens[min(self.at + 1, len(self.tokens) - 1)]

    def take(self) -> Token:
        """Moves past the next token and returns it; the end is never passed."""
        token = self.tokens[self.at]
        self.at += token.kind != "end"
        self.bars -= token.text == "|"
        return token

    def takes(self, *texts: str) -> str:
        """Takes the next token if it is one of these signs or commands."""
        token = self.tokens[self.at]
        wanted = token.text in texts and token.kind in ("sign", "command")
        return self.take().text if wanted else ""

    def expect(self, text: str) -> None:
        token = self.take()
        if text not in (token.text, token.kind):
            raise NotRead(f"expected {text} before {token.text or 'the end'!a}")

    def enclosed(self) -> str:
        """The text of one token, or of those in braces."""
        if not self.takes("{"):
            return self.take().text
        pieces = []
        while self.next.text != "}" and self.next.kind != "end":
            pieces.append(self.take().text)
        self.expect("}")
        return "".join(pieces)

    def tree(self, least: int = _LIST) -> Tree:
        tree = self.start(least)
        while (level := self.level()) >= least:
            if level == _MEASURE:
                tree = self.measured(tree)
            elif level == _POWER:
                tree = self.postfixed(tree, self.take().text)
            else:
                tree = self.joined(tree, level)
        return tree

    def level(self) -> int:
        """How tightly what comes next binds; -1 where it ends every tree."""
        kind, text, _ = self.next
        if kind in ("word", "money"):
            return _MEASURE
        if self.starts_factor():
            return _PRODUCT
        if kind not in ("sign", "command") or (text == ":" and self.in_set):
            return -1
        return _MEASURE if text == "/" and self.second.kind == "word" else _LEVELS.get(text, -1)

    def start(self, least: int) -> Tree:
        if least <= _RELATION:
            self.takes("=", "approx")  # `= 5`
        if sign := self.takes("+", "-"):
            return _negative(self.tree(_PRODUCT)) if sign == "-" else self.tree(_PRODUCT)
        if self.next.kind == "word":
            said = []
            while self.next.kind in ("word", "name", "number") or self.next.text == "'":
                said.append(self.take().text)
            return node("text", " ".join(said))
        if self.next.kind != "money":
            return self.primary()
        money, value = self.take().text, self.tree(_MEASURE)
        if value.kind != "measure":
            return node("measure", value, money)
        known = value.args[1] in ("usd", "dollars")
        return value if known else node("measure", value.args[0], f"{money} {value.args[1]}")

    def measured(self, value: Tree) -> Tree:
        """The value with the unit behind it: `million people`, `km / h`, `cm ^ 2`."""
        while size := SIZES.get(self.next.text.lower().removesuffix("s")):
            value = node("mul", value, number(size))
            self.take()
        unit: list[str] = []
        while True:
            if self.next.kind in ("word", "money"):
                unit.append(self.take().text)
            elif self.next.text in ("/", "*") and self.second.kind in ("word", "name"):
                unit += [self.take().text, self.take().text]
            elif unit and self.takes("^"):
                unit += ["^", self.enclosed()]
            else:
                return node("measure", value, " ".join(unit)) if unit else value

    def joined(self, left: Tree, level: int) -> Tree:
        """The tree of both sides of the next sign, or of a product without one."""
        sign = "*" if self.starts_factor() else self.take().text
        while level == _LIST and (more := self.takes(*_SEPARATORS)):  # `, or`
            sign = more
        right = self.tree(level + 1)
        if level == _LIST:
            *items, last = left.args if left.kind == "list" else (left,)
            both = all(tree.kind == "rel" and tree.args[0] != ("=",) for tree in (last, right))
            alternatives = both and sign in ("or", "vee")  # rather than a system
            items += [node("union", last, right)] if alternatives else [last, right]
            return Tree("list", tuple(items)) if len(items) > 1 else items[0]
        if level == _RELATION:
            signs, *sides = left.args if left.kind == "rel" else ((), left)
            return node("rel", (*signs, _RELATIONS[sign]), *sides, right)
        if level == _RATIO:
            return Tree("ratio", (*(left.args if left.kind == "ratio" else (left,)), right))
        return (
            node("add", left, _negative(right))
            if sign == "-"
            else node(_OPERATIONS[sign], left, right)
        )

    def postfixed(self, tree: Tree, sign: str) -> Tree:
        if sign != "^":
            return node("fact" if sign == "!" else "pct", tree)
        return node("deg", tree) if self.takes("circ") else node("pow", tree, self.exponent())

    def exponent(self) -> Tree:
        return node("neg", self.primary()) if self.takes("-") else self.primary()

    def starts_factor(self) -> bool:
        kind, text, _ = self.next
        if kind in ("name", "command"):
            return kind == "name" or text in _FACTORS
        if kind == "number":  # beside another it is no product
            return self.tokens[self.at - 1].text == "!"
        if text == "[":  # which may group, or close `[0, 1[`
            return self.second.kind in ("number", "name") or self.second.text == "("
        return text in ("(", "{") or (text == "|" and self.bars % 2 == 0 < self.bars)

    def primary(self) -> Tree:
        kind, text, value = self.take()
        if kind == "number":
            return number(value)
        if kind == "base":
            return node("base", value, text)
        if kind == "name" or (text in ("max", "min") and self.next.text == "="):
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
            tree = self.tree() if text == "{" else node("call", "abs", self.tree(_SUM))
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
        if opening := self.takes("(", "{"):
            arguments = self.items()
            self.expect(")" if opening == "(" else "}")
        else:
            arguments = [self.tree(_FACTOR)]
            while self.starts_factor() and self.next.text not in FUNCTIONS | {"(", "["}:
                arguments = [node("mul", arguments[0], self.tree(_FACTOR))]
        tree = node("call", name, *arguments)
        tree = node("call", "log_base", *arguments, base) if base else tree
        return node("pow", tree, power) if power else tree

    def items(self) -> list[Tree]:
        tree = self.tree()
        return list(tree.args) if tree.kind == "list" else [tree]

    def group(self, opening: str) -> Tree:
        braces, first = opening == "\\{", self.at == 1
        if braces and self.takes("\\}"):
            return node("empty")
        in_set, self.in_set = self.in_set, braces
        items = self.items()
        self.in_set = in_set
        if braces and self.takes("mid", "|", ":"):  # set builder: what holds of x is the set
            reals = node("field", "R")
            provisos = [each for each in items if each.kind == "rel" and each.args[2] != reals]
            items = [*self.items(), *provisos]
            self.expect("\\}")
            return items[0] if len(items) == 1 else Tree("list", tuple(items))
        closing = self.take().text
        if len(items) == 2 and opening in "[]" and closing in "[]":  # `]0, 1]`
            opening, closing = opening.replace("]", "("), closing.replace("[", ")")
        half_open = opening in "([" and closing in (")", "]") and len(items) == 2
        if not half_open and closing != _CLOSING[opening]:
            raise NotRead(f"{opening} closed by {closing or 'nothing'}")
        if opening[0] == "l" and opening != "langle":
            return node("call", opening[1:], *items)
        whole = opening == "[" and first and self.next.kind == "end" and items[0].kind != "matrix"
        if len(items) == 1 and opening in "([" and not whole:  # brackets that only group
            return items[0]
        opening, closing = ("(", ")") if opening == "langle" else (opening, closing)
        return node("group", opening, closing, *items)

    def root(self) -> Tree:
        degree = number(2)
        if self.takes("["):
            degree = self.tree()
            self.expect("]")
        return node("call", "root", self.primary(), degree)

    def environment(self) -> Tree:
        kind = self.enclosed()
        if kind == "array":
            self.enclosed()
        if not re.fullmatch("[pbB]?matrix|array|smallmatrix|cases", kind):
            raise NotRead(f"environment {kind[:20]!a}")
        rows = []
        while not self.takes("end"):
            row = [self.tree(_RELATION)]
            while self.takes("&", ","):
                self.takes("&")
                row.append(self.tree(_RELATION))
            rows.append(tuple(row))
            while self.takes("\\\\"):
                pass
        self.enclosed()
        if len({len(row) for row in rows}) != 1:
            raise NotRead("rows of unequal length")
        return Tree("matrix", tuple(rows))


_COMMANDS: dict[str, Callable[[_Parser], Tree]] = {
    "frac": lambda parser: node("div", parser.primary(), parser.primary()),
    "binom": lambda parser: node("call", "binom", parser.primary(), parser.primary()),
    "infty": lambda _: node("inf"),
    "emptyset": lambda _: node("empty"),
    "bar": lambda parser: node("sym", "\\bar " + parser.enclosed()),  # a name of its own
    "mathbb": lambda parser: node("field", parser.enclosed()),
    **{"sqrt": _Parser.root, "begin": _Parser.environment},
}


def _negative(tree: Tree) -> Tree:
    if tree.kind == "measure":
        return node("measure", _negative(tree.args[0]), tree.args[1])
    return node("neg", tree)
