"""Judging: two games for each question, every reply on disk with its cost, each game paid once.

    model_judgment/JUDGE/MODEL.jsonl    judgments, as the official programs read them
    judge_ledger/JUDGE/CATEGORY.jsonl   every reply that was paid for, under its settings

A game is known by the hash of its settings and messages, so that the same call after a kill, or
another model with the same answer, gets its reply from the ledger. Judgments are written from the
ledger when a call ends.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from openrlhf_js.common.console import progress
from openrlhf_js.common.store import Record, Store
from openrlhf_js.evaluation.arena.data import (
    Bench,
    Folder,
    Game,
    Judgment,
    Question,
    failed_answers,
    file_name,
    judgment_row,
    merge_rows,
    read_answers,
    read_judgments,
)
from openrlhf_js.evaluation.arena.protocol import (
    JudgePrompt,
    JudgeSettings,
    Messages,
    Price,
    digest,
    identity_of,
    parse_verdict,
    prompt_of,
)
from openrlhf_js.evaluation.arena.style import split_thinking
from openrlhf_js.sampling.endpoint import Endpoint, NoReply, run_all

log = logging.getLogger(__name__)

BYTES_PER_TOKEN = 4  # of English prose and code; formulas have fewer
OUTPUT_TOKENS = 900  # of the official judges' replies, on average
OPEN = "open"
NO_REPLY = dict(text="", thinking="", prompt_tokens=0, completion_tokens=0, prompt_bytes=0)


class Ledger:
    """The replies of one judge in one category, by game.

    A game is given up after `tries` replies without a verdict; with `retry` those of earlier calls
    do not count.
    """

    def __init__(self, store: Store, tries: int, retry: bool):
        self.store, self.tries = store, tries
        self.settings = digest(store.identity)
        self.replies: dict[str, list[Record]] = defaultdict(list)
        for record in store.records.values():
            self.replies[record["game"]].append(record)
        self._before = {key: len(each) for key, each in self.replies.items()} if retry else {}

    def add(self, records: Sequence[Record]) -> None:
        """Writes replies to the disk."""
        for record in records:
            attempt = len(self.replies.get(record["game"], ()))
            record.update(attempt=attempt, tstamp=time.time())
        self.store.append(records)
        for record in records:
            self.replies[record["game"]].append(record)

    def game(self, key: str) -> Game | str | None:
        """The game's reply that has a verdict, or the last one where it was given up.

        None if it was refused, and OPEN if it is to be asked. A verdict in thinking does not count.
        """
        replies = self.replies.get(key, [])
        for record in replies:
            if verdict := parse_verdict(split_thinking(record["text"])[0]):
                return Game(verdict, record["text"])
        recent = replies[self._before.get(key, 0) :]
        if any("refused" in each for each in recent):
            return None
        return Game(None, recent[-1]["text"]) if len(recent) >= self.tries else OPEN

    def open(self, key: str) -> bool:
        """Whether a game is to be asked."""
        return self.game(key) == OPEN


@dataclass
class Bill:
    """Tokens of replies; where the endpoint counts none, the text's bytes, which are more."""

    replies: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def add(self, record: Record) -> None:
        """Adds a reply."""
        said = len((record["text"] + record["thinking"]).encode(errors="replace"))
        self.replies += 1
        self.prompt_tokens += record["prompt_tokens"] or record["prompt_bytes"]
        self.completion_tokens += record["completion_tokens"] or said

    def dollars(self, price: Price | None) -> float:
        """What it costs; 0 without a price."""
        cost = price or Price(input=0, output=0)
        return (self.prompt_tokens * cost.input + self.completion_tokens * cost.output) / 1e6


@dataclass
class Pair:
    """A model's answer and the baseline's to one question, in two games."""

    ledger: Ledger
    prompt: JudgePrompt
    question: Question
    model: str
    answer: str
    baseline: str
    there: Judgment | None  # in the file
    turn: int = 0  # which game is held, where it is one for each question

    def __post_init__(self) -> None:
        settings = self.ledger.settings
        both = tuple(digest([settings, self.messages(game)]) for game in (0, 1))
        one = "games" in self.ledger.store.identity
        self.keys = tuple("" if one and game != self.turn else both[game] for game in (0, 1))

    def messages(self, game: int) -> Messages:
        """What the judge is asked; in game 0 A is the baseline, in game 1 A is the model."""
        shown = (self.baseline, self.answer) if game == 0 else (self.answer, self.baseline)
        return self.prompt.messages(self.question.prompt, *shown)

    def judgment(self) -> Judgment | None:
        """Its judgment, once no game is open."""
        first, second = (self.ledger.game(key) if key else None for key in self.keys)
        if isinstance(first, str) or isinstance(second, str):
            return None
        identity = self.ledger.store.identity
        return Judgment(
            *(self.question.uid, self.question.category, identity["judge"], self.model),
            *(identity["baseline"], (first, second), self.ledger.settings, self.keys),
        )


Asked = tuple[Pair, int]  # one of its two games


@dataclass
class Judging:
    """One call of judging: what is there, what is open, and how it is asked."""

    folder: Folder
    bench: Bench
    judge: str
    settings: JudgeSettings
    wanted: Mapping[str, Question]
    models: Sequence[str]
    tries: int = 2
    retry_failed: bool = False
    ledgers: dict[str, Ledger] = field(default_factory=dict)  # by category
    pairs: list[Pair] = field(default_factory=list)  # without a judgment
    complete: int = 0  # judgments that are there
    missing: int = 0  # questions without one of the two answers, but for those that failed
    bill: Bill = field(default_factory=Bill)  # of all replies for these models and categories
    lost: dict[str, str] = field(default_factory=dict)  # why games got no reply in this call
    out_of_money: bool = False
    still_open: int = 0  # judgments, once a call has ended
    given_up: int = 0  # games without a verdict, recorded as such

    def __enter__(self) -> Judging:
        self.price = self.settings.price(self.judge)
        with ExitStack() as stack:
            for category in dict.fromkeys(each.category for each in self.wanted.values()):
                prompt = prompt_of(self.folder, category, self.settings)
                identity = identity_of(self.bench, category, self.judge, self.settings, prompt)
                path = self.folder.ledger(self.judge, category)
                try:
                    store = stack.enter_context(Store(path, identity, ("game", "attempt")))
                except ValueError as error:
                    raise ValueError(f"{error}\n--judge_name keeps judgments apart") from None
                stack.callback(_drop_empty, store)
                ledger = self.ledgers[category] = Ledger(store, self.tries, self.retry_failed)
                for record in store.records.values():
                    if record["model"] in self.models:
                        self.bill.add(record)
                self._plan(category, prompt, ledger)
            self._stack = stack.pop_all()
        if self.missing:
            said = "%d questions lack an answer and are not judged (generate or fetch them)"
            log.warning(said, self.missing)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _plan(self, category: str, prompt: JudgePrompt, ledger: Ledger) -> None:
        """Finds the pairs of a category that have no judgment."""
        questions = [each for each in self.wanted.values() if each.category == category]
        against = ledger.store.identity["baseline"]
        baselines = read_answers(self.folder, against)
        failed_there = failed_answers(self.folder, against)
        for model in self.models:
            if model in (against, self.judge, file_name(self.settings.judge_model)):
                log.warning("%s is the baseline of %s, or the judge: not judged", model, category)
                continue
            answers = read_answers(self.folder, model)
            failed = failed_there | failed_answers(self.folder, model)
            path = self.folder.judgments(self.judge, model)
            judged = read_judgments(path)
            for number, question in enumerate(questions):
                there, said = judged.get(question.uid), ""
                if there and there.baseline not in ("", against):
                    said = f"against {there.baseline}, not {against}"
                elif there and there.settings not in ("", ledger.settings):
                    said = "with other settings"
                if said:
                    raise ValueError(
                        f"{path}: {question.uid} was judged {said}; --judge_name keeps the new "
                        "judgments apart"
                    )
                if there and there.complete and not there.settings:  # by another program
                    self.complete += 1
                    continue
                if question.uid not in answers or question.uid not in baselines:
                    self.missing += question.uid not in failed
                    continue
                texts = answers[question.uid].text, baselines[question.uid].text
                pair = Pair(ledger, prompt, question, model, *texts, there, number % 2)
                if there and there.complete and there.asked == pair.keys:
                    self.complete += 1
                else:
                    self.pairs.append(pair)

    def open_games(self) -> list[Asked]:
        """The games to ask; one for all that show the judge the same."""
        found: dict[str, Asked] = {}
        for pair in self.pairs:
            for game, key in enumerate(pair.keys):
                if key and key not in self.lost and pair.ledger.open(key):
                    found.setdefault(key, (pair, game))
        return [*found.values()]

    def estimate(self) -> tuple[int, float, float, float]:
        """The games to ask, and what they may cost: tokens in and out, and dollars.

        From bytes, and replies so far; without any, from the official judges' mean reply.
        """
        asks = self.open_games()
        tokens_in = sum(_bytes(pair.messages(game)) for pair, game in asks) / BYTES_PER_TOKEN
        of = self.bill
        reply = of.completion_tokens / of.replies if of.replies else OUTPUT_TOKENS
        tokens_out = len(asks) * reply
        cost = Bill(0, round(tokens_in), round(tokens_out)).dollars(self.price)
        return len(asks), tokens_in, tokens_out, cost

    def run(self, endpoint: Endpoint, concurrency: int, budget: float | None = None) -> None:
        """Has the open games judged, and writes the judgments, whatever ends it.

        `budget` is in dollars for all replies that these models ever had. No game begins that would
        pass it with those under way, if each costs as much as the mean one so far.
        """
        games, _, _, dollars = self.estimate()
        before, under_way = self.bill.dollars(self.price), 0
        self.lost.clear()

        def jobs() -> Iterator[Asked]:
            nonlocal under_way
            for job in asks:
                spent = self.bill.dollars(self.price)
                mean = spent / self.bill.replies if self.bill.replies else dollars / games
                if budget is not None and spent + (under_way + 1) * mean > budget:
                    self.out_of_money = True
                    return
                under_way += 1
                yield job

        async def ask(job: Asked) -> Record:
            nonlocal under_way
            pair, game = job
            messages = pair.messages(game)
            uid, side = pair.question.uid, game + 1
            record = {"game": pair.keys[game], "model": pair.model, "uid": uid, "side": side}
            try:
                reply = await endpoint.chat(messages, **self.settings.request())
            except NoReply as error:
                if not error.refused:
                    raise
                return {**record, **NO_REPLY, "refused": str(error)}
            finally:
                under_way -= 1
            record |= {"prompt_bytes": _bytes(messages), **reply._asdict()}
            self.bill.add(record)
            return record

        def save(results: Sequence[tuple[Asked, Record | NoReply]]) -> None:
            replies: dict[str, list[Record]] = defaultdict(list)  # by category
            for (pair, game), found in results:
                if isinstance(found, NoReply):
                    self.lost[pair.keys[game]] = str(found)
                else:
                    replies[pair.question.category].append(found)
            for category, records in replies.items():
                self.ledgers[category].add(records)
            spent = self.bill.dollars(self.price) - before
            bar.advance(len(results), f"${spent:,.2f}" if self.price else "")

        try:
            for _ in range(self.tries):
                if self.out_of_money or not (asks := self.open_games()):
                    break
                with progress("judging", len(asks), "games") as bar:
                    run_all(endpoint, jobs(), ask, save, concurrency)
        finally:
            self.write()

    def write(self) -> None:
        """Writes each judgment whose games are over."""
        rows: dict[str, dict[str, Any]] = defaultdict(dict)
        self.still_open = self.given_up = 0
        for pair in self.pairs:
            judgment = pair.judgment()
            if judgment is None:
                self.still_open += 1
                continue
            self.given_up += judgment.missing
            if judgment != pair.there:
                prompts = [pair.messages(game) for game in (0, 1)]
                rows[pair.model][judgment.uid] = judgment_row(judgment, prompts)
                pair.there = judgment
        for model, own in rows.items():
            merge_rows(self.folder.judgments(self.judge, model), own)

    def expected(self) -> str:
        """What is open, and what it may cost, in words."""
        asks, tokens_in, tokens_out, dollars = self.estimate()
        cost = f"about ${dollars:,.2f}, after ${self.bill.dollars(self.price):,.2f} so far"
        return (
            f"{self.complete:,} judgments are there, {len(self.pairs):,} are not: {asks:,} games "
            f"to ask, about {tokens_in:,.0f} tokens in and {tokens_out:,.0f} out: "
            f"{cost if self.price else 'no known price'}"
        )

    def outcome(self) -> Iterator[str]:
        """What became of the games, in words."""
        cost = f", ${self.bill.dollars(self.price):,.2f}" if self.price else ""
        yield (
            f"paid for these models in all: {self.bill.replies:,} replies, "
            f"{self.bill.prompt_tokens:,} tokens in and {self.bill.completion_tokens:,} out{cost}"
        )
        if self.lost:
            yield f"{len(self.lost):,} games have no reply: {next(iter(self.lost.values()))}"
        if self.given_up:
            yield f"{self.given_up:,} games are recorded without a verdict; see --retry_failed"
        if self.out_of_money:
            yield "the budget allows no more games; the same command with a larger one resumes"
        if self.still_open:
            yield f"{self.still_open:,} judgments are open; the same command resumes"


def _bytes(messages: Messages) -> int:
    return sum(len(each["content"].encode(errors="replace")) for each in messages)


def _drop_empty(store: Store) -> None:
    """Removes a ledger without replies, which would bind later calls to its settings."""
    if not store.records:
        store.path.unlink()
