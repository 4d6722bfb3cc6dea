"""Checks preference files before a reward model is trained on them.

Every pair is made into the two texts that the tokenizer would get, so that what is compared,
counted and measured is what would be trained on.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from openrlhf_js.reward_model.findings import Report, Tally
from openrlhf_js.reward_model.lengths import Budget
from openrlhf_js.reward_model.preferences import (
    Keys,
    Messages,
    Pair,
    Side,
    Template,
    ended,
    pair,
    rendered,
)
from openrlhf_js.reward_model.rows import Row

BATCH = 512  # pairs that are tokenized at once
COUNTED_FIRST, COUNTED_EVERY = 20, 32  # batches of a file whose tokens are counted, all of them
INITIALS = {"system": "s", "developer": "s", "user": "u", "assistant": "a", "tool": "t"}
ORDER = re.compile(r"s?(ua(t+a)*)+")  # of the roles in a conversation


class Making(NamedTuple):
    """How rows become texts, as the flags of a training say.

    Attributes:
        keys: the columns.
        eos_token: the tokenizer's.
        template: its `apply_chat_template`; None where the sides are text.
        input_template: into which a prompt that is text is put.
        budget: the longest text; None leaves lengths out.
    """

    keys: Keys
    eos_token: str
    template: Template | None = None
    input_template: str | None = None
    budget: Budget | None = None


def check(
    files: Iterable[tuple[str, Iterable[Row]]],
    making: Making,
    shown: int = 3,
    progress: Callable[[int, int], None] = lambda pairs, size_bytes: None,
) -> Report:
    """Checks files as one data set, keeping of each pair no more than a fingerprint.

    Args:
        files: their names, and the rows of each.
        making: how rows become texts.
        shown: problems of each kind to keep.
        progress: told how many pairs, and bytes of their files, are done, now and then.

    Raises:
        OSError, ValueError: a file cannot be read.
    """
    report, seen = Report(shown), _Seen()
    for name, rows in files:
        report.tallies[name] = Tally()
        for batch in _batches(iter(rows)):
            _look_at(batch, name, making, report, seen)
            progress(len(batch), sum(row.size_bytes for row in batch))
        if not report.tallies[name].pairs and not report.tallies[name].counts:
            report.add("no pair", name, "", "there is no row")
    return report


def _batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    return iter(lambda: list(islice(rows, BATCH)), [])


def _look_at(batch: list[Row], name: str, making: Making, report: Report, seen: _Seen) -> None:
    tally = report.tallies[name]
    places: list[str] = []
    texts: list[str] = []  # of the first place chosen and rejected, then of the second, ...
    for row in batch:
        try:
            found = pair(row.value, making.keys, row.number)
        except ValueError as error:
            report.add("no pair", name, row.place, str(error))
            continue
        tally.pairs += 1
        for kind, text in conversation_problems(found, making.keys):
            report.add(kind, name, row.place, text)
        try:
            made = rendered(found, making.template, making.input_template)
        except ValueError as error:
            report.add("no text", name, row.place, str(error))
            continue
        if not made.whole:
            text = "the prompt with its generation prompt is not how prompt and response begin"
            report.add("torn", name, row.place, text)
        chosen, rejected = (ended(text, making.eos_token) for text in made[:2])
        if chosen == rejected:
            report.add("same", name, row.place, "chosen and rejected are the same text")
        elif repeat := seen.before(chosen, rejected, name, row.place):
            report.add(repeat.kind, name, row.place, f"see {repeat.place}")
        places.append(row.place)
        texts += [chosen, rejected]
    if making.budget:
        _measure(places, texts, name, making.budget, report)


def _measure(
    places: list[str], texts: list[str], name: str, budget: Budget, report: Report
) -> None:
    """Finds the pairs that would be cut, and counts the tokens of a part of all."""
    tally = report.tallies[name]
    tally.batches += 1
    if whole := tally.batches <= COUNTED_FIRST or tally.batches % COUNTED_EVERY == 0:
        unsure = list(range(len(places)))
    else:
        fits = [budget.fits(text) for text in texts]
        unsure = [i for i in range(len(places)) if not (fits[2 * i] and fits[2 * i + 1])]
    try:
        encoded = budget.encode([text for i in unsure for text in texts[2 * i : 2 * i + 2]])
    except ValueError as error:
        raise ValueError(f"{name}, {places[0]} to {places[-1]}: {error}") from error
    for index, chosen, rejected in zip(unsure, encoded[::2], encoded[1::2], strict=True):
        longest = max(len(chosen), len(rejected))
        if whole:
            tally.tokens.append(longest)
        if longest <= budget.max_len:
            continue
        place = places[index]
        report.add("cut", name, place, f"takes {longest:,} tokens of {budget.max_len:,}")
        different = texts[2 * index] != texts[2 * index + 1]
        if different and budget.kept(chosen) == budget.kept(rejected):
            report.add("same", name, place, f"the same once cut to {budget.max_len:,} tokens")


def conversation_problems(pair: Pair, keys: Keys) -> Iterator[tuple[str, str]]:
    """What is wrong in the order of a pair's messages, and sides that say nothing.

    Yields:
        The kind, of `KINDS`, and what it is.
    """
    for key, side in ((keys.chosen, pair.chosen), (keys.rejected, pair.rejected)):
        if not _last(side).strip():
            yield "empty", f"{key!r} has no response"
    if isinstance(pair.chosen, str) or isinstance(pair.rejected, str):
        return
    before = pair.prompt if isinstance(pair.prompt, list) else []
    for key, messages in ((keys.chosen, pair.chosen), (keys.rejected, pair.rejected)):
        roles = [message["role"] for message in before + messages]
        if not ORDER.fullmatch("".join(INITIALS.get(role, "?") for role in roles)):
            yield "roles", f"{key!r} has {', '.join(roles[:8])}{', ...' if len(roles) > 8 else ''}"
            return
    if _said(pair.chosen[:-1]) != _said(pair.rejected[:-1]):
        yield "prompts", f"{keys.chosen!r} and {keys.rejected!r} differ before the last message"


def _last(side: Side) -> str:
    return side if isinstance(side, str) else side[-1]["content"]


def _said(messages: Messages) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in messages]


class _Repeat(NamedTuple):
    kind: str  # "repeated" or "reversed"
    place: str


class _Seen:
    """Where each pair stood first, whichever way round."""

    def __init__(self) -> None:
        self._places: dict[bytes, tuple[bool, str, str]] = {}

    def before(self, chosen: str, rejected: str, name: str, place: str) -> _Repeat | None:
        """Where the pair stood before and how, else None, and remembers it."""
        digests = [
            hashlib.blake2b(text.encode(), digest_size=16).digest() for text in (chosen, rejected)
        ]
        forward = digests[0] < digests[1]
        here = forward, name, place
        first = self._places.setdefault(b"".join(sorted(digests)), here)
        if first is here:
            return None
        kind = "repeated" if first[0] == forward else "reversed"
        return _Repeat(kind, first[2] if first[1] == name else f"{first[1]}, {first[2]}")
