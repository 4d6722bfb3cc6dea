r"""Read an answer's canonical text into a tree, which is refused or built but never run.

Letters that stand together are a product (`ab`), a function (`sin`) or a word (`apples`), depending
on their context. Kinds of node and their arguments, where `tree` is any node:

    num Fraction - sym name - text words - inf - empty - field name
    neg tree - add/mul/div/pow tree tree - fact/deg/pct tree - call name trees...
    measure tree unit - group brackets trees... - list trees... - rel signs sides...
    union/minus/meet tree tree
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

MAX_DIGITS = 400  # of one number
MAX_TOKENS = 600


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


FUNCTIONS = words(
    """sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh ln log lg exp gcd lcm max min
    sqrt det cis floor ceil"""
)
_GREEK = words(
    """pi theta alpha beta gamma delta lambda mu omega phi epsilon sigma rho tau psi xi eta zeta
    kappa nu chi Gamma Delta Theta Lambda Phi Psi Omega Sigma ell hbar"""
)
_SPELT = dict(pi="pi", theta="theta", inf="infty", oo="infty", infinity="infty", Infinity="infty")
_FACTORS = FUNCTIONS | _GREEK | words("frac binom bar")
_RELATIONS = {sign: sign for sign in ("=", "<", ">", "<=", ">=", "!=", "in")}
_RELATIONS |= {"==": "=", "leq": "<=", "geq": ">=", "neq": "!=", "rightarrow": "=", "equiv": "="}
_RELATIONS |= {"approx": "~", "sim": "~"}
_SEPARATORS = (",", ";", "\\\\", "vee", "and", "or")
_OPERATIONS = {"cup": "union", "setminus": "minus", "cap": "meet"}
_OPERATIONS |= {"+": "add", "-": "add", "*": "mul", "/": "div"}
_LIST, _RELATION, _SET, _RATIO, _MEASURE, _SUM, _PRODUCT, _FACTOR, _POWER = range(9)
_LEVELS = {  # how tightly a sign binds
    **dict.fromkeys(_SEPARATORS, _LIST),
    **dict.fromkeys(_RELATIONS, _RELATION),
    **{"cup": _SET, "setminus": _SET, "cap": _SET, ":": _RATIO, "+": _SUM, "-": _SUM},
    **{"*": _PRODUCT, "/": _PRODUCT, "^": _POWER, "!": _POWER, "%": _POWER},
}
_INTERVALS = {"()": "()", "[]": "[]", "(]": "(]", "[)": "[)", "][": "()", "]]": "(]", "[[": "[)"}


class NotRead(Exception):
    """The text cannot be read; the message says why, in a few words."""


class Token(NamedTuple):
    """kind: number, name, command, word, sign or end."""

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


# units and other words

Unit = tuple[str, ...]  # names of units, their powers and signs
_SYNONYMS = """m meter metre,km kilometer kilometre,cm centimeter centimetre,mm millimeter,
in inch inche,ft foot feet,yd yard,mi mile,s sec second,min minute,h hr hour,year yr,kg kilogram,
g gram,mg milligram,lb pound,oz ounce,l liter litre,ml milliliter,gallon gal,quart qt,
dollar usd buck,euro eur,yen jpy,rupee rs inr,degree deg,radian rad,percent pct percentage,
2 square sq squared,3 cubic cu cubed,/ per"""
_NAMES = {word: group.split()[0] for group in _SYNONYMS.split(",") for word in group.split()}
_SHORT_WORDS = words(
    """cm mm km kg mg ft yd lb lbs oz hr hrs mins secs ml mL dL kL mi pm am mph kmh kph sq cu ms no
    of is an Rs usd gbp eur Hz kHz MHz Pa kPa kJ kW pt AM PM No GB MB KB TB"""
)
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


@functools.lru_cache(maxsize=1024)
def _unit(text: str) -> Unit:
    """The unit that words such as `km / h`, `square feet`, `cm ^ 2` or `red apples` stand for.

    Words that are no known unit stand for themselves, so that `5 apples` is not `5 oranges`.
    """
    said = re.sub(r"\b(square|sq|cubic|cu) (\w+)", r"\2 \1", text).split()
    found = tuple(_NAMES.get(_singular(w), _singular(w)) for w in said if w not in _SKIPPED)
    if len(said) > 10 or is_sentence(said) or not any(name[0].isalpha() for name in found):
        raise NotRead("a number in a sentence")
    return found


# tokens

_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<based>\d[0-9A-F]*_(?:[2-9](?!\d)|\{(?:[1-9]\d?|[a-z]{3,7})\}))"
    r"|(?P<repeating>\d*\.\d*\\bar\s?(?:\{\d+\}|\d)|\d+\.\(\d+\))"
    r"|(?P<number>(?:\d{1,3}(?:,\d{3})+(?!\d|,\d)(?:\.\d+)?|\d+(?:\.\d+|\.(?![\d.]))?|\.\d+)"
    r"(?:[eE][+-]?\d+(?![a-zA-Z\d]))?)"
    r"|(?P<command>\\(?:[a-zA-Z]+|[\\{}|&]))"
    r"|(?P<letters>[A-Za-z]{3,}(?:-(?!sin|cos|tan|sqrt|log|ln|pi)[a-z]{2,})+|[A-Za-z]+)"
    r"|(?P<sign><=|>=|!=|==|[-+*/^_=<>()\[\]{},;:|!%&'])"
)


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
        if kind == "letters" and piece == text and piece.isupper() and len(piece) > 1:
            found.append(Token("word", piece))  # `HT` is not `TH`
        elif kind == "letters":
            alone = spaced and text[position : position + 1] in " ,;.^/)}"
            found += _letters(piece, found, alone)
        elif kind != "space":
            found.append(_token(kind, piece))
        spaced = kind == "space"
    return found


def _token(kind: str, piece: str) -> Token:
    if kind == "number":
        return Token(kind, piece, decimal(piece))
    if kind == "repeating":  # whole.fixed cycle cycle...
        whole, fixed, cycle = re.findall(r"(\d*)\.(\d*?)\D*(\d|(?<=[{(])\d+)\D?\Z", piece)[0]
        tail = Fraction(int(cycle), (10 ** len(cycle) - 1) * 10 ** len(fixed))
        return Token("number", piece, decimal(f"{whole or 0}.{fixed or 0}") + tail)
    if kind == "based":
        numeral, base = re.findall(r"[^{}_]+", piece)
        return Token("name", f"{numeral}_{NUMBER_WORDS.get(base, base)}")
    name = piece[1:]
    if kind == "command" and not name.isalpha():
        return Token("sign", {"|": "|", "&": ","}.get(name, piece))
    return Token(kind, piece if kind == "sign" else name)


def _letters(run: str, found: list[Token], alone: bool) -> list[Token]:
    """The tokens of letters that stand together."""
    last = found[-1].kind if found else ""
    if run.lower() in ("and", "or", "to"):
        return [Token("sign", run.lower().replace("to", ":"))]
    if (run in FUNCTIONS and (run != "min" or last != "number")) or run in _SPELT:
        return [Token("command", _SPELT.get(run, run))]
    if run.lower() in NUMBER_WORDS and last != "word":
        return [Token("number", run, Fraction(NUMBER_WORDS[run.lower()]))]
    is_word = (
        len(run) >= 4
        or run in _SHORT_WORDS
        or (len(run) == 3 and alone)
        or (len(run) == 2 and last == "word")
        or (run == "in" and last == "number")  # inches
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
        if plus.kind == "list" or plus.args[:1] == ("{}",):
            return Tree(plus.kind, tuple(dict.fromkeys(plus.args + minus.args)))
        return node("list", plus, minus)
    parser = _Parser(_scan(text))
    try:
        tree = parser.tree()
    except RecursionError:
        raise NotRead("nested too deep") from None
    parser.expect("end")
    return tree


class _Parser:
    """A Pratt parser: `tree(least)` goes on while signs bind at least so tightly."""

    def __init__(self, found: list[Token]):
        self.tokens = [*found, Token("end", ""), Token("end", "")]
        self.at = 0
        self.bars = sum(token.text == "|" for token in found)  # that are still to come
        self.in_set = False

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
        self.bars -= token.text == "|"
        return token

    def takes(self, *texts: str) -> str:
        """Takes the next token if it is one of these signs or commands."""
        wanted = self.next.text in texts and self.next.kind in ("sign", "command")
        return self.take().text if wanted else ""

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
            if level == _MEASURE:
                tree = self.measured(tree)
            elif level == _POWER:
                sign = self.take().text
                if sign != "^":
                    tree = node("fact" if sign == "!" else "pct", tree)
                elif self.takes("circ"):
                    tree = node("deg", tree)
                else:
                    tree = node("pow", tree, self.exponent())
            else:
                tree = self.joined(tree, level)
        return tree

    def level(self) -> int:
        """How tightly what comes next binds; -1 where it ends every tree."""
        kind, text, _ = self.next
        if kind == "word":
            return _MEASURE
        if self.starts_factor():
            return _PRODUCT
        if kind not in ("sign", "command") or (text == ":" and self.in_set):
            return -1
        in_unit = text == "/" and self.second.kind == "word"
        return _MEASURE if in_unit else _LEVELS.get(text, -1)

    def start(self, least: int) -> Tree:
        if least <= _RELATION:
            self.takes("=", "approx")  # `= 5`
        if sign := self.takes("+", "-"):
            value = self.tree(_PRODUCT)
            return node("neg", value) if sign == "-" else value
        said: list[str] = []
        while self.next.kind == "word" or (said and self.next.kind in ("name", "number")):
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
        while level == _LIST and self.takes("and", "or"):  # `, or`
            sign = self.tokens[self.at - 1].text
        right = self.tree(level + 1)
        if level == _LIST:
            items = [*(left.args if left.kind == "list" else (left,)), right]
            both = all(each.kind == "rel" and each.args[0] != ("=",) for each in items[-2:])
            if both and sign in ("or", "vee"):  # alternatives rather than a system
                items[-2:] = [node("union", *items[-2:])]
            return node("list", *items) if len(items) > 1 else items[0]
        if level == _RELATION:
            if sign == "in" and (left.kind == "sym" or left.args[:1] == ("()",)):
                return right  # where a name is from is what it is
            signs, *sides = left.args if left.kind == "rel" else ((), left)
            return node("rel", (*signs, _RELATIONS[sign]), *sides, right)
        if level == _RATIO:
            terms = [left]
            while self.takes(":"):
                terms, right = [*terms, right], self.tree(level + 1)
            terms = [node("div", term, right) for term in terms]
            return node("group", ":", *terms) if len(terms) > 1 else terms[0]
        right = node("neg", right) if sign == "-" else right
        return node(_OPERATIONS[sign], left, right)

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
        if kind == "name" or (text in ("max", "min") and self.next.text == "="):
            return self.symbol(text)
        if kind == "command" and text in _COMMANDS:
            return _COMMANDS[text](self)
        if kind == "command" and text in FUNCTIONS:
            return self.call(text)
        if kind == "command" and text in _GREEK:
            return self.symbol("\\" + text)
        if text in ("(", "[", "]"):
            return self.group(text)
        if text == "\\{":
            return self.set()
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
        tree = node("call", *(["log_base", *arguments, base] if base else [name, *arguments]))
        return node("pow", tree, power) if power else tree

    def items(self) -> list[Tree]:
        tree = self.tree()
        return list(tree.args) if tree.kind == "list" else [tree]

    def group(self, opening: str) -> Tree:
        first = self.at == 1
        items = self.items()
        brackets = opening + self.take().text
        if len(items) == 2:  # `]0, 1]`
            brackets = _INTERVALS.get(brackets, "")
        elif brackets not in ("()", "[]"):
            brackets = ""
        if not brackets:
            raise NotRead("brackets do not match")
        whole = brackets == "[]" and first and self.next.kind == "end" and items[0].kind != "group"
        row = brackets == "()" and items[0].args[:1] == ("[]",)
        if len(items) == 1 and not (whole or row):  # brackets that only group
            return items[0]
        return node("group", brackets, *items)

    def set(self) -> Tree:
        if self.takes("\\}"):
            return node("empty")
        outer, self.in_set = self.in_set, True
        items = self.items()
        self.in_set = outer
        if self.takes("mid", "|", ":"):  # set builder: what holds of x is the set
            provisos = [each for each in items if each.kind == "field" and each.args != ("R",)]
            items = [*self.items(), *provisos]
            self.expect("\\}")
            return items[0] if len(items) == 1 else node("list", *items)
        self.expect("\\}")
        return node("group", "{}", *items)

    def root(self) -> Tree:
        degree = number(2)
        if self.takes("["):
            degree = self.tree()
            self.expect("]")
        return node("call", "root", self.primary(), degree)


_COMMANDS: dict[str, Callable[[_Parser], Tree]] = {
    "frac": lambda parser: node("div", parser.primary(), parser.primary()),
    "binom": lambda parser: node("call", "binom", parser.primary(), parser.primary()),
    "infty": lambda _: node("inf"),
    "emptyset": lambda _: node("empty"),
    "bar": lambda parser: node("sym", "\\bar " + parser.enclosed()),  # a name of its own
    "mathbb": lambda parser: node("field", parser.enclosed()),
    "sqrt": _Parser.root,
}
