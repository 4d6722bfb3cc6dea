r"""A right answer with a small change is wrong: mutants of the tables' right answers are refused.

A mutant is the answer with one digit, sign, relation, bracket, element, unit or letter changed, or
with something before or behind it that changes its value. Those that are accepted must each have a
reason that stands here.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from openrlhf_js.tasks.equivalence import grader

RIGHT = [
    (pair["answer"], pair["label"])
    for table in sorted(Path(__file__).parent.glob("math_pairs*.jsonl"))
    for pair in map(json.loads, table.open(encoding="utf-8"))
    if pair["right"]
]
SIGNS = {r"\le": r"\ge", r"\leq": r"\geq", "<": ">", "≤": "≥"}
OTHER_RELATION = SIGNS | {other: sign for sign, other in SIGNS.items()}
OTHER_STRICTNESS = dict.fromkeys((r"\le", r"\leq", "≤"), "<") | {"<": r"\le ", ">": r"\ge "}
OTHER_STRICTNESS |= dict.fromkeys((r"\ge", r"\geq", "≥"), ">")
OTHER_BRACKET = {"(": "[", "[": "(", ")": "]", "]": ")"}
OTHER_FUNCTION = {"sin": r"\cos", "cos": r"\sin", "ln": r"\log_2 "}
OTHER_FUNCTION |= {"sqrt": r"\sqrt[5]", "cup": r"\cap"}
OTHER_UNIT = {"cm": "mm", "km": "cm", "kg": "mg", "hours": "minutes", "minutes": "hours"}
OTHER_UNIT |= {"dollars": "cents", "cents": "dollars", "PM": "AM", "AM": "PM"}
_RELATION = r"\\(?:leq|geq|le|ge)(?![a-z])|[<>≤≥]"

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
    "digit": every(r"\d", lambda digit: str((int(digit) + 1) % 10)),
    "sign": every(r"\+|(?<![A-Za-z])-(?![A-Za-z])", lambda sign: "-" if sign == "+" else "+"),
    "relation": every(_RELATION, OTHER_RELATION.__getitem__),
    "strictness": every(_RELATION, OTHER_STRICTNESS.__getitem__),
    "bracket": every(r"(?<!\\)[\[\]()]", OTHER_BRACKET.__getitem__),
    "function": every(
        r"\\(?:sin|cos|ln|sqrt|cup)(?![a-z])", lambda name: OTHER_FUNCTION[name[1:]]
    ),
    "unit": every(
        rf"(?<![A-Za-z])(?:{'|'.join(OTHER_UNIT)})(?![A-Za-z])", OTHER_UNIT.__getitem__
    ),
    "point": every(r"\.(?=\d)", lambda _: ""),
    "swapped": swapped,
    "shortened": shortened,
    **{f"before: {text}": around(before=text) for text in (
        "-", "2 \\cdot ", r"\sqrt{2} \cdot ", r"\ln ", "99 = ", "99, ", r"\text{not }",
        r"\text{half of }", r"\text{at least }", r"\neq ", "0.5 + ",
    )},
    **{f"behind: {text}": around(behind=text) for text in (
        "+1", "+C", r"\cdot 10", r" \times 10^3", "x", "i", r"\pi", ", 99", r" \text{ or } 99",
        r" = 99", r" \pm 1", r"\text{ dozen}", r"\text{ quarters}", r"\text{ thousand}",
        r"\text{ below zero}", r" \pmod 7",
    )},
}  # fmt: skip
EXPLAINED = {  # what a line of "mutation | mutant | label" may hold
    "the label allows a difference": r"tolerance",
    "an option's letter decides, whatever stands behind it": r"\| (?:\\text\{)?\(?[A-E]\)?\}?$",
    "what is said behind yes or no is not weighed": r"(?i)^(?:behind|shortened).*\b(?:yes|no)\b",
    "the subject of a sentence is not weighed": r"^before: .*(?:It|function|^n|\} n) .*\bis\b",
    "a unit is not checked where the label has none": (
        r"^(?:unit|digit) .*(?:text|m|\$).* \| [^a-z|]*(?:\\(?:pi|sqrt|frac)[^a-z|]*)*x?$"
    ),
    "zero times anything is zero, and has no sign": (
        r"(?<![\d.])0+(?:\\cdot|x| \\times|i|\\pi|\\text)|3i-0"
        r"|^before: \S+ ?(?:\\cdot )? \| \S+ ?(?:\\cdot )?0\b"
    ),
    "an equation with 0 may be multiplied": r"^before: .*(?:\)=0|neq 0) \|",
    "an index is only a name": r"^digit .*x_",
    "equal in value all the same": (
        r"floor|ceil|-\\pm|\\max|\\gcd|bmod|binom|5C|C_5|prod|\\cot|\|\+|\{\+|pm\\|\+i\\"
        r"|^point \| 0|^swapped .*(?:\\?\{|\\,)"
    ),
    "letters of several options may stand together": r"^shortened \| [A-E]+ \|",
    "the coordinates of other names have no fixed order": r"^swapped .*(?:theta|m)",
}


def mutants() -> Iterator[tuple[str, str, str, str]]:
    """Of each answer and mutation one mutant, always the same: mutation, mutant, answer, label."""
    for answer, label in RIGHT:
        for name, mutation in MUTATIONS.items():
            found = sorted({mutant for mutant in mutation(answer) if mutant != answer})
            draw = hashlib.sha256(f"{name} {answer}".encode()).digest()
            if found and draw[1] % 3 == 0:  # a third of them, for the time's sake
                yield name, found[draw[0] % len(found)], answer, label


def reason(mutation: str, mutant: str, answer: str, label: str) -> str | None:
    """Why this mutant may be accepted."""
    text = f"{mutation} | {mutant} | {label}"
    return next((why for why, pattern in EXPLAINED.items() if re.search(pattern, text)), None)


def test_mutants_of_right_answers_are_wrong(in_process):
    tried, reasons, unexplained = 0, Counter(), []
    for mutation, mutant, answer, label in mutants():
        tried += 1
        if grader.grade(mutant, label).status != "correct":
            continue
        why = reason(mutation, mutant, answer, label)
        if why is None:
            unexplained.append(f"{mutation} | {mutant} | {label}")
        reasons[why] += 1
    assert not unexplained, "\n".join(unexplained)
    assert tried > 4_000
    assert sum(reasons.values()) < tried / 50, reasons
