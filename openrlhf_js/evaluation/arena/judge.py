"""Judging: two games for each question, every reply on disk with its cost, each game paid once.

    model_judgment/JUDGE/MODEL.jsonl    judgments, as the official programs read them
    judge_ledger/JUDGE/CATEGORY.jsonl   every reply that was paid for, under its settings

A game is known by the hash of its settings and messages: the same call after a kill, or another
model with the same answer, has its reply there. A call writes its judgments when it ends.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from openai import OpenAI

from openrlhf_js.common.console import progress
from openrlhf_js.common.store import Record, Store
from openrlhf_js.evaluation.arena import data, protocol
from openrlhf_js.evaluation.arena.batch import JudgeBatch
from openrlhf_js.evaluation.arena.style import split_thinking
from openrlhf_js.sampling.endpoint import Endpoint, NoReply, Reply, run_all

log = logging.getLogger(__name__)

BYTES_PER_TOKEN = 4  # of English prose and code; formulas have fewer
OUTPUT_TOKENS = 900  # of the official judges' replies, on average
OPEN = "open"
FREE = protocol.Price(input=0, output=0)
ROUNDING = 1 + 1e-9  # of sums of dollars
NO_REPLY = dict(text="", thinking="", prompt_tokens=0, completion_tokens=0, prompt_bytes=0)


class Ledger:
    """The replies of one judge in one category, by game.

    After `tries` replies without a verdict, of this call alone with `retry`, a game is given up.
    """

    def __init__(self, store: Store, tries: int, retry: bool):
        self.store, self.tries = store, tries
        self.settings = protocol.digest(store.identity)
        self.replies: dict[str, list[Record]] = defaultdict(list)
        for record in store.records.values():
            self.replies[record["game"]].append(record)
        self._before = {key: len(each) for key, each in self.replies.items()} if retry else {}
        self.batch = JudgeBatch(store.path.with_suffix(".batch.json"))

    def add(self, records: Sequence[Record]) -> None:
        """Writes replies to the disk."""
        for record in records:
            record.update(attempt=len(self.replies[record["game"]]), tstamp=time.time())
        self.store.append(records)
        for record in records:
            self.replies[record["game"]].append(record)

    def game(self, key: str) -> data.Game | str | None:
        """The game's reply that has a verdict, or the last one where it was given up.

        None if it was refused, and OPEN if it is to be asked. A verdict in thinking does not count.
        """
        replies = self.replies.get(key, [])
        for record in replies:
            if verdict := protocol.parse_verdict(split_thinking(record["text"])[0]):
                return data.Game(verdict, record["text"])
        recent = replies[self._before.get(key, 0) :]
        if any("refused" in each for each in recent):
            return None
        return data.Game(None, recent[-1]["text"]) if len(recent) >= self.tries else OPEN


@dataclass
class Bill:
    """Tokens of replies; where the endpoint counts none, the text's bytes, which are more."""

    price: protocol.Price
    replies: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    dollars: float = 0.0

    def add(self, record: Record) -> None:
        """Adds a reply."""
        said = len((record["text"] + record["thinking"]).encode(errors="replace"))
        tokens_in = record["prompt_tokens"] or record["prompt_bytes"]
        tokens_out = record["completion_tokens"] or said
        self.replies += "refused" not in record
        self.prompt_tokens += tokens_in
        self.completion_tokens += tokens_out
        self.dollars += self.price.dollars(tokens_in, tokens_out) * (1 - record.get("discount", 0))


@dataclass
class Pair:
    """A model's answer and the baseline's to one question, in two games."""

    ledger: Ledger
    prompt: protocol.JudgePrompt
    question: data.Question
    model: str
    answer: str
    baseline: str
    turn: int = 0  # which game is held, where it is one for each question

    def __post_init__(self) -> None:
        settings = self.ledger.settings
        both = tuple(protocol.digest([settings, self.messages(game)]) for game in (0, 1))
        one = "games" in self.ledger.store.identity
        self.keys = tuple("" if one and game != self.turn else both[game] for game in (0, 1))

    def messages(self, game: int) -> protocol.Messages:
        """What the judge is asked; in game 0 A is the baseline, in game 1 A is the model."""
        shown = (self.baseline, self.answer) if game == 0 else (self.answer, self.baseline)
        return self.prompt.messages(self.question.prompt, *shown)

    def judgment(self) -> data.Judgment | None:
        """Its judgment, once no game is open."""
        first, second = (self.ledger.game(key) if key else None for key in self.keys)
        if isinstance(first, str) or isinstance(second, str):
            return None
        identity = self.ledger.store.identity
        return data.Judgment(
            *(self.question.uid, self.question.category, identity["judge"], self.model),
            *(identity["baseline"], (first, second), self.ledger.settings, self.keys),
        )


Asked = tuple[Pair, int]  # one of its two games


@dataclass
class Judging:
    """One call of judging: what is there, what is open, and how it is asked."""

    folder: data.Folder
    bench: data.Bench
    judge: str
    settings: protocol.JudgeSettings
    wanted: Mapping[str, data.Question]
    models: Sequence[str]
    tries: int = 2
    retry_failed: bool = False
    batch: bool = False  # by batches of the endpoint, which cost less and take up to a day
    ledgers: dict[str, Ledger] = field(default_factory=dict)  # by category
    pairs: list[Pair] = field(default_factory=list)  # without a judgment
    complete: int = 0  # judgments that are there
    missing: int = 0  # questions without one of the two answers, but for those that failed
    bill: Bill = field(init=False)  # of all replies for these models and categories
    lost: dict[str, str] = field(default_factory=dict)  # why games got no reply in this call
    out_of_money: bool = False
    still_open: int = 0  # judgments, once a call has ended
    given_up: int = 0  # games without a verdict, recorded as such

    def __enter__(self) -> Judging:
        self.bill = Bill(self.settings.price(self.judge) or FREE)
        with ExitStack() as stack:
            for category in dict.fromkeys(each.category for each in self.wanted.values()):
                prompt = protocol.prompt_of(self.folder, category, self.settings)
                of = (self.bench, category, self.judge, self.settings, prompt)
                identity = protocol.identity_of(*of)
                path = self.folder.ledger(self.judge, category)
                try:
                    store = stack.enter_context(Store(path, identity, ("game", "attempt")))
                except ValueError as error:
                    raise ValueError(f"{error}\n--judge_name keeps judgments apart") from None
                ledger = self.ledgers[category] = Ledger(store, self.tries, self.retry_failed)
                stack.callback(_drop_empty, ledger)
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

    def _plan(self, category: str, prompt: protocol.JudgePrompt, ledger: Ledger) -> None:
        """Finds the pairs of a category that have no judgment."""
        questions = [each for each in self.wanted.values() if each.category == category]
        against = ledger.store.identity["baseline"]
        baselines = data.read_answers(self.folder, against)
        failed_there = data.failed_answers(self.folder, against)
        for model in self.models:
            if model in (against, self.judge, data.file_name(self.settings.judge_model)):
                log.warning("%s is the baseline of %s, or the judge: not judged", model, category)
                continue
            answers = data.read_answers(self.folder, model)
            failed = failed_there | data.failed_answers(self.folder, model)
            path = self.folder.judgments(self.judge, model)
            judged = data.read_judgments(path)
            for number, question in enumerate(questions):
                there = judged.get(question.uid)
                if there and (
                    there.baseline not in ("", against)
                    or there.settings not in ("", ledger.settings)
                ):
                    raise ValueError(
                        f"{path}: {question.uid} was judged with other settings, or another "
                        "baseline; --judge_name keeps the new judgments apart"
                    )
                if there and not there.missing and not there.settings:  # by another program
                    self.complete += 1
                    continue
                if question.uid not in answers or question.uid not in baselines:
                    self.missing += question.uid not in failed
                    continue
                texts = answers[question.uid].text, baselines[question.uid].text
                pair = Pair(ledger, prompt, question, model, *texts, number % 2)
                if there and not there.missing and there.asked == pair.keys:
                    self.complete += 1
                else:
                    self.pairs.append(pair)

    @property
    def under_way(self) -> int:
        """Games that are in a batch."""
        return sum(len(ledger.batch.games) for ledger in self.ledgers.values())

    def open_games(self) -> list[Asked]:
        """The games to ask; one for all that show the judge the same."""
        found: dict[str, Asked] = {}
        for pair in self.pairs:
            for game, key in enumerate(pair.keys):
                waits = key in self.lost or key in pair.ledger.batch.games
                if key and not waits and pair.ledger.game(key) == OPEN:
                    found.setdefault(key, (pair, game))
        return [*found.values()]

    def estimate(self) -> tuple[int, float, float, float]:
        """The games to ask; tokens in and out, and dollars, by bytes and the mean reply so far."""
        asks = self.open_games()
        tokens_in = sum(_bytes(pair.messages(game)) for pair, game in asks) / BYTES_PER_TOKEN
        of = self.bill
        reply = of.completion_tokens / of.replies if of.replies else OUTPUT_TOKENS
        tokens_out = len(asks) * reply
        discount = self.settings.batch_discount if self.batch else 0.0
        dollars = of.price.dollars(tokens_in, tokens_out) * (1 - discount)
        return len(asks), tokens_in, tokens_out, dollars

    def run(self, endpoint: Endpoint, concurrency: int, budget: float | None = None) -> None:
        """Has the open games judged, and writes the judgments, whatever ends it.

        `budget` is in dollars for all replies that these models ever had. No game begins that would
        pass it with those under way, if each costs as much as the mean one so far.
        """
        if self.under_way and not self.batch:
            raise ValueError(f"{self.under_way:,} games are in a batch: --batch waits for it")
        self.lost.clear()
        games, _, _, dollars = self.estimate()
        under_way = 0

        def jobs() -> Iterator[Asked]:
            nonlocal under_way
            for job in asks:
                spent = self.bill.dollars
                mean = spent / self.bill.replies if self.bill.replies else dollars / games
                if budget is not None and spent + (under_way + 1) * mean > budget * ROUNDING:
                    self.out_of_money = True
                    return
                under_way += 1
                yield job

        async def ask(job: Asked) -> Reply:
            nonlocal under_way
            pair, game = job
            try:
                reply = await endpoint.chat(pair.messages(game), **self.settings.request())
            finally:
                under_way -= 1
            self.bill.add(_asked(job) | reply._asdict())
            return reply

        def save(results: Sequence[tuple[Asked, Reply | NoReply]]) -> None:
            for ledger in self.ledgers.values():
                own = [(_asked(job), reply) for job, reply in results if job[0].ledger is ledger]
                self._keep(ledger, own)
            bar.advance(len(results), f"${self.bill.dollars:,.2f}")

        try:
            if self.batch:
                self._run_batches(endpoint, budget)
            for _ in range(0 if self.batch else self.tries):
                if self.out_of_money or not (asks := self.open_games()):
                    break
                with progress("judging", len(asks), "games") as bar:
                    run_all(endpoint, jobs(), ask, save, concurrency)
        finally:
            self.write()

    def _keep(
        self, ledger: Ledger, replies: Iterable[tuple[Record, Reply | Exception]]
    ) -> list[Record]:
        """Writes replies to a ledger, and that games were refused; others without one stay open."""
        records = []
        for asked, reply in replies:
            if isinstance(reply, Reply):
                records.append(asked | reply._asdict())
            elif isinstance(reply, NoReply) and reply.refused:
                records.append({**asked, **NO_REPLY, "refused": str(reply)})
            else:
                self.lost[asked["game"]] = str(reply)
        ledger.add(records)
        return records

    def _run_batches(self, endpoint: Endpoint, budget: float | None) -> None:
        """Waits for batches under way, and makes others until no game is open or paid for."""
        with endpoint.client() as client:
            self._submit(client, endpoint, budget)
            while self.under_way:
                for ledger in self.ledgers.values():
                    if ledger.batch.games:
                        here = {(r["game"], r.get("batch")) for r in ledger.store.records.values()}
                        came = ledger.batch.replies(client, endpoint)
                        new = [e for e in came if (e[0]["game"], e[0]["batch"]) not in here]
                        for record in self._keep(ledger, new):
                            self.bill.add(record)
                        ledger.batch.end()
                self._submit(client, endpoint, budget)

    def _submit(self, client: OpenAI, endpoint: Endpoint, budget: float | None) -> None:
        """Puts the open games that the budget allows into a batch for each category."""
        games, _, _, dollars = self.estimate()
        asks, parameters = self.open_games(), self.settings.request()
        if budget is not None and dollars:
            allowed = int((budget - self.bill.dollars) * games / dollars) - self.under_way
            self.out_of_money = allowed < games
            asks = asks[: max(0, allowed)]
        for ledger in self.ledgers.values():
            own = [job for job in asks if job[0].ledger is ledger]
            if own and not ledger.batch.games:
                bodies = [endpoint.request(p.messages(game), **parameters) for p, game in own]
                records = [_asked(job) | {"discount": self.settings.batch_discount} for job in own]
                ledger.batch.submit(client, records, bodies)

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
            prompts = [pair.messages(game) for game in (0, 1)]
            rows[pair.model][judgment.uid] = data.judgment_row(judgment, prompts)
        for model, own in rows.items():
            data.merge_rows(self.folder.judgments(self.judge, model), own)

    def expected(self) -> str:
        """What is open, and what it may cost, in words."""
        asks, tokens_in, tokens_out, dollars = self.estimate()
        cost = f"about ${dollars:,.2f}, after ${self.bill.dollars:,.2f} so far"
        return (
            f"{self.complete:,} judgments are there, {len(self.pairs):,} are not: {asks:,} games "
            f"to ask, {self.under_way:,} games are in a batch; about {tokens_in:,.0f} tokens in "
            f"and {tokens_out:,.0f} out: {'no known price' if self.bill.price is FREE else cost}"
        )

    def outcome(self) -> Iterator[str]:
        """What became of the games, in words."""
        cost = "" if self.bill.price is FREE else f", ${self.bill.dollars:,.2f}"
        yield (
            f"paid for these models in all: {self.bill.replies:,} replies, "
            f"{self.bill.prompt_tokens:,} tokens in and {self.bill.completion_tokens:,} out{cost}"
        )
        if self.lost:
            yield f"{len(self.lost):,} games have no reply: {next(iter(self.lost.values()))}"
        if self.given_up:
            yield f"{self.given_up:,} games are recorded without a verdict; retry_failed asks again"
        if self.out_of_money:
            yield "the budget allows no more games; the same command with a larger one resumes"
        if self.still_open:
            yield f"{self.still_open:,} judgments are open; the same command resumes"


def _bytes(messages: protocol.Messages) -> int:
    return sum(len(each["content"].encode(errors="replace")) for each in messages)


def _asked(job: Asked) -> Record:
    """The record of a game before there is a reply."""
    pair, game = job
    names = {"game": pair.keys[game], "model": pair.model, "uid": pair.question.uid}
    return {**names, "side": game + 1, "prompt_bytes": _bytes(pair.messages(game))}


def _drop_empty(ledger: Ledger) -> None:
    """Removes a ledger without replies, which would bind later calls to its settings."""
    if not ledger.store.records and not ledger.batch.games:
        ledger.store.path.unlink()
