"""An OpenAI-compatible server in a thread of this process, or a faulty judge in its own.

`python stub_judge.py SECONDS ERRORS GARBAGE SEED` serves on a free port, which it prints, until it
is told to end: of all requests the share ERRORS fails in one of several ways, and of the others the
share GARBAGE is answered, and paid for, without a verdict. `GET /counts` says what was paid for.
"""

import hashlib
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from email import message_from_bytes
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "eval"))
from scripted_server import Answer, Request, Served, reply, running

VERDICTS = ("A>>B", "A>B", "A=B", "B>A", "B>>A")


def by_seed(request: Request, number: int = 0) -> Answer:
    """1, 2 or 3, by the seed."""
    return reply(rf"It is \boxed{{{request['seed'] % 3 + 1}}}.")


def verdict_of(request: Request) -> str:
    """What a judge says to these messages: always the same."""
    return VERDICTS[hashlib.sha256(json.dumps(request["messages"]).encode()).digest()[0] % 5]


def by_hash(request: Request, number: int = 0) -> Answer:
    return reply(f"[[{verdict_of(request)}]]", tokens=10, asked=100)


def user(request: Request) -> str:
    return request["messages"][-1]["content"]


class Stub(Served):
    """Batches too, which answer their requests after `polls` looks, and then have ended so.

    `kept` is how many requests an expired batch has answered.
    """

    polls = 0
    end = "completed"
    kept = 10**9

    def __init__(self, *given: Any):
        super().__init__(*given)
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, Request] = {}
        self.looks = 0

    def get(self, path: str) -> Any:
        _, kind, *rest = path.partition("?")[0].removeprefix("/v1").split("/")
        if kind == "files":
            return 200, self.files[rest[0]]
        if kind != "batches":
            return super().get(path)
        if not rest:
            return 200, {"object": "list", "data": [*self.batches.values()], "has_more": False}
        batch = self.batches[rest[0]]
        self.looks += 1
        if batch["status"] == "in_progress" and self.looks > self.polls:
            self._run(batch)
        return 200, batch

    def post(self, path: str, headers: Mapping[str, str], content: bytes) -> Any:
        if path == "/v1/files":
            form = message_from_bytes(
                b"Content-Type: " + headers["Content-Type"].encode() + b"\r\n\r\n" + content
            )
            parts = {
                part.get_param("name", header="Content-Disposition"): part.get_payload(decode=True)
                for part in form.get_payload()
            }
            assert parts["purpose"] == b"batch"
            name = f"file-{len(self.files)}"
            self.files[name] = parts["file"]
            return 200, {"id": name, "object": "file", "purpose": "batch"}
        if path != "/v1/batches":
            return super().post(path, headers, content)
        asked = json.loads(content)
        assert asked["endpoint"] == "/v1/chat/completions"
        assert asked["completion_window"] == "24h"
        batch = {"id": f"batch_{len(self.batches)}", "status": "in_progress", **asked}
        batch["request_counts"] = {"total": 8, "completed": 2, "failed": 0}
        self.batches[batch["id"]] = batch
        return 200, batch

    def _run(self, batch: Request) -> None:
        """Writes the files of a batch as OpenAI does: answers in one, what failed in the other."""
        batch["status"] = self.end
        if self.end == "failed":
            batch["errors"] = {"data": [{"message": "Enqueued token limit reached"}]}
            return
        replies = []
        errors = []
        lines = self.files[batch["input_file_id"]].splitlines()
        requests = [json.loads(line) for line in lines]
        assert len({request["custom_id"] for request in requests}) == len(requests)
        for number, request in enumerate(requests):
            assert request["method"] == "POST"
            assert request["url"] == "/v1/chat/completions"
            row = {"id": f"r{number}", "custom_id": request["custom_id"]}
            if number >= self.kept:
                error = {"code": "batch_expired", "message": "could not be executed"}
                errors.append({**row, "response": None, "error": error})
                continue
            status, body, *_ = self.ask(request["body"])
            body = json.loads(body) if isinstance(body, bytes) else body
            row |= {"response": {"status_code": status, "body": body}, "error": None}
            (replies if status == 200 else errors).append(row)
        batch["output_file_id"] = self._written(replies)
        batch["error_file_id"] = self._written(errors)

    def _written(self, rows: list[Any]) -> str | None:
        """The id of a file with these rows; None without any."""
        if not rows:
            return None
        name = f"file-{len(self.files)}"
        self.files[name] = "".join(json.dumps(row) + "\n" for row in rows).encode()
        return name


@contextmanager
def serving(
    answer: Callable[[Request, int], Any] = by_seed, models: tuple[str, ...] = ("small",)
) -> Iterator[Stub]:
    """Serves while the block lasts; `answer` gets a request and its number from 1."""
    stub = Stub(answer, models)
    with running(stub):
        yield stub


def faulty(served: Served, seconds: float, errors: float, garbage: float, seed: float) -> Any:
    """Answers that fail as often as asked for; what is paid for is counted by its messages."""
    chance = random.Random(int(seed))
    lock = threading.Lock()
    paid: Counter[str] = Counter()
    without: Counter[str] = Counter()
    served.counts = {"paid": paid, "garbage": without, "errors": 0, "requests": 0, "first": 0.0}
    html = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
    failures = (
        (429, b'{"error": {"message": "slow down"}}', {"Retry-After": "0.1"}),
        (500, b'{"error": {"message": "oops"}}'),
        (200, b'{"choices": ['),
        (200, html, {"Content-Type": "text/html"}),
        (502, html, {"Content-Type": "text/html"}),
    )

    def answer(request: Request, number: int) -> Any:
        with lock:
            served.counts["requests"] += 1
            served.counts["first"] = served.counts["first"] or time.time()
            served.counts["most_at_once"] = served.most_at_once
            fails = chance.random() < errors
            vague = chance.random() < garbage
            served.counts["errors"] += fails
            key = hashlib.sha256(json.dumps(request["messages"]).encode()).hexdigest()
            if not fails:
                (without if vague else paid)[key] += 1
        time.sleep(seconds / 4 if fails else seconds)
        if fails:
            return chance.choice(failures)
        said = "C" if vague else verdict_of(request)
        return reply(f"Both are answers.\u2028My verdict is [[{said}]]", tokens=10, asked=100)

    return answer


if __name__ == "__main__":
    with suppress(KeyboardInterrupt), serving() as stub:
        stub.answer = faulty(stub, *map(float, sys.argv[1:]))
        print(stub.url.split(":")[2].removesuffix("/v1"), flush=True)
        threading.Event().wait()
