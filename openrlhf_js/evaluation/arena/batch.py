"""Batches: requests that an endpoint answers within a day and for less, as OpenAI has them.

    judge_ledger/JUDGE/CATEGORY.batch.json    the batch that is under way, and its games

The file is there before anything is sent. It holds a token that the batch carries as well, so that
a batch whose id was lost to a kill is found among those of the endpoint, and none is made twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from openai import OpenAI
from openai.types import Batch as Found

from openrlhf_js.common.console import progress, say
from openrlhf_js.common.files import write_json
from openrlhf_js.common.store import Record, json_line
from openrlhf_js.sampling.endpoint import Endpoint, NoReply, Reply

URL: Any = "/v1/chat/completions"
ENDED = ("completed", "failed", "expired", "cancelled")
FIRST_SECONDS, MOST_SECONDS = 1.0, 60.0  # between two looks


class JudgeBatch:
    """The batch of one ledger; without games none is under way."""

    def __init__(self, path: Path):
        none: Record = {"token": "", "id": "", "games": {}}
        self.path, self._state = path, json.loads(path.read_bytes()) if path.is_file() else none
        self.games: dict[str, Record] = self._state["games"]  # the records that replies complete

    def submit(self, client: OpenAI, games: Sequence[Record], bodies: Sequence[Record]) -> None:
        """Makes a batch of these games, each with the body of its request."""
        self.games = {each["game"]: each for each in games}
        token, asked = uuid4().hex, {"method": "POST", "url": URL}
        pairs = zip(self.games, bodies, strict=True)
        lines = [json_line({"custom_id": key, **asked, "body": body}) for key, body in pairs]
        self._write({"token": token, "id": "", "games": self.games})
        file = client.files.create(file=("requests.jsonl", b"".join(lines)), purpose="batch")
        made = client.with_options(max_retries=0).batches.create(  # a second try may make another
            input_file_id=file.id,
            endpoint=URL,
            completion_window="24h",
            metadata={"openrlhf_js": token},
        )
        self._write({**self._state, "id": made.id})

    def replies(self, client: OpenAI, endpoint: Endpoint) -> list[tuple[Record, Reply | Exception]]:
        """What came of each game once the batch has ended; nothing if it was never made."""
        resumes = "Ctrl-C leaves it running, and the same command resumes"
        say(f"{len(self.games):,} games in {self._state['id']} ({self.path}); {resumes}")
        seconds = FIRST_SECONDS
        with progress("waiting for a batch", len(self.games), "games") as bar:
            while (found := self._look(client)) and found.status not in ENDED:
                if found.request_counts:
                    bar.update(found.request_counts.completed, found.status)
                time.sleep(seconds)
                seconds = min(1.5 * seconds, MOST_SECONDS)
        if not found:
            return []
        came: dict[str, Reply | Exception] = {}
        for name in filter(None, (found.output_file_id, found.error_file_id)):
            for line in client.files.content(name).content.splitlines():
                with suppress(ValueError, LookupError, TypeError):  # a line without a reply
                    row = json.loads(line)
                    answer, key = row["response"], row["custom_id"]
                    came[key] = endpoint.read(answer["status_code"], json.dumps(answer["body"]))
        errors = [str(each.message) for each in (found.errors and found.errors.data) or []]
        lost = NoReply(" ".join([found.id, found.status, *errors[:1]]))
        return [({**r, "batch": found.id}, came.get(key, lost)) for key, r in self.games.items()]

    def end(self) -> None:
        """Its replies are in the ledger."""
        self.path.unlink()
        self.games = {}

    def _look(self, client: OpenAI) -> Found | None:
        if self._state["id"]:
            return client.batches.retrieve(self._state["id"])
        for each in client.batches.list(limit=100):
            if (each.metadata or {}).get("openrlhf_js") == self._state["token"]:
                self._write({**self._state, "id": each.id})
                return each
        return None

    def _write(self, state: Record) -> None:
        self._state = state
        write_json(self.path, state)
