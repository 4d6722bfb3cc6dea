"""Writes the judgment of a pair once both its games have verdicts."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from openrlhf_js.evaluation.arena.appending import append_line
from openrlhf_js.evaluation.arena.files import Folder, judgment_line
from openrlhf_js.evaluation.arena.games import Ask, Judge, Pair, Plan
from openrlhf_js.evaluation.arena.ledger import Ledger
from openrlhf_js.evaluation.arena.records import Game, Judgment

MOST_WAITING = 256  # pairs that may wait for the disk before games wait for it too
MOST_AT_ONCE = 64  # pairs that are written together


class Results:
    """The judgments of a plan. A reply is on disk, in the ledger, before a judgment rests on it.

    Syncing takes a disk some milliseconds, in which a worker could ask the judge again. So it is
    done in the background, for all pairs at once that have come by then.

    Args:
        stop: set when nothing can be written any more.

    Attributes:
        written: how many judgments.
        error: why no more can be written; None while they can.
    """

    def __init__(
        self, plan: Plan, judge: Judge, folder: Folder, ledger: Ledger, stop: asyncio.Event
    ):
        self.written = 0
        self._plan, self._judge, self._folder, self._ledger = plan, judge, folder, ledger
        self._stop = stop
        self._queue: asyncio.Queue[int | None] = asyncio.Queue(MOST_WAITING)
        self.error: OSError | None = None
        self._keys = {place: ask.key for ask in plan.asks.values() for place in ask.games}
        self._open = [sum(game is None for game in pair.known) for pair in plan.pairs]
        self._saver = asyncio.create_task(self._save_all())

    async def take(self, ask: Ask) -> None:
        """The ledger has a verdict for this."""
        for number, _ in ask.games:
            self._open[number] -= 1
            if not self._open[number]:
                await self._queue.put(number)

    async def end(self) -> None:
        """Waits until everything is written.

        Raises:
            OSError: it cannot be.
        """
        await self._queue.put(None)
        await self._saver
        if self.error:
            raise self.error

    async def _save_all(self) -> None:
        ended = False
        while not ended:
            numbers = [await self._queue.get()]
            while len(numbers) < MOST_AT_ONCE and not self._queue.empty():
                numbers.append(self._queue.get_nowait())
            ended = None in numbers
            if self.error:
                continue
            try:
                await asyncio.to_thread(self._save, [each for each in numbers if each is not None])
            except OSError as error:
                self.error = error
                self._stop.set()

    def _save(self, numbers: list[int]) -> None:
        self._ledger.sync()
        lines = defaultdict(list)
        for number in numbers:
            path = self._folder.judgments(self._judge.name, self._plan.pairs[number].answer.model)
            lines[path].append(self._line(number))
        for path, own in lines.items():
            append_line(path, b"".join(own))
            self.written += len(own)

    def _line(self, number: int) -> bytes:
        pair = self._plan.pairs[number]
        judgment = Judgment(
            uid=pair.question.uid,
            category=pair.question.category,
            judge=self._judge.name,
            model=pair.answer.model,
            baseline=pair.baseline.model,
            games=(self._game(number, pair, 0), self._game(number, pair, 1)),
        )
        return judgment_line(
            judgment, (pair.messages(self._judge, 0), pair.messages(self._judge, 1))
        )

    def _game(self, number: int, pair: Pair, game: int) -> Game:
        known = pair.known[game]
        if known:
            return known
        key = self._keys[number, game]
        return Game(self._ledger.verdicts[key].verdict, self._ledger.text(key))
