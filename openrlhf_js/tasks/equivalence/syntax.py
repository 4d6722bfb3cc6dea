r"""Read an answer's canonical text into a tree, which is refused or built but never run.

Letters that stand together are a product (`ab`), a function (`sin`) or a word (`apples`), depending
on their context. Kinds of node and their arguments, where `tree` is any node:

    num Fraction - sym name - text words - inf - field name
    neg tree - add/mul/div/pow tree tree - fact/degree/percent tree - call name trees...
    measure tree unit - group brackets trees... - list trees... - rel signs sides...
    union/minus/meet tree tree
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

MAX_DIGITS = 400  # of one number
MAX_TOKENS = 600


class NotRead(Exception):
    """The text cannot be read; the message says why, in a few words."""


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


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


# units and other words

Unit = tuple[str, ...]  # names of units, their powers and signs
_UNITS = """m meter metre,km kilometer kilometre,cm centimeter centimetre,mm millimeter,
in inch inche,ft foot feet,yd yard,mi mile,s sec second,ms,min minute,h hr hrs hour,year yr,
kg kilogram,g gram,mg milligram,lb lbs pound,oz ounce,l liter litre,ml mL milliliter,dl dL,kl kL,
gallon gal,quart qt,pt pint,N newton,J joule,kj kJ,W watt,kw kW,A ampere,V volt,hz Hz,khz kHz,
mhz MHz,pa Pa,kpa kPa,K kelvin,C celsius,F fahrenheit,B byte,kb KB,mb MB,gb GB,tb TB,
dollar usd buck,euro eur,gbp,yen jpy,rupee rs Rs inr,degree deg,radian rad,
percent pct percentage,2 square sq squared,3 cubic cu cubed,/ per,kmh kph"""
_NAMES = {word: group.split()[0] for group in _UNITS.split(",") for word in group.split()}
_SHORT_WORDS = {*_NAMES} - {"in"} | words("am pm AM PM of is an no No")
# A number in a sentence is no number with a unit, nor is one whose value or sense the words change.
_SENTENCE = words(
    """is are was not no none than more less least most if when where over time isn't but except
    plus minus because since however wait maybe either neither between below under beneath factorial
    doubled tripled halved divided raised too root double twice thrice triple negative wrong
    opposite incorrect false invalid impossible fewer inverse reciprocal score gross"""
)
_COUNTING = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
    fifteen sixteen seventeen eighteen nineteen twenty"""
NUMBER_WORDS = {word: value for value, word in enumerate(_COUNTING.split())}
ORDINALS = {word + "th": value for word, value in NUMBER_WORDS.items()}
ORDINALS |= dict(first=1, third=3, fifth=5, eighth=8, ninth=9, twelfth=12)
_SKIPPED = words("of the a an ^ * 1")
_SHARES = ORDINALS | dict(half=2, halve=2, quarter=4, hundredth=100, thousandth=1000)
SIZES: dict[str, Fraction | int] = {name: Fraction(1, n) for name, n in _SHARES.items() if n > 1}
SIZES |= dict(ten=10, dozen=12, hundred=100, thousand=1000, million=10**6, billion=10**9)
SIZES["trillion"] = 10**12


def _singular(word: str) -> str:
    word = word if len(word) == 1 and word not in "LSGH" else word.lower()
    return word[:-1] if len(word) > 2 and word[-1] == "s" != word[-2] else word


def is_sentence(said: Iterable[str]) -> bool:
    """Whether words say something of a number rather than what is counted: `12 below zero`."""
    words = {word for said in said for word in (said, _singular(said))}
    changed = _SENTENCE | SIZES.keys() | NUMBER_WORDS.keys()
    return any(word in changed or word[-2:] == "th" for word in words)


def _unit(text: str) -> Unit:
    """The unit that words such as `km / h`, `square feet`, `cm ^ 2` or `red apples` stand for."""
    said = re.sub(r"\b(square|sq|cubic|cu) (\w+)", r"\2 \1", text).split()
    found = tuple(_NAMES.get(_singular(w), _singular(w)) for w in said if w not in _SKIPPED)
    if len(said) > 10 or is_sentence(said) or not any(name[0].isalpha() for name in found):
        raise NotRead("a number in a sentence")
    return found


# tokens

FUNCTIONS = words(
    """sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh ln log lg exp gcd lcm max min
    sqrt det cis abs floor ceil"""
)
_GREEK = words(
    """pi theta alpha beta gamma delta lambda mu omega phi epsilon sigma rho tau psi xi eta zeta
    kappa nu chi Gamma Delta Theta Lambda Phi Psi Omega Sigma ell hbar"""
)
_SPELT = dict(pi="pi", theta="theta", inf="infty", oo="infty", infinity="infty", Infinity="infty")
_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<based>\d[0-9A-F]*_(?:[2-9](?!\d)|\{(?:[1-9]\d?|[a-z]{3,7})\}))"
    r"|(?P<number>\d*\.\d*\\bar\s?(?:\{\d+\}|\d)"
    r"|(?:\d{1,3}(?:,\d{3})+(?!\d|,\d)(?:\.\d+)?|\d+(?:\.\d+|\.(?![\d.]))?|\.\d+)"
    r"(?:[eE][+-]?\d+(?![a-zA-Z\d]))?)"
    r"|\\(?:(?P<word>[ABCFJKLNVWghlms])(?![a-zA-Z])|(?P<command>[a-zA-Z]+))"
    r"|(?P<letters>[A-Za-z]{3,}(?:-(?!sin|cos|tan|sqrt|log|ln|pi)[a-z]{2,})+|[A-Za-z]+)"
    r"|(?P<sign>\\[\\{}]|<=|>=|!=|[-+*/^_=<>()\[\]{},;:|!%'])"
)


class Token(NamedTuple):
    """kind: number, name, word, sign (or the name of a command) or end."""

    kind: str
    text: str


def _scan(text: str) -> list[Token]:
    found: list[Token] = []
    position, spaced = 0, True
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or len(found) > MAX_TOKENS:
            raise NotRead(f"unexpected {text[position]!a}, or too long")
        position = match.end()
        kind = str(match.lastgroup)
        piece = match[kind]
        if kind == "letters":
            found += _letters(piece, found, spaced and text[position : position + 1] in " ,;.^/)}")
        elif kind == "based":
            numeral, base = re.findall(r"[^{}_]+", piece)
            found.append(Token("name", f"{numeral}_{NUMBER_WORDS.get(base, base)}"))
        elif kind != "space":
            found.append(Token("sign" if kind == "command" else kind, piece))
        spaced = kind == "space"
    return found


def _letters(run: str, found: list[Token], alone: bool) -> list[Token]:
    """The tokens of letters that stand together."""
    last = found[-1].kind if found else ""
    if run.lower() in ("and", "or", "to"):
        return [Token("sign", run.lower().replace("to", ":"))]
    if (run in FUNCTIONS and (run != "min" or last != "number")) or run in _SPELT:
        return [Token("sign", _SPELT.get(run, run))]
    if run.lower() in NUMBER_WORDS and last != "word":
        return [Token("number", str(NUMBER_WORDS[run.lower()]))]
    is_word = (
        len(run) >= 4
        or (len(run) > 1 and run in _SHORT_WORDS)
        or (len(run) == 3 and alone)
        or (len(run) == 2 and last == "word")
        or (run == "in" and last == "number")  # inches
    )
    return [Token("word", run)] if is_word else [Token("name", letter) for letter in run]


def decimal(piece: str) -> Fraction:
    r"""The exact value of a numeral: `1,234.5`, `1e-3`, or with a cycle `0.1\bar{6}`."""
    numeral, _, exponent = piece.replace(",", "").lower().partition("e")
    if len(numeral) > MAX_DIGITS or len(exponent) > 4 or abs(int(exponent or 0)) > MAX_DIGITS:
        raise NotRead(f"a number of more than {MAX_DIGITS} digits")
    numeral, _, cycle = numeral.partition("\\bar")
    cycle, places = cycle.strip(" {}"), len(numeral.partition(".")[2])
    tail = Fraction(int(cycle), (10 ** len(cycle) - 1) * 10**places) if cycle else 0
    return (Fraction(numeral + "0" * (numeral == ".")) + tail) * Fraction(10) ** int(exponent or 0)


# grammar

_LIST, _RELATION, _SET, _RATIO, _MEASURE, _SUM, _PRODUCT, _FACTOR, _POWER = range(9)
_INFIX = {  # how tightly a sign binds, and the kind of node that it makes
    **dict.fromkeys((",", ";", "\\\\", "vee", "and", "or"), (_LIST, "list")),
    **dict.fromkeys(("=", "<", ">", "<=", ">=", "!=", "in", "approx"), (_RELATION, "rel")),
    **{"cup": (_SET, "union"), "setminus": (_SET, "minus"), "cap": (_SET, "meet")},
    **{":": (_RATIO, "group"), "+": (_SUM, "add"), "-": (_SUM, "add")},
    **{"*": (_PRODUCT, "mul"), "/": (_PRODUCT, "div")},
    **{"^": (_POWER, "pow"), "!": (_POWER, "fact"), "%": (_POWER, "percent")},
}
_BRACKETS = {"()": "()", "[]": "[]", "\\{\\}": "{}"}
_INTERVALS = {"(]": "(]", "[)": "[)", "][": "()", "]]": "(]", "[[": "[)"}
_BOTH_SIGNS = re.compile(r"\\(pm|mp)(?![a-z])")


def read(text: str) -> Tree:
    """The tree of a canonical text; NotRead if it has none, RecursionError if it is too deep."""
    if _BOTH_SIGNS.search(text):
        plus = read(_BOTH_SIGNS.sub(lambda sign: "+" if sign[1] == "pm" else "-", text))
        minus = read(_BOTH_SIGNS.sub(lambda sign: "-" if sign[1] == "pm" else "+", text))
        if plus.kind == "list" or plus.args[:1] == ("{}",):
            return Tree(plus.kind, tuple(dict.fromkeys(plus.args + minus.args)))
        return node("list", plus, minus)
    parser = _Parser(_scan(text))
    tree = parser.tree()
    parser.expect("end")
    return tree


class _Parser:
    """A Pratt parser: `tree(least)` goes on while signs bind at least so tightly."""

    def __init__(self, found: list[Token]):
        self.tokens = [*found, Token("end", ""), Token("end", "")]
        self.at = 0

    @property
    def next(self) -> Token:
        return self.tokens[self.at]

    @property
    def second(self) -> Token:
        return self.tokens[self.at + 1]

    def take(self) -> Token:
        """Moves past the next token and returns it; the end is never passed."""
        token = self.next
        self.at += token.kind != "end"
        return token

    def takes(self, *signs: str) -> str:
        """Takes the next token if it is one of these."""
        return self.take().text if self.next.kind == "sign" and self.next.text in signs else ""

    def expect(self, text: str) -> None:
        if text not in (self.next.text, self.next.kind):
            raise NotRead(f"expected {text} before {self.next.text or 'the end'!a}")
        self.take()

    def enclosed(self) -> str:
        """The text of one token, or of those in braces."""
        braces, text = self.takes("{"), self.take().text
        while braces and not self.takes("}"):
            if self.next.kind == "end":
                raise NotRead("braces do not match")
            text += self.take().text
        return text

    def tree(self, least: int = _LIST) -> Tree:
        tree = self.start(least)
        while (level := self.level()) >= least:
            tree = self.measured(tree) if level == _MEASURE else self.joined(tree, level)
        return tree

    def level(self) -> int:
        """How tightly what comes next binds; -1 where it ends every tree."""
        if self.next.kind == "word":
            return _MEASURE
        return _PRODUCT if self.starts_factor() else _INFIX.get(self.next.text, (-1, ""))[0]

    def start(self, least: int) -> Tree:
        """What a tree begins with."""
        if least <= _RELATION:
            self.takes("=", "approx")  # `= 5`
        if sign := self.takes("+", "-"):
            value = self.tree(_PRODUCT)
            return node("neg", value) if sign == "-" else value
        said: list[str] = []
        while self.next.kind == "word":
            said.append(self.take().text)
        return node("text", " ".join(said)) if said else self.primary()

    def measured(self, value: Tree) -> Tree:
        """The value with the unit behind it: `million people`, `km / h`, `cm ^ 2`."""
        while size := SIZES.get(self.next.text.lower().removesuffix("s")):
            value = node("mul", value, number(size))
            self.take()
        unit: list[str] = []
        while True:
            if self.next.kind == "word":
                unit.append(self.take().text)
            elif self.next.text in ("/", "*") and self.second.kind in ("word", "name"):
                unit += [self.take().text, self.take().text]
            elif unit and self.takes("^"):
                unit += ["^", self.enclosed()]
            else:
                return node("measure", value, _unit(" ".join(unit))) if unit else value

    def joined(self, left: Tree, level: int) -> Tree:
        """The tree of both sides of the next sign, or of a product without one."""
        sign = "*" if self.starts_factor() else self.take().text
        kind = _INFIX[sign][1]
        if sign == "^":
            circle = self.takes("circ")
            return node("degree", left) if circle else node("pow", left, self.exponent())
        if level == _POWER:
            return node(kind, left)
        while level == _LIST and (word := self.takes("and", "or")):  # `, or`
            sign = word
        right = self.tree(level + 1)
        if kind == "list":
            items = [*(left.args if left.kind == "list" else (left,)), right]
            both = all(each.kind == "rel" and each.args[0] != ("=",) for each in items[-2:])
            if both and sign in ("or", "vee"):  # alternatives rather than a system
                items[-2:] = [node("union", *items[-2:])]
            return node("list", *items) if len(items) > 1 else items[0]
        if kind == "rel":
            if sign == "in" and (left.kind == "sym" or left.args[:1] == ("()",)):
                return right  # where a name is from is what it is
            signs, *sides = left.args if left.kind == "rel" else ((), left)
            return node("rel", (*signs, sign), *sides, right)
        if level == _RATIO:
            terms = [left, right]
            while self.takes(":"):
                terms.append(self.tree(level + 1))
            shares = [node("div", term, terms[-1]) for term in terms[:-1]]
            return node("group", ":", *shares) if len(shares) > 1 else shares[0]
        return node(kind, left, node("neg", right) if sign == "-" else right)

    def exponent(self) -> Tree:
        return node("neg", self.primary()) if self.takes("-") else self.primary()

    def starts_factor(self) -> bool:
        kind, text = self.next
        if kind == "number":  # beside another it is no product
            return self.tokens[self.at - 1].text == "!"
        if text == "[":  # which may group, or close `[0, 1[`
            return self.second.kind in ("number", "name") or self.second.text == "("
        return kind == "name" or (kind == "sign" and text in _FACTORS)

    def primary(self) -> Tree:
        kind, text = self.take()
        if kind == "number":
            return number(decimal(text))
        if kind == "name" or (text in ("max", "min") and self.next.text == "="):
            return self.symbol(text)
        if kind == "sign" and text in _COMMANDS:
            return _COMMANDS[text](self)
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
        if opening := self.takes("(", "{"):
            arguments = self.items()
            self.expect(")" if opening == "(" else "}")
        else:
            arguments = [self.tree(_FACTOR)]
            while self.starts_factor() and self.next.text not in FUNCTIONS | {"(", "["}:
                arguments = [node("mul", arguments[0], self.tree(_FACTOR))]
        tree = node("call", *(["log_base", *arguments, base] if base else [name, *arguments]))
        return node("pow", tree, power) if power else tree

    def items(self) -> list[Tree]:
        tree = self.tree()
        return list(tree.args) if tree.kind == "list" else [tree]

    def group(self, opening: str) -> Tree:
        """A tuple, an interval, a set, or what brackets only group."""
        first = self.at == 1
        items = self.items() if self.next.text != "\\}" else []
        if opening == "\\{" and self.takes("mid", "|"):  # what holds of x is the set
            provisos = [each for each in items if each.kind == "field"]
            items = [*self.items(), *provisos]
            self.expect("\\}")
            return items[0] if len(items) == 1 else node("list", *items)
        closed = opening + self.take().text
        brackets = _BRACKETS.get(closed) or (_INTERVALS.get(closed) if len(items) == 2 else None)
        if not brackets:
            raise NotRead("brackets do not match")
        whole = brackets == "[]" and first and self.next.kind == "end" and items[0].kind != "group"
        row = brackets == "()" and items[0].args[:1] == ("[]",)
        if len(items) == 1 and not (whole or row or brackets == "{}"):
            return items[0]
        return node("group", brackets, *items)


_COMMANDS: dict[str, Callable[[_Parser], Tree]] = {
    "frac": lambda parser: node("div", parser.primary(), parser.primary()),
    "binom": lambda parser: node("call", "binom", parser.primary(), parser.primary()),
    "infty": lambda _: node("inf"),
    "emptyset": lambda _: node("group", "{}"),
    "bar": lambda parser: node("sym", "\\bar " + parser.enclosed()),  # a name of its own
    "mathbb": lambda parser: node("field", parser.enclosed()),
    "sqrt": lambda parser: node("call", "root", number(2), parser.primary()),
    "root": lambda parser: node("call", "root", parser.primary(), parser.primary()),
}
_FACTORS = FUNCTIONS | _GREEK | words("frac binom bar root ( {")
