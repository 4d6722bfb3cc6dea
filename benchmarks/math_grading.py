r"""How well, and how fast, do we and math-verify's defaults grade a table of tricky answers?

Each pair of the table is an answer, a gold label and what an examiner says of it. The answer stands
in a box at the end of a sentence. Ours goes first, with nothing cached and its worker started.
math-verify is called as its README calls it, `verify(parse(gold), parse(sentence))`: once with the
gold answer as the data set has it, once in dollars, which is kinder. It is told of no unit and no
tolerance, and gets several gold answers between commas. All run on one core.

Exits with 1 if ours agrees with the examiner on less than 95 %, accepts a plainly different value,
says something else of the answer alone than of the sentence, or has not strictly fewer errors in
both directions than math-verify either way.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from openrlhf_js.tasks import gsm8k, math
from openrlhf_js.tasks.equivalence.grader import grade

TABLES = sorted((Path(__file__).parents[1] / "tests/tasks/equivalence").glob("math_pairs*.jsonl"))
LEAST_AGREEMENT = 0.95
ANSWERS_PER_SECOND = {"hard table": 120, "GSM8K-like": 3000}
GSM8K_ANSWERS = 2000
RESPONSE_CHARACTERS = 500

Pair = dict[str, Any]
Grader = Callable[[str, str], bool]  # of a response and a label


@dataclass
class Column:
    """What one grader says of a table of pairs."""

    name: str
    said_right: list[bool]
    answers_per_second: float

    def errors(self, pairs: Sequence[Pair], category: str | None = None) -> tuple[int, int]:
        """How many right answers it refuses and how many wrong ones it accepts, in a category."""
        said = [
            (pair["right"], said_right)
            for pair, said_right in zip(pairs, self.said_right, strict=True)
            if category in (None, pair["category"])
        ]
        return said.count((True, False)), said.count((False, True))


def response(answer: str) -> str:
    return rf"Putting it all together, the final answer is \boxed{{{answer}}}."


def ours(text: str, label: str) -> bool:
    return math.score(text, label).status == "correct"


def gold_of(label: str) -> str:
    """The gold answer of a label as plain text."""
    gold = json.loads(label)["answer"] if label.startswith('{"answer"') else label
    return gold if isinstance(gold, str) else ", ".join(gold)


def math_verify_raw(text: str, label: str) -> bool:
    from math_verify import parse, verify

    return verify(parse(gold_of(label)), parse(text))


def math_verify_wrapped(text: str, label: str) -> bool:
    from math_verify import parse, verify

    return verify(parse(f"${gold_of(label).strip('$')}$"), parse(text))


GRADERS: dict[str, Grader] = {
    "ours": ours,
    "math-verify, raw gold": math_verify_raw,
    "math-verify, $gold$": math_verify_wrapped,
}


def measure(name: str, grader: Grader, answers: Sequence[tuple[str, str]]) -> Column:
    """Grades (response, label) after (response, label), each once, and takes the time."""
    console = Console(stderr=True)
    said_right, seconds = [], 0.0
    for text, label in track(answers, name, console=console, transient=True):
        start = time.perf_counter()
        right = grader(text, label)
        seconds += time.perf_counter() - start
        said_right.append(right)
    return Column(name, said_right, len(answers) / seconds)


def gsm8k_like(count: int) -> list[tuple[str, str]]:
    """Responses of 500 characters with a different whole number each; every fifth one is wrong."""
    draw = random.Random(0)
    answers = []
    for i, number in enumerate(draw.sample(range(2, 200_000), count)):
        said = number + (i % 5 == 0)
        boxed = f"{said:,}" if i % 2 else str(said)
        end = rf" So she pays {said} dollars in all. The answer is \boxed{{{boxed}}}."
        working = f"First, {number // 2} + {number - number // 2} = {number}; then we go on. " * 20
        answers.append((working[: RESPONSE_CHARACTERS - len(end)] + end, str(number)))
    return answers


def print_table(pairs: Sequence[Pair], columns: Sequence[Column]) -> None:
    """Errors by category and in all, and the share of pairs without one."""
    print("Errors: right answers refused + wrong answers accepted\n")
    print("| category | pairs | wrong ones |", *(f" {column.name} |" for column in columns), sep="")
    print("|---|---:|---:|", *("---:|" for _ in columns), sep="")
    for category in [*dict.fromkeys(pair["category"] for pair in pairs), None]:
        kept = [pair for pair in pairs if category in (None, pair["category"])]
        wrong = sum(not pair["right"] for pair in kept)
        errors = [column.errors(pairs, category) for column in columns]
        cells = (f" {refused} + {accepted} |" for refused, accepted in errors)
        print(f"| {category or 'all'} | {len(kept)} | {wrong} |", *cells, sep="")
    shares = (f" {1 - sum(each) / len(pairs):.1%} |" for each in errors)
    print("| agreement | | |", *shares, sep="")


def print_speed(rows: dict[str, list[Column]]) -> None:
    print("\nAnswers per second on one core\n")
    print("| answers | goal |", *(f" {name} |" for name in GRADERS), " ours is faster by |", sep="")
    print("|---|---:|", *("---:|" for _ in GRADERS), "---:|", sep="")
    for row, columns in rows.items():
        rates = [column.answers_per_second for column in columns]
        ratio = rates[0] / max(rates[1:])
        cells = (f" {rate:,.0f} |" for rate in rates)
        print(f"| {row} | {ANSWERS_PER_SECOND[row]:,} |", *cells, f" {ratio:.1f} |", sep="")


def shortcomings(pairs: Sequence[Pair], columns: Sequence[Column]) -> list[str]:
    """What ours does not reach, in words."""
    mine, *others = columns
    refused, accepted = mine.errors(pairs)
    agreement = 1 - (refused + accepted) / len(pairs)
    missed = []
    if agreement < LEAST_AGREEMENT:
        missed.append(f"agreement is {agreement:.1%}, under {LEAST_AGREEMENT:.0%}")
    for pair, said_right in zip(pairs, mine.said_right, strict=True):
        if said_right and pair.get("plain"):
            missed.append(f"accepted {pair['answer']!r} for {pair['label']!r}")
        direct = grade(pair["answer"], pair["label"]).status == "correct"
        if direct != said_right:
            missed.append(
                f"{pair['answer']!r} for {pair['label']!r} depends on the way it is asked"
            )
    for other in others:
        their_refused, their_accepted = other.errors(pairs)
        if refused >= their_refused or accepted >= their_accepted:
            missed.append(
                f"{refused} + {accepted} errors against {their_refused} + {their_accepted} of "
                f"{other.name}"
            )
    return missed


def show_failures(pairs: Sequence[Pair], mine: Column) -> None:
    print("\nWhere ours and the examiner differ\n")
    for pair, said_right in zip(pairs, mine.said_right, strict=True):
        if said_right != pair["right"]:
            score = math.score(response(pair["answer"]), pair["label"])
            said = f"{score.status}: {score.detail}"
            print(f"- {pair['category']}: {pair['answer']!r} for {pair['label']!r}: {said}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--pairs",
        type=Path,
        action="append",
        help="repeatable; default: all tables of the tests",
    )
    parser.add_argument("--show", action="store_true", help="list the pairs that ours gets wrong")
    arguments = parser.parse_args()
    pairs = [
        json.loads(line)
        for path in arguments.pairs or TABLES
        for line in path.open(encoding="utf-8")
    ]
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # inherited by the workers
    logging.disable(logging.ERROR)  # what math-verify cannot read, it logs

    hard = [(response(pair["answer"]), pair["label"]) for pair in pairs]
    easy = gsm8k_like(GSM8K_ANSWERS)
    for grader in GRADERS.values():  # imports, and the start of a worker, are no answer's time
        grader(response(r"\sqrt{2} x + \sin \frac{x}{7}"), r"\sin(x/7) + 2^{1/2} x")
    columns = [measure(name, grader, hard) for name, grader in GRADERS.items()]
    easy_graders = GRADERS | {"ours": lambda text, label: gsm8k.score(text, label).value == 1.0}
    speed = {
        "hard table": columns,
        "GSM8K-like": [measure(name, grader, easy) for name, grader in easy_graders.items()],
    }

    print(f"math-verify {version('math-verify')}, Python {sys.version.split()[0]}\n")
    print_table(pairs, columns)
    print_speed(speed)
    if arguments.show:
        show_failures(pairs, columns[0])
    missed = shortcomings(pairs, columns)
    for shortcoming in missed:
        print(f"\nNot reached: {shortcoming}")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
