"""Countdown: reach a target from given numbers, each used at most once, by + - * / and parentheses.

Every generated problem needs all its numbers: all values that they can make are enumerated exactly.
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

from pydantic import BaseModel, Field, PositiveInt

from answer_graders.answers import plain, tagged_or_boxed
from answer_graders.record import (
    WORDING,
    BenchmarkRecord,
    GeneratedProblems,
    Item,
    Message,
    Option,
    Score,
    Split,
    Task,
    Wording,
    in_turn,
    is_new,
    random_of,
    read_label,
    scored,
    split_of,
    with_text_label,
)

NAME = "countdown"
answer_of = tagged_or_boxed
MAX_NUMBERS = 5  # enumerating takes 0.5 ms for 4 numbers, 15 ms for 5
MAX_EXPRESSION_CHARACTERS = 200  # bounds the size, the depth and the digits of an expression
MAX_ANSWER_CHARACTERS = 1_000  # of an expression with its markup
TRIES = 2_000  # sets of numbers drawn in a row without a new problem
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

    The sizes (`numbers`) are from 2 to 5. The given numbers are different, from 1 to `largest`; all
    targets that need all of them are equally likely. Test gets one set of numbers in 8.
    """
    random = random_of(NAME, split, seed)
    seen = set[int]()

    def draw(size: int) -> Item | None:
        given_numbers = random.sample(range(1, largest + 1), size)
        key = f"{NAME} {sorted(given_numbers)}"
        if split_of(key) != split:
            return None
        candidates = _targets_of_all(given_numbers, targets)
        random.shuffle(candidates)
        for target in candidates:
            if is_new(seen, f"{key} {target}"):
                return {"numbers": given_numbers, "target": target, "wording": wording}
        return None

    yield from in_turn(draw, numbers, count, TRIES, f"{split} problems with {{}} numbers")


def _targets_of_all(numbers: Sequence[int], between: tuple[int, int]) -> list[int]:
    """The whole values in a range that need all of the numbers."""
    smallest, largest = between
    *tables_of_fewer, table_of_all = _reachable(numbers)
    targets = []
    for numerator, denominator in table_of_all:
        in_range = denominator == 1 and smallest <= numerator <= largest
        if in_range and not any((numerator, 1) in table for table in tables_of_fewer):
            targets.append(numerator)
    return targets


def prompt(item: Item) -> list[Message]:
    """Asks for an expression in `<answer>` tags, with the work in `<think>` tags."""
    question = PROMPTS[item.get("wording", "own")]
    content = question.format(numbers=list(item["numbers"]), target=item["target"])
    return [{"role": "user", "content": content}]


def label(item: Item) -> str:
    """The given numbers and the target, as JSON; ValueError unless they are positive integers."""
    text = json.dumps({"numbers": list(item["numbers"]), "target": item["target"]})
    _problem(text)
    return text


class CountdownProblem(BaseModel, strict=True):
    """The content of a label."""

    numbers: list[PositiveInt] = Field(min_length=1)
    target: PositiveInt
    use_all: bool = False


@lru_cache(maxsize=4096)
def _problem(label: str) -> CountdownProblem:
    form = 'JSON like {"numbers": [55, 53, 59, 22], "target": 71}, all whole numbers from 1'
    return read_label(label, CountdownProblem.model_validate, form)


@with_text_label
def score(response: str, label: str) -> Score:
    """Grades the expression in the last `<answer>`, or in the last box if there is no tag.

    It must equal the target exactly and use each number at most once, or exactly once if the label
    has `"use_all": true`. Its markup does not matter. ValueError if the label is malformed.
    """
    problem = _problem(label)
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
    excess = Counter(used) - Counter(problem.numbers)
    if excess:
        return scored("wrong", f"it uses {min(excess)} more often than it is given")
    unused = Counter(problem.numbers) - Counter(used)
    if problem.use_all and unused:
        return scored("wrong", f"it does not use {min(unused)}")
    if value != problem.target:
        return scored("wrong", f"it equals {value}, not {problem.target}")
    if stated and stated != str(problem.target):
        return scored("wrong", f"it says that it equals {stated[:20]}, not {problem.target}")
    return scored("correct", f"it equals {value}")


def right_response(label: str) -> str:
    """A solution with as few numbers as the label allows; ValueError if there is none."""
    problem = _problem(label)
    tables = _reachable(problem.numbers, least=0 if problem.use_all else 1)
    subsets = sorted(range(len(tables)), key=int.bit_count)  # smaller ones first
    if problem.use_all:
        subsets = subsets[-1:]
    for subset in subsets:
        expression = tables[subset].get((problem.target, 1))
        if expression:
            return f"<answer> {expression.removeprefix('(').removesuffix(')')} </answer>"
    raise ValueError(f"{problem.target} cannot be reached from {problem.numbers}")


def wrong_response(label: str) -> str:
    """One of the given numbers, or another number if they all equal the target."""
    problem = _problem(label)
    others = (number for number in problem.numbers if number != problem.target)
    return f"<answer> {next(others, problem.target + 1)} </answer>"


def value_of(response: str) -> str:
    """The value of a response's expression as text, for majority voting."""
    try:
        expression, _ = sides(answer_of(response) or "")
        return str(evaluate(expression).value)
    except ZeroDivisionError:
        return "division by zero"


# Reading expressions: token by token, since a response is never evaluated as code.

_LEAD = re.compile(
    r"\A(?:\*\*)?"
    r"(?:(?:the )?(?:final )?(?:expression|equation|answer|solution|result)(?: is|:|\*\*)+"
    r"|[A-Za-z]\s*=(?=[^=]))\s*",
    re.IGNORECASE,
)
_FENCE = re.compile(r"\A\s*```[A-Za-z]{2,20}[ \t]*\n")  # of code, with its language
_FRACTION = re.compile(r"\\[cdt]?frac\s{0,3}\{([^{}]*)\}\s{0,3}\{([^{}]*)\}")
_COMMAND = re.compile(r"\\(?:[a-z]?box|text|math)[a-z]{0,6}\s{0,3}\{")  # has its own braces
_TOKEN = re.compile(r"0[xX]|0|[1-9][0-9]*|\\(?:times|cdot|ast|div)(?![A-Za-z])|.", re.DOTALL)
_SPELLINGS = dict.fromkeys(("x", "X", "\u00d7", "\u00b7", "\u22c5", "\u2217"), "*")
_SPELLINGS |= dict.fromkeys(("\\times", "\\cdot", "\\ast"), "*")
_SPELLINGS |= {"\u00f7": "/", "\\div": "/"}
_SPELLINGS |= dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-")  # hyphens, en dash, minus
_CLOSING = {"(": ")", "[": "]"}
_BRACKETS = str.maketrans("{}", "[]")
_END = "its end"
_SPACES = " \t\r\n"
_SUM, _PRODUCT = 1, 2  # precedences
_OPERATORS: dict[str, tuple[int, Callable[[Any, Any], Any]]] = {
    "+": (_SUM, operator.add),
    "-": (_SUM, operator.sub),
    "*": (_PRODUCT, operator.mul),
    "/": (_PRODUCT, operator.truediv),
}


class Expression(NamedTuple):
    """The exact value of an expression, and its numbers in the order written."""

    value: Fraction
    numbers: list[int]


def sides(answer: str) -> tuple[str, str]:
    """The expression in an answer, and the whole number that it is said to equal, or "".

    Braces that belong to no command count as brackets, though LaTeX would not show them.
    """
    answer = _FENCE.sub("", answer)
    for _ in range(min(answer.count("frac"), MAX_NUMBERS)):  # from the inside out
        answer = _FRACTION.sub(r"[[\1]/[\2]]", answer)
    if "{" in answer and answer.count("{") == answer.count("}"):
        answer = answer.replace("\\{", "[").replace("\\}", "]")
        if not _COMMAND.search(answer):
            answer = answer.translate(_BRACKETS)
    text = plain(answer)
    lead = _LEAD.match(text)
    if lead:
        text = text[lead.end() :]
    text = text.replace("==", "=")
    if "=" not in text:
        return text.strip(), ""
    if text.count("=") > 1:
        raise ValueError("it has more than one equals sign")
    left, _, right = text.partition("=")
    for expression, stated in ((left.strip(), right.strip()), (right.strip(), left.strip())):
        if stated.isascii() and stated.isdigit():
            return expression, stated
    raise ValueError("on neither side of the equals sign is a whole number alone")


def evaluate(text: str) -> Expression:
    """The exact value of an expression over whole numbers, and its numbers.

    Operators may be LaTeX commands, typographic signs or the letter x; square brackets count as
    parentheses. ValueError if the text is no expression, ZeroDivisionError if it has no value.
    """
    text = text.strip(_SPACES)
    if len(text) > MAX_EXPRESSION_CHARACTERS:
        raise ValueError(f"{len(text)} characters, where {MAX_EXPRESSION_CHARACTERS} are allowed")
    tokens = [_SPELLINGS.get(token, token) for token in _TOKEN.findall(text)]
    parser = _Parser([token for token in tokens if token not in _SPACES])
    value = parser.value(_SUM)
    if parser.next_token != _END:
        raise ValueError(f"{parser.next_token!r} cannot stand where it does")
    return Expression(value, parser.numbers)


class _Parser:
    """Parses tokens from left to right, and collects their numbers."""

    def __init__(self, tokens: list[str]):
        self.numbers: list[int] = []
        self._rest = [_END, *reversed(tokens)]  # reversed: the next token is the last item

    @property
    def next_token(self) -> str:
        return self._rest[-1]

    def value(self, precedence: int) -> Fraction:
        """Parses an operand and the operators after it with at least this precedence."""
        value = self._operand(precedence)
        while self.next_token in _OPERATORS:
            next_precedence, operation = _OPERATORS[self.next_token]
            if next_precedence < precedence:
                break
            self._rest.pop()
            value = operation(value, self.value(next_precedence + 1))
        return value

    def _operand(self, precedence: int) -> Fraction:
        """Parses a number, an expression in parentheses, or a sum's negated first operand."""
        token = self._rest.pop()
        if token.isdigit() and token.isascii():
            self.numbers.append(int(token))
            return Fraction(int(token))
        if token in _CLOSING:
            value = self.value(_SUM)
            if self._rest.pop() != _CLOSING[token]:
                raise ValueError("its parentheses do not match")
            return value
        if token == "-" and precedence == _SUM:
            return -self.value(_PRODUCT)
        raise ValueError(f"{token!r} stands where a number is expected")


# Solving problems

Value = tuple[int, int]  # numerator and denominator, in lowest terms
Table = dict[Value, str]  # a value and an expression that makes it


def _reachable(numbers: Sequence[int], least: int = 1) -> list[Table]:
    """The values of expressions that use exactly the numbers of a subset: one table per subset.

    Bit i of a table's index is 1 if `numbers[i]` is in the subset. Keeping only positive values
    loses no positive target: a negative part can change sign if the operation above it changes
    too, and a target reached with a part that is zero can be reached with fewer numbers.
    """
    if len(numbers) > MAX_NUMBERS:
        raise ValueError(f"at most {MAX_NUMBERS} numbers can be searched, got {len(numbers)}")
    tables: list[Table] = [{} for _ in range(1 << len(numbers))]
    for i, number in enumerate(numbers):
        tables[1 << i][number, 1] = str(number)
    for subset, table in enumerate(tables):
        for left_subset, right_subset in _divided(subset):
            for left in tables[left_subset].items():
                for right in tables[right_subset].items():
                    _combine(left, right, table, least)
    return tables


def _divided(subset: int) -> Iterator[tuple[int, int]]:
    """Every way to split a subset into two non-empty subsets, each once."""
    left = (subset - 1) & subset
    while left > subset ^ left:
        yield left, subset ^ left
        left = (left - 1) & subset


def _combine(left: tuple[Value, str], right: tuple[Value, str], table: Table, least: int) -> None:
    """Adds the results of one operation on two values, a/b and c/d, that are at least `least`."""
    (a, b), left_text = left
    (c, d), right_text = right
    ad = a * d
    bc = b * c
    bd = b * d
    difference = f"{left_text} - {right_text}" if ad > bc else f"{right_text} - {left_text}"
    results = (  # numerator, denominator, expression
        (ad + bc, bd, f"({left_text} + {right_text})"),
        (abs(ad - bc), bd, f"({difference})"),
        (a * c, bd, f"({left_text} * {right_text})"),
        (ad, bc, f"({left_text} / {right_text})"),
        (bc, ad, f"({right_text} / {left_text})"),
    )
    for numerator, denominator, expression in results:
        if numerator >= least and denominator:
            divisor = gcd(numerator, denominator)
            table[numerator // divisor, denominator // divisor] = expression


TASK = Task(
    name=NAME,
    summary="Countdown: reach a target from given numbers, each used at most once, by + - * / and "
    "parentheses",
    right_if="its last `<answer>` (without one: its last box) makes the target from the numbers, "
    "each used at most once",
    label_form="JSON: numbers, target",
    problems=GeneratedProblems(
        generate=generate,
        default_counts={"train": 20_000, "test": 200},
        options={
            "numbers": Option(
                tuple[int, ...],
                "how many numbers a problem has; equally many problems of each",
            ),
            "largest": Option(int, "largest number that may be given"),
            "targets": Option(tuple[int, int], "smallest and largest target"),
            "wording": WORDING,
        },
    ),
    prompt=prompt,
    label=label,
    score=score,
    right_response=right_response,
    wrong_response=wrong_response,
    kind=lambda item: str(len(item["numbers"])),
    reward_file="countdown.py",
    voted_answer=value_of,
    benchmarks={
        # 200 problems, 100 of each size
        "countdown": BenchmarkRecord(count=200, options={"numbers": (3, 4)}, max_new_tokens=1024),
    },
)
