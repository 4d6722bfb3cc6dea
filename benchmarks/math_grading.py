r"""How well, and how fast, do we and math-verify's defaults grade a table of tricky answers?

Each pair of the table is an answer, a gold label and what an examiner says of it. The answer stands
in a box at the end of a sentence. Ours goes first, with nothing cached and its worker started.
math-verify is called as its README calls it, `verify(parse(gold), parse(sentence))`: once with the
gold answer as the data set has it, once in dollars, which is kinder. It is told of no unit and no
tolerance, and gets several gold answers between commas. All run on one core.

Exits with 1 if ours agrees with the examiner on less than 97.5 %, accepts a plainly different
value, or agrees less than math-verify either way.
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
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
from markdown_table import print_table

from openrlhf_js.tasks import gsm8k, math

TABLES = sorted((Path(__file__).parents[1] / "tests/tasks/equivalence").glob("math_pairs*.jsonl"))
LEAST_AGREEMENT = 0.975
GSM8K_ANSWERS = 2000
RESPONSE_CHARACTERS = 500
KEYS = "category", "right", "plain"  # of a pair

Pair = dict[str, Any]
Grader = Callable[[str, str], bool]  # of a response and a label


def response(answer: str) -> str:
    return rf"Putting it all together, the final answer is \boxed{{{answer}}}."


def gold_of(label: str) -> str:
    """The gold answer of a label as plain text."""
    gold = json.loads(label)["answer"] if label.startswith('{"answer"') else label
    return gold if isinstance(gold, str) else ", ".join(gold)


def math_verify(text: str, gold: str) -> bool:
    from math_verify import parse, verify

    return verify(parse(gold), parse(text))


GRADERS: dict[str, Grader] = {
    "ours": lambda text, label: math.score(text, label).status == "correct",
    "math-verify, raw gold": lambda text, label: math_verify(text, gold_of(label)),
    "math-verify, $gold$": lambda text, label: math_verify(text, f"${gold_of(label).strip('$')}$"),
}


def measure(grader: Grader, answers: Sequence[tuple[str, str]]) -> tuple[list[bool], float]:
    """What a grader says of each (response, label), and how many of them it grades per second."""
    began = time.perf_counter()
    said = [grader(text, label) for text, label in answers]
    return said, len(answers) / (time.perf_counter() - began)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=Path, action="append", help="default: the tests' tables")
    paths = parser.parse_args().pairs or TABLES
    pairs = [json.loads(line) for path in paths for line in path.open(encoding="utf-8")]
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # inherited by the workers
    logging.disable(logging.ERROR)  # what math-verify cannot read, it logs

    hard = [(response(pair["answer"]), pair["label"]) for pair in pairs]
    easy = gsm8k_like(GSM8K_ANSWERS)
    for grader in GRADERS.values():  # imports, and the start of a worker, are no answer's time
        grader(response(r"\sqrt{2} x + \sin \frac{x}{7}"), r"\sin(x/7) + 2^{1/2} x")
    said = {name: measure(grader, hard) for name, grader in GRADERS.items()}
    easy_graders = GRADERS | {"ours": lambda text, label: gsm8k.score(text, label).value == 1.0}
    quick = {name: measure(grader, easy)[1] for name, grader in easy_graders.items()}
    verdicts = {name: found for name, (found, _) in said.items()}
    table = pd.DataFrame(verdicts | {key: [pair.get(key) for pair in pairs] for key in KEYS})
    rows = []
    for category, own in [*table.groupby("category", sort=False), ("all", table)]:
        errors = ((own.right & ~own[name], ~own.right & own[name]) for name in GRADERS)
        rows.append([category, len(own), *(f"{a.sum()} + {b.sum()}" for a, b in errors)])
    shares = {name: (table[name] == table.right).mean() for name in GRADERS}
    rows.append(["agreement", "", *(f"{share:.1%}" for share in shares.values())])
    rows.append(["table, answers/s", "", *(f"{rate:,.0f}" for _, rate in said.values())])
    rows.append(["GSM8K-like, answers/s", "", *(f"{rate:,.0f}" for rate in quick.values())])
    print(f"math-verify {version('math-verify')}, Python {sys.version.split()[0]}\n")
    print("Right answers refused + wrong answers accepted\n")
    print_table(["category", "pairs", *GRADERS], rows)
    plainly_wrong = table.ours & table.plain.eq(True)
    sys.exit(bool(plainly_wrong.any() or shares["ours"] < max(LEAST_AGREEMENT, *shares.values())))


if __name__ == "__main__":
    main()
