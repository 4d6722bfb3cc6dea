r"""Claim: we grade tricky mathematical answers better, and faster, than math-verify's defaults.

    python research/benchmarks/math_grading.py                  # two minutes

Each pair of the table is an answer, a gold label and an examiner's verdict. The answer stands in a
box at the end of a sentence. Ours goes first, with empty caches and its worker started. It is
compared to math-verify, called as in its README, `verify(parse(gold), parse(sentence))`: once with
the gold answer as in the data set, once in dollars, which is easier for it. math-verify gets no
unit or tolerance, and several gold answers are joined by commas. All run on one core.

Exits with 1 if ours agrees with the examiner on less than 97.5 %, accepts a plainly different
value, or agrees less often than math-verify in either form.
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
from typing import Any, NamedTuple

import pandas as pd

from answer_graders.tasks import gsm8k, math
from baseline_research.markdown_table import print_table

TABLES = sorted((Path(__file__).parents[2] / "reward_models/tests/math").glob("math_pairs*.jsonl"))
LEAST_AGREEMENT = 0.975
GSM8K_ANSWERS = 2000
RESPONSE_CHARACTERS = 500

Pair = dict[str, Any]  # category, answer, label, right; plain: if the value is plainly different
Answer = tuple[str, str]  # a response and its label
Grader = Callable[[str, str], bool]  # of a response and a label


class Graded(NamedTuple):
    """A grader's verdict on each answer, and how many it grades in a second."""

    accepted: list[bool]
    answers_per_second: float


def response_of(answer: str) -> str:
    return rf"Putting it all together, the final answer is \boxed{{{answer}}}."


def gold_of(label: str) -> str:
    """The gold answer of a label as plain text."""
    gold = json.loads(label)["answer"] if label.startswith('{"answer"') else label
    if isinstance(gold, str):
        return gold
    return ", ".join(gold)


def ours(response: str, label: str) -> bool:
    return math.score(response, label).status == "correct"


def ours_on_gsm8k(response: str, label: str) -> bool:
    return gsm8k.score(response, label).value == 1.0


def math_verify_on_raw_gold(response: str, label: str) -> bool:
    from math_verify import parse, verify

    return verify(parse(gold_of(label)), parse(response))


def math_verify_on_gold_in_dollars(response: str, label: str) -> bool:
    from math_verify import parse, verify

    gold = gold_of(label).strip("$")
    return verify(parse(f"${gold}$"), parse(response))


GRADERS: dict[str, Grader] = {
    "ours": ours,
    "math-verify, raw gold": math_verify_on_raw_gold,
    "math-verify, $gold$": math_verify_on_gold_in_dollars,
}


def grade(grader: Grader, answers: Sequence[Answer]) -> Graded:
    began = time.perf_counter()
    accepted = [grader(response, label) for response, label in answers]
    seconds = time.perf_counter() - began
    return Graded(accepted, len(answers) / seconds)


def gsm8k_like(count: int) -> list[Answer]:
    """Responses of 500 characters with a different whole number each; every fifth one is wrong."""
    numbers = random.Random(0).sample(range(2, 200_000), count)
    answers = []
    for place, number in enumerate(numbers):
        answer = number + 1 if place % 5 == 0 else number
        boxed = f"{answer:,}" if place % 2 else str(answer)
        end = rf" So she pays {answer} dollars in all. The answer is \boxed{{{boxed}}}."
        half = number // 2
        step = f"First, {half} + {number - half} = {number}; then we go on. "
        working = (20 * step)[: RESPONSE_CHARACTERS - len(end)]
        answers.append((working + end, str(number)))
    return answers


def category_row(category: str, verdicts: pd.DataFrame) -> list[object]:
    """Right answers rejected and wrong answers accepted by each grader."""
    cells: list[object] = [category, len(verdicts)]
    for name in GRADERS:
        refused = (verdicts.right & ~verdicts[name]).sum()
        accepted = (~verdicts.right & verdicts[name]).sum()
        cells.append(f"{refused} + {accepted}")
    return cells


def read_pairs() -> list[Pair]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=Path, action="append", help="default: the tests' tables")
    paths = parser.parse_args().pairs or TABLES
    return [json.loads(line) for path in paths for line in path.open(encoding="utf-8")]


def main() -> None:
    pairs = read_pairs()
    one_core = {min(os.sched_getaffinity(0))}
    os.sched_setaffinity(0, one_core)  # inherited by the workers
    logging.disable(logging.ERROR)  # math-verify logs what it cannot read
    for grader in GRADERS.values():  # imports and starting a worker are not timed
        grader(response_of(r"\sqrt{2} x + \sin \frac{x}{7}"), r"\sin(x/7) + 2^{1/2} x")

    tricky = [(response_of(pair["answer"]), pair["label"]) for pair in pairs]
    graded = {name: grade(grader, tricky) for name, grader in GRADERS.items()}
    easy = gsm8k_like(GSM8K_ANSWERS)
    easy_graders = {**GRADERS, "ours": ours_on_gsm8k}
    easy_graded = {name: grade(grader, easy) for name, grader in easy_graders.items()}

    verdicts = pd.DataFrame({name: graded[name].accepted for name in GRADERS})
    for key in ("category", "right", "plain"):
        verdicts[key] = [pair.get(key) for pair in pairs]
    agreement = {name: (verdicts[name] == verdicts.right).mean() for name in GRADERS}

    rows = [
        category_row(category, of_category)
        for category, of_category in verdicts.groupby("category", sort=False)
    ]
    rows.append(category_row("all", verdicts))
    rows.append(["agreement", "", *(f"{share:.1%}" for share in agreement.values())])
    for title, timed in (("table", graded), ("GSM8K-like", easy_graded)):
        rates = [f"{timed[name].answers_per_second:,.0f}" for name in GRADERS]
        rows.append([f"{title}, answers/s", "", *rates])
    print(f"math-verify {version('math-verify')}, Python {sys.version.split()[0]}\n")
    print("Right answers refused + wrong answers accepted\n")
    print_table(columns=["category", "pairs", *GRADERS], rows=rows)

    plainly_wrong = verdicts["ours"] & verdicts.plain.eq(True)
    least_agreement = max(LEAST_AGREEMENT, *agreement.values())
    sys.exit(bool(plainly_wrong.any() or agreement["ours"] < least_agreement))


if __name__ == "__main__":
    main()
