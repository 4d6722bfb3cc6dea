"""Verdicts in a judge's reply, as Arena-Hard's own program reads them."""

from __future__ import annotations

import re

from openrlhf_js.tasks.thinking import split_thinking

# Verdicts, and the reversed spellings that the official programs score as well.
MEANING = {
    **{verdict: verdict for verdict in ("A>>B", "A>B", "A=B", "B>A", "B>>A")},
    **{
        "B<<A": "A>>B",
        "B<A": "A>B",
        "B=A": "A=B",
        "A<B": "B>A",
        "A<<B": "B>>A",
    },
}
# How A fared: 2 much better, 1 better, 0 a tie, -1 and -2 the same for B.
MARGIN_OF_A = {
    "A>>B": 2,
    "A>B": 1,
    "A=B": 0,
    "B>A": -1,
    "B>>A": -2,
}
PATTERNS = (r"\[\[([AB<>=]+)\]\]", r"\[([AB<>=]+)\]")  # the official ones, tried in this order


def verdict_of(reply: str) -> str | None:
    """The last label of a reply, such as "A>>B", or None; one in its thinking does not count.

    As upstream: the text is upper-cased, single brackets are tried if double ones hold no verdict,
    the last one wins. Unlike upstream, brackets without a verdict, such as `[[A]]`, are skipped.
    """
    answer, _ = split_thinking(reply)
    text = answer.upper()
    for pattern in PATTERNS:
        verdicts = [MEANING[label] for label in re.findall(pattern, text) if label in MEANING]
        if verdicts:
            return verdicts[-1]
    return None
