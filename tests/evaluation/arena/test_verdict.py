"""The verdict in a judge's text, against a slow reading character by character."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openrlhf_js.evaluation.arena import verdict
from openrlhf_js.evaluation.arena.verdict import PATTERNS, VERDICTS, check_patterns, parse_verdict


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("My final verdict is tie: [[A=B]]", "A=B"),
        ("[[A>>B]]", "A>>B"),
        ("[[b>>a]].", "B>>A"),  # upper-cased
        ("At first [[A>B]], but no: [[B>A]]", "B>A"),  # the last wins
        ("[[A>B]] and then only [B>A]", "A>B"),  # double brackets come first
        ("so [A>B] or rather [A=B]", "A=B"),  # single ones where there are no double ones
        ("[[[A>B]]]", "A>B"),
        ("[[A>B]", "A>B"),  # the inner bracket is a single one
        ("**[[A>B]]**\n", "A>B"),
        (r"$\boxed{[[B>>A]]}$", "B>>A"),
        ("[[A<B]]", "B>A"),  # the other way round, as upstream scores it
        ("[[A<<B]]", "B>>A"),
        ("[[B<A]]", "A>B"),
        ("[[B<<A]]", "A>>B"),
        ("[[B=A]]", "A=B"),
        ("[[A>B]] with M = [[A]]", "A>B"),  # no verdict, passed over
        ("M = [[AB]], my verdict: [A>B]", "A>B"),
        ("[[A>>>B]]", None),
        ("[[A > B]]", None),
        ("[[ A>B ]]", None),
        ("[[A>B", None),
        ("A>B", None),
        ("(A>B)", None),
        ("[[C]]", None),
        ("[[A>\nB]]", None),
        ("", None),
        ("\ufb06 \u00df [[a>b]] \u0131", "A>B"),  # characters that grow when upper-cased
    ],
)
def test_forms(text, expected):
    assert parse_verdict(text) == expected


def slowly(text):
    """The same rule without regular expressions."""
    text = text.upper()
    names = {name: name for name in VERDICTS}
    for name in VERDICTS:
        other = name[::-1].translate(str.maketrans("<>", "><"))
        names[other] = name
    for width in (2, 1):
        found = None
        for end in range(len(text)):
            start = end - 1
            while start >= 0 and text[start] in "AB<>=":
                start -= 1
            before, after = text[max(0, start - width + 1) : start + 1], text[end : end + width]
            inside = text[start + 1 : end]
            if before == "[" * width and after == "]" * width and inside in names:
                found = names[inside]
        if found:
            return found
    return None


PIECES = st.sampled_from(
    [*VERDICTS, "A<B", "b<<a", "B=A", "[", "]", "[[", "]]", "A", "b", ">", "<", "=", " ", "\n", "x"]
)


@given(st.lists(PIECES, max_size=30).map("".join))
def test_against_a_slow_reading(text):
    assert parse_verdict(text) == slowly(text)


@given(st.text(alphabet="AaBb<>=[]x", max_size=40))
def test_against_a_slow_reading_of_any_characters(text):
    assert parse_verdict(text) == slowly(text)


@given(st.lists(PIECES, max_size=20).map("".join))
def test_the_official_patterns_given_by_hand_say_the_same(text):
    assert parse_verdict(text, list(PATTERNS)) == parse_verdict(text)
    both = [*PATTERNS, r"never{7}"]  # these go through the module with a time limit
    assert parse_verdict(text, both) == parse_verdict(text)


def test_patterns_of_the_user():
    assert parse_verdict("winner: b>a!", [r"WINNER: ([AB<>=]+)"]) == "B>A"
    assert parse_verdict("[[A>B]]", [r"WINNER: ([AB<>=]+)"]) is None
    assert parse_verdict("[[A>B]]", [r"WINNER: (\S+)", PATTERNS[0]]) == "A>B"
    assert parse_verdict("so a>>b", [r"A>>B|B>>A"]) == "A>>B"  # no group: all of it
    assert parse_verdict("<v>\na>b\n</v>", [r"<V>([^<]*)</V>"]) == "A>B"  # as upstream strips it


@pytest.mark.parametrize(
    ("pattern", "said"),
    [("[[", "no regular expression"), ("(A)(B)", "has 2 groups"), (None, "no regular expression")],
)
def test_patterns_that_are_none(pattern, said):
    with pytest.raises(ValueError, match=said):
        check_patterns([PATTERNS[0], pattern])
    with pytest.raises(ValueError, match=said):
        parse_verdict("x", [pattern])


def test_a_pattern_that_takes_for_ever_is_stopped(monkeypatch):
    monkeypatch.setattr(verdict, "PATTERN_SECONDS", 0.05)
    began = time.monotonic()
    with pytest.raises(ValueError, match=r"took longer than 0\.05 s .*give a simpler one"):
        parse_verdict("A" * 5000 + "!", [r"((?:A|A|AA)+)$"])
    assert time.monotonic() - began < 10


def test_of_a_huge_text_the_end_counts(monkeypatch):
    monkeypatch.setattr(verdict, "LONGEST_TEXT", 100)
    assert parse_verdict("[[A>B]]" + "x" * 200) is None
    assert parse_verdict("x" * 200 + "[[A>B]]") == "A>B"


@pytest.mark.parametrize("part", ["[", "[[", "[[A", "[[A>B]", "]", "A", "[["])
def test_hostile_texts_take_no_time(part):
    began = time.monotonic()
    assert parse_verdict(part * 300_000) in (None, "A>B")
    assert time.monotonic() - began < 20  # a quadratic reading takes hours
