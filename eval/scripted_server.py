"""An OpenAI-compatible server in a thread of this process, and files in Arena-Hard's layout.

The example beside this file and the tests use both.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Answer = tuple[int, Any]  # status, and a body; with headers as a third
Request = dict[str, Any]


def write_lines(path: Path, rows: Iterable[Any]) -> Path:
    """Writes JSON lines, and returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def answer_row(
    uid: str, model: str, text: str, counts: Any = None, prompt: str | None = None
) -> dict[str, Any]:
    """A row of `model_answer`; without the question's text if no `prompt` is given."""
    question = [] if prompt is None else [{"role": "user", "content": prompt}]
    row = {
        "uid": uid,
        "ans_id": f"{model}-{uid}",
        "model": model,
        "messages": [
            *question,
            {"role": "assistant", "content": {"answer": text}},
        ],
        "tstamp": 0.0,
    }
    return row if counts is None else {**row, "metadata": counts}


def reply(
    text: Any, finish: Any = "stop", tokens: int | None = 3, asked: int = 2, **message: Any
) -> Answer:
    """A chat completion with this text."""
    usage = {"prompt_tokens": asked, "completion_tokens": tokens}
    said = {"role": "assistant", "content": text, **message}
    found = {"choices": [{"message": said, "finish_reason": finish}]}
    return 200, found if tokens is None else {**found, "usage": usage}


class Served:
    """A server's requests and address; `answer` may be changed. Every POST is a chat completion."""

    def __init__(self, answer: Callable[[Request, int], Any], models: tuple[str, ...]):
        self.answer = answer
        self.models = models
        self.root = ""  # the folder that each model was loaded from
        self.url = ""
        self.requests: list[Request] = []
        self.keys: list[str | None] = []
        self.times: list[float] = []
        self.counts: dict[str, Any] = {}
        self.now = self.most_at_once = 0
        self._lock = threading.Lock()

    def get(self, path: str) -> Any:
        """The models, or the counts."""
        cards = [{"id": model, "root": self.root} for model in self.models]
        return 200, self.counts if path == "/counts" else {"data": cards}

    def post(self, request: Request, key: str | None) -> Any:
        """Records a request, and returns its answer."""
        with self._lock:
            self.requests.append(request)
            self.keys.append(key)
            self.times.append(time.monotonic())
            self.now += 1
            self.most_at_once = max(self.most_at_once, self.now)
            number = len(self.requests)
        made = self.answer(request, number)
        with self._lock:
            self.now -= 1
        return made


@contextmanager
def running(served: Served) -> Iterator[None]:
    """Serves on a free port while the block lasts."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # headers and body in one packet, else Nagle's algorithm adds 40 ms

        def do_GET(self) -> None:
            self._send(*served.get(self.path))

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            key = self.headers.get("Authorization")
            self._send(*served.post(json.loads(content), key))

        def _send(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Logs nothing."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 256  # else connections that come together wait for seconds
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Ignores clients that hang up."""

    server = Server(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
