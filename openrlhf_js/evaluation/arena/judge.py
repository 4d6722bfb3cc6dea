"""Judging: two games for each question, every reply on disk with its cost, each game paid once.

    model_judgment/JUDGE/MODEL.jsonl    judgments, as the official programs read them
    judge_ledger/JUDGE/CATEGORY.jsonl   every reply that was paid for, under its settings

A call writes its judgments when it ends, whatever ends it.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from openai import OpenAI

from openrlhf_js.common.console import progress
from openrlhf_js.common.store import Record, Store
from openrlhf_js.evaluation.arena import data, protocol
from openrlhf_js.evaluation.arena.ledger import NO_REPLY, Ledger
from openrlhf_js.evaluation.arena.pairs import BOTH_GAMES, AnswerPair, Game, PairsToJudge
from openrlhf_js.evaluation.arena.spending import Bill, CostEstimate, Spending, Tally
from openrlhf_js.sampling.endpoint import Endpoint, EndpointError, NoReply, Reply
from openrlhf_js.sampling.run_all import run_all

log = logging.getLogger(__name__)

Answers = Sequence[tuple[Record, Reply | Exception]]  # what came of games, and their records


class EmptyAnswers(NamedTuple):
    """How many of a model's answers that are to be judged show the judge nothing."""

    model: str
    empty: int
    answers: int

    @property
    def share(self) -> float:
        """Of all its answers that are to be judged."""
        return self.empty / self.answers


@dataclass
class Judging:
    """One call of judging: what is there, what is open, and how it is asked; a context manager."""

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
    to_judge: PairsToJudge = field(default_factory=PairsToJudge)
    bill: Bill = field(init=False)  # of all replies for these models and categories
    tally: Tally = field(default_factory=Tally)  # of this call's games
    lost: dict[str, str] = field(default_factory=dict)  # why games got no reply in this call
    out_of_money: bool = False
    still_open: int = 0  # judgments, once a call has ended
    given_up: int = 0  # games without a verdict, recorded as such
    refusals: list[str] = field(default_factory=list)  # of those, the endpoint's words

    def __enter__(self) -> Judging:
        self.bill = Bill(self.settings.price(self.judge))
        questions: dict[str, list[data.Question]] = defaultdict(list)  # by category
        for question in self.wanted.values():
            questions[question.category].append(question)
        with ExitStack() as stack:
            for category, questions_of_category in questions.items():
                self._open_category(category, questions_of_category, stack)
            self._open_ledgers = stack.pop_all()
        for model, uids in self.to_judge.outdated.items():
            log.warning(
                "%d answers of %s, such as that to %s, are to another text of their question than "
                "the one that is there now, and are not judged: generate or fetch them anew",
                len(uids),
                model,
                uids[0],
            )
        if self.missing:
            message = "%d questions lack an answer and are not judged (generate or fetch them)"
            log.warning(message, self.missing)
        return self

    def __exit__(self, *_: object) -> None:
        self._open_ledgers.close()

    def _open_category(
        self, category: str, questions: Sequence[data.Question], stack: ExitStack
    ) -> None:
        """Opens the ledger of a category, adds up its bill, and finds the pairs to judge."""
        prompt = protocol.prompt_of(self.folder, category, self.settings)
        identity = protocol.identity_of(
            bench=self.bench,
            category=category,
            judge=self.judge,
            settings=self.settings,
            prompt=prompt,
        )
        path = self.folder.ledger(self.judge, category)
        try:
            store = Store(path, identity, key=("game", "attempt"))
        except ValueError as error:
            raise ValueError(f"{error}\n--judge_name keeps judgments apart") from None
        stack.enter_context(store)
        ledger = Ledger(store, self.tries, self.retry_failed)
        stack.callback(ledger.drop_if_empty)
        self.ledgers[category] = ledger
        for record in store.records.values():
            if record["model"] in self.models:
                self.bill.add(record)
        not_judged = (
            identity["baseline"],
            self.judge,
            data.file_name(self.settings.judge_model),
        )
        for model in self.models:
            if model in not_judged:
                log.warning("%s is the baseline of %s, or the judge: not judged", model, category)
            else:
                self.to_judge.add_model(
                    folder=self.folder,
                    ledger=ledger,
                    prompt=prompt,
                    questions=questions,
                    model=model,
                )

    @property
    def pairs(self) -> list[AnswerPair]:
        """The pairs without a judgment."""
        return self.to_judge.pairs

    @property
    def complete(self) -> int:
        """Judgments that are there."""
        return self.to_judge.complete

    @property
    def missing(self) -> int:
        """Questions without one of the two answers, but for those that failed."""
        return self.to_judge.missing

    @property
    def in_batches(self) -> int:
        """Games that are in a batch."""
        return sum(len(ledger.batch.games) for ledger in self.ledgers.values())

    def open_games(self) -> list[Game]:
        """The games to ask; one for all that show the judge the same."""
        games: dict[str, Game] = {}
        for pair in self.pairs:
            in_batch = pair.ledger.batch.games
            for game in pair.open_games:
                if game.key not in self.lost and game.key not in in_batch:
                    games.setdefault(game.key, game)
        return list(games.values())

    def estimate(self) -> CostEstimate:
        """What the open games may cost, by their bytes and the mean reply so far."""
        discount = self.settings.batch_discount if self.batch else 0.0
        return self.bill.estimate([game.prompt_bytes for game in self.open_games()], discount)

    def _batch_cost(self, ledger: Ledger) -> str:
        """What the games of a ledger's batch may cost, in words; all have the same discount."""
        games = list(ledger.batch.games.values())
        discount = games[0].get("discount", 0.0)
        estimate = self.bill.estimate([game["prompt_bytes"] for game in games], discount)
        return self.bill.about(estimate.dollars)

    def empty_answers(self) -> list[EmptyAnswers]:
        """The models with empty answers in open games, the baseline too, and their numbers."""
        texts: dict[str, dict[str, str]] = defaultdict(dict)  # by model and question
        for pair in self.pairs:
            if pair.open_games:
                uid = pair.question.uid
                baseline = pair.ledger.store.identity["baseline"]
                texts[pair.model][uid] = pair.answer
                texts[baseline][uid] = pair.baseline
        counts = []
        for model, answers in texts.items():
            empty = [text for text in answers.values() if not text.strip()]
            if empty:
                counts.append(EmptyAnswers(model, len(empty), len(answers)))
        return counts

    def run(self, endpoint: Endpoint, concurrency: int, budget: float | None = None) -> None:
        """Has the open games judged, and writes the judgments, whatever ends it.

        `budget` is in dollars for all replies that these models ever had. No game begins that would
        pass it with those under way, if each costs as much as the mean one so far.
        """
        if self.in_batches and not self.batch:
            raise ValueError(f"{self.in_batches:,} games are in a batch: --batch waits for it")
        self.lost.clear()
        try:
            if self.batch:
                self._run_batches(endpoint, budget)
            else:
                self._run_single_requests(endpoint, concurrency, budget)
        finally:
            self.write()

    def _run_single_requests(
        self, endpoint: Endpoint, concurrency: int, budget: float | None
    ) -> None:
        """Asks the open games, those without a verdict again and again up to `tries`."""
        spending = Spending(self.bill, self.estimate(), budget)
        for _ in range(self.tries):
            games = self.open_games()
            if not games or self.out_of_money:
                return
            try:
                self._ask(
                    games=games,
                    endpoint=endpoint,
                    concurrency=concurrency,
                    spending=spending,
                )
            finally:
                self.out_of_money = spending.out_of_money

    def _ask(
        self, games: Sequence[Game], endpoint: Endpoint, concurrency: int, spending: Spending
    ) -> None:
        """Asks these games once, and writes each reply as it comes."""
        parameters = self.settings.request()

        async def ask(game: Game) -> Reply:
            """Asks for one game; its reply is on the bill at once."""
            try:
                reply = await endpoint.chat(game.messages, **parameters)
            finally:
                spending.under_way -= 1
            self.bill.add(game.record() | reply._asdict())
            return reply

        def save(results: Sequence[tuple[Game, Reply | NoReply]]) -> None:
            """Writes what came of games, and shows how things stand."""
            answers = defaultdict(list)
            for game, answer in results:
                answers[game.pair.ledger].append((game.record(), answer))
            for ledger, ledger_answers in answers.items():
                self._keep(ledger, ledger_answers)
            open_games = len(games) - int(bar.done) - len(results)
            cost = spending.in_words(open_games)
            bar.advance(len(results), f"{cost}; {self.tally}")

        with progress("judging", len(games), "games") as bar:
            run_all(
                endpoint=endpoint,
                jobs=spending.affordable(games),
                work=ask,
                on_results=save,
                concurrency=concurrency,
            )

    def _keep(self, ledger: Ledger, answers: Answers) -> list[Record]:
        """Writes replies to a ledger, and that games were refused; others without one stay open."""
        records = []
        for record, answer in answers:
            if isinstance(answer, Reply):
                records.append(record | answer._asdict())
            elif isinstance(answer, NoReply) and answer.refused:
                records.append({**record, **NO_REPLY, "refused": str(answer)})
            else:
                self.lost[record["game"]] = str(answer)
        ledger.add(records)
        for record in records:
            self.tally.add(record)
        return records

    def _run_batches(self, endpoint: Endpoint, budget: float | None) -> None:
        """Waits for batches under way, and makes others until no game is open or paid for."""
        with endpoint.client() as client:
            self._submit_batches(client, endpoint, budget)
            while self.in_batches:
                for ledger in self.ledgers.values():
                    if ledger.batch.games:
                        self._keep_batch(ledger, client, endpoint)
                self._submit_batches(client, endpoint, budget)

    def _keep_batch(self, ledger: Ledger, client: OpenAI, endpoint: Endpoint) -> None:
        """Waits for the batch of a ledger, and writes the replies that are not there yet."""
        answers = ledger.batch.replies(client, endpoint, self._batch_cost(ledger))
        _check_that_some_are_answered(ledger, answers)
        kept = {(record["game"], record.get("batch")) for record in ledger.store.records.values()}
        new_answers = []
        for record, answer in answers:
            if (record["game"], record["batch"]) not in kept:
                new_answers.append((record, answer))
        for record in self._keep(ledger, new_answers):
            self.bill.add(record)
        ledger.batch.end()

    def _submit_batches(self, client: OpenAI, endpoint: Endpoint, budget: float | None) -> None:
        """Puts the open games that the budget allows into a batch for each category."""
        games = self.open_games()
        if budget is not None:
            games = self._affordable(games, budget)
        games_by_ledger = defaultdict(list)
        for game in games:
            if not game.pair.ledger.batch.games:  # one batch at a time
                games_by_ledger[game.pair.ledger].append(game)
        parameters = self.settings.request()
        discount = self.settings.batch_discount
        for ledger, ledger_games in games_by_ledger.items():
            records = [{**game.record(), "discount": discount} for game in ledger_games]
            bodies = [endpoint.request(game.messages, **parameters) for game in ledger_games]
            ledger.batch.submit(client, records, bodies)

    def _affordable(self, games: list[Game], budget: float) -> list[Game]:
        """The first games that the budget allows beside those that are in batches."""
        estimate = self.estimate()
        if not estimate.dollars:
            return games
        mean_dollars = estimate.dollars / estimate.games
        count = int((budget - self.bill.dollars) / mean_dollars) - self.in_batches
        self.out_of_money = count < len(games)
        return games[: max(0, count)]

    def write(self) -> None:
        """Writes each judgment whose games are over."""
        rows: dict[str, dict[str, Any]] = defaultdict(dict)  # by model and uid
        self.still_open = 0
        self.given_up = 0
        self.refusals = []
        for pair in self.pairs:
            if pair.open_games:
                self.still_open += 1
                continue
            judgment = pair.judgment()
            self.given_up += judgment.missing
            self.refusals += pair.refusals
            messages = [pair.messages(game) for game in BOTH_GAMES]
            rows[pair.model][judgment.uid] = data.judgment_row(judgment, messages)
        for model, judgments in rows.items():
            data.merge_rows(self.folder.judgments(self.judge, model), judgments)

    def expected(self) -> str:
        """What is open, and what it may cost, in words."""
        estimate = self.estimate()
        words = (
            f"{self.complete:,} judgments are there, {len(self.pairs):,} are not: "
            f"{estimate.games:,} games to ask, about {estimate.tokens_in:,.0f} tokens in and "
            f"{estimate.tokens_out:,.0f} out: {self.bill.about(estimate.dollars)}"
        )
        if self.batch and not self.settings.batch_discount:
            words += " at the full price, since the settings have no batch_discount"
        for ledger in self.ledgers.values():
            if ledger.batch.games:
                words += f"; {len(ledger.batch.games):,} games are in a batch, "
                words += self._batch_cost(ledger)
        if self.bill.replies:
            words += f"; paid so far: {self.bill.in_words(self.bill.dollars)}"
        return words

    def outcome(self) -> Iterator[str]:
        """What became of the games, in words."""
        yield f"games of this call: {self.tally}"
        yield (
            f"paid for these models in all: {self.bill.replies:,} replies, "
            f"{self.bill.prompt_tokens:,} tokens in and {self.bill.completion_tokens:,} out, "
            f"{self.bill.in_words(self.bill.dollars)}"
        )
        if self.lost:
            yield f"{len(self.lost):,} games have no reply: {next(iter(self.lost.values()))}"
        if self.refusals:
            yield (
                f"{len(self.refusals):,} games were refused and have no score (--retry_failed "
                f"asks them again); the last: {self.refusals[-1]}"
            )
        without_verdict = self.given_up - len(self.refusals)
        if without_verdict:
            yield (
                f"{without_verdict:,} games are recorded without a verdict; --retry_failed asks "
                "them again"
            )
        if self.out_of_money:
            yield "the budget allows no more games; the same command with a larger one resumes"
        if self.still_open:
            yield f"{self.still_open:,} judgments are open; the same command resumes"


def _check_that_some_are_answered(ledger: Ledger, answers: Answers) -> None:
    """EndpointError if a batch refused every game, with no reply to one with these settings."""
    refusals = [answer for _, answer in answers if isinstance(answer, NoReply) and answer.refused]
    if not refusals or len(refusals) < len(answers) or ledger.has_replies:
        return
    ledger.batch.end()
    raise EndpointError(
        f"{refusals[0]}; it refused all {len(answers):,} games of a batch: change the setting that "
        "it names"
    )
