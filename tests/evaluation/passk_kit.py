"""Items and samples made by hand, a small model whose random responses are sometimes right, and an
OpenAI-compatible server in a thread of this process.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.decoders import Fuse
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from openrlhf_js.evaluation.passk.benchmarks import Problem, item_of
from openrlhf_js.tasks.prompt_files import example

LETTERS = "abcdef"
TOKENS = ["<pad>", "<eos>", *LETTERS, *(rf"\boxed{{{n}}}" for n in (1, 2, 3)), " "]
CONTEXT = 24
MARKS = {"r": "correct", "w": "wrong", "v": "wrong", "n": "no_answer", "m": "malformed"}


def rows(count: int = 12) -> list[dict]:
    """Items whose answers are 1, 2 or 3."""
    return [
        {
            "input": LETTERS[i % 6] + LETTERS[i // 6],
            "label": str(i % 3 + 1),
            "datasource": "gsm8k",
        }
        for i in range(count)
    ]


def items(count: int = 12) -> list[Problem]:
    return [item_of(example(row)) for row in rows(count)]


def group(item: int, marks: str, tokens: int | None = 5) -> list[dict[str, Any]]:
    """Samples of one item: r is right, w and v are two wrong answers, n is none, m is malformed."""
    answers = {"r": "1", "w": "7", "v": "8", "n": None, "m": "?"}
    return [
        {"uid": items()[item].uid, "draw": draw, "tokens": tokens, "finish_reason": "stop",
         "status": MARKS[mark], "answer": answers[mark], "seconds": 0.5, "graded_by": "1"}
        for draw, mark in enumerate(marks)
    ]  # fmt: skip


def write_rows(path: Path, made: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in made), encoding="utf-8")
    return path


def write_model(folder: Path, seed: int = 0) -> Path:
    """A Hugging Face folder."""
    words = Tokenizer(models.WordLevel({token: i for i, token in enumerate(TOKENS)}))
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    words.decoder = Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<eos>"
    )
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(TOKENS),
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        max_position_embeddings=CONTEXT,
        initializer_range=0.3,
        eos_token_id=1,
        bos_token_id=None,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def lines(path: Path) -> list[dict[str, Any]]:
    """The samples of a file, without the time they took."""
    with path.open("rb") as file:
        found = [json.loads(line) for line in file][1:]
    for each in found:
        del each["seconds"]
    return found


Answer = tuple[int, Any]  # status, and a body; with headers as a third


def reply(text: Any, finish: Any = "stop", tokens: int | None = 3, **message: Any) -> Answer:
    """A chat completion with this text."""
    usage = {} if tokens is None else {"usage": {"prompt_tokens": 2, "completion_tokens": tokens}}
    said = {"role": "assistant", "content": text, **message}
    return 200, {"choices": [{"message": said, "finish_reason": finish}], **usage}


def by_seed(request: dict[str, Any], number: int) -> Answer:
    """1, 2 or 3, by the seed."""
    return reply(rf"It is \boxed{{{request['seed'] % 3 + 1}}}.")


class Served:
    """What was asked, and where."""

    def __init__(self, url: str):
        self.url = url
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.times: list[float] = []
        self.now = self.most_at_once = 0


@contextmanager
def serving(
    answer: Callable[[dict[str, Any], int], Any] = by_seed, models: tuple[str, ...] = ("small",)
) -> Iterator[Served]:
    """Serves while the block lasts.

    Args:
        answer: called with a request and its number from 1, gives status, body (bytes, or what
            JSON is made of), and perhaps headers.
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
                served.times.append(time.monotonic())
                served.now += 1
                served.most_at_once = max(served.most_at_once, served.now)
                number = len(served.requests)
            made = answer(request, number)
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
    served = Served(f"http://127.0.0.1:{server.server_port}/v1")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
