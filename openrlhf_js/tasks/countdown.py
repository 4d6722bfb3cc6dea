"""Countdown: reach a target from given numbers, each used at most once, by + - * / and parentheses.

Every generated problem takes all its numbers: all values that they make are enumerated exactly.
"""

from __future__ import annotations

import json
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from math import gcd
from typing import Any, NamedTuple

from openrlhf_js.tasks import base
from openrlhf_js.tasks.answers import plain, tagged_or_boxed
from openrlhf_js.tasks.base import Item, Message, Score, Split, Wording, scored

NAME = "countdown"
answer_of = tagged_or_boxed
MAX_NUMBERS = 5  # enumerating a problem of 4 takes half a millisecond, one of 5 takes 15
MAX_EXPRESSION_CHARACTERS = 200  # bounds the size, the depth and the digits of an expression
MAX_ANSWER_CHARACTERS = 1_000  # of an expression with its presentation
TRIES = 2_000  # sets of numbers in a row without a new problem
PROMPTS: dict[Wording, str] = {
    "own": "Combine the numbers {numbers} into an expression that equals {target}. You may add, "
    "subtract, multiply and divide (+, -, *, /) and use parentheses, and each number can be used "
    "only once. Reason inside <think> </think> tags, then give the expression inside <answer> "
    "</answer> tags, for example <answer> (1 + 2) / 3 </answer>.",
    "paper": "Using the numbers {numbers}, create an equation that equals {target}. You can use "
    "basic arithmetic operations (+, -, *, /) and each number can only be used once. Show your "
    "work in <think> </think> tags. And return the final answer in <answer> </answer> tags, for "
    "example <answer> (1 + 2) / 3 </answer>.",
}


def generate(
    count: int,
    seed: int,
    split: Split = "train",
    numbers: Sequence[int] = (3, 4),
    largest: int = 99,
    targets: tuple[int, int] = (10, 99),
    wording: Wording = "own",
) -> Iterator[Item]:
    """Problems {"numbers": [...], "target": int}, all different, and equally many of each size.

    Sizes (`numbers`) are from 2 to 5. No number from 1 to `largest` is given twice; of the targets
    that take all numbers, each is equally likely. Test gets one set of numbers in 8.
    """
    low, high = targets
    random, seen = base.random_of(NAME, split, seed), set[int]()

    def draw(size: int) -> Item | None:
        given = random.sample(range(1, largest + 1), size)
        key = f"{NAME} {sorted(given)}"
        if base.split_of(key) != split:
            return None
        *fewer, with_all = _reachable(given)
        wanted = [
            n
            for n, d in with_all
            if d == 1 and low <= n <= high and not any((n, 1) in table for table in fewer)
        ]
        random.shuffle(wanted)
        target = next((target for target in wanted if base.is_new(seen, f"{key} {target}")), None)
        return {"numbers": given, "target": target, "wording": wording} if target else None

    yield from base.in_turn(draw, numbers, count, TRIES, f"{split} problems with {{}} numbers")


def prompt(item: Item) -> list[Message]:
    """Asks for an expression in `<answer>` tags, with the work in `<think>` tags."""
    question = PROMPTS[item.get("wording", "own")]
    content = question.format(numbers=list(item["numbers"]), target=item["target"])
    return [{"role": "user", "content": content}]


def label(item: Item) -> str:
    """The given numbers and the target, as JSON; ValueError if they are not whole and from 1."""
    text = json.dumps({"numbers": list(item["numbers"]), "target": item["target"]})
    _problem(text)
    return text


@lru_cache(maxsize=4096)
def _problem(label: str) -> tuple[list[int], int, bool]:
    def read(fields: Any) -> tuple[list[int], int, bool]:
        numbers, target = list(fields["numbers"]), fields["target"]
        use_all = fields.get("use_all", False)
        whole = all(type(n) is int and n > 0 for n in (*numbers, target))
        if not numbers or not whole or type(use_all) is not bool:
            raise ValueError("no problem")
        return numbers, target, use_all

    form = 'JSON like {"numbers": [55, 53, 59, 22], "target": 71}, all whole from 1'
    return base.read_label(label, read, form)


def score(response: str, label: str) -> Score:
    """Grades the expression in the last `<answer>`, or without one in the last box.

    It must equal the target exactly and use each number at most once, and all where the label has
    `"use_all": true`. Its presentation makes no difference. ValueError if the label is malformed.
    """
    numbers, target, use_all = _problem(label)
    answer = answer_of(response)
    if answer is None:
        return scored("no_answer", "nothing in <answer> tags")
    if len(answer) > MAX_ANSWER_CHARACTERS:
        return scored("malformed", f"{len(answer)} characters in <answer> tags")
    try:
        expression, stated = sides(answer)
        value, used = evaluate(expression)
    except ZeroDivisionError:
        return scored("wrong", "it divides by zero")
    except ValueError as error:
        return scored("malformed", str(error))
    if excess := Counter(used) - Counter(numbers):
        return scored("wrong", f"it uses {min(excess)} more often than it is given")
    if use_all and (unused := Counter(numbers) - Counter(used)):
        return scored("wrong", f"it does not use {min(unused)}")
    if value != target:
        return scored("wrong", f"it equals {value}, not {target}")
    if stated and stated != str(target):
        return scored("wrong", f"it says that it equals {stated[:20]}, not {target}")
    return scored("correct", f"it equals {value}")


def right_response(label: str) -> str:
    """A solution with as few numbers as the label allows; ValueError if there is none."""
    numbers, target, use_all = _problem(label)
    tables = _reachable(numbers, least=0 if use_all else 1)
    subsets = sorted(range(len(tables)), key=int.bit_count)
    for subset in subsets[-1:] if use_all else subsets:
        if found := tables[subset].get((target, 1)):
            return f"<answer> {found.removeprefix('(').removesuffix(')')} </answer>"
    raise ValueError(f"{target} cannot be reached from {numbers}")


def wrong_response(label: str) -> str:
    """One of the given numbers, or one not given where all equal the target."""
    numbers, target, _ = _problem(label)
    other = (number for number in numbers if number != target)
    return f"<answer> {next(other, target + 1)} </answer>"


# Reading expressions: token by token, since nothing of a response is evaluated as code.

_LEAD = re.compile(
    r"\A(?:\*\*)?"
    r"(?:(?:the )?(?:final )?(?:expression|equation|answer|solution|result)(?: is|:|\*\*)+"
    r"|[A-Za-z]\s*=(?=[^=]))\s*",
    re.IGNORECASE,
)
_FRACTION = re.compile(r"\\[cdt]?frac\s{0,3}\{([^{}]*)\}\s{0,3}\{([^{}]*)\}")
_COMMAND = re.compile(r"\\(?:[a-z]?box|text|math)[a-z]{0,6}\s{0,3}\{")  # braces are its own
_TOKEN = re.compile(r"0[xX]|0|[1-9][0-9]*|\\(?:times|cdot|ast|div)(?![A-Za-z])|.", re.DOTALL)
_SPELLINGS = dict.fromkeys(("x", "X", "\u00d7", "\u00b7", "\u22c5", "\u2217"), "*")
_SPELLINGS |= dict.fromkeys(("\\times", "\\cdot", "\\ast"), "*")
_SPELLINGS |= {"\u00f7": "/", "\\div": "/", "\u2212": "-"}
_CLOSING = {"(": ")", "[": "]"}
_BRACKETS = str.maketrans("{}", "[]")
_END, _SPACES = "its end", " \t\r\n"
_OPERATORS: dict[str, tuple[int, Callable[[Any, Any], Any]]] = {  # how tightly each binds
    **{"+": (1, operator.add), "-": (1, operator.sub)},
    **{"*": (2, operator.mul), "/": (2, operator.truediv)},
}


class Expression(NamedTuple):
    """The exact value of an expression, and its numbers in the order written."""

    value: Fraction
    numbers: list[int]


def sides(answer: str) -> tuple[str, str]:
    """The expression of an answer, and the whole number that it states to equal, or "".

    Braces that no command takes are brackets, as they are written and not as LaTeX shows them.
    """
    for _ in range(min(answer.count("frac"), MAX_NUMBERS)):  # from the inside out
        answer = _FRACTION.sub(r"[[\1]/[\2]]", answer)
    if "{" in answer and answer.count("{") == answer.count("}"):
        answer = answer.replace("\\{", "[").replace("\\}", "]")
        if not _COMMAND.search(answer):
            answer = answer.translate(_BRACKETS)
    text = plain(answer)
    if lead := _LEAD.match(text):
        text = text[lead.end() :]
    expression, *others = (side.strip() for side in text.split("="))
    if not others:
        return expression, ""
    if len(others) > 1:
        raise ValueError("it has more than one equals sign")
    for side, other in ((expression, others[0]), (others[0], expression)):
        if other.isascii() and other.isdigit():
            return side, other
    raise ValueError("on neither side of the equals sign is a whole number alone")


def evaluate(text: str) -> Expression:
    """The exact value of an expression over whole numbers, and the numbers it is made of.

    LaTeX's and typographic signs and the letter x stand for operators, square brackets for
    parentheses. ValueError where it is no expression, ZeroDivisionError where it has no value.
    """
    if len(text := text.strip(_SPACES)) > MAX_EXPRESSION_CHARACTERS:
        raise ValueError(f"{len(text)} characters, where {MAX_EXPRESSION_CHARACTERS} are allowed")
    written = (token for token in reversed(_TOKEN.findall(text)) if token not in _SPACES)
    tokens, numbers = [_END, *(_SPELLINGS.get(token, token) for token in written)], list[int]()

    def value(least: int) -> Fraction:
        """Of the next operand, and of the operators behind it that bind at least so tightly."""
        token = tokens.pop()
        if token.isdigit() and token.isascii():
            numbers.append(int(token))
            found = Fraction(numbers[-1])
        elif token in _CLOSING:
            found = value(1)
            if tokens.pop() != _CLOSING[token]:
                raise ValueError("its parentheses do not match")
        elif token == "-" and least == 1:
            found = -value(2)
        else:
            raise ValueError(f"{token!r} stands where a number is expected")
        while tokens[-1] in _OPERATORS and _OPERATORS[tokens[-1]][0] >= least:
            precedence, operation = _OPERATORS[tokens.pop()]
            found = operation(found, value(precedence + 1))
        return found

    result = value(1)
    if tokens != [_END]:
        raise ValueError(f"{tokens[-1]!r} cannot stand where it does")
    return Expression(result, numbers)


# Solving problems

Table = dict[tuple[int, int], str]  # numerator, denominator in lowest terms: an expression


def _reachable(numbers: Sequence[int], least: int = 1) -> list[Table]:
    """The values of expressions that use exactly the numbers of a subset: a table for every subset.

    Bit i of a table's index is 1 if `numbers[i]` is in. Only positive values are kept, which loses
    no positive target: a negative part can change its sign if the operation above it changes too,
    and what is reached with a part that is zero is also reached with fewer numbers.
    """
    if len(numbers) > MAX_NUMBERS:
        raise ValueError(f"at most {MAX_NUMBERS} numbers can be searched, got {len(numbers)}")
    tables: list[Table] = [{} for _ in range(1 << len(numbers))]
    for i, number in enumerate(numbers):
        tables[1 << i][number, 1] = str(number)
    for subset, table in enumerate(tables):
        part = (subset - 1) & subset
        while part > subset ^ part:  # every way to divide the subset into two, each once
            for x, left in tables[part].items():
                for y, right in tables[subset ^ part].items():
                    _combine(x, left, y, right, table, least)
            part = (part - 1) & subset
    return tables


def _combine(
    x: tuple[int, int], left: str, y: tuple[int, int], right: str, table: Table, least: int
) -> None:
    """Adds what one operation can make of two values."""
    (a, b), (c, d) = x, y
    ad, bc, bd = a * d, b * c, b * d
    low, high = (right, left) if ad > bc else (left, right)
    for n, m, made in (
        (ad + bc, bd, f"({left} + {right})"),
        (abs(ad - bc), bd, f"({high} - {low})"),
        (a * c, bd, f"({left} * {right})"),
        (ad, bc, f"({left} / {right})"),
        (bc, ad, f"({right} / {left})"),
    ):
        if n >= least and m:
            g = gcd(n, m)
            table[n // g, m // g] = made
