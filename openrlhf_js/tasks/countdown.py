"""Countdown: reach a target from given numbers, each used at most once, by + - * / and parentheses.

Generated numbers run from 1 to 99 and targets from 10 to 99; the paper's example reaches 71 from
55, 53, 59 and 22. Every problem can be solved with all its numbers and cannot with fewer, which is
proven by going through all that can be made of them, in exact arithmetic.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from math import gcd
from typing import Any, NamedTuple

from openrlhf_js.tasks.answers import last_answer_tag, plain
from openrlhf_js.tasks.arithmetic import evaluate, sides
from openrlhf_js.tasks.base import Item, Message, Score, scored
from openrlhf_js.tasks.draws import Draws, Seen, Split, first, split_of
from openrlhf_js.tasks.labels import read_label

NAME = "countdown"
MAX_NUMBERS = 5  # a problem of 4 takes half a millisecond to go through, one of 5 takes 15
MAX_ANSWER_CHARACTERS = 1_000  # with all that presents an expression
MAX_MISSES = 2_000  # sets of numbers in a row that hold no new problem, before giving up


def generate(
    count: int,
    seed: int,
    split: Split = "train",
    numbers: Sequence[int] = (3, 4),
    largest: int = 99,
    targets: tuple[int, int] = (10, 99),
) -> Iterator[Item]:
    """Problems {"numbers": [...], "target": int}, all different, and equally many of each size.

    No number is given twice. Of the targets that take all the numbers, each is equally likely.

    Args:
        count: how many.
        seed: the same seed gives the same problems; a larger count goes on where a smaller ends.
        split: `train`, or `test`, which gets one set of numbers in 8, with all its targets.
        numbers: how many numbers a problem has, from 2 to 5, taken in turn.
        largest: the largest number that may be given; the smallest is 1.
        targets: the smallest and the largest target.

    Raises:
        ValueError: there is no such split or size, or not so many problems.
    """
    if not numbers or not set(numbers) <= set(range(2, MAX_NUMBERS + 1)):
        raise ValueError(f"numbers must be sizes from 2 to {MAX_NUMBERS}, got {numbers!r}")
    if largest < max(numbers):
        raise ValueError(f"largest must leave {max(numbers)} numbers to choose, got {largest!r}")
    if not 1 <= min(targets) <= max(targets):
        raise ValueError(f"targets must be the smallest, from 1, and the largest, got {targets!r}")
    draws, seen = Draws.of_split(NAME, split, seed), Seen()
    for i in range(count):
        size = numbers[i % len(numbers)]
        item = first(MAX_MISSES, partial(_draw, draws, seen, split, size, largest, targets))
        if item is None:
            raise ValueError(
                f"only {i} different problems were found in {split} for {size} numbers up to "
                f"{largest}, got count {count}: ask for fewer, or for larger numbers or targets"
            )
        yield item


def _draw(
    draws: Draws, seen: Seen, split: Split, size: int, largest: int, targets: tuple[int, int]
) -> Item | None:
    """A new problem, or None if the numbers drawn are of the other split or hold none."""
    given = draws.sample(range(1, largest + 1), size)
    key = f"{NAME} {sorted(given)}"
    if split_of(key) != split:
        return None
    *fewer, all_of_them = _reachable(given)
    wanted = [
        n
        for n, d in all_of_them
        if d == 1 and targets[0] <= n <= targets[1] and not any((n, 1) in table for table in fewer)
    ]
    new = (target for target in draws.sample(wanted, len(wanted)) if seen.add(f"{key} {target}"))
    target = next(new, None)
    return None if target is None else {"numbers": given, "target": target}


def prompt(item: Item) -> list[Message]:
    """Asks for an expression in `<answer>` tags, with the work in `<think>` tags."""
    question = (
        f"Combine the numbers {list(item['numbers'])} into an expression that equals "
        f"{item['target']}. You may add, subtract, multiply and divide (+, -, *, /) and use "
        "parentheses, and each number can be used only once. Reason inside <think> </think> tags, "
        "then give the expression inside <answer> </answer> tags, for example "
        "<answer> (1 + 2) / 3 </answer>."
    )
    return [{"role": "user", "content": question}]


def label(item: Item) -> str:
    """The given numbers and the target, as JSON; ValueError if they are not whole and from 1."""
    text = json.dumps({"numbers": list(item["numbers"]), "target": item["target"]})
    _problem(text)
    return text


def score(response: str, label: str) -> Score:
    """Grades the expression in the last `<answer>`: the exact target, each number at most once.

    It may use fewer numbers than are given, and may have `= 71` after it or `71 =` before it if 71
    is the target. What merely presents it, such as `$`, `\\boxed{}` or bold stars around the whole,
    is left out by `answers.plain`, and signs may be printed ones or LaTeX's. Signs of a number,
    products without a sign, decimals, powers, `//`, fractions as `\\frac`, several equals signs and
    words are `malformed`; what is in tags that are not closed is `no_answer`.

    Raises:
        ValueError: the label is malformed.
    """
    problem = _problem(label)
    answer = last_answer_tag(response)
    if answer is None or not answer.strip():
        return scored("no_answer", "nothing in <answer> tags")
    if len(answer := answer.strip()) > MAX_ANSWER_CHARACTERS:
        return scored("malformed", f"{len(answer)} characters in <answer> tags")
    try:
        expression, stated = sides(plain(answer))
        value, used = evaluate(expression)
    except ZeroDivisionError:
        return scored("wrong", "it divides by zero")
    except ValueError as error:
        return scored("malformed", str(error))
    if excess := Counter(used) - Counter(problem.numbers):
        return scored("wrong", f"it uses {min(excess)} more often than it is given")
    if value != problem.target:
        return scored("wrong", f"it equals {value}, not {problem.target}")
    if stated and stated != str(problem.target):
        return scored("wrong", f"it says that it equals {stated[:20]}, not {problem.target}")
    return scored("correct", f"it equals {value}")


def right_response(label: str) -> str:
    """A solution with as few numbers as can be; ValueError if there is none."""
    problem = _problem(label)
    solution = solve(problem.numbers, problem.target)
    if solution is None:
        raise ValueError(f"{problem.target} cannot be reached from {list(problem.numbers)}")
    return f"<answer> {solution} </answer>"


def wrong_response(label: str) -> str:
    """One of the given numbers, or one not given where all equal the target."""
    problem = _problem(label)
    other = (number for number in problem.numbers if number != problem.target)
    return f"<answer> {next(other, problem.target + 1)} </answer>"


class _Problem(NamedTuple):
    numbers: tuple[int, ...]
    target: int


@lru_cache(maxsize=4096)
def _problem(label: str) -> _Problem:
    """What a label holds; ValueError if that is no problem."""
    form = 'JSON like {"numbers": [55, 53, 59, 22], "target": 71}, all whole from 1'
    return read_label(label, _taken, form)


def _taken(fields: Any) -> _Problem:
    problem = _Problem(tuple(fields["numbers"]), fields["target"])
    given = [*problem.numbers, problem.target]
    if not problem.numbers or not all(type(n) is int and n > 0 for n in given):
        raise ValueError("no problem")
    return problem


Value = tuple[int, int]  # a positive fraction in lowest terms: numerator, denominator
Table = dict[Value, str]  # values that can be reached, in a fixed order, and the last operation


def solve(numbers: Sequence[int], target: int) -> str | None:
    """An expression for the target with as few of the numbers as can be, or None if there is none.

    Raises:
        ValueError: there are more than `MAX_NUMBERS` numbers.
    """
    tables = _reachable(numbers)
    for subset in sorted(range(len(tables)), key=int.bit_count):
        if (target, 1) in tables[subset]:
            return _written(tables, subset, (target, 1)).removeprefix("(").removesuffix(")")
    return None


def _reachable(numbers: Sequence[int]) -> list[Table]:
    """What expressions that use exactly the numbers of a subset can equal, for every subset.

    Only positive values are kept, which loses no positive target: a negative part of an expression
    can change its sign if the operation above it changes too, and a part that is zero adds nothing
    or makes zero, so that what is reached with one is also reached with fewer numbers.

    Returns:
        A table for every subset, the last for all: bit i of its index is 1 if `numbers[i]` is in.
    """
    if len(numbers) > MAX_NUMBERS:
        raise ValueError(f"at most {MAX_NUMBERS} numbers can be searched, got {len(numbers)}")
    tables: list[Table] = [{} for _ in range(1 << len(numbers))]
    for i, number in enumerate(numbers):
        tables[1 << i][number, 1] = ""
    for subset, table in enumerate(tables):
        for part, rest in _halves(subset):
            for x in tables[part]:
                for y in tables[rest]:
                    table.update(_combined(x, y))
    return tables


def _halves(subset: int) -> Iterator[tuple[int, int]]:
    """Every way to divide a subset into two that are not empty, each once."""
    part = (subset - 1) & subset
    while part > subset ^ part:
        yield part, subset ^ part
        part = (part - 1) & subset


def _combined(x: Value, y: Value) -> Table:
    """What one operation can make of two values, and how to write it."""
    (a, b), (c, d) = x, y
    ad, bc, bd = a * d, b * c, b * d
    results = [
        ("({} + {})", ad + bc, bd),
        ("({} - {})", ad - bc, bd) if ad > bc else ("({1} - {0})", bc - ad, bd),
        ("({} * {})", a * c, bd),
        ("({} / {})", ad, bc),
        ("({1} / {0})", bc, ad),
    ]
    return {(n // (g := gcd(n, m)), m // g): form for form, n, m in results if n}


def _written(tables: list[Table], subset: int, value: Value) -> str:
    """An expression that uses exactly the numbers of a subset and equals one of its values."""
    for part, rest in _halves(subset):
        for x in tables[part]:
            for y in tables[rest]:
                if form := _combined(x, y).get(value):
                    return form.format(_written(tables, part, x), _written(tables, rest, y))
    return str(value[0])
