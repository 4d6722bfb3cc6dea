"""Judges two games for each question, and stores each reply with its cost. None is paid for twice.

    model_judgment/JUDGE/MODEL.jsonl    judgments, as the official programs read them
    judge_ledger/JUDGE/CATEGORY.jsonl   every reply that was paid for, under its settings

A call writes its judgments when it ends, even after an error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

from answer_graders.programs.console import progress, say
from answer_graders.programs.store import Record, Store
from paired_eval.arena import data, protocol
from paired_eval.arena.games import TRIES, AnswerPair, Game, Ledger, pairs_of
from paired_eval.sampling.complete import Triage
from paired_eval.sampling.endpoint import Endpoint, NoReply, Reply
from paired_eval.sampling.run_all import run_all

NO_REPLY: Record = {"text": "", "thinking": "", "prompt_tokens": 0, "completion_tokens": 0}
BYTES_PER_TOKEN = 4  # of English prose and code; formulas have fewer
OUTPUT_TOKENS = 900  # of the official judges' replies, on average
ROUNDING = 1 + 1e-9  # tolerance for sums of dollars


class Assignment(NamedTuple):
    """What is to be judged, by whom, and how."""

    folder: data.Folder
    bench: data.Bench
    judge: str  # its name in the results
    settings: protocol.JudgeSettings
    questions: Mapping[str, data.Question]
    models: Sequence[str]
    retry_failed: bool = False
    judge_empty: bool = False


@dataclass
class Spending:
    """What the replies of a judge have cost, and which games a budget allows.

    If the server counts no tokens, the bytes of the text are counted, which are more.
    """

    price: protocol.Price | None  # None: unknown
    budget: float | None = None  # dollars for all replies, those of earlier calls too
    replies: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    under_way: int = 0
    out_of_money: bool = False

    def add(self, record: Record) -> None:
        """Adds a reply to the bill; a refusal is free."""
        if "refused" in record:
            return
        text = record["text"] + record["thinking"]
        self.replies += 1
        self.prompt_tokens += record["prompt_tokens"] or record["prompt_bytes"]
        self.completion_tokens += record["completion_tokens"] or len(text.encode(errors="replace"))

    def affordable(self, games: Sequence[Game]) -> Iterator[Game]:
        """Yields games until the next one, with those under way, could exceed the budget."""
        for game in games:
            mean_dollars = self.dollars / self.replies if self.replies else self._estimate([game])
            expected = self.dollars + (self.under_way + 1) * mean_dollars
            if self.budget is not None and expected > self.budget * ROUNDING:
                self.out_of_money = True
                return
            self.under_way += 1
            yield game

    @property
    def dollars(self) -> float:
        """The bill; 0 if the price is unknown."""
        return self._dollars(self.prompt_tokens, self.completion_tokens)

    def expected(self, games: Sequence[Game]) -> str:
        """What these games may cost, in words."""
        tokens_in, tokens_out = self._tokens(games)
        return (
            f"about {tokens_in:,.0f} tokens in and {tokens_out:,.0f} out, "
            f"{self.in_words(self._estimate(games))}"
        )

    def progress(self, open_games: int) -> str:
        """The bill so far, and a forecast with this many more games."""
        cost = self.in_words(self.dollars)
        if self.price and self.replies:
            forecast = self.dollars * (1 + open_games / self.replies)
            cost += f" of about {self.in_words(forecast)}"
        return cost

    def in_words(self, dollars: float) -> str:
        """Dollars as text, or that the price is unknown."""
        return "price unknown" if self.price is None else f"${dollars:,.2f}"

    def _tokens(self, games: Sequence[Game]) -> tuple[float, float]:
        """The games' tokens in and out, estimated from their length and the mean reply so far."""
        mean_reply = self.completion_tokens / self.replies if self.replies else OUTPUT_TOKENS
        prompt_bytes = sum(game.prompt_bytes for game in games)
        return prompt_bytes / BYTES_PER_TOKEN, len(games) * mean_reply

    def _estimate(self, games: Sequence[Game]) -> float:
        return self._dollars(*self._tokens(games))

    def _dollars(self, tokens_in: float, tokens_out: float) -> float:
        """The cost of these tokens."""
        if self.price is None:
            return 0.0
        return (tokens_in * self.price.input + tokens_out * self.price.output) / 1e6


class Judging:
    """One call of judging: a context manager that holds the ledgers open.

    `budget` is in dollars, for all replies about these models, earlier calls included. No game
    begins if it and those under way, each at the mean cost so far, would exceed it.
    """

    def __init__(self, assignment: Assignment, budget: float | None = None):
        self.assignment = assignment
        self.pairs: list[AnswerPair] = []
        self.lost: dict[str, str] = {}  # why games got no reply in this call, by key
        self.spending = Spending(assignment.settings.price(assignment.judge), budget)

    def __enter__(self) -> Judging:
        questions: dict[str, list[data.Question]] = defaultdict(list)  # by category
        for question in self.assignment.questions.values():
            questions[question.category].append(question)
        with ExitStack() as stack:
            for category, questions_of_category in questions.items():
                ledger = self._open_ledger(category, stack)
                self._add_models(ledger, category, questions_of_category)
            if not self.assignment.judge_empty:
                self._refuse_empty_answers()
            self._open_ledgers = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open_ledgers.close()

    def _open_ledger(self, category: str, stack: ExitStack) -> Ledger:
        """Opens a category's ledger; logs how judging deviates from the official protocol."""
        assignment = self.assignment
        prompt = protocol.prompt_of(assignment.folder, category, assignment.settings)
        identity = protocol.identity_of(
            bench=assignment.bench,
            category=category,
            judge=assignment.judge,
            settings=assignment.settings,
            prompt=prompt,
        )
        deviations = protocol.deviations(assignment.bench, category, {assignment.judge: identity})
        if deviations:
            said = "; ".join(deviations)
            say(f"{category}: not the official protocol: {said}", error=True)
        path = assignment.folder.ledger(assignment.judge, category)
        try:
            store = Store(path, identity, key=("game", "attempt"))
        except ValueError as error:
            raise ValueError(f"{error}\n--judge_name keeps judgments apart") from None
        stack.enter_context(store)
        return Ledger(store, prompt, assignment.retry_failed)

    def _add_models(
        self, ledger: Ledger, category: str, questions: Sequence[data.Question]
    ) -> None:
        """Adds up the bill of a category, and finds the pairs to judge."""
        assignment = self.assignment
        for record in ledger.store.records.values():
            if record["model"] in assignment.models:
                self.spending.add(record)
        judge_model = data.file_name(assignment.settings.judge_model)
        for model in assignment.models:
            if model in (ledger.baseline, assignment.judge, judge_model):
                why = f"the baseline of {category}, or the judge"
                say(f"{model} is {why}: not judged", error=True)
                continue
            judged = data.read_judgments(assignment.folder.judgments(assignment.judge, model))
            if not judged and not assignment.folder.answers(model).is_file():
                raise ValueError(
                    f"{model} has no answers in {assignment.folder.answers(model)}: generate or "
                    "fetch them, or correct the name"
                )
            self.pairs += pairs_of(assignment.folder, ledger, model, questions, judged)

    def _refuse_empty_answers(self) -> None:
        """Raises ValueError before empty answers are paid for: each is a loss for the model."""
        for model in self.assignment.models:
            answers = [pair.answer for pair in self.open_pairs if pair.model == model]
            empty = sum(not answer.strip() for answer in answers)
            if empty:
                raise ValueError(
                    f"{empty} of {len(answers)} answers of {model} that are to be judged are "
                    "empty, most often cut off while thinking: generate them with a larger "
                    "--max_new_tokens and another --name, or give --judge_empty, as Arena-Hard's "
                    "own program judges them"
                )

    @property
    def open_pairs(self) -> list[AnswerPair]:
        """The pairs with an open game."""
        return [pair for pair in self.pairs if pair.open_games]

    @property
    def open_games(self) -> list[Game]:
        """The games to ask, one for all that have the same messages."""
        games: dict[str, Game] = {}
        for pair in self.pairs:
            for game in pair.open_games:
                if game.key not in self.lost:
                    games.setdefault(game.key, game)
        return list(games.values())

    def run(self, endpoint: Endpoint) -> None:
        """Asks the open games, asks those without a verdict again, and writes judgments.

        Raises AllRefusedError and EndpointError as `Triage.check` does.
        """
        self.lost.clear()
        triage = Triage(has_reply=self.spending.replies > 0)
        try:
            for _ in range(TRIES):
                games = self.open_games
                if not games or self.spending.out_of_money:
                    break
                self._ask(games, endpoint, triage)
                triage.check(at_end=True)
        finally:
            self.write()

    def _ask(self, games: Sequence[Game], endpoint: Endpoint, triage: Triage) -> None:
        """Asks these games once, and writes each reply as it comes."""
        settings = self.assignment.settings
        parameters = settings.request()

        async def ask(game: Game) -> Reply:
            """Asks one game, and adds its reply to the bill at once."""
            try:
                reply = await endpoint.chat(game.messages, **parameters)
            finally:
                self.spending.under_way -= 1
            self.spending.add(game.record() | reply._asdict())
            return reply

        def save(results: Sequence[tuple[Game, Reply | NoReply]]) -> None:
            """Writes the results of games, and shows the progress."""
            self._keep(*triage.sort(results))
            self.lost = {game.key: str(reason) for game, reason in triage.unanswered}
            open_games = len(games) - int(bar.done) - len(results)
            bar.advance(len(results), self.spending.progress(open_games))
            triage.check()

        with progress("judging", len(games), "games") as bar:
            run_all(
                endpoint=endpoint,
                jobs=self.spending.affordable(games),
                work=ask,
                on_results=save,
                concurrency=settings.concurrency,
            )

    def _keep(
        self,
        replies: Sequence[tuple[Game, Reply]],
        refusals: Sequence[tuple[Game, NoReply]],
    ) -> None:
        """Writes replies and refusals to the ledgers."""
        records: dict[Ledger, list[Record]] = defaultdict(list)
        for game, reply in replies:
            records[game.ledger].append(game.record() | reply._asdict())
        for game, reason in refusals:
            refusal = {**NO_REPLY, "refused": str(reason)}
            records[game.ledger].append(game.record() | refusal)
        for ledger, ledger_records in records.items():
            ledger.add(ledger_records)

    def write(self) -> None:
        """Writes each judgment whose games have ended."""
        judge = self.assignment.judge
        rows: dict[str, dict[str, Any]] = defaultdict(dict)  # by model and uid
        for pair in self.pairs:
            if not pair.open_games:
                messages = [game.messages for game in pair.games]
                row = data.judgment_row(pair.judgment(judge), messages)
                rows[pair.model][pair.question.uid] = row
        for model, judgments in rows.items():
            data.merge_rows(self.assignment.folder.judgments(judge, model), judgments)

    def expected(self) -> str:
        """What is open and what it may cost, in words."""
        games = self.open_games
        return (
            f"{len(self.open_pairs):,} of {len(self.pairs):,} answers are to be judged: "
            f"{len(games):,} games, {self.spending.expected(games)}; paid so far: "
            f"{self.spending.in_words(self.spending.dollars)}"
        )

    def outcome(self) -> Iterator[str]:
        """What became of the games, in words."""
        spending = self.spending
        yield (
            f"paid for these models in all: {spending.replies:,} replies, "
            f"{spending.prompt_tokens:,} tokens in and {spending.completion_tokens:,} out, "
            f"{spending.in_words(spending.dollars)}"
        )
        if self.lost:
            yield f"{len(self.lost):,} games have no reply: {next(iter(self.lost.values()))}"
        refusals = [words for pair in self.pairs for words in pair.refusals]
        if refusals:
            yield (
                f"{len(refusals):,} games were refused and have no score (--retry_failed asks them "
                f"again); the last: {refusals[-1]}"
            )
        if spending.out_of_money:
            yield "the budget allows no more games; the same command with a larger one resumes"
        if self.open_pairs:
            yield f"{len(self.open_pairs):,} judgments are open; the same command resumes"
