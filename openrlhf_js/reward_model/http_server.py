"""uvicorn, with limits on the size and the slowness of a request's head, and a drain at the end."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from openrlhf_js.reward_model.intake import Receive, Scope, Send, send_json
from openrlhf_js.reward_model.serve import RewardService

HEAD_BYTES = 1 << 16
KEEP_ALIVE_SECONDS = 75  # longer than what clients keep idle connections for


class DrainingServer(uvicorn.Server):
    """Told to end, it answers what is under way, refuses what is new, and ends with status 0.

    A second signal ends it once the model is done with its batch. While it drains, it still
    listens, so that clients are told to come back (503) rather than find nobody.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        service: RewardService,
        drain_seconds: float,
        ready: Callable[[], None],
    ):
        super().__init__(config)
        self._service = service
        self._ready = ready
        self._drain_seconds = drain_seconds
        self._deadline = float("inf")

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn calls it to begin to listen."""
        await super().startup(sockets)
        self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """As uvicorn calls it on SIGINT and SIGTERM."""
        if self._service.draining:
            self.should_exit = self.force_exit = True
        self._service.draining = True
        self._deadline = min(self._deadline, time.monotonic() + self._drain_seconds)

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: whether to end."""
        if self._service.draining:
            over = time.monotonic() > self._deadline
            self.should_exit = self.should_exit or over or not self._service.under_way
        return await super().on_tick(counter)


def make_server(
    app: FastAPI,
    service: RewardService,
    *,
    head_seconds: float,
    drain_seconds: float,
    connections: int,
    ready: Callable[[], None] = lambda: None,
) -> DrainingServer:
    """A server for one application; `run(sockets=[...])` it.

    Args:
        app: the service's.
        service: told when to drain.
        head_seconds: for the head of a request to arrive.
        drain_seconds: for what is under way to be answered after SIGTERM.
        connections: more at a time get 503.
        ready: called once it listens.
    """

    class Guarded(GuardedProtocol):
        seconds = head_seconds
        most_connections = connections

    config = uvicorn.Config(
        app,
        http=Guarded,
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=2,
    )
    return DrainingServer(config, service, drain_seconds, ready)


class GuardedProtocol(HttpToolsProtocol):
    """Ends a connection whose request's head is too long, or too slow to come, or one too many."""

    seconds = 10.0
    most_connections = 4096  # uvicorn's own limit would not tell clients when to come back

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._patience: asyncio.TimerHandle | None = None
        self._head_bytes = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._head_begins()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._patience is None:
            self._head_begins()

    def on_headers_complete(self) -> None:
        self._head_is_over()
        self.app = self.config.loaded_app
        if len(self.connections) > self.most_connections:
            self.logger.warning("one of more than %d connections refused", self.most_connections)
            self.app = _too_many
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._patience is not None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._refuse(b"431 Request Header Fields Too Large")

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_over()
        super().connection_lost(exc)

    def _head_begins(self) -> None:
        self._head_bytes = 0
        self._patience = self.loop.call_later(self.seconds, self._refuse, b"408 Request Timeout")

    def _head_is_over(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _refuse(self, status: bytes) -> None:
        self._head_is_over()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:  # else it would end up in an answer
            head = b"HTTP/1.1 %s\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            self.transport.write(head % status)
        self.transport.close()


async def _too_many(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers in the application's place."""
    problem = {"detail": "there are too many connections"}
    await send_json(send, 503, problem, retry=True, close=True)
