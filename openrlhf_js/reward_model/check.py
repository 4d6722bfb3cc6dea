"""Checks preference files before training: every pair as the texts that the tokenizer would get."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from answer_graders.programs.files import FileRow
from openrlhf_js.reward_model import preferences
from openrlhf_js.reward_model.preferences import Keys, PreferencePair, Template

SHOWN = 3  # problems of a kind
BATCH = 512  # pairs that are tokenized together


class ProblemKind(NamedTuple):
    """A kind of problem, and the share of pairs that may have it.

    None: none may, and --js.allow does not change that. 1: all may.
    """

    text: str
    share: float | None


KINDS = {
    "no pair": ProblemKind("row that is not a pair", None),
    "no text": ProblemKind("pair that cannot be rendered as text", None),
    "empty": ProblemKind("pair with an empty side", 0),
    "same": ProblemKind("pair whose sides are the same", 0),
    "prompts": ProblemKind("pair whose sides answer different prompts", 0),
    "torn": ProblemKind("pair whose prompt the chat template changes once the response follows", 0),
    "unread": ProblemKind("pair without its prompt: --data.prompt_key prompt adds that column", 1),
    "cut": ProblemKind("pair that would be cut: raise --data.max_len", 0.05),
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
        stopping = []
        for name, kind in KINDS.items():
            most = (kind.share or 0) * self.pairs
            if self.counts[name] > most and name not in allowed:
                stopping.append(name)
        return stopping

    def refusal(self, kinds: Sequence[str]) -> str:
        """Why these pairs are not trained on, and what to do, in one line."""
        lines = [f"{kind} ({self.counts[kind]:,}): {KINDS[kind].text}" for kind in kinds]
        problems = "; ".join(lines)
        if not set(kinds) <= set(ALLOWABLE):
            return f"these pairs cannot be trained on: {problems}; correct the lines named above"
        return (
            f"these pairs would teach the wrong thing: {problems}; correct the files, "
            f"or train on them anyway with --js.allow {' '.join(kinds)}"
        )


class Making(NamedTuple):
    """How rows become texts, and texts tokens, in a training."""

    keys: Keys
    tokenizer: Any
    max_len: int  # tokens of a text, EOS included
    template: Template | None = None
    input_template: str | None = None


class Texts(NamedTuple):
    """Both texts of a pair, as they are trained on, and where the pair is."""

    chosen: str
    rejected: str
    place: str


def check(
    files: Iterable[tuple[str, Iterable[FileRow]]],
    making: Making,
    progress: Callable[[int], None] = lambda pairs: None,
) -> Report:
    """Checks files, given by name and rows, as one data set.

    `progress` is called after each batch with its number of rows.
    """
    report = Report()
    for name, rows in files:
        remaining = iter(rows)
        while batch := list(islice(remaining, BATCH)):
            pairs = []
            for row in batch:
                place = f"{name}, {row.place}"
                texts = _texts(row, place, making, report)
                if texts:
                    pairs.append(texts)
                    if texts.chosen == texts.rejected:
                        report.add(place, "same", "chosen and rejected are the same text")
            if pairs:
                _measure(pairs, making, report)
            progress(len(batch))
    return report


def _texts(row: FileRow, place: str, making: Making, report: Report) -> Texts | None:
    """The texts of a row as they are trained on, or None; adds problems to the report."""
    try:
        pair = preferences.pair(row.value, making.keys, row.place)
    except ValueError as error:
        report.add(place, "no pair", str(error))
        return None
    report.pairs += 1
    for kind, text in _conversation_problems(pair, making.keys):
        report.add(place, kind, text)
    if pair.unread_prompt:
        report.add(place, "unread", "the sides lack the text under 'prompt'")
    try:
        rendered = preferences.rendered(pair, making.template, making.input_template)
    except (ValueError, LookupError) as error:  # LookupError: from other braces in a template
        report.add(place, "no text", str(error))
        return None
    if not rendered.starts_with_prompt:
        text = "prompt and response do not begin with the prompt and its generation prompt"
        report.add(place, "torn", text)
    eos_token = making.tokenizer.eos_token
    return Texts(
        chosen=preferences.ended(rendered.chosen, eos_token),
        rejected=preferences.ended(rendered.rejected, eos_token),
        place=place,
    )


def _measure(pairs: Sequence[Texts], making: Making, report: Report) -> None:
    """Counts the tokens of the longer sides, and the pairs that would be cut."""
    texts = []
    for pair in pairs:
        texts += [pair.chosen, pair.rejected]
    ids = making.tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
    for pair, chosen, rejected in zip(pairs, ids[::2], ids[1::2], strict=True):
        tokens = max(len(chosen), len(rejected))
        report.tokens.append(tokens)
        if tokens > making.max_len:
            report.add(pair.place, "cut", f"takes {tokens:,} tokens of {making.max_len:,}")


def _conversation_problems(pair: PreferencePair, keys: Keys) -> Iterator[tuple[str, str]]:
    """Yields kind and text of problems: no response, or sides that answer different prompts."""
    sides: dict[str, Any] = {keys.chosen: pair.chosen, keys.rejected: pair.rejected}
    for key, side in sides.items():
        if not preferences.response(side).strip():
            yield "empty", f"no response in {key}"
            break
    if isinstance(pair.chosen, str):
        return
    if _before_response(pair.chosen) != _before_response(pair.rejected):
        yield "prompts", f"{keys.chosen!r} and {keys.rejected!r} differ before the last message"


def _before_response(side: Any) -> list[tuple[str, str]]:
    """Role and content of the messages before the last."""
    return [(message["role"], message["content"]) for message in side[:-1]]
