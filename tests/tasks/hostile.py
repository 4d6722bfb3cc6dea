"""Responses made to hurt a grader, by family; none of them is an answer to any label below.

`hostile_lines.txt` holds those that a person can read, one in a line. Here are those that must be
made, some of them from `hostile_words.json`: too long, too deep, of characters that no editor
shows, or the worst that a pattern can meet. What would do something, were it run, makes a file
named `CANARY`, where it is or in /tmp.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
WORDS = json.loads((HERE / "hostile_words.json").read_text("utf-8"))
CANARY = "hostile_canary"
LONG = 100_000  # characters
VERY_LONG = 1_000_000
GRADED = 2_000  # characters: the longest answer that the graders of mathematics look at

LABELS: dict[str, tuple[str, ...]] = {
    "math": (
        "918273645",
        r"2^{x}+\sqrt{3}\sin(y)",
        r"\left(-\infty, \sqrt{11}\right) \cup [19, 23)",
        r'{"answer": ["-7117", "\\frac{355}{113}"], "unit": "cm", "tolerance": "1e-3"}',
    ),
    "gsm8k": ("918273645",),
    "geometry3k": (r"71\sqrt{3}",),
    "countdown": ('{"numbers": [55, 53, 59, 22], "target": 71}',),
    "knights_knaves": ('{"Owen": "sage", "Liam": "fool", "Emily": "sage"}',),
    "maze": ('{"maze": ["******", "*S...*", "*.**.*", "*...E*", "*.*..*", "******"]}',),
}
BOX, TAGS, HASHES = ("\\boxed{", "}."), ("<answer>", "</answer>"), ("#### ", "\n")
FORMS: dict[str, tuple[tuple[str, str], ...]] = {  # between what each task looks for an answer
    "math": (BOX,),
    "gsm8k": (HASHES, BOX),
    "geometry3k": (BOX,),
    "countdown": (TAGS,),
    "knights_knaves": (BOX,),
    "maze": (TAGS,),
}


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


def _made() -> dict[str, Mapping[str, str]]:
    return {
        "repeated": {f"100 kB of {unit!r}": _filled(unit, LONG) for unit in WORDS["units"][::3]},
        "graded": {f"2 kB of {unit!r}": _filled(unit, GRADED) for unit in WORDS["units"]},
        "very long": {
            "a line of digits": "7" * VERY_LONG,
            "a line of words": "and so on " * (VERY_LONG // 10),
            "a line of spaces": " " * VERY_LONG,
            "line ends": "\n" * VERY_LONG,
            "carriage returns": "\r\n" * (VERY_LONG // 2),
            "four bytes each": "\U0001f9ee" * VERY_LONG,
            "null bytes": "\0" * VERY_LONG,
            "moves": "LRUD" * (VERY_LONG // 4),
            "a sum": "1+" * (VERY_LONG // 2) + "1",
            "Markdown": "- **a** `b` [c](d)\n" * (VERY_LONG // 19),
            "boxes": "\\boxed{" * (VERY_LONG // 8) + "}" * (VERY_LONG // 8),
            "after an answer": "#### 1" + " " * VERY_LONG,
            "before an answer": " " * VERY_LONG + "1",
        },
        "nested": {
            f"{depth} deep: {opening}1{closing}": opening * depth + "1" + closing * depth
            for opening, closing in WORDS["nests"]
            for depth in (45, 400, 5_000)
        },
        "unclosed": {
            f"{opening!r} 5000 times": opening * 5_000 + "1"
            for opening, closing in WORDS["nests"]
            if closing
        },
        "chains": {f"{unit!r} 300 times": unit * 300 + "1" for unit in WORDS["chains"]},
        "numbers": _numbers(),
        "structures": _structures(),
        "characters": _characters(),
        "puzzles at length": _puzzles(),
        "patterns": _patterns(),
    }


def _filled(unit: str, length: int) -> str:
    return unit * (length // len(unit))


def _numbers() -> dict[str, str]:
    digits = "1234567890" * (LONG // 10)
    return {
        "100,000 digits": digits,
        "401 digits": digits[:401],
        "4,301 digits": digits[:4301],
        "100,000 decimals": f"0.{digits}",
        "fraction of 390 digits": f"\\frac{{{digits[:390]}}}{{{digits[1:391]}}}",
        "fraction of 900 digits": f"\\frac{{{digits[:900]}}}{{{digits[1:901]}}}",
        "power of 390 digits": f"{digits[:390]}^{{{digits[:390]}}}",
        "root of 390 digits": f"\\sqrt[3]{{{digits[:390]}}}",
        "root of a high degree": f"\\sqrt[{digits[:200]}]{{{digits[:200]}}}",
        "fractions that grow": "+".join(f"\\frac{{1}}{{{n}}}" for n in range(900, 1070)),
        "product that grows": "*".join(digits[n : n + 9] for n in range(180)),
        "factorials": "*".join(f"{n}!" for n in range(200, 400)),
        "binomials": "*".join(f"\\binom{{{n}}}{{{n // 2}}}" for n in range(300, 400)),
        "roots of roots": "+".join(f"\\sqrt{{{n}+\\sqrt{{{n + 1}}}}}" for n in range(100, 160)),
        "recurring 390 digits": f"0.\\overline{{{digits[:390]}}}",
        "recurring 100,000 digits": f"0.\\overline{{{digits}}}",
        "recurring with dots": f"0.{digits[:180] * 2}...",
        "percent of percent": "5" + "%" * 500,
        "thousands separators": "1" + ",000" * 400,
        "thousands by spaces": "1" + " 000" * 400,
        "thousands by braces": "1" + "{,}000" * 250,
        "thousands and a stray digit": "1" + ",000" * 400 + "0",
        "exponent of 100,000 digits": f"1e{digits}",
        "base of 100,000 digits": f"1_{{{digits}}}",
        "numeral of base 2": "10" * 190 + "_2",
        "numeral of base 16 with a point": "F" * 190 + "." + "F" * 190 + "_{16}",
        "subscripts": "1" + "_2" * 500,
        "least common multiple": "\\lcm(" + ",".join(map(str, range(1000, 1380))) + ")",
        "max of many": "\\max(" + ",".join("9" * 9 for _ in range(190)) + ")",
        "nested powers of one": "1" + "^{1" * 39 + "}" * 39,
        "numeral in Python": "1_" * (LONG // 2) + "1",
    }


def _structures() -> dict[str, str]:
    many = ",".join(map(str, range(100_000)))
    few = many[:1_800].rpartition(",")[0]
    row = ",".join(f"x+{n}" for n in range(300))
    return {
        "matrix of 10,000 cells": _matrix("p", [["1"] * 100] * 100),
        "matrix of 400 cells": _matrix("p", [["x"] * 20] * 20),
        "determinant": _matrix("v", [[*"xyzw" * 4]] * 16),
        "ragged matrix": _matrix("p", [["1"] * n for n in range(1, 40)]),
        "set of 100,000 elements": f"\\{{{many}\\}}",
        "set of 480 elements": f"\\{{{few}\\}}",
        "list of 100,000 elements": many,
        "tuple of 480 elements": f"({few})",
        "tuple of sums": f"({row})",
        "union of intervals": "\\cup".join(f"({n},{n + 1})" for n in range(150)),
        "union of sets": "\\cup".join(f"\\{{{n}\\}}" for n in range(150)),
        "reals without many points": f"\\mathbb{{R}}\\setminus\\{{{few}\\}}",
        "list of plus-minus": ",".join(["1\\pm\\sqrt{x}"] * 150),
        "sum of plus-minus": "+".join(["x\\pm y"] * 200),
        "equations": ",".join(f"x_{{{n}}}=x_{{{n + 1}}}" for n in range(110)),
        "inequalities": "<".join(f"x_{{{n}}}" for n in range(200)),
        "200 variables": "+".join(f"x_{{{n}}}^{{{n}}}" for n in range(150)),
        "product of sums": "".join(f"(x+{n})" for n in range(250)),
        "power of a product of sums": "(" + "".join(f"(x+y+{n})" for n in range(150)) + ")^{999}",
        "quotient of products": f"\\frac{{{'(x+1)' * 150}}}{{{'(x-1)' * 150}}}",
        "sines of sums": "+".join(f"\\sin({n}x)\\cos({n}y)" for n in range(100)),
        "logarithms of logarithms": "\\ln(" * 35 + "10^{9}" + ")" * 35,
        "exponentials of exponentials": "\\exp(" * 35 + "x" + ")" * 35,
        "continued fraction": "1+\\frac{1}{" * 30 + "x" + "}" * 30,
        "ratio of many": ":".join(map(str, range(400))),
        "JSON of many answers": json.dumps({"answer": [str(n) for n in range(5_000)]}),
        "JSON of many levels": "[" * 10_000 + "]" * 10_000,
        "pickle": pickle.dumps({"answer": [1.0] * 9}, protocol=0).decode("latin-1"),
        "pickle of bytes": pickle.dumps({"answer": [1.0] * 9}).decode("latin-1"),
        "entities": '<!ENTITY a "1">'
        + "".join(f'<!ENTITY a{n} "{"&a;" * 10}">' for n in range(99)),
    }


def _matrix(kind: str, rows: list[list[str]]) -> str:
    cells = r"\\".join("&".join(row) for row in rows)
    return rf"\begin{{{kind}matrix}}{cells}\end{{{kind}matrix}}"


def _characters() -> dict[str, str]:
    alone = {
        name: f"{char}7{char}\\frac{{{char}1}}{{2}}{char}"
        for name, char in WORDS["characters"].items()
    }
    return {
        **alone,
        **WORDS["texts"],
        "surrogates that swap": "\udc00\ud800" * 100,
        "accents without end": "1" + "\u0301" * 1_900,
        "accents at length": "e" + "\u0300\u0316" * 50_000,
        "growth by normalisation": "\ufdfa" * 1_900,
        "growth by case folding": "\u00df" * 9_900,
        "growth by ligatures": "\ufb03" * 9_900,
        "scripts": "2" + "\u2079" * 500,
        "vulgar fractions": "\u00bd" * 400,
        "roots": "\u221a" * 500 + "2",
        "infinities": "\u221e" * 500,
        "plus-minus": "\u00b1" * 500 + "5",
    }


def _puzzles() -> dict[str, str]:
    names = [f"Owen{'abcdefghij'[n % 10]}{n}" for n in range(100_000)]
    return {
        "a million moves": "R" * 1_000_000,
        "all the moves that are read": "LR" * 720,
        "moves in words": "Left, Right, " * 100,
        "moves and a stray end": "LR" * 700 + "x",
        "spaces and a move": " " * 1_400 + "R",
        "arrows alone": "->" * 700,
        "100,000 names": ", ".join(f"{name} is a sage" for name in names),
        "one name 3,000 times": "Owen " * 3_000,
        "one claim 600 times": "Owen is a sage, " * 600,
        "names without a role": "Owen, Liam and " * 600,
        "a sentence of 100,000 words": "the a an is and " * 20_000,
        "all claims both ways": "Owen is a sage, Owen is a fool, Liam is a sage, Liam is a fool, "
        * 150,
        "roles alone": "sage fool " * 900,
        "joints alone": "and, " * 1_900,
        "numbered lines": "".join(f"{n}. Owen is a sage\n" for n in range(500)),
        "number of 100,000 digits": "9" * 100_000 + " + 55",
        "number of 199 digits": "9" * 199,
        "product that overflows": "*".join(["9" * 19] * 10),
        "fraction of fractions": "/".join(["99999999"] * 22),
        "as many numbers as fit": "+".join("5" * 100),
        "as deep as fits": "(" * 99 + "55" + ")" * 99,
        "spaces that fit": "55" + " " * 196 + "+",
        "operators that fit": "55" + "-" * 190 + "53",
        "equals 100,000 digits": "71=" + "7" * 100_000,
        "equals with zeros": "55+53=" + "0" * 5_000 + "108",
    }


def _patterns() -> dict[str, str]:
    """For each pattern of the graders, the text that it reads longest without a match."""
    return {
        "box and its spaces": "\\boxed        " * 7_000,
        "box and its tabs": ("\\boxed" + "\t" * 8) * 7_000,
        "box and a long word": "\\boxed " + "x" * LONG,
        "tags cut short": "<answer" * 14_000,
        "tags in capitals": "<ANSWER></aNSWER><Answer" * 4_000,
        "hashes and spaces": ("####" + " " * 96) * 1_000,
        "articles and layout": ("a" + " " * 99) * 99,
        "article and commands": "a" + "\\textbf" * 1_400,
        "article and letters": "a\\text" + "a" * 9_900,
        "articles in commands": "a\\texta" * 1_400,
        "numbers without a point": "1" * 9_990,
        "numbers with points": "1.1.1.1.1.1)" * 800,
        "begin without end": "\\begin{" + "a" * 9_900,
        "begins": "\\begin{a}{c" * 900,
        "names with hyphens": "a-b'" * 2_400,
        "hyphens": "-'" * 4_900,
        "dollars and backslashes": "$" + "\\\\" * 990 + "\\$",
        "dollars before digits": "$1" * 990,
        "dollars in braces": "${$}" * 490,
        "grouped and a digit": "1" + " 111" * 490 + "1",
        "grouped and a comma": "1" + " 111" * 490 + ",",
        "grouped by commas": "1" + ",111" * 490 + "1",
        "ordinals": "1 ^ {\\text{ " * 150,
        "sizes": "\\left\\right\\big " * 120,
        "styles": "\\text \\text \\operatorname* " * 70,
        "boxed in a box": "\\boxed {" + "}" * 1_900,
        "numerals of base 16": "1A" * 990,
        "a base and a numeral": "base (" + "1A" * 990,
        "a numeral in a parenthesis": "(" + "1" * 1_990,
        "numerals with points": "1A.1A" * 380,
        "numerals and a brace": "1A_{" * 490,
        "letters with hyphens": "abc-" * 490,
        "letters and functions": "abc-sin" * 280,
        "bars without digits": ".1\\bar" * 300,
        "dots in parentheses": "1.(1" * 490,
        "announcements": "the answer is: = : " * 99,
        "announced spaces": "answer" + " is" * 600,
        "choices": "(A) . : . : " * 160,
        "choice and dots": "A." + ". : " * 480,
        "words and a stray sign": "ab " * 640 + "\\",
        "end marks": "<|im_end|>" * 10_000,
        "end marks cut short": "<|" + "x" * 40 + "\n",
        "catastrophic a": "a" * 1_900 + "!",
        "catastrophic mail": "a@" + "a." * 900,
        "spaces and line ends": " \n" * 900 + "x",
    }
