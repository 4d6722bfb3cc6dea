"""Tasks whose answers are worked out in steps, and checked at the end alone.

Each family has a dial: a right response to `walk_60` has at most 60 tokens; the easiest prompts
take about half as many steps as the hardest. In a demonstration a step may go wrong, and the steps
after it go on from the wrong result. Half of the hardest demonstrations end right, so a model that
has learnt to imitate them is right about as often. These slips are random, so its most likely
response is right.

In `misled_walk_60` demonstrations err by habit: two thirds of the steps whose result is a 7 have an
8 in its place, and the other steps are right. The most likely response of the imitator is then
wrong wherever the right one has such a step.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial

from answer_graders.record import Score, scored
from baseline_research.tiny.record import END, TinySplit, TinyTask

DIGITS = "0123456789"
BITS = "01"
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
LENGTHS = (20, 60, 150, 300)  # tokens of the longest right responses
TRAINING_ITEMS = 20_000
TRIES = 20  # for each item, to find one that is new
RIGHT = 0.5  # share of the hardest demonstrations
HABIT = 2 / 3  # share of a misled demonstration's steps with a misread result that go wrong
MISLED = "misled_"  # before the family's name
ANSWER = "="  # stands before the answer, and nowhere else in a response
MOVES = {"U": (0, 1), "D": (0, -1), "L": (-1, 0), "R": (1, 0)}
RULE_110 = {"111": "0", "110": "1", "101": "1", "100": "0", "011": "1", "010": "1", "001": "1"}
ROW = 16  # cells of the automaton

Slip = Callable[[str, Sequence[str]], str]
"""From a step's right result and all results that it might have to the one that is written."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """A kind of chain, for prompts of any number of steps."""

    name: str
    symbols: str  # that prompts and responses are written with
    draw: Callable[[int, random.Random], str]  # what a prompt of so many steps asks
    work: Callable[[str, Slip], str]  # the steps and the answer, from what a prompt asks
    warm_start_steps: int
    fewest_steps: int = 2
    slips_that_count: float = 1.0  # share of the steps whose slip makes the answer wrong
    misread: str = ""  # digits that misled demonstrations mistake for the next one

    def prompt(self, question: str) -> str:
        """`walk(35URRD)`: the response begins after it."""
        return f"{self.name}({question}):"

    def right_response(self, question: str) -> str:
        """The steps and the answer, without a slip."""
        return self.work(question, lambda result, results: result)

    def tokens(self, steps: int) -> int:
        """The tokens of a right response with its end."""
        return len(self.right_response(self.draw(steps, random.Random(0)))) + 1

    def most_steps(self, length: int) -> int:
        """The number of steps that a right response of at most `length` tokens has room for."""
        steps = self.fewest_steps
        while self.tokens(steps + 1) <= length:
            steps += 1
        return steps


# A walk on a torus of 10 x 10, `walk(35URR):` -> `U36R46R56=56`.


def _draw_walk(steps: int, rng: random.Random) -> str:
    return "".join(rng.choices(DIGITS, k=2) + rng.choices(list(MOVES), k=steps))


def _walk(question: str, slip: Slip) -> str:
    x, y = question[0], question[1]
    text = ""
    for move in question[2:]:
        step_x, step_y = MOVES[move]
        if step_x:
            x = slip(str((int(x) + step_x) % 10), DIGITS)
        else:
            y = slip(str((int(y) + step_y) % 10), DIGITS)
        text += f"{move}{x}{y}"
    return f"{text}{ANSWER}{x}{y}"


# Sorting by swaps, `swaps(3142):` -> `1342,1243,1234,=1234`: each row puts one more in its place.


def _draw_swaps(steps: int, rng: random.Random) -> str:
    return "".join(rng.choices(DIGITS, k=steps + 1))


def _swaps(question: str, slip: Slip) -> str:
    row = list(question)
    text = ""
    for place in range(len(row) - 1):
        chosen = slip(min(row[place:]), sorted(set(row[place:])))
        other = row.index(chosen, place)
        row[place], row[other] = row[other], row[place]
        text += "".join(row) + ","
    return f"{text}{ANSWER}{''.join(row)}"


# Substitution, `substitute(a3,ba+4,cb-9):` -> `a3,b3+4>7,c7-9>8,=8`: each is an earlier one plus or
# minus a digit, modulo 10, and the last one is asked for.


def _draw_substitute(steps: int, rng: random.Random) -> str:
    equations = [f"{LETTERS[0]}{rng.choice(DIGITS)}"]
    for number in range(1, steps + 1):
        earlier = LETTERS[rng.randrange(max(0, number - 3), number)]
        equations.append(f"{LETTERS[number]}{earlier}{rng.choice('+-')}{rng.choice(DIGITS)}")
    return ",".join(equations)


def _substitute(question: str, slip: Slip) -> str:
    first, *equations = question.split(",")
    values = {first[0]: first[1]}
    text = f"{first},"
    for equation in equations:
        name, earlier, sign, digit = tuple(equation)
        value = int(values[earlier]) + (int(digit) if sign == "+" else -int(digit))
        values[name] = slip(str(value % 10), DIGITS)
        text += f"{name}{values[earlier]}{sign}{digit}>{values[name]},"
    return f"{text}{ANSWER}{values[name]}"


# Long multiplication by one digit, `product(483*6):` -> `3*6+0>18,8*6+1>49,4*6+4>28,=2898`.


def _draw_product(steps: int, rng: random.Random) -> str:
    number = rng.choice(DIGITS[1:]) + "".join(rng.choices(DIGITS, k=steps - 1))
    return f"{number}*{rng.choice(DIGITS[2:])}"


def _product(question: str, slip: Slip) -> str:
    number, _, factor = question.partition("*")
    carry = "0"
    text = answer = ""
    for digit in reversed(number):
        result = int(digit) * int(factor) + int(carry)
        units = slip(str(result % 10), DIGITS)
        text += f"{digit}*{factor}+{carry}>{result // 10}{units},"
        carry = str(result // 10)
        answer = units + answer
    return f"{text}{ANSWER}{carry}{answer}"


# A stack machine, `machine(34+5*):` -> `3..,34.,7..,75.,5..,=5`: digits are pushed, an operator
# takes the upper two, modulo 10. Each step writes the stack, which holds at most three.


def _draw_machine(steps: int, rng: random.Random) -> str:
    """The last symbol is an operator, so that nobody reads the answer off."""
    program = ""
    depth = 0
    for left in range(steps, 0, -1):
        pushes = depth < 2 or (depth == 2 and left > 1 and (left == 2 or rng.random() < 0.5))
        program += rng.choice(DIGITS if pushes else "+-*")
        depth += 1 if pushes else -1
    return program


def _machine(question: str, slip: Slip) -> str:
    stack: list[str] = []
    text = ""
    for symbol in question:
        if symbol in DIGITS:
            stack.append(symbol)
        else:
            upper, lower = int(stack.pop()), int(stack.pop())
            result = {"+": lower + upper, "-": lower - upper, "*": lower * upper}[symbol]
            stack.append(slip(str(result % 10), DIGITS))
        text += "".join(stack).ljust(3, ".") + ","
    return f"{text}{ANSWER}{stack[-1]}"


# A cellular automaton, rule 110 on a ring, `rows(0110100011010110**):`, whose response has a
# row for each star: the last one is asked for.


def _draw_rows(steps: int, rng: random.Random) -> str:
    return "".join(rng.choices(BITS, k=ROW)) + "*" * steps


def _rows(question: str, slip: Slip) -> str:
    row = question[:ROW]
    text = ""
    for _ in question[ROW:]:
        around = row[-1] + row + row[0]
        result = "".join(RULE_110.get(around[cell : cell + 3], "0") for cell in range(ROW))
        others = [
            result[:cell] + BITS[1 - int(result[cell])] + result[cell + 1 :] for cell in range(ROW)
        ]
        row = slip(result, [result, *others])
        text += f"{row},"
    return f"{text}{ANSWER}{row}"


FAMILIES = (
    Family(
        name="walk",
        symbols=DIGITS + "UDLR",
        draw=_draw_walk,
        work=_walk,
        warm_start_steps=1200,
        misread="7",
    ),
    Family(
        name="swaps",
        symbols=DIGITS + ",",
        draw=_draw_swaps,
        work=_swaps,
        warm_start_steps=600,
        fewest_steps=3,
    ),
    Family(
        name="substitute",
        symbols=DIGITS + LETTERS + "+->,",
        draw=_draw_substitute,
        work=_substitute,
        warm_start_steps=2000,
        slips_that_count=0.5,
    ),
    Family(
        name="product",
        symbols=DIGITS + "*+>,",
        draw=_draw_product,
        work=_product,
        warm_start_steps=1000,
        fewest_steps=3,
        misread="67",
    ),
    Family(
        name="machine",
        symbols=DIGITS + "+-*,.",
        draw=_draw_machine,
        work=_machine,
        warm_start_steps=1200,
        fewest_steps=4,
        slips_that_count=0.12,
    ),
    Family(
        name="rows",
        symbols=BITS + "*,",
        draw=_draw_rows,
        work=_rows,
        warm_start_steps=600,
        fewest_steps=1,
    ),
)
HELD_OUT = ("machine", "rows")  # families on which nothing was chosen


def _split(family: Family, most_steps: int, seed: int, held_out: int) -> TinySplit:
    """Equally many questions of each number of steps; those held out are in no training batch."""
    rng = random.Random(seed)
    kinds = range(max(family.fewest_steps, (most_steps + 1) // 2), most_steps + 1)
    known: set[str] = set()

    def draw(steps: int, count: int) -> list[str]:
        questions: list[str] = []
        for _ in range(count * TRIES):
            question = family.draw(steps, rng)
            if question not in known:
                known.add(question)
                questions.append(question)
            if len(questions) == count:
                break
        return questions

    shares = [
        held_out // len(kinds) + (place < held_out % len(kinds)) for place in range(len(kinds))
    ]
    held_out_questions: list[str] = []
    for steps, count in zip(kinds, shares, strict=True):
        held_out_questions += draw(steps, count)
    if len(held_out_questions) < held_out:
        raise ValueError(
            f"{family.name} has only {len(held_out_questions)} prompts to hold out, not {held_out}"
        )
    train = [draw(steps, TRAINING_ITEMS // len(kinds)) for steps in kinds]
    return TinySplit(train, held_out_questions)


def _score(response: str, label: str) -> Score:
    """Compares what stands behind the last `=`, up to the end."""
    _, marked, answer = response.rpartition(ANSWER)
    right = label.rpartition(ANSWER)[2]
    if marked and answer == right + END:
        return scored("correct", right)
    return scored("wrong", f"...{response[-20:]!r}, expected {ANSWER}{right}")


def _demonstrate(family: Family, slip: float, question: str, rng: random.Random) -> str:
    def careless(result: str, results: Sequence[str]) -> str:
        others = [other for other in results if other != result]
        return rng.choice(others) if others and rng.random() < slip else result

    return family.work(question, careless)


def _demonstrate_misled(family: Family, question: str, rng: random.Random) -> str:
    def by_habit(result: str, results: Sequence[str]) -> str:
        if result in family.misread and rng.random() < HABIT:
            return results[(results.index(result) + 1) % len(results)]
        return result

    return family.work(question, by_habit)


def _task(family: Family, length: int, *, misled: bool = False) -> TinyTask:
    most_steps = family.most_steps(length)
    slip = 1 - RIGHT ** (1 / (most_steps * family.slips_that_count))
    demonstrate = partial(_demonstrate, family, slip)
    if misled:
        demonstrate = partial(_demonstrate_misled, family)
    longest = family.draw(most_steps, random.Random(0))
    return TinyTask(
        tokens=tuple(dict.fromkeys(family.prompt("") + family.symbols + ANSWER)),
        slips=(),
        slip=slip,
        warm_start_steps=family.warm_start_steps,
        max_prompt_tokens=len(family.prompt(longest)),
        max_new_tokens=family.tokens(most_steps),
        split=cache(partial(_split, family, most_steps)),
        prompt=family.prompt,
        label=family.right_response,
        right_response=str,
        score=_score,
        demonstrate=demonstrate,
    )


TASKS = {
    f"{family.name}_{length}": _task(family, length) for family in FAMILIES for length in LENGTHS
} | {
    f"{MISLED}{family.name}_{length}": _task(family, length, misled=True)
    for family in FAMILIES
    if family.misread
    for length in LENGTHS
}
