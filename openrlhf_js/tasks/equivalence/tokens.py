r"""Cut an answer's canonical text into numbers, names, commands, words and signs.

Letters that stand together are a product (`ab`), a function (`sin`) or a word (`apples`), and which
of these depends on what stands around them; this file decides it, so that the parser need not.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

MAX_DIGITS = 400  # of one number
MAX_TOKENS = 1_000
FUNCTIONS = frozenset((
    "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh",
    "tanh", "ln", "log", "lg", "exp", "gcd", "lcm", "max", "min", "sqrt", "det", "cis",
))  # fmt: skip
_CONSTANTS = {
    "pi": "pi",
    "infinity": "infty",
    "Infinity": "infty",
    "inf": "infty",
    "oo": "infty",
    "theta": "theta",
}
_MONEY = frozenset(["usd", "euro", "gbp", "yen", "cents"])
_MONEY_WORDS = frozenset(("USD", "EUR", "GBP", "CAD", "AUD", "JPY", "CNY", "INR", "CHF", "Rs"))
_SEPARATORS = frozenset(("and", "or"))
_SHORT_WORDS = frozenset((
    "cm", "mm", "km", "kg", "mg", "ft", "yd", "lb", "lbs", "oz", "hr", "hrs", "min", "mins",
    "sec", "secs", "ml", "mL", "dL", "kL", "mi", "pm", "am", "mph", "kmh", "kph", "sq", "cu",
    "ms", "ounce", "no", "yes", "ton", "tons", "day", "days", "men", "cup", "pen", "box",
    "egg", "odd", "even", "amp", "amps", "Hz", "kHz", "MHz", "Pa", "kPa", "kJ", "kW", "mol",
    "deg", "rad", "rads", "degree", "year", "mile", "feet", "foot", "inch", "gal", "pt", "qt",
    "AM", "PM", "Yes", "No", "GB", "MB", "KB", "TB",
))  # fmt: skip
_CHOICES = frozenset("ABCDEFGHJ")
_LETTER_UNITS = frozenset("msghLlNJWAVKCFB")


class Token(NamedTuple):
    """kind: number, base, name, command, word, money, separator, sign or end."""

    kind: str
    text: str
    value: Fraction = Fraction(0)
    spaced: bool = False  # whether space stands before it


class NotRead(Exception):
    """The text cannot be read; the message says why, in a few words."""


_BASE = r"(?:\d|\{\s?\(?(?:\\text\{)?\(?(?:\d{1,2}|[a-z ]{3,}\d{0,2})\}?\)?\s?\d{0,2}\s?\})"
_NUMBER = r"\d+(?:\.\d+|\.(?![\d.]))?|\.\d+"
_GROUPED_NUMBER = r"\d{1,3}(?:,\d{3})+(?!\d|,\d)(?:\.\d+)?|" + _NUMBER


def _pattern(number: str) -> re.Pattern[str]:
    return re.compile(
        r"(?P<space>\s+)"
        r"|(?P<base>(?<![0-9A-F])(?!\d*[A-F][0-9A-F]*_(?:\d|\{\d\}))"  # `2C_1` is a product
        rf"(?=[A-F]*\d|[A-F]{{2}})[0-9A-F]+(?:\.[0-9A-F]+)?_{_BASE})"
        r"|(?P<repeating>\d*\.\d*\\bar\s?(?:\{\d+\}|\d)|\d+\.\(\d+\))"
        rf"|(?P<number>(?:{number})(?:[eE][+-]?\d+(?![a-zA-Z\d]))?)"
        r"|(?P<text>\\text\s?\{[^{}]*\})"
        r"|(?P<command>\\(?:[a-zA-Z]+|[\\{}|&]))"
        r"|(?P<letters>[A-Za-z]{3,}(?:-(?!sin|cos|tan|sqrt|log|ln|pi)[a-z]{2,})+|[A-Za-z]+)"
        r"|(?P<dots>\.\.\.+)"
        r"|(?P<sign><=|>=|!=|==|[-+*/^_=<>()\[\]{},;:|!%&'])"
    )


_TOKEN = _pattern(_NUMBER)
_GROUPED_TOKEN = _pattern(_GROUPED_NUMBER)
_COUNTING = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen", "twenty",
)  # fmt: skip
_VALUES = {word: value for value, word in enumerate(_COUNTING)}
NUMBER_WORDS = frozenset(_VALUES)


def tokens(text: str, grouped: bool = True) -> list[Token]:
    """The tokens of a canonical text, with an `end` last.

    Args:
        text: what `text.normal` returned.
        grouped: whether `1,234` is one number rather than two with a comma between.

    Raises:
        NotRead: on a character that no answer has, or past a cap.
    """
    found: list[Token] = []
    _scan(text, _GROUPED_TOKEN if grouped else _TOKEN, found, in_text=False)
    found.append(Token("end", ""))
    return found


def _scan(text: str, pattern: re.Pattern[str], found: list[Token], in_text: bool) -> None:
    position, spaced = 0, False
    while position < len(text):
        match = pattern.match(text, position)
        if match is None:
            raise NotRead(f"unexpected {text[position]!a}")
        if len(found) > MAX_TOKENS:
            raise NotRead("too long")
        position = match.end()
        kind, piece = match.lastgroup, match[0]
        if kind == "space":
            spaced = True
            continue
        if kind == "text":
            content = piece[piece.index("{") + 1 : -1]
            if content.strip() in _LETTER_UNITS and found and found[-1].kind == "number":
                content = f" {content} "  # `150\\mathrm{m}`
            _scan(content, pattern, found, in_text=len(content.strip(" ().")) > 1)
            spaced = content.endswith(" ")
            continue
        if kind == "letters":
            alone = position == len(text) or text[position] in " ,;.^/)}"
            found.extend(_letters(piece, found, spaced, alone, in_text))
        else:
            found.append(_token(str(kind), piece, spaced))
        spaced = False


def _token(kind: str, piece: str, spaced: bool) -> Token:
    if kind == "number":
        return Token(kind, piece, decimal(piece), spaced)
    if kind == "repeating":
        return Token("number", piece, _repeating(piece), spaced)
    if kind == "base":
        return _in_base(piece, spaced)
    if kind == "command":
        name = piece[1:]
        if name in _MONEY:
            return Token("money", name, spaced=spaced)
        if not name.isalpha():
            return Token("sign", {"|": "|", "&": ","}.get(name, piece), spaced=spaced)
        return Token(kind, name, spaced=spaced)
    if kind == "dots":
        return Token("sign", "...", spaced=spaced)
    return Token(kind, piece, spaced=spaced)


def _letters(
    run: str, before: list[Token], spaced: bool, alone: bool, in_text: bool
) -> list[Token]:
    """The tokens of letters that stand together."""
    if run in _MONEY_WORDS:
        return [Token("money", run.lower(), spaced=spaced)]
    if run.lower() in _SEPARATORS:
        return [Token("separator", run.lower())]
    if run == "to":
        return [Token("sign", ":", spaced=spaced)]
    minutes = run == "min" and alone and bool(before) and before[-1].kind == "number"
    if (run in FUNCTIONS and not minutes) or run in _CONSTANTS:
        return [Token("command", _CONSTANTS.get(run, run), spaced=spaced)]
    if run.lower() in _VALUES and not (before and before[-1].kind == "word"):
        return [Token("number", run, Fraction(_VALUES[run.lower()]), spaced)]
    after_value = bool(before) and (
        before[-1].kind in ("number", "word", "money") or before[-1].text in (")", "}", "circ")
    )
    is_word = (
        len(run) >= 4
        or run in _SHORT_WORDS
        or (len(run) == 3 and alone and (spaced or not before))
        or (len(run) >= 2 and before and before[-1].kind == "word")
        or (in_text and (after_value or run not in _CHOICES))
        or (run == "in" and alone and bool(before) and before[-1].kind == "number")  # inches
        or (run in _LETTER_UNITS and alone and spaced and after_value)
    )
    if is_word:
        return [Token("word", run, spaced=spaced)]
    return [Token("name", letter, spaced=spaced and i == 0) for i, letter in enumerate(run)]


def decimal(piece: str) -> Fraction:
    """The exact value of a decimal numeral, which may have group commas and an exponent."""
    mantissa, _, exponent = piece.replace(",", "").lower().partition("e")
    if len(mantissa) > MAX_DIGITS or len(exponent) > 4 or abs(int(exponent or 0)) > MAX_DIGITS:
        raise NotRead(f"a number of more than {MAX_DIGITS} digits")
    whole, _, part = mantissa.partition(".")
    value = Fraction(int(whole + part or 0), 10 ** len(part))
    return value * Fraction(10) ** int(exponent) if exponent else value


def _repeating(piece: str) -> Fraction:
    digits = piece.replace("\\bar", "").replace(" ", "")
    head, _, tail = digits.partition(".")
    cut = (
        next(i for i, char in enumerate(tail) if char in "{(")
        if tail[-1] in "})"
        else len(tail) - 1
    )
    return recurring(head, tail[:cut], tail[cut:].strip("{}()"))


def recurring(whole: str, fixed: str, cycle: str) -> Fraction:
    """The value of whole.fixed cycle cycle cycle..."""
    if len(whole) + len(fixed) + len(cycle) > MAX_DIGITS:
        raise NotRead(f"a number of more than {MAX_DIGITS} digits")
    scale = 10 ** len(fixed)
    head = Fraction(int(whole + fixed or 0), scale)
    return head + Fraction(int(cycle), (10 ** len(cycle) - 1) * scale)


def _in_base(piece: str, spaced: bool) -> Token:
    numeral, _, subscript = piece.partition("_")
    name = subscript.strip("{} ()").replace("\\text{", "").replace("base", "").strip(" }")
    base = int(name) if name.isdigit() else _VALUES.get(name, 0)
    whole, _, part = numeral.partition(".")
    if (
        not 2 <= base <= 16
        or len(numeral) > MAX_DIGITS
        or any(int(d, 16) >= base for d in whole + part)
    ):
        raise NotRead(f"{piece[:40]} is no number in a base from 2 to 16")
    value = Fraction(int(whole + part, base), base ** len(part))
    return Token("base", f"{numeral.lstrip('0') or '0'}_{base}", value, spaced)
