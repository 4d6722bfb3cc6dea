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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

VERDICTS = ("A>>B", "A>B", "A=B", "B>A", "B>>A")
Answer = tuple[int, Any]  # status, and a body; with headers as a third
Request = dict[str, Any]


def reply(
    text: Any, finish: Any = "stop", tokens: int | None = 3, asked: int = 2, **message: Any
) -> Answer:
    """A chat completion with this text."""
    usage = {"prompt_tokens": asked, "completion_tokens": tokens}
    said = {"role": "assistant", "content": text, **message}
    found = {"choices": [{"message": said, "finish_reason": finish}]}
    return 200, found if tokens is None else {**found, "usage": usage}


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


class Served:
    """What was asked, and where; `answer` may be changed."""

    def __init__(self, answer: Callable[[Request, int], Any]):
        self.answer, self.url = answer, ""
        self.requests: list[Request] = []
        self.keys: list[str | None] = []
        self.times: list[float] = []
        self.counts: dict[str, Any] = {}
        self.now = self.most_at_once = 0


@contextmanager
def serving(
    answer: Callable[[Request, int], Any] = by_seed, models: tuple[str, ...] = ("small",)
) -> Iterator[Served]:
    """Serves while the block lasts; `answer` gets a request and its number from 1."""
    lock, served = threading.Lock(), Served(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # headers and body in one packet, else Nagle's algorithm adds 40 ms

        def do_GET(self) -> None:
            counts = self.path == "/counts"
            self._send(200, served.counts if counts else {"data": [{"id": m} for m in models]})

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                served.requests.append(request)
                served.keys.append(self.headers["Authorization"])
                served.times.append(time.monotonic())
                served.now += 1
                served.most_at_once = max(served.most_at_once, served.now)
                number = len(served.requests)
            made = served.answer(request, number)
            with lock:
                served.now -= 1
            self._send(*made)

        def _send(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 256  # else connections that come together wait for seconds
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Says nothing of clients that hang up."""

    server = Server(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def faulty(served: Served, seconds: float, errors: float, garbage: float, seed: float) -> Any:
    """Answers that fail as often as asked for; what is paid for is counted by its messages."""
    chance, lock = random.Random(int(seed)), threading.Lock()
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
            fails, vague = chance.random() < errors, chance.random() < garbage
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
