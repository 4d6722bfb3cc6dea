"""The verdict at the end of what a judge said."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import regex  # type: ignore[import-untyped]

VERDICTS = ("A>>B", "A>B", "A=B", "B>A", "B>>A")
PATTERNS = (r"\[\[([AB<>=]+)\]\]", r"\[([AB<>=]+)\]")  # the official ones, tried in this order

# Judges also write a verdict the other way round; upstream scores these as well.
MEANING = {
    **{verdict: verdict for verdict in VERDICTS},
    "B<<A": "A>>B",
    "B<A": "A>B",
    "B=A": "A=B",
    "A<B": "B>A",
    "A<<B": "B>>A",
}

LONGEST_TEXT = 1 << 20  # characters of a judge's text that are looked at, from its end
PATTERN_SECONDS = 2.0  # for a pattern of the user's on one text

_OFFICIAL = tuple(re.compile(pattern) for pattern in PATTERNS)


def parse_verdict(text: str, patterns: Sequence[str] | None = None) -> str | None:
    """The verdict in a judge's text, one of `VERDICTS`, or None.

    The text is upper-cased; a pattern is tried only if those before it found nothing; the last of
    several verdicts wins. That is upstream's rule, but for one thing: what is in brackets and is
    no verdict, such as `[[A]]` or `[AB]` in a formula, is passed over. Upstream takes it for the
    verdict where it comes last, and then has no score for the game.

    The official patterns need time in proportion to the text. Those of a user may need time that
    is exponential in it: on them the time itself is bounded, which a bound on the text's length
    would not do.

    Args:
        patterns: regular expressions whose one group, or whole, is the verdict (the
            settings' `regex_patterns`); None for the official ones.

    Raises:
        ValueError: a pattern is no regular expression, has more groups than one, or takes too long.
    """
    text = text[-LONGEST_TEXT:].upper()
    for finder in _finders(patterns):
        found = [MEANING[match] for match in finder(text) if match in MEANING]
        if found:
            return found[-1]
    return None


def check_patterns(patterns: Iterable[str]) -> None:
    """Raises ValueError for what is no regular expression, or has more groups than one."""
    for pattern in patterns:
        try:
            groups = regex.compile(pattern).groups
        except (regex.error, TypeError) as error:
            raise ValueError(
                f"regex pattern {pattern!r} is no regular expression: {error}"
            ) from None
        if groups > 1:
            raise ValueError(
                f"regex pattern {pattern!r} has {groups} groups; give it one, around the verdict, "
                f"as in {PATTERNS[0]!r}"
            )


def _finders(patterns: Sequence[str] | None) -> list[Callable[[str], Iterable[str]]]:
    if patterns is None or tuple(patterns) == PATTERNS:
        return [pattern.findall for pattern in _OFFICIAL]
    check_patterns(patterns)
    return [_bounded(pattern) for pattern in patterns]


def _bounded(pattern: str) -> Callable[[str], list[str]]:
    def find(text: str) -> list[str]:
        try:
            found = regex.findall(pattern, text, timeout=PATTERN_SECONDS)
        except TimeoutError:
            raise ValueError(
                f"regex pattern {pattern!r} took longer than {PATTERN_SECONDS:g} s on a judge's "
                f"text of {len(text):,} characters; give a simpler one, such as {PATTERNS[0]!r}"
            ) from None
        return [match.strip("\n") for match in found]

    return find
