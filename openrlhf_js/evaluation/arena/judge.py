"""Has games judged: many at a time, each reply on disk at once, each judgment written once."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from openrlhf_js.evaluation.arena.files import Folder
from openrlhf_js.evaluation.arena.games import Ask, Judge, Plan
from openrlhf_js.evaluation.arena.ledger import Ledger
from openrlhf_js.evaluation.arena.prices import Budget, Worst
from openrlhf_js.evaluation.arena.results import Results
from openrlhf_js.evaluation.endpoint import (
    MOST_LOST,
    Chat,
    EndpointRefused,
    EndpointSilent,
    EndpointUnavailable,
    ReplyLost,
    RequestRefused,
)
from openrlhf_js.evaluation.rates import back_off_seconds

GIVE_UP_AFTER = 16  # games in a row that the endpoint did not answer, or refused from the start
LOOK_SECONDS = 0.05  # between looks at whether games are still under way


@dataclass
class Outcome:
    """What became of the games.

    Attributes:
        games: with a verdict now that had none before, the free ones among them.
        free: those whose verdict the ledger had, or that share it with another game.
        judgments: pairs that got their line.
        replies: paid for.
        silent: replies without a verdict.
        lost: replies that never came whole, for which the endpoint may charge.
        dropped: games under way that were not waited for.
        failures: games that failed and stay open, by reason.
    """

    games: int = 0
    free: int = 0
    judgments: int = 0
    replies: int = 0
    silent: int = 0
    lost: int = 0
    dropped: int = 0
    failures: Counter[str] = field(default_factory=Counter)


class Judging:
    """Judges the games of a plan.

    Args:
        plan: what is to be judged.
        judge: who judges.
        folder: gets the judgments.
        ledger: gets the replies.
        chat: the judge's endpoints; open.
        budget: of this judging.
        worst: what a reply to an ask can cost at most.
        workers: games at the same time.
        tries: how often a game is asked in this call if the replies have no verdict. They are
            asked afresh, with the same messages: to go on with the conversation, as v0.1's
            program did, is not the protocol of v2.0. A seed is one higher each time.
        progress: told how many games are done, of those in the plan.
        waiting: told how many games are under way once no more begin, if there are any.

    Attributes:
        outcome: so far.
    """

    def __init__(
        self,
        plan: Plan,
        judge: Judge,
        folder: Folder,
        ledger: Ledger,
        chat: Chat,
        budget: Budget,
        worst: Callable[[Ask], Worst],
        *,
        workers: int,
        tries: int,
        progress: Callable[[int], None] = lambda done: None,
        waiting: Callable[[int], None] = lambda games: None,
    ):
        self.outcome = Outcome()
        self._plan, self._judge, self._folder, self._ledger = plan, judge, folder, ledger
        self._chat, self._budget, self._worst = chat, budget, worst
        self._workers, self._tries = workers, tries
        self._progress, self._waiting = progress, waiting
        self._done = 0
        self._unanswered = 0  # in a row
        self._refused = 0
        self._error: Exception | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Judges until everything is done, the budget is used up, or it is stopped.

        What has been paid for is on disk in any case, and every judgment that rests on it too.

        Args:
            stop: once it is set, no more games begin. Those under way are paid for, so they are
                waited for, at most until their time-out. Who cancels this drops them.

        Raises:
            EndpointRefused: the endpoint takes no game at all.
            EndpointUnavailable: it has answered none of many games in a row.
            OSError: what was judged cannot be written.
        """
        results = Results(self._plan, self._judge, self._folder, self._ledger, stop)
        asks = iter(list(self._plan.asks.values()))
        workers = [
            asyncio.create_task(self._work(asks, results, stop)) for _ in range(self._workers)
        ]
        stopped = asyncio.create_task(stop.wait())
        every = asyncio.create_task(asyncio.wait(workers))
        try:
            await asyncio.wait({every, stopped}, return_when=asyncio.FIRST_COMPLETED)
            self._budget.close()
            if not isinstance(self._error or results.error, OSError):  # else no reply can be kept
                await self._end_games(every)
        except asyncio.CancelledError:
            if self._error:  # says more than that somebody did not want to wait any longer
                raise self._error from None
            raise
        finally:
            self.outcome.dropped = self._chat.under_way
            for task in (*workers, stopped, every):
                task.cancel()
            await asyncio.gather(*workers, stopped, every, return_exceptions=True)
            await results.end()
            self.outcome.judgments = results.written
        for worker in workers:
            if not worker.cancelled():
                worker.result()
        if self._error:
            raise self._error

    async def _end_games(self, every: asyncio.Task[Any]) -> None:
        """Waits for the games under way; what is not sent yet, or failed, is not sent again."""
        self._chat.stop()
        if self._chat.under_way:
            self._waiting(self._chat.under_way)
        while self._chat.under_way:
            await asyncio.wait({every}, timeout=LOOK_SECONDS)

    async def _work(self, asks: Iterator[Ask], results: Results, stop: asyncio.Event) -> None:
        for ask in asks:
            if stop.is_set():
                return
            try:
                await self._settle(ask, results, stop)
            except (EndpointRefused, EndpointUnavailable, OSError) as error:
                self._error = self._error or error
                stop.set()

    async def _settle(self, ask: Ask, results: Results, stop: asyncio.Event) -> None:
        had = ask.key in self._ledger.verdicts
        if had or await self._hold(ask, stop):
            self.outcome.games += len(ask.games)
            self.outcome.free += len(ask.games) - (0 if had else 1)
            await results.take(ask)
            self._done += len(ask.games)
            self._progress(self._done)

    async def _hold(self, ask: Ask, stop: asyncio.Event) -> bool:
        """Asks the judge, and says whether it gave a verdict."""
        number, game = ask.games[0]
        pair = self._plan.pairs[number]
        asked = pair.messages(self._judge, game)
        worst = self._worst(ask)
        noted: dict[str, Any] = {"uid": pair.question.uid, "game": game + 1}
        place = (ask.key, pair.answer.model, ask.prompt_bytes)
        silent = lost = 0
        while silent < self._tries:
            if lost:
                await asyncio.sleep(back_off_seconds(lost, random.random()))
            if stop.is_set() or not await self._budget.begin(worst.dollars):
                return False
            try:
                # One at a time: the budget is asked again before the next may be lost, too.
                reply = await self._chat.ask(asked, self._parameters(ask), most_lost=1)
                verdict = self._ledger.add(*place, reply, **noted, tstamp=time.time())
            except RequestRefused as error:
                self._refused += 1
                if self._refused >= GIVE_UP_AFTER and not self._ledger.verdicts:
                    raise  # it is hardly these messages: max_tokens leaves too little for any
                return self._fail(ask, str(error))
            except ReplyLost as error:
                lost += 1
                self.outcome.lost += 1
                self._ledger.lose(*place, worst, **noted, tstamp=time.time())
                if lost == MOST_LOST:
                    return self._no_reply(ask, error)
                continue
            except EndpointUnavailable as error:
                return False if stop.is_set() else self._no_reply(ask, error)
            finally:
                self._budget.end(worst.dollars)
            self._unanswered = 0
            self.outcome.replies += 1
            if verdict:
                return True
            silent += 1
            self.outcome.silent += 1
        return self._fail(ask, f"no verdict in {self._tries} replies")

    def _no_reply(self, ask: Ask, error: EndpointUnavailable) -> bool:
        """Counts a game without a reply; raises the error if there were many in a row."""
        self._unanswered += 1
        if self._unanswered >= GIVE_UP_AFTER or isinstance(error, EndpointSilent):
            raise error
        return self._fail(ask, str(error))

    def _parameters(self, ask: Ask) -> dict[str, Any]:
        """Those of the judge; a seed differs from those whose replies had no verdict."""
        found = dict(self._judge.parameters)
        found[self._judge.max_tokens_name] = found.pop("max_tokens")
        if found.get("seed") is not None:
            found["seed"] += self._ledger.silent[ask.key]
        return found

    def _fail(self, ask: Ask, reason: str) -> bool:
        self.outcome.failures[reason] += len(ask.games)
        self._done += len(ask.games)
        self._progress(self._done)
        return False
