"""Batches: requests that an endpoint answers within a day and for less, as OpenAI has them.

    judge_ledger/JUDGE/CATEGORY.batch.json    the batch that is under way, and its games

The file is there before anything is sent. It holds a token that the batch carries as well, so that
a batch whose id was lost to a kill is found among those of the endpoint, and none is made twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from openai import OpenAI
from openai.types import Batch

from openrlhf_js.common.console import progress, say
from openrlhf_js.common.files import write_json
from openrlhf_js.common.store import Record, json_line
from openrlhf_js.sampling.endpoint import Endpoint, NoReply, Reply

URL: Any = "/v1/chat/completions"
ENDED = ("completed", "failed", "expired", "cancelled")
FIRST_SECONDS = 1.0  # between two looks, and ever more
MOST_SECONDS = 60.0


class JudgeBatch:
    """The batch of one ledger; without games none is under way."""

    def __init__(self, path: Path):
        self.path = path
        self._state: Record = {"token": "", "id": "", "games": {}}
        if path.is_file():
            self._state = json.loads(path.read_bytes())
        self.games: dict[str, Record] = self._state["games"]  # the records that replies complete

    def submit(self, client: OpenAI, games: Sequence[Record], bodies: Sequence[Record]) -> None:
        """Makes a batch of these games, each with the body of its request."""
        token = uuid4().hex
        self.games = {game["game"]: game for game in games}
        self._write({"token": token, "id": "", "games": self.games})
        requests = [
            json_line(
                {
                    "custom_id": key,
                    "method": "POST",
                    "url": URL,
                    "body": body,
                }
            )
            for key, body in zip(self.games, bodies, strict=True)
        ]
        file = client.files.create(file=("requests.jsonl", b"".join(requests)), purpose="batch")
        batch = client.with_options(max_retries=0).batches.create(  # a second try may make another
            input_file_id=file.id,
            endpoint=URL,
            completion_window="24h",
            metadata={"openrlhf_js": token},
        )
        self._write({**self._state, "id": batch.id})

    def replies(
        self, client: OpenAI, endpoint: Endpoint, cost: str
    ) -> list[tuple[Record, Reply | Exception]]:
        """What came of each game once the batch has ended; nothing if it was never made.

        `cost` is what it may cost, in words.
        """
        batch = self._ended_batch(client, cost)
        if batch is None:
            return []
        answers: dict[str, Reply | Exception] = {}
        for row in _rows(client, batch):
            with suppress(LookupError, TypeError):  # a row without a reply
                answer = row["response"]
                key = row["custom_id"]
                answers[key] = endpoint.read(answer["status_code"], json.dumps(answer["body"]))
        no_reply = NoReply(f"{batch.id} {batch.status} {_first_error(batch)}".strip())
        return [
            ({**game, "batch": batch.id}, answers.get(key, no_reply))
            for key, game in self.games.items()
        ]

    def end(self) -> None:
        """Its replies are in the ledger."""
        self.path.unlink()
        self.games = {}

    def _ended_batch(self, client: OpenAI, cost: str) -> Batch | None:
        """Waits for the batch to end; None if it was never made."""
        say(
            f"{len(self.games):,} games in {self._state['id']} ({self.path}), {cost}; Ctrl-C "
            "leaves it running, and the same command resumes"
        )
        seconds = FIRST_SECONDS
        with progress("waiting for a batch", len(self.games), "games") as bar:
            while True:
                batch = self._look(client)
                if batch is None or batch.status in ENDED:
                    return batch
                if batch.request_counts:
                    bar.update(batch.request_counts.completed, f"{batch.status}, {cost}")
                time.sleep(seconds)
                seconds = min(1.5 * seconds, MOST_SECONDS)

    def _look(self, client: OpenAI) -> Batch | None:
        """The batch as the endpoint has it now; None if it was never made."""
        if self._state["id"]:
            return client.batches.retrieve(self._state["id"])
        for batch in client.batches.list(limit=100):
            if (batch.metadata or {}).get("openrlhf_js") == self._state["token"]:
                self._write({**self._state, "id": batch.id})
                return batch
        return None

    def _write(self, state: Record) -> None:
        """Keeps the state on disk, which a kill leaves."""
        self._state = state
        write_json(self.path, state)


def _rows(client: OpenAI, batch: Batch) -> Iterator[Any]:
    """The rows of the files that a batch has left: replies, and errors."""
    for file_id in (batch.output_file_id, batch.error_file_id):
        if file_id:
            for line in client.files.content(file_id).content.splitlines():
                with suppress(ValueError):
                    yield json.loads(line)


def _first_error(batch: Batch) -> str:
    """The first of a batch's errors, "" without any."""
    errors = batch.errors.data if batch.errors else None
    return str(errors[0].message) if errors else ""
