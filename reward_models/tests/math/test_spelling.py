"""LaTeX, unicode and plain text are spelt in one way, in linear time."""

import contextlib
import re
import time
from pathlib import Path

import pytest

from answer_graders.math.spelling import LATEX_RULES, PLAIN_RULES, SET_RULES, normal
from answer_graders.math.syntax import read
from answer_graders.math.tree import NotRead

SPELLINGS = Path(__file__).with_name("spellings.txt").read_text("utf-8").splitlines()[2:]


@pytest.mark.parametrize("rule", [*SET_RULES, *LATEX_RULES, *PLAIN_RULES])
def test_each_rule_by_its_example(rule):
    before, after = rule.example
    assert before != after
    assert rule.where in before
    assert re.sub(rule.pattern, rule.to, before) == after


def test_spelling():
    for text, spelling in (row.split(" ~ ") for row in SPELLINGS):
        assert normal(text) == normal(spelling) == spelling


PIECES = [
    *r"{}()[]$\^_,.1a '~½²",
    *(r"\frac", r"\text{", r"\boxed{", "1,", "1 ", "base", "{,}", r"\,", "(1)_", "12", "for all "),
    *("x for any ", "th", "_{1", r"\over", "C_1", "0.1", "A1 base ", "1 1/", r"1\frac{1}{2}"),
    *("1.234", "2,50", "0.(", "1 (ten)", ", in total", "+ -", "'1", r"\angle A", "5 厘米", "= "),
    *(r"\frac a", "March 5", "{1,2}", r"\land A", "a = 0 or ", "8:34 pm"),
    *("(a) 3 ", "Part 1: ", "1. ", "~~1", r"\cancel{1} ", "1... ", "x=1\n", "[[1,2],", "**(a)**"),
    *(r"\begin{aligned}", r"x&=1\\", r"\ldots, ", r"\mathbb{R}^+", "|x-1|>", "(1)^T", "2021-03-"),
    *(
        r"\SI{5}{m}",
        r"\SI{5}{",
        r"\SI{",
        r"\qty",
        r"\num{",
        r"\ang{1;",
        "5'6",
        "US$",
        "5 m/s ",
        "1 h ",
    ),
    *("5 m^{-1}", "5 (", "5 {", r"5\frac{", "kg*", r"5\mu", "₹5"),
]


def test_time_grows_with_the_text_alone():
    for piece in PIECES:
        text = piece * (2_000 // len(piece))
        began = time.process_time()
        with contextlib.suppress(NotRead, RecursionError):
            read(normal(text))
        with contextlib.suppress(NotRead, RecursionError):
            read(normal(text), units=True)
        assert time.process_time() - began < 0.2, piece
