r"""A right answer with a small change is wrong: mutants of the tables' right answers are refused.

A mutant is the answer with one digit, sign, relation, bracket, element, unit or letter changed, or
with something before or behind it that changes its value. Those that are accepted must each have a
reason in `math_mutations.yaml`.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml

from answer_graders.math import grader

RIGHT = [
    (pair["answer"], pair["label"])
    for table in sorted(Path(__file__).parent.glob("math_pairs*.jsonl"))
    for pair in map(json.loads, table.open(encoding="utf-8"))
    if pair["right"]
]
TABLE = yaml.safe_load(Path(__file__).with_name("math_mutations.yaml").read_text("utf-8"))
Mutation = Callable[[str], Iterator[str]]


def every(pattern: str, change: Callable[[str], str]) -> Mutation:
    """A mutation that changes one match of the pattern."""

    def mutants(answer: str) -> Iterator[str]:
        for found in re.finditer(pattern, answer):
            yield answer[: found.start()] + change(found[0]) + answer[found.end() :]

    return mutants


def swapped(answer: str) -> Iterator[str]:
    found = re.fullmatch(r"(.*?[(\[])([^()\[\]{},]+),([^()\[\]{},]+)(.*)", answer, re.DOTALL)
    if found and found[2].strip() != found[3].strip():
        yield f"{found[1]}{found[3]},{found[2]}{found[4]}"


def shortened(answer: str) -> Iterator[str]:
    *kept, _ = re.split(r"(?<!\\),", answer)
    if kept:
        yield ",".join(kept)
        yield ",".join(kept) + answer[-1]


def around(before: str = "", behind: str = "") -> Mutation:
    return lambda answer: iter([before + answer + behind])


MUTATIONS: dict[str, Mutation] = {
    "swapped": swapped,
    "shortened": shortened,
    **{name: every(pattern, to.__getitem__) for name, (pattern, to) in TABLE["changed"].items()},
    **{f"before: {text}": around(before=text) for text in TABLE["before"]},
    **{f"behind: {text}": around(behind=text) for text in TABLE["behind"]},
}


def mutants() -> Iterator[tuple[str, str, str]]:
    """Of each answer and mutation one mutant, always the same: mutation, mutant, label."""
    for answer, label in RIGHT:
        for name, mutation in MUTATIONS.items():
            found = sorted({mutant for mutant in mutation(answer) if mutant != answer})
            draw = hashlib.sha256(f"{name} {answer}".encode()).digest()
            if found and draw[1] % 5 == 0:  # a fifth of them, for the time's sake
                yield name, found[draw[0] % len(found)], label


def reason(mutation: str, mutant: str, label: str) -> str | None:
    """Why this mutant may be accepted."""
    text = f"{mutation} | {mutant} | {label}"
    reasons = TABLE["explained"]
    return next((why for why, pattern in reasons.items() if re.search(pattern, text)), None)


def test_mutants_of_right_answers_are_wrong(in_process):
    tried = 0
    reasons = Counter()
    unexplained = []
    for mutation, mutant, label in mutants():
        tried += 1
        if grader.grade(mutant, label).status != "correct":
            continue
        why = reason(mutation, mutant, label)
        if why is None:
            unexplained.append(f"{mutation} | {mutant} | {label}")
        reasons[why] += 1
    assert not unexplained, "\n".join(unexplained)
    assert tried > 4_000
    assert sum(reasons.values()) < tried / 50, reasons
