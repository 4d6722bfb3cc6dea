"""Cuts an answer's canonical text into tokens: numbers, names, words and signs."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from answer_graders.math.tree import NotRead, words
from answer_graders.math.units import Unit, is_known, unit_at
from answer_graders.math.vocabulary import NUMBER_WORDS, SHORT_WORDS

MAX_DIGITS = 400  # of one number
MAX_TOKENS = 600

FUNCTIONS = words(
    """sin cos tan cot sec csc sinh cosh tanh arcsin arccos arctan arccot arcsec arccsc arcsinh
    arccosh arctanh ln log lg exp gcd lcm max min sqrt det diag cis abs floor ceil"""
)
_ALIASES = {"tg": "tan", "ctg": "cot", "arctg": "arctan", "arcctg": "arccot"}  # bare, tg is t g
_TIMES = ("min", "sec")  # without an argument, minutes and seconds
_ARGUMENT = re.compile(r"\s*(?:\^\s*(?:\{[^{}]{1,9}\}|\d)\s*)?(?:[({\[\\\d]|[a-zA-Z](?![a-zA-Z]))")
_SPELT_OUT = dict(
    pi="pi", theta="theta", inf="infty", oo="infty", infinity="infty", Infinity="infty"
)
_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<based>\d[0-9A-F]*_(?:[2-9](?!\d)|\{(?:[1-9]\d?|[a-z]{3,7})\}))"
    r"|(?P<number>\d*\.\d*\\bar\s?(?:\{\d+\}|\d)"
    r"|(?:\d+(?:\.\d+|\.(?![\d.]))?|\.\d+)(?:[eE][+-]?\d+(?![a-zA-Z\d]))?)"
    r"|\\(?:(?P<word>[ABCFJKLNVWghlms])(?![a-zA-Z])|(?P<command>[a-zA-Z]+))"
    r"|(?P<letters>[A-Za-z]{3,}(?:-(?!sin|cos|tan|sqrt|log|ln|pi)[a-z]{2,})+|[A-Za-z]+)"
    r"|(?P<sign>\\[\\{}]|<=|>=|!=|[-+*/^_=<>()\[\]{},;:|!%'])"
)


_NAMED_NUMBER = re.compile(  # `P(A \cap B) = 1/2`, `f(g(2)) = 5`: the left side is only a name
    r"(?=[^=]*(?:\\(?:cap|cup|mid|Pr|phi|lim|sum|prod|int)(?![a-zA-Z])|[|^]|\([^()]*\())"
    r"((?:\\?Pr?|\\phi|[fghE]) ?(?:\^ ?\{ ?-1 ?\} ?)?\((?:[^()=<>]|\([^()=<>]*\)){1,60}\)"
    r"|\\(?:lim|sum|prod|int) ?_ ?(?:\{[^{}]{1,40}\}|\w)(?: ?\^ ?(?:\{[^{}]{1,20}\}|\w|\\infty))?"
    r"[^=<>]{1,60}?) ?"
    r"(?==[^<>a-zA-Z\\]*(?:\\[a-zA-Z]+[^<>a-zA-Z\\]*)*\Z)"
)


_OPERATOR = re.compile(r" ?[-+*^=]")
_NO_PRODUCTS = SHORT_WORDS | FUNCTIONS


class Token(NamedTuple):
    """kind: number, name, word, sign (or the name of a command), unit or end."""

    kind: str
    text: str
    unit: Unit = ()


def tokens_of(text: str, thousands: bool = True, units: bool = False) -> list[Token]:
    """The tokens of a text.

    `thousands`: whether commas may group the digits of a number. `units`: whether letters after a
    number may be a unit, which is one token.
    """
    if thousands and "," in text:
        text = _without_thousands_commas(text)
    tokens: list[Token] = []
    position = 0
    named_number = _NAMED_NUMBER.match(text)
    if named_number:
        tokens.append(Token("name", named_number[1].replace(" ", "")))
        position = named_number.end()
    after_space = True
    while position < len(text):
        unit = unit_at(text, position) if units and tokens and _ends_number(tokens[-1]) else None
        if unit:
            tokens.append(Token("unit", text[position : unit.end], unit.unit))
            position = unit.end
            after_space = False
            continue
        match = _TOKEN.match(text, position)
        if match is None or len(tokens) > MAX_TOKENS:
            raise NotRead(f"unexpected {text[position]!a}, or too long")
        position = match.end()
        kind = str(match.lastgroup)
        piece = match[kind]
        if kind == "letters":
            tokens += _tokens_of_piece(piece, text[position:], tokens, after_space)
        elif kind == "based":
            numeral, base = re.findall(r"[^{}_]+", piece)
            tokens.append(Token("name", f"{numeral}_{NUMBER_WORDS.get(base, base)}"))
        elif kind == "command":
            tokens.append(Token("sign", _ALIASES.get(piece, piece)))
        elif kind != "space":
            tokens.append(Token(kind, piece))
        after_space = kind == "space"
    return tokens


def _ends_number(token: Token) -> bool:
    return token.kind == "number" or (token.kind == "sign" and token.text in ("}", ")", "pi"))


def _tokens_of_piece(
    letters: str, rest: str, before: Sequence[Token], after_space: bool
) -> list[Token]:
    """The tokens of adjacent letters between the tokens before them and the rest of the text."""
    last = before[-1] if before else Token("", "")
    has_operator = last.text in ("+", "-", "*", "^") or bool(_OPERATOR.match(rest))
    is_glued = not after_space and _ends_number(last)
    if _is_product(letters, is_glued=is_glued, has_operator=has_operator):
        return [Token("name", letter) for letter in letters]
    alone = after_space and rest[:1] in " ,;.^/)}"
    of_word = len(before) > 1 and last.text == "/" and before[-2].kind == "word"  # `eggs/day`
    needs_argument = letters in _TIMES or letters in _ALIASES
    may_be_function = not needs_argument or bool(_ARGUMENT.match(rest))
    return _tokens_of_letters(letters, "word" if of_word else last.kind, alone, may_be_function)


def _tokens_of_letters(
    letters: str, last_kind: str, alone: bool, may_be_function: bool
) -> list[Token]:
    """The tokens of adjacent letters: a sign, a number, a word, or one name per letter."""
    lower = letters.lower()
    if lower in ("and", "or"):
        return [Token("sign", lower)]
    if lower == "to":
        return [Token("sign", ":")]
    function = letters if letters == "tg" else _ALIASES.get(letters, letters)
    if function in FUNCTIONS and may_be_function:
        return [Token("sign", function)]
    if letters in _SPELT_OUT:
        return [Token("sign", _SPELT_OUT[letters])]
    if lower in NUMBER_WORDS and last_kind != "word":
        return [Token("number", str(NUMBER_WORDS[lower]))]
    if _is_word(letters, last_kind, alone):
        return [Token("word", letters)]
    return [Token("name", letter) for letter in letters]


def _is_word(letters: str, last_kind: str, alone: bool) -> bool:
    if len(letters) == 1:
        return False
    is_inches = letters == "in" and last_kind == "number"
    if is_inches or letters in SHORT_WORDS or last_kind == "word":
        return True
    return len(letters) >= 4 or (alone and len(letters) == 3)


def _is_product(letters: str, *, is_glued: bool, has_operator: bool) -> bool:
    """Whether letters are variables side by side: `4abcd`, `abc+1`, `2+mgR`.

    `is_glued`: they stand directly behind a number. `has_operator`: next to one.
    """
    lower = letters.lower()
    is_short = len(letters) < 3 or len(set(lower)) < len(letters)
    if is_short or letters.isupper() or letters in _NO_PRODUCTS or is_known(letters):
        return False
    is_run = lower in string.ascii_lowercase
    if is_glued:
        return is_run
    return has_operator and (is_run or set("aeiou").isdisjoint(lower))


# commas

_BRACKET = re.compile(r"(\\\{|\\\}|[()\[\]])")
_THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?!\d|,\d)")


def _without_thousands_commas(text: str) -> str:
    """The text without the commas that group digits: `12,345` is a number, `(12,345)` a pair.

    In brackets, and next to other elements of a list, a comma separates. But if commas with a space
    after them separate, those without a space group digits: `(1,000, 2,000)`, `5, 12,345`. In
    `99,100,\\ldots,120` they separate.
    """
    pieces = _BRACKET.split(text)
    depth = 0
    for index, piece in enumerate(pieces):
        if piece in ("(", "[", "\\{"):
            depth += 1
        elif piece in (")", "]", "\\}"):
            depth -= 1
        elif _commas_group(piece, depth != 0):
            pieces[index] = _THOUSANDS.sub(lambda match: match[0].replace(",", ""), piece)
    return "".join(pieces)


def _commas_group(piece: str, in_brackets: bool) -> bool:
    separators = _THOUSANDS.sub("", piece)
    separators = separators.replace(", ", ";")
    is_list = in_brackets or "\\ldots" in piece
    return ";" in separators or not is_list


def decimal(piece: str) -> Fraction:
    r"""The exact value of a numeral: `1,234.5`, `1e-3`, or a recurring decimal, `0.1\bar{6}`."""
    numeral = piece.replace(",", "").lower()
    mantissa, _, exponent = numeral.partition("e")
    power = 0
    if exponent and len(exponent) <= 4:
        power = int(exponent)
    if len(mantissa) > MAX_DIGITS or len(exponent) > 4 or abs(power) > MAX_DIGITS:
        raise NotRead(f"a number of more than {MAX_DIGITS} digits")
    finite_digits, _, cycle = mantissa.partition("\\bar")
    value = Fraction("0" if finite_digits == "." else finite_digits)
    cycle = cycle.strip(" {}")
    if cycle:
        _, _, decimals = finite_digits.partition(".")
        nines = 10 ** len(cycle) - 1
        value += Fraction(int(cycle), nines * 10 ** len(decimals))
    return value * Fraction(10) ** power
