"""The real server with a stand-in for the model: the score of a text is the number it holds.

`python stub_server.py` serves on a free port, which it prints, until it is told to end.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import httpx

from openrlhf_js.reward_model.http_server import make_server
from openrlhf_js.reward_model.model import Description
from openrlhf_js.reward_model.requests import Limits
from openrlhf_js.reward_model.serve import RewardService

DESCRIPTION = Description(
    model="stub",
    architecture="None",
    value_head="score",
    device="cpu",
    dtype="float32",
    max_len=8,
    truncation_side="right",
    normalized=True,
    mean=0.5,
    std=2.0,
)
SEEN: list[str] = []  # texts that were scored
GATE = threading.Event()  # what `hold` waits for


def score(texts: Sequence[str]) -> Iterator[tuple[list[int], list[float]]]:
    """One text after the other: a number, `nan`, `hold`, `wait SECONDS`, or `fail`."""
    for index, text in enumerate(texts):
        SEEN.append(text)
        if text == "fail":
            raise RuntimeError("out of memory\nand more")
        if text == "hold":
            GATE.wait(60)
            yield [index], [0.0]
        elif text.startswith("wait "):
            time.sleep(float(text.split()[1]))
            yield [index], [0.0]
        else:
            yield [index], [float(text)]


class Stub:
    """A server in a thread of this process."""

    def __init__(self, limits: Limits, token: str | None, connections: int, **batches):
        SEEN.clear()
        GATE.clear()
        self.service = RewardService(score, DESCRIPTION, limits, token, **batches)
        self._server = make_server(
            self.service.app(),
            self.service,
            head_seconds=limits.head_seconds,
            drain_seconds=limits.drain_seconds,
            connections=connections,
        )
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))
        self._thread.start()
        self.client = httpx.Client(base_url=self.url, timeout=30)
        while not self._server.started:
            time.sleep(0.01)

    def post(self, query: object, **more) -> httpx.Response:
        return self.client.post("/get_reward", json={"query": query}, **more)

    def raw(self, *pieces: bytes, pause: float = 0.0, timeout: float = 20) -> bytes:
        """Sends bytes as they are; all that comes back until the server hangs up."""
        with socket.create_connection(("127.0.0.1", self.port), timeout) as connection:
            with contextlib.suppress(ConnectionError):
                for piece in pieces:
                    connection.sendall(piece)
                    time.sleep(pause)
            return read_all(connection)

    def waiting(self) -> int:
        """How many texts wait for the model."""
        return self.client.get("/health").json()["queue"]["texts"]

    def stop(self) -> None:
        GATE.set()
        self.client.close()
        self._server.should_exit = True
        self._thread.join(20)
        self.service.close()
        self._socket.close()


def read_all(connection: socket.socket) -> bytes:
    """All that comes until the other side hangs up, or nothing more does."""
    received = b""
    with contextlib.suppress(ConnectionError, TimeoutError):
        while piece := connection.recv(1 << 16):
            received += piece
    return received


@contextlib.contextmanager
def stub(token: str | None = None, connections: int = 100, **settings) -> Iterator[Stub]:
    """Settings are those of `Limits` and of the batches."""
    names = set(Limits.__dataclass_fields__)
    limits = replace(Limits(), **{name: settings.pop(name) for name in names & set(settings)})
    server = Stub(limits, token, connections, **settings)
    try:
        yield server
    finally:
        server.stop()


def main() -> None:
    service = RewardService(score, DESCRIPTION, Limits(drain_seconds=float(sys.argv[1])))
    server = make_server(
        service.app(),
        service,
        head_seconds=10,
        drain_seconds=float(sys.argv[1]),
        connections=100,
    )
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        print(listener.getsockname()[1], flush=True)
        server.run(sockets=[listener])
    service.close()


if __name__ == "__main__":
    main()
