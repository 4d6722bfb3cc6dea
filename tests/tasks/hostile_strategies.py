"""Responses for a fuzzer: nearly right ones, of each task's own words and signs, and any text."""

from __future__ import annotations

from hostile import BOX, FORMS, HASHES, TAGS, WORDS
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

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


def responses(task: str) -> SearchStrategy[str]:
    """Whole responses: an answer in its place, text without one, and places that are broken."""
    placed = st.tuples(ANY_TEXT, st.sampled_from(FORMS[task]), answers(task)).map(
        lambda drawn: f"{drawn[0]}{drawn[1][0]}{drawn[2]}{drawn[1][1]}"
    )
    return placed | answers(task) | _words([*WORDS["marks"], *BOX, *TAGS, *HASHES])
