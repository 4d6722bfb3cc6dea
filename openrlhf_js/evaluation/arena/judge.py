"""Judging: two games for each question, every reply on disk with its cost, each game paid once.

    model_judgment/JUDGE/MODEL.jsonl    judgments, as the official programs read them
    judge_ledger/JUDGE/CATEGORY.jsonl   every reply that was paid for, under its settings

A call writes its judgments when it ends, whatever ends it.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from openrlhf_js.common.console import progress
from openrlhf_js.common.store import Record, Store
from openrlhf_js.evaluation.arena import data, protocol
from openrlhf_js.evaluation.arena.ledger import Ledger
from openrlhf_js.evaluation.arena.pairs import GAMES, Assignment, Game, PairsToJudge
from openrlhf_js.evaluation.arena.spending import Spending, outcome_of
from openrlhf_js.sampling.endpoint import Endpoint, NoReply, Reply
from openrlhf_js.sampling.run_all import run_all

log = logging.getLogger(__name__)

EMPTY_SHARE = 0.05  # of a model's answers: beyond it they are judged only if the user says so
NO_REPLY: Record = {"text": "", "thinking": "", "prompt_tokens": 0, "completion_tokens": 0}


class Judging:
    """One call of judging; a context manager, which holds the ledgers meanwhile.

    `budget` is in dollars for all replies that these models ever had. No game begins that would
    pass it with those under way, if each costs as much as the mean one so far.
    """

    def __init__(self, assignment: Assignment, budget: float | None = None):
        self.assignment = assignment
        self.to_judge = PairsToJudge()
        self.spending = Spending(assignment.settings.price(assignment.judge), budget)

    def __enter__(self) -> Judging:
        questions: dict[str, list[data.Question]] = defaultdict(list)  # by category
        for question in self.assignment.questions.values():
            questions[question.category].append(question)
        with ExitStack() as stack:
            for category, questions_of_category in questions.items():
                ledger = self._open_ledger(category, stack)
                self._add_models(ledger, category, questions_of_category)
            self._open_ledgers = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open_ledgers.close()

    def _open_ledger(self, category: str, stack: ExitStack) -> Ledger:
        """The ledger of a category; says how it deviates from the official protocol."""
        assignment = self.assignment
        prompt = protocol.prompt_of(assignment.folder, category, assignment.settings)
        identity = protocol.identity_of(
            bench=assignment.bench,
            category=category,
            judge=assignment.judge,
            settings=assignment.settings,
            prompt=prompt,
        )
        deviations = protocol.deviations(
            bench=assignment.bench,
            category=category,
            judges=[assignment.judge],
            recorded={assignment.judge: identity},
        )
        if deviations:
            log.warning("%s: not the official protocol: %s", category, "; ".join(deviations))
        path = assignment.folder.ledger(assignment.judge, category)
        try:
            store = Store(path, identity, key=("game", "attempt"))
        except ValueError as error:
            raise ValueError(f"{error}\n--judge_name keeps judgments apart") from None
        stack.enter_context(store)
        ledger = Ledger(store, prompt, assignment.tries, assignment.retry_failed)
        stack.callback(ledger.drop_if_empty)
        return ledger

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
                log.warning("%s is the baseline of %s, or the judge: not judged", model, category)
            else:
                self.to_judge.add_model(assignment, ledger, questions, model)

    def check_answers(self, judge_empty: bool) -> None:
        """Warns of empty answers in open games; ValueError where there are too many to pay for."""
        texts: dict[str, dict[str, str]] = defaultdict(dict)  # by model and question
        for pair in self.to_judge.open_pairs:
            texts[pair.model][pair.question.uid] = pair.answer
            texts[pair.ledger.baseline][pair.question.uid] = pair.baseline
        for model, answers in texts.items():
            empty = sum(not text.strip() for text in answers.values())
            if not empty:
                continue
            message = (
                f"{empty:,} of {len(answers):,} answers of {model} that are to be judged are "
                "empty, most often cut off while thinking (generate: --max_new_tokens)"
            )
            if empty > EMPTY_SHARE * len(answers) and not judge_empty:
                raise ValueError(
                    f"{message}: nothing was judged; --judge_empty judges them as well"
                )
            log.warning("%s", message)

    def run(self, endpoint: Endpoint) -> None:
        """Asks the open games, those without a verdict again up to `tries`; writes judgments."""
        self.to_judge.lost.clear()
        try:
            for _ in range(self.assignment.tries):
                games = self.to_judge.open_games
                if not games or self.spending.out_of_money:
                    break
                self._ask(games, endpoint)
        finally:
            self.write()

    def _ask(self, games: Sequence[Game], endpoint: Endpoint) -> None:
        """Asks these games once, and writes each reply as it comes."""
        settings = self.assignment.settings
        parameters = settings.request()

        async def ask(game: Game) -> Reply:
            """Asks for one game; its reply is on the bill at once."""
            try:
                reply = await endpoint.chat(game.messages, **parameters)
            finally:
                self.spending.under_way -= 1
            self.spending.add(game.record() | reply._asdict())
            return reply

        def save(results: Sequence[tuple[Game, Reply | NoReply]]) -> None:
            """Writes what came of games, and shows how things stand."""
            self._keep(results)
            open_games = len(games) - int(bar.done) - len(results)
            bar.advance(len(results), self.spending.progress(open_games))

        with progress("judging", len(games), "games") as bar:
            run_all(
                endpoint=endpoint,
                jobs=self.spending.affordable(games),
                work=ask,
                on_results=save,
                concurrency=settings.concurrency,
            )

    def _keep(self, results: Sequence[tuple[Game, Reply | NoReply]]) -> None:
        """Writes replies to the ledgers, and refusals; other games without a reply stay open."""
        records: dict[Ledger, list[Record]] = defaultdict(list)
        for game, answer in results:
            record = game.record()
            if isinstance(answer, Reply):
                record |= answer._asdict()
            elif answer.refused:
                record |= {**NO_REPLY, "refused": str(answer)}
            else:
                self.to_judge.lost[game.key] = str(answer)
                continue
            records[game.pair.ledger].append(record)
            self.spending.tally[outcome_of(record)] += 1
        for ledger, ledger_records in records.items():
            ledger.add(ledger_records)

    def write(self) -> None:
        """Writes each judgment whose games are over."""
        judge = self.assignment.judge
        rows: dict[str, dict[str, Any]] = defaultdict(dict)  # by model and uid
        for pair in self.to_judge.pairs:
            if not pair.open_games:
                messages = [pair.messages(game) for game in GAMES]
                row = data.judgment_row(pair.judgment(judge), messages)
                rows[pair.model][pair.question.uid] = row
        for model, judgments in rows.items():
            data.merge_rows(self.assignment.folder.judgments(judge, model), judgments)

    def expected(self) -> str:
        """What is open, and what it may cost, in words."""
        games = self.to_judge.open_games
        estimate = self.spending.estimate([game.prompt_bytes for game in games])
        still_open = len(self.to_judge.open_pairs)
        judged = len(self.to_judge.pairs) - still_open + self.to_judge.judged_elsewhere
        return (
            f"{judged:,} judgments are there, {still_open:,} are not: {estimate.games:,} games to "
            f"ask, about {estimate.tokens_in:,.0f} tokens in and {estimate.tokens_out:,.0f} out, "
            f"{self.spending.in_words(estimate.dollars)}; paid so far: "
            f"{self.spending.in_words(self.spending.dollars)}"
        )

    def outcome(self) -> Iterator[str]:
        """What became of the games, in words."""
        spending = self.spending
        yield f"games of this call: {spending.outcomes()}"
        yield (
            f"paid for these models in all: {spending.replies:,} replies, "
            f"{spending.prompt_tokens:,} tokens in and {spending.completion_tokens:,} out, "
            f"{spending.in_words(spending.dollars)}"
        )
        lost = self.to_judge.lost
        if lost:
            yield f"{len(lost):,} games have no reply: {next(iter(lost.values()))}"
        refusals = [words for pair in self.to_judge.pairs for words in pair.refusals]
        if refusals:
            yield (
                f"{len(refusals):,} games were refused and have no score (--retry_failed asks them "
                f"again); the last: {refusals[-1]}"
            )
        if spending.out_of_money:
            yield "the budget allows no more games; the same command with a larger one resumes"
        if self.to_judge.open_pairs:
            yield f"{len(self.to_judge.open_pairs):,} judgments are open; the same command resumes"
