"""Responses made to hurt a grader, by family; none of them is an answer to any label below.

`hostile_lines.txt` holds those that a person can read, one in a line. Here are those that must be
made, some of them from `hostile_words.json`: too long, too deep, of characters that no editor
shows, or the worst that a pattern can meet. What would do something, were it run, makes a file
named `CANARY`, where it is or in /tmp.
"""

import itertools
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
_MARKS = sorted(set(itertools.chain.from_iterable(itertools.chain(*FORMS.values()))))


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
        header = re.fullmatch(r"\[([a-z]+)\]", line)
        if header:
            family = header[1]
        elif family:
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
    families = {family: _repeated(texts) for family, texts in WORDS["repeated"].items()}
    units = WORDS["units"]
    families["repeated"] = {
        f"100 kB of {unit!r}": unit * (LONG // len(unit)) for unit in units[::3]
    }
    families["graded"] = {f"2 kB of {unit!r}": unit * (GRADED // len(unit)) for unit in units}
    families["nested"] = {}
    families["unclosed"] = {}
    for opening, closing in WORDS["nests"]:
        for depth in (45, 400, 5_000):
            text = opening * depth + "1" + closing * depth
            families["nested"][f"{depth} deep: {opening}1{closing}"] = text
        if closing:
            families["unclosed"][f"{opening!r} 5000 times"] = opening * 5_000 + "1"
    families["chains"] = {f"{unit!r} 300 times": unit * 300 + "1" for unit in WORDS["chains"]}
    families["numbers"] |= _numbers()
    families["structures"] |= _structures()
    families["characters"] |= WORDS["texts"]
    for name, character in WORDS["characters"].items():
        text = f"{character}7{character}\\frac{{{character}1}}{{2}}{character}"
        families["characters"][name] = text
    return families


def _repeated(texts: dict[str, tuple[str, str, int, str]]) -> dict[str, str]:
    """Texts of a head, a unit so many times, and a tail."""
    return {name: head + unit * count + tail for name, (head, unit, count, tail) in texts.items()}


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
    """Some of the words, with one of the separators between them."""
    return st.builds(
        lambda separator, drawn_words: separator.join(drawn_words),
        st.sampled_from(separators),
        st.lists(st.sampled_from(words), max_size=25),
    )


def _filled(forms: list[str], *fields: SearchStrategy[str]) -> SearchStrategy[str]:
    """One of the forms with its fields filled in."""
    return st.builds(lambda form, *texts: form.format(*texts), st.sampled_from(forms), *fields)


MATHEMATICS = st.recursive(
    st.sampled_from(WORDS["leaves"]),
    lambda text: _filled(WORDS["pairs"], text, text) | _filled(WORDS["wrappers"], text),
    max_leaves=12,
) | _words(WORDS["leaves"])


def answers(task: str) -> SearchStrategy[str]:
    """What may stand where the task looks for an answer."""
    words = _words(WORDS[task], ("", " ", ",")) if task in WORDS else MATHEMATICS
    return words | ANY_TEXT


def drawn_responses(task: str) -> SearchStrategy[str]:
    """Whole responses for a fuzzer: an answer in its place, or text without one."""
    placed = st.builds(
        lambda thoughts, form, answer: f"{thoughts}{form[0]}{answer}{form[1]}",
        ANY_TEXT,
        st.sampled_from(FORMS[task]),
        answers(task),
    )
    return placed | answers(task) | _words([*WORDS["marks"], *_MARKS])
