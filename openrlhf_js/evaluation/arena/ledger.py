"""Every reply of a judge in one category, under its settings.

    judge_ledger/JUDGE/CATEGORY.jsonl   every reply that was paid for, and every refusal

A game is known by the hash of its settings and messages: the same call after a kill, or another
model with the same answer, has its reply there.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from functools import cache

from openrlhf_js.common.store import Record, Store
from openrlhf_js.evaluation.arena import data, protocol, verdicts


class Ledger:
    """The replies of one judge in one category; `key` is always the hash of a game.

    After `tries` replies without a verdict, of this call alone with `retry`, a game is given up.
    One that the endpoint refused is given up at once.
    """

    def __init__(self, store: Store, prompt: protocol.JudgePrompt, tries: int, retry: bool):
        self.store = store
        self.prompt = prompt
        self.tries = tries
        self.settings_hash = protocol.digest(store.identity)
        self.baseline: str = store.identity["baseline"]
        self.replies: dict[str, list[Record]] = defaultdict(list)  # by game
        for record in store.records.values():
            self.replies[record["game"]].append(record)
        self._forgiven: dict[str, int] = {}  # of each game's replies, how many count as no try
        if retry:
            self._forgiven = {key: len(records) for key, records in self.replies.items()}

    def add(self, records: Sequence[Record]) -> None:
        """Writes replies to the disk; a call has one to each game at most."""
        for record in records:
            record["attempt"] = len(self.replies[record["game"]])
            record["tstamp"] = time.time()
        self.store.append(records)
        for record in records:
            self.replies[record["game"]].append(record)

    def is_open(self, key: str) -> bool:
        """Whether a game is to be asked."""
        if self._verdict(key):
            return False
        refused = any("refused" in record for record in self._counted(key))
        return not refused and len(self._counted(key)) < self.tries

    def game(self, key: str) -> data.GameResult | None:
        """A game that is not open: the reply with a verdict, or else the last; None if refused."""
        if self.refusal(key):
            return None
        return self._verdict(key) or _result(self._counted(key)[-1]["text"])

    def refusal(self, key: str) -> str:
        """The words with which the endpoint refused a game; "" where it did not."""
        if self._verdict(key):
            return ""
        refusals = [record["refused"] for record in self._counted(key) if "refused" in record]
        return str(refusals[-1]) if refusals else ""

    def drop_if_empty(self) -> None:
        """Removes a ledger without replies, which would bind later calls to its settings."""
        if not self.store.records:
            self.store.path.unlink()

    def _verdict(self, key: str) -> data.GameResult | None:
        """The first reply that states a verdict."""
        for record in self.replies.get(key, []):
            result = _result(record["text"])
            if result.stated:
                return result
        return None

    def _counted(self, key: str) -> list[Record]:
        """The replies that count against `tries`."""
        return self.replies.get(key, [])[self._forgiven.get(key, 0) :]


@cache
def _result(text: str) -> data.GameResult:
    """What a reply says."""
    return data.GameResult(
        text=text,
        stated=verdicts.stated_verdict(text),
        official=verdicts.official_verdict(text),
    )
