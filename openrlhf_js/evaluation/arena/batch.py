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
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from openrlhf_js.common.console import progress, say
from openrlhf_js.common.files import write_json
from openrlhf_js.common.store import Record, json_line
from openrlhf_js.sampling.endpoint import Endpoint, NoReply, Reply

if TYPE_CHECKING:
    from openai import OpenAI
    from openai.types import Batch as Found

URL: Any = "/v1/chat/completions"
ENDED = ("completed", "failed", "expired", "cancelled")
FIRST_SECONDS, MOST_SECONDS = 1.0, 60.0  # between two looks


class Batch:
    """The batch of one ledger; without games none is under way."""

    def __init__(self, path: Path):
        none: Record = {"token": "", "id": "", "games": {}}
        self.path, self._state = path, json.loads(path.read_bytes()) if path.is_file() else none
        self.games: dict[str, Record] = self._state["games"]  # the records that replies complete

    def submit(self, client: OpenAI, requests: Sequence[tuple[Record, Record]]) -> None:
        """Makes a batch of these games, each with the body of its request."""
        asked, token = {"method": "POST", "url": URL}, uuid4().hex
        lines = [json_line({"custom_id": r["game"], **asked, "body": b}) for r, b in requests]
        self.games = {record["game"]: record for record, _ in requests}
        self._keep({"token": token, "id": "", "games": self.games})
        file = client.files.create(file=("requests.jsonl", b"".join(lines)), purpose="batch")
        once = client.with_options(max_retries=0)  # a second try might make a second batch
        made = once.batches.create(
            **{"input_file_id": file.id, "endpoint": URL, "completion_window": "24h"},
            metadata={"openrlhf_js": token},
        )
        self._keep({**self._state, "id": made.id})
        resumes = "Ctrl-C leaves it running, and the same command resumes"
        say(f"{made.id}: {len(self.games):,} games, within 24 hours; {resumes}")

    def look(self, client: OpenAI) -> Found | None:
        """What the endpoint says of it; None if it was never made."""
        if self._state["id"]:
            return client.batches.retrieve(self._state["id"])
        for each in client.batches.list(limit=100):
            if (each.metadata or {}).get("openrlhf_js") == self._state["token"]:
                self._keep({**self._state, "id": each.id})
                return each
        return None

    def end(self) -> None:
        """Its replies are in the ledger."""
        self.path.unlink()
        self.games = {}

    def _keep(self, state: Record) -> None:
        self._state = state
        write_json(self.path, state)


def wait_for(client: OpenAI, batches: Sequence[Batch]) -> list[Found | None]:
    """What the endpoint says of each batch, once all have ended."""
    seconds, total = FIRST_SECONDS, sum(len(each.games) for each in batches)
    with progress("waiting for batches", total, "games") as bar:
        while True:
            found = [each.look(client) for each in batches]
            if all(each is None or each.status in ENDED for each in found):
                return found
            counts = [each.request_counts for each in found if each and each.request_counts]
            bar.update(sum(each.completed + each.failed for each in counts))
            time.sleep(seconds)
            seconds = min(1.5 * seconds, MOST_SECONDS)


def replies_of(client: OpenAI, endpoint: Endpoint, found: Found) -> dict[str, Reply | NoReply]:
    """What came of a batch that has ended, by game."""
    came: dict[str, Reply | NoReply] = {}
    for name in filter(None, (found.output_file_id, found.error_file_id)):
        for line in client.files.content(name).content.splitlines():
            with suppress(ValueError, LookupError, TypeError):  # a line without a reply
                row = json.loads(line)
                answer, key = row["response"], row["custom_id"]
                came[key] = endpoint.read(answer["status_code"], json.dumps(answer["body"]))
    return came
