"""The reward server: OpenRLHF's `/get_reward`, with `/health` and `/metrics`.

A request is {"query": [texts], "prompts": [...], "labels": [...]}, of which a reward model needs
the query alone; the answer is {"rewards": [...], "scores": [...], "extra_logs": {}}. Texts of
concurrent requests are scored together. uvicorn bounds connections, idle time and
the time to drain; where strangers can connect, put a proxy in front.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import logging
import math
import re
import resource
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from fastapi.security import (
    HTTPAuthorizationCredentials,
    HTTPBasic,
    HTTPBasicCredentials,
    HTTPBearer,
)
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from pydantic import BaseModel, ConfigDict, ValidationError

Scorer = Callable[[Sequence[str]], Sequence[float]]  # a score may be NaN or infinite
# The token, as it is or as the password of basic authentication: clients without a setting for
# tokens, such as OpenRLHF's own, send that for http://any:TOKEN@host:port/get_reward.
Bearer = Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]
Basic = Annotated[HTTPBasicCredentials | None, Depends(HTTPBasic(auto_error=False))]

BODY_BYTES = 8 << 20
CONNECTIONS = 4096  # more get status 503
QUERIES = 1024  # in a request
FAILURES_IN_A_ROW = 3  # of the model, until /health reports it
RETRY_LATER = {"retry-after": "1"}
KEEP_ALIVE_SECONDS = 75  # longer than clients keep idle connections
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)

log = logging.getLogger(__name__)


class RewardRequest(BaseModel):
    """The body of a request; other fields, such as prompts and labels, are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore")
    query: list[str]


class QueueFull(Exception):
    """Too many texts wait already."""


class BatchFailed(Exception):
    """The model raised on a batch."""


class Batcher:
    """Scores texts of concurrent requests together, first come, first served.

    Texts that arrive while the model works form the next batch. A batch starts when it is full, or
    `max_wait_seconds` after the model is free and a text waits. `score` runs in a thread;
    `on_batch` gets a batch's number of texts, seconds and whether the model failed; `queue_size`
    texts may wait.
    """

    def __init__(
        self,
        score: Scorer,
        batch_size: int = 64,
        max_wait_seconds: float = 0.003,
        queue_size: int = 8192,
        on_batch: Callable[[int, float, bool], None] = lambda texts, seconds, failed: None,
    ):
        self.queue_size, self.failures_in_a_row = queue_size, 0
        self._score, self._on_batch = score, on_batch
        self._batch_size, self._max_wait_seconds = batch_size, max_wait_seconds
        self._queue: deque[tuple[str, asyncio.Future[float]]] = deque()
        self._changed = asyncio.Event()

    @property
    def waiting(self) -> int:
        """The texts that no batch has taken."""
        return len(self._queue)

    async def score(self, texts: Sequence[str]) -> list[float]:
        """The scores of the texts; when cancelled, those that wait are dropped."""
        # a request is never too large for an empty queue: its size is limited elsewhere
        if self._queue and len(self._queue) + len(texts) > self.queue_size:
            raise QueueFull(f"{self.waiting} texts wait; the queue takes {self.queue_size}")
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[float]] = [loop.create_future() for _ in texts]
        self._queue.extend(zip(texts, futures, strict=True))
        if len(self._queue) == len(texts) or len(self._queue) >= self._batch_size:
            self._changed.set()
        try:
            return await asyncio.gather(*futures)
        except BaseException:
            for future in futures:
                future.cancel()
            self._queue = deque(each for each in self._queue if not each[1].done())
            raise

    async def run(self) -> None:
        """Scores batch after batch, until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            while not self._queue:
                self._changed.clear()
                await self._changed.wait()
            deadline = loop.time() + self._max_wait_seconds
            while len(self._queue) < self._batch_size and (left := deadline - loop.time()) > 0:
                self._changed.clear()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), left)
            size = min(self._batch_size, len(self._queue))
            if batch := [self._queue.popleft() for _ in range(size)]:
                await self._score_batch(batch)

    async def _score_batch(self, batch: list[tuple[str, asyncio.Future[float]]]) -> None:
        began, failed = time.perf_counter(), False
        try:
            scores = await asyncio.to_thread(self._score, [text for text, _ in batch])
            for (_, future), score in zip(batch, scores, strict=True):
                if not future.done():  # else its request was cancelled
                    future.set_result(score)
        except Exception as error:  # whatever the model does, the next batch is scored
            failed = True
            for _, future in batch:
                if not future.done():
                    future.set_exception(BatchFailed(f"{type(error).__name__}: {error}"))
        self.failures_in_a_row = self.failures_in_a_row + 1 if failed else 0
        self._on_batch(len(batch), time.perf_counter() - began, failed)


class _Metrics:
    def __init__(self, waiting: Callable[[], int]):
        self.registry = CollectorRegistry()
        here: dict[str, Any] = {"registry": self.registry, "namespace": "openrlhf_js_reward"}
        self.requests = Counter("requests", "By status", ["status"], **here)
        self.seconds = Histogram("request_seconds", "Of a request", buckets=SECONDS, **here)
        self.batches = Histogram("batch_texts", "Texts of a batch", buckets=TEXTS, **here)
        self.model_seconds = Counter("model_seconds", "Time that the model worked", **here)
        self.failures = Counter("model_failures", "Batches that the model failed on", **here)
        Gauge("queue_texts", "Texts that wait", **here).set_function(waiting)

    def batch(self, texts: int, seconds: float, failed: bool) -> None:
        self.batches.observe(texts)  # its sum is the number of texts
        self.model_seconds.inc(seconds)
        self.failures.inc(failed)


def make_app(
    score: Scorer,
    description: Mapping[str, Any],
    token: str | None = None,
    *,
    answer_seconds: float = 150.0,
    **batching: Any,
) -> FastAPI:
    """The application.

    `score` is as `RewardModel.scores`; without a `token` everybody is admitted; a request
    waits `answer_seconds` at most; for `batching` see `Batcher`.
    """
    metrics = _Metrics(lambda: batcher.waiting)
    batcher = Batcher(score, on_batch=metrics.batch, **batching)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        running = asyncio.create_task(batcher.run())
        yield
        running.cancel()

    def known(bearer: Bearer, basic: Basic) -> bool:
        given = bearer.credentials if bearer else basic.password if basic else ""
        return not token or hmac.compare_digest(given.encode(), token.encode())

    def admit(knows: bool = Depends(known)) -> None:
        if not knows:
            wanted = {"www-authenticate": "Bearer"}
            raise HTTPException(401, "the bearer token is missing or wrong", wanted)

    app = FastAPI(openapi_url=None, redirect_slashes=False, lifespan=lifespan)

    async def rewards(request: Request) -> list[float]:
        texts = await _queries(request)
        try:
            return await asyncio.wait_for(batcher.score(texts), answer_seconds)
        except asyncio.TimeoutError:
            late = f"no scores within {answer_seconds:g} s"
            raise HTTPException(503, late, RETRY_LATER) from None
        except QueueFull as error:
            raise HTTPException(503, str(error), RETRY_LATER) from None
        except BatchFailed as error:
            log.error("the model failed: %s", error)
            raise HTTPException(500, "the model failed on this batch") from None

    @app.post("/get_reward", dependencies=[Depends(admit)])
    async def get_reward(request: Request) -> Response:
        began, status = time.perf_counter(), 500
        try:
            scores = await rewards(request)
            if wrong := [n for n, score in enumerate(scores) if not math.isfinite(score)]:
                log.error("the score of a query is %s", scores[wrong[0]])
                raise HTTPException(500, f"query {wrong[0]} has the score {scores[wrong[0]]}")
            status = 200
            return JSONResponse({"rewards": scores, "scores": scores, "extra_logs": {}})
        except HTTPException as error:
            status = error.status_code
            raise
        finally:
            metrics.requests.labels(status).inc()
            metrics.seconds.observe(time.perf_counter() - began)

    @app.get("/health")  # probes have no token, and see the status alone
    async def health(response: Response, knows: bool = Depends(known)) -> dict[str, Any]:
        failing = batcher.failures_in_a_row >= FAILURES_IN_A_ROW
        response.status_code = 503 if failing else 200
        status = {"status": "failing" if failing else "ok"}
        queue = {"texts": batcher.waiting, "most": batcher.queue_size}
        more = {**description, "queue": queue}
        return status | (more if knows else {})

    @app.get("/metrics", dependencies=[Depends(admit)])
    async def show_metrics() -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return app


async def _queries(request: Request) -> list[str]:
    """The texts of a request, whose length is known before it is read."""
    if int(request.headers.get("content-length", BODY_BYTES + 1)) > BODY_BYTES:
        raise HTTPException(413, f"the body has no length, or one over {BODY_BYTES} bytes")
    try:
        texts = RewardRequest.model_validate_json(await request.body()).query
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "body"
        raise HTTPException(422, f"{place}: {first['msg']}; send {{'query': [texts]}}") from None
    if len(texts) > QUERIES:
        raise HTTPException(413, f"{len(texts)} queries; at most {QUERIES} at once")
    return texts


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def read_token(variable: str | None, file: Path | None) -> str | None:
    """The token of a file, or else of an environment variable's value; None for neither."""
    text = file.read_text("utf-8") if file else variable
    if text is None:
        return None
    token = text.strip()
    if not re.fullmatch(r"[!-~]{16,}", token):
        raise ValueError(
            f"the token has {len(token)} characters; give 16 or more, of printable ASCII without "
            "spaces, as `openssl rand -hex 32` prints them"
        )
    return token


def bind(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet: clients are refused while the model loads."""
    try:
        where = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(*where[:3])
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where[4])
        return listener
    except OSError as error:
        raise ValueError(f"cannot listen on {host} port {port}: {error.strerror}") from None


class RewardServer(uvicorn.Server):
    """uvicorn, which answers what is left at a signal; calls `ready` once it listens."""

    def __init__(
        self, app: FastAPI, drain_seconds: int = 60, ready: Callable[[], None] = lambda: None
    ):
        config = uvicorn.Config(
            app,
            ws="none",
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=drain_seconds,
        )
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    def serve_on(self, listener: socket.socket) -> None:
        """Serves on a socket of `bind` until a signal."""
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # a connection is an open file
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn repeats the signal at its end
            self.run(sockets=[listener])
