"""Responses made to hurt a grader, by family; none of them is an answer to any label below.

`hostile_lines.txt` holds those that a person can read, one in a line. Here are those that must be
made, some of them from `hostile_words.json`: too long, too deep, of characters that no editor
shows, or the worst that a pattern can meet. What would do something, were it run, makes a file
named `CANARY`, where it is or in /tmp.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

HERE = Path(__file__).parent
WORDS = json.loads((HERE / "hostile_words.json").read_text("utf-8"))
CANARY = "hostile_canary"
LONG = 100_000  # characters
GRADED = 2_000  # characters: the longest answer that the graders of mathematics look at

LABELS: dict[str, list[str]] = WORDS["labels"]
FORMS: dict[str, list[list[str]]] = WORDS["forms"]  # between what each task looks for an answer
_MARKS = sorted({mark for forms in FORMS.values() for form in forms for mark in form})


class Kind(NamedTuple):
    """One way to hurt."""

    family: str
    name: str
    text: str

    def __repr__(self) -> str:  # without the text
        return f"{self.family}: {self.name!a}"


def kinds() -> Iterator[Kind]:
    """All of them, by family."""
    family = ""
    for line in (HERE / "hostile_lines.txt").read_text("utf-8").splitlines():
        if header := re.fullmatch(r"\[([a-z]+)\]", line):
            family = header[1]
        else:
            yield Kind(family, line[:60], line)
    for family, texts in _made().items():
        for name, text in texts.items():
            yield Kind(family, name, text)


def responses(task: str, text: str) -> Iterator[str]:
    """The text as the whole response, and wherever the task looks for an answer."""
    yield text
    for before, after in FORMS[task]:
        yield f"So it is {before}{text}{after}"


def _made() -> dict[str, dict[str, str]]:
    families = {
        family: {
            name: head + (unit * count) + tail for name, (head, unit, count, tail) in texts.items()
        }
        for family, texts in WORDS["repeated"].items()
    }
    units, nests = WORDS["units"], WORDS["nests"]
    families |= {
        "repeated": {f"100 kB of {unit!r}": unit * (LONG // len(unit)) for unit in units[::3]},
        "graded": {f"2 kB of {unit!r}": unit * (GRADED // len(unit)) for unit in units},
        "nested": {
            f"{depth} deep: {opening}1{closing}": opening * depth + "1" + closing * depth
            for opening, closing in nests
            for depth in (45, 400, 5_000)
        },
        "unclosed": {
            f"{opening!r} 5000 times": opening * 5_000 + "1"
            for opening, closing in nests
            if closing
        },
        "chains": {f"{unit!r} 300 times": unit * 300 + "1" for unit in WORDS["chains"]},
    }
    families["numbers"] |= _numbers()
    families["structures"] |= _structures()
    families["characters"] |= WORDS["texts"] | {
        name: f"{char}7{char}\\frac{{{char}1}}{{2}}{char}"
        for name, char in WORDS["characters"].items()
    }
    return families


def _numbers() -> dict[str, str]:
    digits = "1234567890" * 90
    return {
        "power of 390 digits": f"{digits[:390]}^{{{digits[:390]}}}",
        "fractions that grow": "+".join(f"\\frac{{1}}{{{n}}}" for n in range(900, 1070)),
        "factorials": "*".join(f"{n}!" for n in range(200, 400)),
        "least common multiple": "\\lcm(" + ",".join(map(str, range(1000, 1380))) + ")",
    }


def _structures() -> dict[str, str]:
    many = ",".join(map(str, range(100_000)))
    few = many[:1_800].rpartition(",")[0]
    return {
        "determinant": _matrix("v", [[*"xyzw" * 4]] * 16),
        "set of 480 elements": f"\\{{{few}\\}}",
        "list of 480 elements": few,
        "reals without many points": f"\\mathbb{{R}}\\setminus\\{{{few}\\}}",
        "inequalities": "<".join(f"x_{{{n}}}" for n in range(200)),
        "power of sums": "(" + "".join(f"(x+y+{n})" for n in range(150)) + ")^{999}",
        "sines of sums": "+".join(f"\\sin({n}x)\\cos({n}y)" for n in range(100)),
        "JSON of many answers": json.dumps({"answer": [str(n) for n in range(5_000)]}),
        "100,000 names": ", ".join(f"Owen{n} is a sage" for n in range(100_000)),
    }


def _matrix(kind: str, rows: list[list[str]]) -> str:
    cells = r"\\".join("&".join(row) for row in rows)
    return rf"\begin{{{kind}matrix}}{cells}\end{{{kind}matrix}}"


ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)  # surrogates, too


def _words(words: list[str], separators: tuple[str, ...] = ("",)) -> SearchStrategy[str]:
    drawn = st.tuples(st.sampled_from(separators), st.lists(st.sampled_from(words), max_size=25))
    return drawn.map(lambda drawn: drawn[0].join(drawn[1]))


def _put_together(forms: list[str], *parts: SearchStrategy[str]) -> SearchStrategy[str]:
    return st.tuples(st.sampled_from(forms), *parts).map(lambda drawn: drawn[0].format(*drawn[1:]))


MATHEMATICS = st.recursive(
    st.sampled_from(WORDS["leaves"]),
    lambda part: _put_together(WORDS["pairs"], part, part) | _put_together(WORDS["wrappers"], part),
    max_leaves=12,
) | _words(WORDS["leaves"])


def answers(task: str) -> SearchStrategy[str]:
    """What may stand where the task looks for an answer."""
    words = _words(WORDS[task], ("", " ", ",")) if task in WORDS else MATHEMATICS
    return words | ANY_TEXT


def drawn_responses(task: str) -> SearchStrategy[str]:
    """Whole responses for a fuzzer: an answer in its place, or text without one."""
    placed = st.tuples(ANY_TEXT, st.sampled_from(FORMS[task]), answers(task)).map(
        lambda drawn: f"{drawn[0]}{drawn[1][0]}{drawn[2]}{drawn[1][1]}"
    )
    return placed | answers(task) | _words([*WORDS["marks"], *_MARKS])
