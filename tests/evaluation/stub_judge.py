"""A judge that answers at once, late, wrongly or not at all: a real HTTP server.

`python stub_judge.py SECONDS ERRORS GARBAGE SEED` serves on a free port, which it prints, until it
is told to end: of all requests the share ERRORS fails in one of several ways, and of the others the
share GARBAGE is answered, and paid for, without a verdict. `GET /counts` says what was paid for.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

HTML = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
VERDICTS = ("A>>B", "A>B", "A=B", "B>A", "B>>A")


class Request(NamedTuple):
    headers: dict[str, str]  # by name in small letters
    body: Any
    number: int  # from 1
    time: float

    @property
    def user(self) -> str:
        return self.body["messages"][-1]["content"]


class Answer(NamedTuple):
    """`cut` hangs up in the middle of it; `seconds` is how long it takes."""

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0
    cut: bool = False


def completion(text: Any, usage: Any = (100, 10), finish: Any = "stop", **message: Any) -> bytes:
    """A chat completion with this text."""
    found = {
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text, **message},
                "finish_reason": finish,
            }
        ],
    }
    if usage is not None:
        found["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    return json.dumps(found).encode()


def verdict_of(body: Any) -> str:
    """What the stub says to these messages: always the same."""
    digest = hashlib.sha256(json.dumps(body["messages"]).encode()).digest()
    return VERDICTS[digest[0] % len(VERDICTS)]


class Stub:
    """A server on loopback, in a loop of its own; `answer` may be changed while it runs."""

    def __init__(self, answer: Callable[[Request], Answer]):
        self.answer = answer
        self.requests: list[Request] = []
        self.counts: dict[str, Any] = {}
        self.keep = True  # the requests
        self.most_at_once = self.now = self.number = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def start(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 24, backlog=512)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self._one(reader, writer):
                pass
        writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines if line)
        }
        content = await reader.readexactly(int(headers.get("content-length", 0)))
        if first.startswith("GET /counts"):
            answer = Answer(body=json.dumps(self.counts).encode())
        elif not first.startswith("POST /v1/chat/completions "):
            answer = Answer(404, b'{"detail": "Not Found"}')
        else:
            self.number += 1
            self.now += 1
            self.most_at_once = max(self.most_at_once, self.now)
            request = Request(headers, json.loads(content), self.number, time.monotonic())
            if self.keep:
                self.requests.append(request)
            try:
                answer = self.answer(request)
                await asyncio.sleep(answer.seconds)
            finally:
                self.now -= 1
        more = "".join(f"{name}: {value}\r\n" for name, value in answer.headers)
        size = len(answer.body) + (100 if answer.cut else 0)
        writer.write(
            f"HTTP/1.1 {answer.status} X\r\nContent-Length: {size}\r\n{more}\r\n".encode()
            + answer.body
        )
        await writer.drain()
        return not answer.cut


@contextlib.contextmanager
def serving(answer: Callable[[Request], Answer]) -> Iterator[Stub]:
    """A stub in a thread of this process."""
    stub, loop, started = Stub(answer), asyncio.new_event_loop(), threading.Event()

    async def serve() -> None:
        async with await stub.start():
            started.set()
            await end.wait()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    end = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert started.wait(10)
        yield stub
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(10)
        loop.close()


def faulty(seconds: float, errors: float, garbage: float, seed: int, stub: Stub) -> Any:
    """Answers that fail as often as asked for; what is paid for is counted by its messages."""
    chance = random.Random(seed)
    paid: Counter[str] = Counter()
    without: Counter[str] = Counter()
    stub.keep = False
    stub.counts = {"paid": paid, "garbage": without, "errors": 0, "requests": 0, "first": 0.0}
    failures = (
        Answer(429, b'{"error": {"message": "slow down"}}', (("Retry-After", "0.1"),), seconds / 4),
        Answer(500, b'{"error": {"message": "oops"}}', (), seconds / 4),
        Answer(200, b'{"choices": [', (), seconds / 4, True),
        Answer(200, HTML, (("Content-Type", "text/html"),), seconds / 4),
        Answer(502, HTML, (("Content-Type", "text/html"),), seconds / 4),
    )

    def answer(request: Request) -> Answer:
        stub.counts["requests"] += 1
        stub.counts["first"] = stub.counts["first"] or time.time()
        stub.counts["most_at_once"] = stub.most_at_once
        if chance.random() < errors:
            stub.counts["errors"] += 1
            return chance.choice(failures)
        key = hashlib.sha256(json.dumps(request.body["messages"]).encode()).hexdigest()
        if chance.random() < garbage:
            without[key] += 1
            return Answer(body=completion("I cannot decide [[C]]"), seconds=seconds)
        paid[key] += 1
        text = f"Both are answers.\u2028My verdict is [[{verdict_of(request.body)}]]"
        return Answer(body=completion(text), seconds=seconds)

    return answer


async def main() -> None:
    seconds, errors, garbage, seed = map(float, sys.argv[1:])
    stub = Stub(lambda request: Answer())
    stub.answer = faulty(seconds, errors, garbage, int(seed), stub)
    async with await stub.start() as server:
        print(stub.port, flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
