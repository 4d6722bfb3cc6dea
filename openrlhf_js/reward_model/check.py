"""Checks preference files before a reward model is trained on them.

Every pair is rendered to the two texts that the tokenizer would get, so that what is compared,
counted and measured is what would be trained on.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from openrlhf_js.common.files import FileRow
from openrlhf_js.reward_model.preferences import (
    Keys,
    Messages,
    PreferencePair,
    Side,
    Template,
    ended,
    pair,
    rendered,
)

BATCH = 512  # pairs that are tokenized together
COUNTED_FIRST, COUNTED_EVERY = 20, 32  # batches whose tokens are counted: the first, then every
INITIALS = {"system": "s", "developer": "s", "user": "u", "assistant": "a", "tool": "t"}
ROLE_ORDER = re.compile(r"s?(ua(t+a)*)+")


class Kind(NamedTuple):
    """A kind of problem, and the share of pairs that may have it; None: none may."""

    text: str
    share: float | None


KINDS = {
    "no pair": Kind("row that is not a pair", None),
    "no text": Kind("pair that cannot be rendered as text", None),
    "empty": Kind("pair with an empty side", 0),
    "same": Kind("pair whose sides are the same", 0),
    "roles": Kind("conversation with roles out of order", 0),
    "prompts": Kind("pair whose sides answer different prompts", 0),
    "torn": Kind("pair whose prompt the chat template changes once the response follows", 0),
    "cut": Kind("pair longer than --data.max_len, which would be cut", 0.05),
    "repeated": Kind("pair that occurred before", 0.05),
    "reversed": Kind("pair that occurred before with its sides swapped", 0.05),
}
ALLOWABLE = [name for name, kind in KINDS.items() if kind.share is not None]


@dataclass
class Tally:
    """What was found in one file; `tokens` are of the longer side, for a part of its pairs."""

    pairs: int = 0
    batches: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    tokens: array[int] = field(default_factory=lambda: array("I"))


@dataclass
class Report:
    """What a check found, by file, with the first `shown` problems of each kind."""

    shown: int
    tallies: dict[str, Tally] = field(default_factory=dict)
    problems: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @property
    def pairs(self) -> int:
        """Of all files."""
        return sum(tally.pairs for tally in self.tallies.values())

    @property
    def counts(self) -> Counter[str]:
        """Of problems, by kind."""
        return sum((tally.counts for tally in self.tallies.values()), Counter())

    def stopping(self, allowed: Collection[str] = ()) -> list[str]:
        """The kinds of problems that prevent training, unless allowed (see `ALLOWABLE`)."""
        counts = self.counts
        return [
            name
            for name, kind in KINDS.items()
            if name not in allowed and counts[name] > (kind.share or 0) * self.pairs
        ]

    def refusal(self, kinds: Sequence[str]) -> str:
        """Why these pairs are not trained on, and what to do, in one line."""
        counts = self.counts
        named = ", ".join(
            f"{kind} ({counts[kind]:,}" + (f", more than {share:.0%})" if share else ")")
            for kind in kinds
            for share in [KINDS[kind].share]
        )
        if any(kind not in ALLOWABLE for kind in kinds):
            return f"these pairs cannot be trained on: {named}; correct the lines named above"
        cut = ", raise --data.max_len" if "cut" in kinds else ""
        return (
            f"these pairs would teach the wrong thing: {named}; correct the files{cut}, or train "
            f"on them anyway with --js.allow {' '.join(kinds)}"
        )

    def add(self, kind: str, file: str, place: str, text: str) -> None:
        """Counts a problem, and keeps it if it is among the first of its kind."""
        self.tallies[file].counts[kind] += 1
        if len(self.problems[kind]) < self.shown:
            self.problems[kind].append(f"{file}, {place}: {text}" if place else f"{file}: {text}")


class Budget:
    """The tokens that a text may have, EOS included (`--data.max_len`)."""

    def __init__(self, tokenizer: Any, max_len: int):
        self.max_len = max_len
        self._tokenizer = tokenizer
        self._backend = getattr(tokenizer, "backend_tokenizer", None)

    def fits(self, text: str) -> bool:
        """Whether the text is certainly short enough, without tokenizing it.

        A token covers at least a byte of the normalised text, and normalisation does not double it.
        """
        return 2 * len(text.encode()) < self.max_len

    def encode(self, texts: Sequence[str]) -> list[Any]:
        """The tokens of each text, uncut, on several cores where the tokenizer can; see `len`."""
        try:
            if self._backend is None:
                return list(self._tokenizer(list(texts), add_special_tokens=False)["input_ids"])
            self._backend.no_truncation()  # transformers sets both again in its own calls
            self._backend.no_padding()
            return list(self._backend.encode_batch_fast(list(texts), add_special_tokens=False))
        except Exception as error:  # tokenizers raises bare Exceptions
            raise ValueError(f"the tokenizer cannot encode a text ({error!s:.200})") from error

    def kept(self, encoded: Any) -> list[int]:
        """The ids of one of `encode` that are trained on, but for the last, which becomes EOS."""
        ids = list(getattr(encoded, "ids", encoded))
        left = self._tokenizer.truncation_side == "left"
        return (ids[-self.max_len :] if left else ids[: self.max_len])[:-1]


class Making(NamedTuple):
    """How rows become texts in a training; without a budget, lengths are not checked."""

    keys: Keys
    eos_token: str
    template: Template | None = None
    input_template: str | None = None
    budget: Budget | None = None


def check(
    files: Iterable[tuple[str, Iterable[FileRow]]],
    making: Making,
    shown: int = 3,
    progress: Callable[[int, int], None] = lambda pairs, read_bytes: None,
) -> Report:
    """Checks files, name and rows of each, as one data set; keeps only a digest of each pair.

    `progress` is called after each batch with its numbers of rows and of bytes read.
    """
    report = Report(shown)
    seen: dict[bytes, tuple[bool, str, str]] = {}  # order of the digests, file, place
    for name, rows in files:
        report.tallies[name], before = Tally(), 0
        remaining = iter(rows)
        while batch := list(islice(remaining, BATCH)):
            _check_batch(batch, name, making, report, seen)
            progress(len(batch), batch[-1].read_bytes - before)
            before = batch[-1].read_bytes
        if not report.tallies[name].pairs and not report.tallies[name].counts:
            report.add("no pair", name, "", "there are no rows")
    return report


def _check_batch(
    batch: list[FileRow],
    name: str,
    making: Making,
    report: Report,
    seen: dict[bytes, tuple[bool, str, str]],
) -> None:
    places: list[str] = []
    texts: list[str] = []  # chosen and rejected of the first place, then of the second, ...
    for row in batch:
        try:
            found = pair(row.value, making.keys, row.place)
        except ValueError as error:
            report.add("no pair", name, row.place, str(error))
            continue
        report.tallies[name].pairs += 1
        for kind, text in _conversation_problems(found, making.keys):
            report.add(kind, name, row.place, text)
        try:
            made = rendered(found, making.template, making.input_template)
        except ValueError as error:
            report.add("no text", name, row.place, str(error))
            continue
        if not made.whole:
            text = "prompt and response do not begin with the prompt and its generation prompt"
            report.add("torn", name, row.place, text)
        sides = [ended(text, making.eos_token) for text in (made.chosen, made.rejected)]
        if sides[0] == sides[1]:
            report.add("same", name, row.place, "chosen and rejected are the same text")
        else:
            digests = [hashlib.blake2b(text.encode(), digest_size=16).digest() for text in sides]
            here = (digests[0] < digests[1], name, row.place)
            first = seen.setdefault(b"".join(sorted(digests)), here)
            if first is not here:
                kind = "repeated" if first[0] == here[0] else "reversed"
                place = first[2] if first[1] == name else f"{first[1]}, {first[2]}"
                report.add(kind, name, row.place, f"see {place}")
        places.append(row.place)
        texts += sides
    if making.budget:
        _check_lengths(places, texts, name, making.budget, report)


def _check_lengths(
    places: list[str], texts: list[str], name: str, budget: Budget, report: Report
) -> None:
    """Finds the pairs that would be cut, and counts the tokens of a part of all pairs."""
    tally = report.tallies[name]
    tally.batches += 1
    if counted := tally.batches <= COUNTED_FIRST or tally.batches % COUNTED_EVERY == 0:
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
        if counted:
            tally.tokens.append(longest)
        if longest <= budget.max_len:
            continue
        place = places[index]
        report.add("cut", name, place, f"takes {longest:,} tokens of {budget.max_len:,}")
        different = texts[2 * index] != texts[2 * index + 1]
        if different and budget.kept(chosen) == budget.kept(rejected):
            report.add("same", name, place, f"the same once cut to {budget.max_len:,} tokens")


def _conversation_problems(pair: PreferencePair, keys: Keys) -> Iterator[tuple[str, str]]:
    """Kind and text of problems with the order of messages, and of sides without a response."""

    sides: list[tuple[str, Side]] = [(keys.chosen, pair.chosen), (keys.rejected, pair.rejected)]
    for key, side in sides:
        if not (side if isinstance(side, str) else side[-1]["content"]).strip():
            yield "empty", f"{key!r} has no response"
    if isinstance(pair.chosen, str) or isinstance(pair.rejected, str):
        return
    before = pair.prompt if isinstance(pair.prompt, list) else []
    for key, messages in ((keys.chosen, pair.chosen), (keys.rejected, pair.rejected)):
        roles = [message["role"] for message in before + messages]
        if not ROLE_ORDER.fullmatch("".join(INITIALS.get(role, "?") for role in roles)):
            yield "roles", f"{key!r} has {', '.join(roles[:8])}{', ...' if len(roles) > 8 else ''}"
            return
    if _said(pair.chosen[:-1]) != _said(pair.rejected[:-1]):
        yield "prompts", f"{keys.chosen!r} and {keys.rejected!r} differ before the last message"


def _said(messages: Messages) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in messages]
