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

from openrlhf_js.tasks import gsm8k, math

TABLES = sorted((Path(__file__).parents[1] / "tests/tasks/equivalence").glob("math_pairs*.jsonl"))
LEAST_AGREEMENT = 0.975
GSM8K_ANSWERS = 2000
RESPONSE_CHARACTERS = 500

Pair = dict[str, Any]
Grader = Callable[[str, str], bool]  # of a response and a label


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


def measure(grader: Grader, answers: Sequence[tuple[str, str]]) -> tuple[list[bool], float]:
    """What a grader says of each (response, label), and how many of them it grades per second."""
    began = time.perf_counter()
    said = [grader(text, label) for text, label in answers]
    return said, len(answers) / (time.perf_counter() - began)


def errors(pairs: Sequence[Pair], said: Sequence[bool], category: str = "") -> tuple[int, int]:
    """How many right answers are refused and how many wrong ones accepted."""
    kinds = [
        (pair["right"], each)
        for pair, each in zip(pairs, said, strict=True)
        if category in ("", pair["category"])
    ]
    return kinds.count((True, False)), kinds.count((False, True))


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
    parser.add_argument("--show", action="store_true", help="list the pairs that ours gets wrong")
    options = parser.parse_args()
    paths = options.pairs or TABLES
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

    print(f"math-verify {version('math-verify')}, Python {sys.version.split()[0]}\n")
    print("Right answers refused + wrong answers accepted\n")
    print("| category | pairs |", *(f" {name} |" for name in GRADERS), sep="")
    print("|---|---:|", "---:|" * len(GRADERS), sep="")
    for category in [*dict.fromkeys(pair["category"] for pair in pairs), ""]:
        count = sum(category in ("", pair["category"]) for pair in pairs)
        cells = (" + ".join(map(str, errors(pairs, each, category))) for each, _ in said.values())
        print(f"| {category or 'all'} | {count} | {' | '.join(cells)} |")
    shares = {name: 1 - sum(errors(pairs, each)) / len(pairs) for name, (each, _) in said.items()}
    print("| agreement | |", *(f" {share:.1%} |" for share in shares.values()), sep="")
    print("| table, answers/s | |", *(f" {rate:,.0f} |" for _, rate in said.values()), sep="")
    print("| GSM8K-like, answers/s | |", *(f" {rate:,.0f} |" for rate in quick.values()), sep="")
    for pair, right in zip(pairs, said["ours"][0], strict=True):
        if options.show and right != pair["right"]:
            print(f"- {pair['category']}: {pair['answer']!r} for {pair['label']!r}")
    plain = sum(
        right and pair.get("plain", False)
        for pair, right in zip(pairs, said["ours"][0], strict=True)
    )
    sys.exit(shares["ours"] < LEAST_AGREEMENT or plain > 0 or shares["ours"] < max(shares.values()))


if __name__ == "__main__":
    main()
