"""Exact values of expressions over whole numbers with + - * / and parentheses, read token by token.

Nothing is evaluated as code. The grammar has no sign of a number, decimal point, power, floor
division or implied product: `-5`, `1.5`, `2**3`, `7//2` and `2(3)` are no expressions.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import NamedTuple

MAX_CHARACTERS = 200  # bounds the nodes, the depth and the digits as well

_TOKEN = re.compile(
    r"0(?![xX])|[1-9][0-9]*|[-+*/()xX\u00d7\u00b7\u22c5\u2217\u00f7\u2212]"
    r"|\\(?:times|cdot|ast|div)(?![A-Za-z])"
)
_SPELLINGS = dict.fromkeys(("x", "X", "\u00d7", "\u00b7", "\u22c5", "\u2217"), "*")
_SPELLINGS |= dict.fromkeys(("\\times", "\\cdot", "\\ast"), "*")
_SPELLINGS |= {"\u00f7": "/", "\\div": "/", "\u2212": "-"}
_SPACES = " \t\r\n"
_OPERATORS: dict[str, tuple[int, Callable[[Fraction, Fraction], Fraction]]] = {
    "+": (1, operator.add),  # how tightly it binds, and what it does to two values
    "-": (1, operator.sub),
    "*": (2, operator.mul),
    "/": (2, operator.truediv),
}


class Expression(NamedTuple):
    """What an expression comes to.

    Attributes:
        value: exact.
        numbers: every number in it, in the order written, as often as it is written.
    """

    value: Fraction
    numbers: list[int]


def evaluate(text: str) -> Expression:
    """The exact value of an expression, and the numbers it is made of.

    Multiplication and division bind tighter than addition and subtraction, and equals go from left
    to right. The printed signs (times, dots, asterisk, obelus, minus), LaTeX's `\\times`, `\\cdot`,
    `\\ast` and `\\div`, and the letter x are read as what they stand for; `0x10` is no product.

    Raises:
        ValueError: the text is no expression, or longer than `MAX_CHARACTERS`; it says why.
        ZeroDivisionError: the expression divides by zero.
    """
    values: list[Fraction | None] = []  # None: undefined, which is said once all is read
    numbers: list[int] = []
    waiting: list[str] = []  # operators to apply and parentheses to close, the innermost last
    value_expected = True
    for token in _tokens(text):
        if value_expected != (token == "(" or token.isdigit()):
            raise ValueError(f"{token!r} cannot stand where it does")
        if token.isdigit():
            numbers.append(int(token))
            values.append(Fraction(numbers[-1]))
            value_expected = False
        elif token == "(":
            waiting.append(token)
        elif token == ")":
            _apply(values, waiting, binding=1)
            if not waiting:
                raise ValueError("a parenthesis is closed that was not opened")
            waiting.pop()
        else:
            _apply(values, waiting, binding=_OPERATORS[token][0])
            waiting.append(token)
            value_expected = True
    if value_expected:
        raise ValueError("it ends where a number is expected")
    _apply(values, waiting, binding=1)
    if waiting:
        raise ValueError("a parenthesis is not closed")
    if values[0] is None:
        raise ZeroDivisionError("it divides by zero")
    return Expression(values[0], numbers)


def sides(equation: str) -> tuple[str, str]:
    """The expression, and the number on the other side of an equals sign, or nothing.

    Raises:
        ValueError: there are several equals signs, or there is no number alone on either side.
    """
    expression, *others = (side.strip() for side in equation.split("="))
    if not others:
        return expression, ""
    if len(others) > 1:
        raise ValueError("it has more than one equals sign")
    for side, other in ((expression, others[0]), (others[0], expression)):
        if other.isascii() and other.isdigit():
            return side, other
    raise ValueError("on neither side of the equals sign is a whole number alone")


def _tokens(text: str) -> Iterator[str]:
    """Numbers, the four signs and parentheses; ValueError at anything else."""
    position, text = 0, text.strip(_SPACES)
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"{len(text)} characters, where {MAX_CHARACTERS} are allowed")
    while position < len(text):
        if match := _TOKEN.match(text, position):
            yield _SPELLINGS.get(match[0], match[0])
            position = match.end()
        elif text[position] in _SPACES:
            position += 1
        else:
            raise ValueError(f"{text[position]!r} is no part of an expression")


def _apply(values: list[Fraction | None], waiting: list[str], binding: int) -> None:
    """Applies the last operators that bind at least so tightly, back to an open parenthesis."""
    while waiting and waiting[-1] != "(" and _OPERATORS[waiting[-1]][0] >= binding:
        operation = _OPERATORS[waiting.pop()][1]
        right, left = values.pop(), values.pop()
        if left is None or right is None or (operation is operator.truediv and not right):
            values.append(None)
        else:
            values.append(operation(left, right))
