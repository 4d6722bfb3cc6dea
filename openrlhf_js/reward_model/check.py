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
    PreferencePair,
    Template,
    encode,
    ended,
    pair,
    rendered,
    response,
)

SHOWN = 3  # problems of a kind
BATCH = 512  # pairs that are tokenized together
INITIALS = {"system": "s", "developer": "s", "user": "u", "assistant": "a", "tool": "t"}
ROLE_ORDER = re.compile(r"s?(ua(t+a)*)+")


class Kind(NamedTuple):
    """A kind of problem, and the share of pairs that may have it; None: none may, 1: all may."""

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
    "unread": Kind("pair without its prompt: --data.prompt_key prompt adds that column", 1),
    "cut": Kind("pair longer than --data.max_len, which would be cut", 0.05),
    "repeated": Kind("pair that occurred before", 0.05),
    "reversed": Kind("pair that occurred before with its sides swapped", 0.05),
}
ALLOWABLE = [name for name, kind in KINDS.items() if kind.share not in (None, 1)]


@dataclass
class Tally:
    """What was found in one file; `tokens` are of the longer side of each pair."""

    pairs: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    tokens: array[int] = field(default_factory=lambda: array("I"))


@dataclass
class Report:
    """What a check found, by file, with the first problems of each kind."""

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
        if len(self.problems[kind]) < SHOWN:
            self.problems[kind].append(f"{file}, {place}: {text}" if place else f"{file}: {text}")


class Making(NamedTuple):
    """How rows become texts, and texts tokens, in a training."""

    keys: Keys
    tokenizer: Any
    max_len: int  # tokens of a text, EOS included
    template: Template | None = None
    input_template: str | None = None


def check(
    files: Iterable[tuple[str, Iterable[FileRow]]],
    making: Making,
    progress: Callable[[int], None] = lambda pairs: None,
) -> Report:
    """Checks files, name and rows of each, as one data set; keeps only a digest of each pair.

    `progress` is called after each batch with its number of rows.
    """
    report = Report()
    seen: dict[bytes, tuple[bool, str, str]] = {}  # order of the digests, file, place
    for name, rows in files:
        tally, remaining = report.tallies.setdefault(name, Tally()), iter(rows)
        while batch := list(islice(remaining, BATCH)):
            made: dict[str, tuple[str, str]] = {}  # chosen and rejected text, by place
            for row in batch:
                for kind, text in _row_problems(row, name, making, tally, made, seen):
                    report.add(kind, name, row.place, text)
            for kind, place, text in _length_problems(made, making, tally) if made else ():
                report.add(kind, name, place, text)
            progress(len(batch))
        if not tally.pairs and not tally.counts:
            report.add("no pair", name, "", "there are no rows")
    return report


def _row_problems(
    row: FileRow,
    name: str,
    making: Making,
    tally: Tally,
    made: dict[str, tuple[str, str]],
    seen: dict[bytes, tuple[bool, str, str]],
) -> Iterator[tuple[str, str]]:
    """Kind and text of each problem of a row, whose texts are added to `made` and `seen`."""
    try:
        found = pair(row.value, making.keys, row.place)
    except ValueError as error:
        yield "no pair", str(error)
        return
    tally.pairs += 1
    yield from _conversation_problems(found, making.keys)
    if found.unread_prompt:
        yield "unread", f"the sides lack {row.value['prompt']!r:.60}"  # type: ignore[index]
    try:
        *texts, whole = rendered(found, making.template, making.input_template)
    except (ValueError, LookupError) as error:  # LookupError: of other braces in a template
        yield "no text", str(error)
        return
    if not whole:
        yield "torn", "prompt and response do not begin with the prompt and its generation prompt"
    chosen, rejected = (ended(text, making.tokenizer.eos_token) for text in texts)
    made[row.place] = chosen, rejected
    if chosen == rejected:
        yield "same", "chosen and rejected are the same text"
        return
    one, two = (
        hashlib.blake2b(text.encode(), digest_size=16).digest() for text in (chosen, rejected)
    )
    here = (one < two, name, row.place)
    order, file, place = first = seen.setdefault(min(one, two) + max(one, two), here)
    if first is not here:
        kind = "repeated" if order == here[0] else "reversed"
        yield kind, f"see {place}" if file == name else f"see {file}, {place}"


def _length_problems(
    made: dict[str, tuple[str, str]], making: Making, tally: Tally
) -> Iterator[tuple[str, str, str]]:
    """Kind, place and text of the pairs that would be cut; counts the tokens of all."""
    texts = [text for sides in made.values() for text in sides]
    ids = making.tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
    for (place, sides), *both in zip(made.items(), ids[::2], ids[1::2], strict=True):
        longest = max(map(len, both))
        tally.tokens.append(longest)
        if longest > making.max_len:
            yield "cut", place, f"takes {longest:,} tokens of {making.max_len:,}"
            chosen, rejected = encode(making.tokenizer, sides, making.max_len)
            if len({*sides}) > 1 and chosen == rejected:
                yield "same", place, f"the same once cut to {making.max_len:,} tokens"


def _conversation_problems(pair: PreferencePair, keys: Keys) -> Iterator[tuple[str, str]]:
    """Kind and text of problems with the order of messages, and of sides without a response."""
    sides = {keys.chosen: pair.chosen, keys.rejected: pair.rejected}
    if empty := [repr(key) for key, side in sides.items() if not response(side).strip()]:
        yield "empty", f"no response in {' or '.join(empty)}"
    if isinstance(pair.chosen, str) or isinstance(pair.rejected, str):
        return
    before = pair.prompt if isinstance(pair.prompt, list) else []
    for key, messages in sides.items():
        roles = [message["role"] for message in [*before, *messages]]  # type: ignore[index]
        if not ROLE_ORDER.fullmatch("".join(INITIALS.get(role, "?") for role in roles)):
            yield "roles", f"{key!r} has {', '.join(roles[:8])}{', ...' if len(roles) > 8 else ''}"
            return
    said, other = (
        [(message["role"], message["content"]) for message in messages[:-1]]
        for messages in (pair.chosen, pair.rejected)
    )
    if said != other:
        yield "prompts", f"{keys.chosen!r} and {keys.rejected!r} differ before the last message"
