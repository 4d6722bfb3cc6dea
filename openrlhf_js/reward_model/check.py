"""Checks preference files before training: every pair as the texts that the tokenizer would get."""

from __future__ import annotations

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from openrlhf_js.common.files import FileRow
from openrlhf_js.reward_model import preferences
from openrlhf_js.reward_model.preferences import Keys, PreferencePair, Template

SHOWN = 3  # problems of a kind
BATCH = 512  # pairs that are tokenized together
ROLE_ORDER = re.compile(r"((system|developer),)?(user,assistant,((tool,)+assistant,)*)+")


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
    "cut": Kind("pair that would be cut: raise --data.max_len", 0.05),
    "repeated": Kind("pair that occurred before", 0.05),
    "reversed": Kind("pair that occurred before with its sides swapped", 0.05),
}
ALLOWABLE = [name for name, kind in KINDS.items() if kind.share not in (None, 1)]


@dataclass
class Report:
    """What a check found, with the first problems of each kind."""

    pairs: int = 0
    counts: Counter[str] = field(default_factory=Counter)  # of problems, by kind
    tokens: array[int] = field(default_factory=lambda: array("I"))  # of each pair's longer side
    problems: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, place: str, kind: str, text: str) -> None:
        """Counts a problem, and keeps it if it is among the first of its kind."""
        self.counts[kind] += 1
        if len(self.problems[kind]) < SHOWN:
            self.problems[kind].append(f"{place}: {text}")

    def stopping(self, allowed: Collection[str] = ()) -> list[str]:
        """The kinds of problems that prevent training, unless allowed (see `ALLOWABLE`)."""
        return [
            name
            for name, kind in KINDS.items()
            if name not in allowed and self.counts[name] > (kind.share or 0) * self.pairs
        ]

    def refusal(self, kinds: Sequence[str]) -> str:
        """Why these pairs are not trained on, and what to do, in one line."""
        named = "; ".join(f"{kind} ({self.counts[kind]:,}): {KINDS[kind].text}" for kind in kinds)
        if {*kinds} - {*ALLOWABLE}:
            return f"these pairs cannot be trained on: {named}; correct the lines named above"
        said = f"these pairs would teach the wrong thing: {named}; correct the files, or train on"
        return f"{said} them anyway with --js.allow {' '.join(kinds)}"


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
    """Checks files, name and rows of each, as one data set; keeps only a hash of each pair.

    `progress` is called after each batch with its number of rows.
    """
    report = Report()
    seen: dict[int, str] = {}  # where a pair came first
    for name, rows in files:
        remaining = iter(rows)
        while batch := list(islice(remaining, BATCH)):
            made: dict[str, tuple[str, str]] = {}  # both texts, by place
            for row in batch:
                place = f"{name}, {row.place}"
                if texts := _texts(row, place, making, report):
                    made[place] = texts
                    _compare(texts, place, report, seen)
            if made:
                _measure(made, making, report)
            progress(len(batch))
    return report


def _texts(row: FileRow, place: str, making: Making, report: Report) -> tuple[str, str] | None:
    """Chosen and rejected as they are trained on; their problems are added to the report."""
    try:
        found = preferences.pair(row.value, making.keys, row.place)
    except ValueError as error:
        report.add(place, "no pair", str(error))
        return None
    report.pairs += 1
    for kind, text in _conversation_problems(found, making.keys):
        report.add(place, kind, text)
    if found.unread_prompt:
        report.add(place, "unread", "the sides lack the text under 'prompt'")
    try:
        texts = preferences.rendered(found, making.template, making.input_template)
    except (ValueError, LookupError) as error:  # LookupError: of other braces in a template
        report.add(place, "no text", str(error))
        return None
    if not texts[2]:
        text = "prompt and response do not begin with the prompt and its generation prompt"
        report.add(place, "torn", text)
    chosen, rejected = (preferences.ended(each, making.tokenizer.eos_token) for each in texts[:2])
    return chosen, rejected


def _compare(texts: tuple[str, str], place: str, report: Report, seen: dict[int, str]) -> None:
    """Compares the sides with each other, and with earlier pairs."""
    if texts[0] == texts[1]:
        report.add(place, "same", "chosen and rejected are the same text")
    elif swapped := seen.get(hash(texts[::-1])):
        report.add(place, "reversed", f"see {swapped}")
    elif (first := seen.setdefault(hash(texts), place)) is not place:
        report.add(place, "repeated", f"see {first}")


def _measure(made: dict[str, tuple[str, str]], making: Making, report: Report) -> None:
    """Counts the tokens of the longer sides, and the pairs that would be cut."""
    texts = [text for sides in made.values() for text in sides]
    ids = making.tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
    for place, *both in zip(made, ids[::2], ids[1::2], strict=True):
        longest = max(map(len, both))
        report.tokens.append(longest)
        if longest > making.max_len:
            report.add(place, "cut", f"takes {longest:,} tokens of {making.max_len:,}")


def _conversation_problems(pair: PreferencePair, keys: Keys) -> Iterator[tuple[str, str]]:
    """Kind and text of problems with the order of messages, and of sides without a response."""
    sides: dict[str, Any] = {keys.chosen: pair.chosen, keys.rejected: pair.rejected}
    empty = [key for key, side in sides.items() if not preferences.response(side).strip()]
    if empty:
        yield "empty", f"no response in {' or '.join(empty)}"
    if isinstance(pair.chosen, str):
        return
    before: Any = pair.prompt or []
    for key, messages in sides.items():
        roles = "".join([message["role"] + "," for message in [*before, *messages]])
        if not ROLE_ORDER.fullmatch(roles):
            yield "roles", f"{key!r} has {roles}"
            return
    said, other = ([(m["role"], m["content"]) for m in side[:-1]] for side in sides.values())
    if said != other:
        yield "prompts", f"{keys.chosen!r} and {keys.rejected!r} differ before the last message"
