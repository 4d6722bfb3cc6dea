"""An OpenAI-compatible server in a thread of this process, whose answers follow from the seed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[dict[str, Any], int], tuple[int, dict[str, Any]]]


def say(text: str, finish: str = "stop", tokens: int | None = 3) -> tuple[int, dict[str, Any]]:
    """An answer with this text."""
    usage = {} if tokens is None else {"usage": {"prompt_tokens": 2, "completion_tokens": tokens}}
    message = {"role": "assistant", "content": text}
    return 200, {"choices": [{"message": message, "finish_reason": finish}], **usage}


def by_seed(request: dict[str, Any], number: int) -> tuple[int, dict[str, Any]]:
    """1, 2 or 3, by the seed."""
    return say(rf"It is \boxed{{{request['seed'] % 3 + 1}}}.")


class Served:
    """What was asked, and where."""

    def __init__(self, url: str):
        self.url = url
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []


@contextmanager
def serving(answer: Answer = by_seed, models: tuple[str, ...] = ("small",)) -> Iterator[Served]:
    """Serves while the block lasts.

    Args:
        answer: called with a request and its number from 1, gives status and body.
        models: that are listed.
    """
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(200, {"data": [{"id": name} for name in models]})

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                served.requests.append(request)
                served.keys.append(self.headers["Authorization"])
                number = len(served.requests)
            self._send(*answer(request, number))

        def _send(self, status: int, body: dict[str, Any]) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 256  # else connections that come together wait for seconds

        def handle_error(self, *_: object) -> None:
            """Says nothing of clients that hang up."""

    server = Server(("127.0.0.1", 0), Handler)
    served = Served(f"http://127.0.0.1:{server.server_port}/v1")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
