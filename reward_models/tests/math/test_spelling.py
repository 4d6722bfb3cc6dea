"""LaTeX, Unicode and plain text are spelt in one way, in linear time."""

import contextlib
import re
import time
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from answer_graders.math import spelling
from answer_graders.math.signs import in_ascii
from answer_graders.math.spelling import Rules, normal
from answer_graders.math.syntax import read
from answer_graders.math.tree import NotRead

SPELLINGS = Path(__file__).with_name("spellings.txt").read_text("utf-8").splitlines()[2:]


RULES = [
    rule for rules in vars(spelling).values() if isinstance(rules, Rules) for rule in rules.rules
]


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_by_its_example(rule):
    before, after = rule.example
    assert before != after
    assert rule.where in before
    assert re.sub(rule.pattern, rule.to, before) == after


def test_spelling():
    for text, spelt in (row.split(" ~ ") for row in SPELLINGS):
        assert normal(text) == normal(spelt) == spelt


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


ABSENT = {  # what no text holds after a pass, as its docstring says
    "braced_sets": r"\A\$?\{(?!\d{1,3}(?:,\d{3})+\})[^{}]*,[^{}]*\}\$?\Z",
    "siunitx": r"\\SI ?\{[^{}]{1,80}\} ?\{[^{}]{1,200}\}|\\(?:num|ang) ?\{\d{1,4}\}",
    "typesetting": r"\\(?:left|right|[bB]igg?[lrm]?)(?![a-zA-Z])",
    "commands": r"\\(?:dfrac|tbinom|leq?|geq?|cdot|times|varphi|degree)(?![a-zA-Z])",
    "environments": r"\\begin\{(?:cases|array|[pbBvV]?matrix|smallmatrix)\}",
    "texts": r"\\text\{| _",
    "layout": r"\$|[^\S ]|  ",
    "numbers": r"\*\*",
    "bases": r"\((?=[A-F]*\d)[0-9A-F]+\)_[\d{]",
    "functions": r"(?:sin|cos|tan)\^\{-1\}",
    "collections": r"\\mathbb\{R\}(?!\^)",
    "units": r"\^\\circ ?[CF](?![A-Za-z])",
    "remarks": r"\(\\approx [^()]{1,40}\)",
    "ends": r"\A |[ .,;:\\]\Z",
}
PARTS = [*PIECES, *(side for rule in RULES for side in rule.example), "\\", "  ", "\n", "**"]


@pytest.mark.parametrize("name", ABSENT)
@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PARTS), max_size=6).map("".join))
def test_what_holds_after_each_pass(name, text):
    assert not re.search(ABSENT[name], getattr(spelling, name)(in_ascii(text)))


@given(st.text() | st.text("½²₁①°€℃㎏年\u2212\u200b\u00ad"))
def test_ascii_stays_and_what_is_invisible_goes(text):
    spelt = in_ascii(text)
    assert spelt == text or not text.isascii()
    assert text.isascii() or "Cf" not in map(unicodedata.category, spelt)


def test_time_grows_with_the_text_alone():
    """At this length, the cheapest quadratic pattern takes 20 s."""
    for piece in PIECES:
        began = time.process_time()
        normal(piece * (200_000 // len(piece)))
        assert time.process_time() - began < 5, piece


def test_texts_of_any_pieces_are_read_in_bounded_time():
    for piece in PIECES:
        text = normal(piece * (2_000 // len(piece)))
        for units in (False, True):
            began = time.process_time()
            with contextlib.suppress(NotRead, RecursionError):
                read(text, units=units)
            assert time.process_time() - began < 5, piece
