"""The reward server: OpenRLHF's `/get_reward`, with `/health`.

A request is {"query": [texts], "prompts": [...], "labels": [...]}, of which a reward model needs
only the query; the answer is {"rewards": [...], "scores": [...], "extra_logs": {}}. Texts of
concurrent requests are scored together. Where strangers can connect, put a proxy in front.
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
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import ClientDisconnect

Scorer = Callable[[Sequence[str]], Sequence[float]]  # a score may be NaN or infinite
Bearer = Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]

BODY_BYTES = 8 << 20
CONNECTIONS = 4096  # more get status 503
QUERIES = 1024  # in a request
FAILURES_IN_A_ROW = 3  # of the model, until /health reports it
CLIENT_LOST = 499  # a status that nobody receives
RETRY_LATER = {"retry-after": "1"}
KEEP_ALIVE_SECONDS = 75  # longer than clients keep idle connections
DRAIN_SECONDS = 60  # to answer open requests after SIGTERM

log = logging.getLogger(__name__)


class RewardRequest(BaseModel):
    """The body of a request; other fields, such as prompts and labels, are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore")
    query: list[str] = Field(max_length=QUERIES)


class Batching(NamedTuple):
    """How many texts are scored together, how long a batch waits for more, how many may wait."""

    batch_size: int = 64
    max_wait_seconds: float = 0.003
    queue_size: int = 8192


DEFAULT_BATCHING = Batching()


Waiting = list[tuple[str, asyncio.Future[float]]]  # texts, and where their scores go


class Batcher:
    """Scores texts of concurrent requests together, first come, first served.

    Texts that arrive while the model works form the next batch. If they do not fill it, it waits
    `max_wait_seconds` for more. `score` runs in a thread.
    """

    def __init__(self, score: Scorer, batching: Batching):
        self.batching = batching
        self.failures_in_a_row = 0
        self.began: float | None = None  # when the batch that is being scored did
        self._score = score
        self._queue: asyncio.Queue[tuple[str, asyncio.Future[float]]] = asyncio.Queue()

    @property
    def waiting(self) -> int:
        """The number of texts that no batch has taken yet."""
        return self._queue.qsize()

    async def score(self, texts: Sequence[str]) -> list[float]:
        """The scores of the texts, or HTTPException; if cancelled, texts that still wait are
        dropped."""
        # a request is never too large for an empty queue: its size is limited elsewhere
        queue_size = self.batching.queue_size
        if self.waiting and self.waiting + len(texts) > queue_size:
            full = f"{self.waiting} texts wait; the queue takes {queue_size}"
            raise HTTPException(503, full, RETRY_LATER)
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[float]] = []
        for text in texts:
            future = loop.create_future()
            futures.append(future)
            self._queue.put_nowait((text, future))
        return await asyncio.gather(*futures)

    async def run(self) -> None:
        """Scores batch after batch, until it is cancelled."""
        while True:
            batch = [await self._queue.get()]
            if self.waiting < self.batching.batch_size - 1:
                await asyncio.sleep(self.batching.max_wait_seconds)
            while self.waiting and len(batch) < self.batching.batch_size:
                batch.append(self._queue.get_nowait())
            wanted = []
            for text, future in batch:
                if not future.cancelled():
                    wanted.append((text, future))
            if wanted:
                await self._score_batch(wanted)

    async def _score_batch(self, batch: Waiting) -> None:
        """Scores a batch; where the model fails, text by text, so that one fails alone."""
        self.began = time.monotonic()
        error = await self._error_on(batch)
        works = error is None
        if error is not None:
            log.error("the model failed on %d texts", len(batch), exc_info=error)
        if error is not None and len(batch) > 1:
            open_texts = [each for each in batch if not each[1].done()]
            works = any([await self._error_on([each]) is None for each in open_texts])
        self.began = None
        self.failures_in_a_row = 0 if works else self.failures_in_a_row + 1
        for _, future in batch:
            if not future.done():
                future.set_exception(HTTPException(500, "the model failed on a text"))

    async def _error_on(self, batch: Waiting) -> Exception | None:
        """Hands each text of the batch its score; the error if the model fails."""
        try:
            scores = await asyncio.to_thread(self._score, [text for text, _ in batch])
            for (_, future), score in zip(batch, scores, strict=True):
                if not future.done():  # else its request was cancelled
                    future.set_result(score)
        except Exception as error:  # whatever the model does, the next batch is scored
            return error
        return None


def make_app(
    score: Scorer,
    description: Mapping[str, Any],
    token: str | None = None,
    batching: Batching = DEFAULT_BATCHING,
    answer_seconds: float = 150.0,
) -> FastAPI:
    """The application; a request waits at most `answer_seconds`; without a `token` it is open to
    all."""
    batcher = Batcher(score, batching)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        running = asyncio.create_task(batcher.run())
        yield
        running.cancel()

    knows_token = _token_check(token)
    app = FastAPI(openapi_url=None, redirect_slashes=False, lifespan=lifespan)

    @app.post("/get_reward")
    async def get_reward(request: Request, knows: bool = Depends(knows_token)) -> Response:
        if not knows:
            headers = {"www-authenticate": "Bearer"}
            raise HTTPException(401, "the bearer token is missing or wrong", headers)
        try:
            texts = await _queries(request)
        except ClientDisconnect:  # before its request has arrived
            return Response(status_code=CLIENT_LOST)
        scores = await _finite_scores(batcher, texts, answer_seconds)
        return JSONResponse({"rewards": scores, "scores": scores, "extra_logs": {}})

    @app.get("/health")  # probes have no token, and see only the status
    async def health(response: Response, knows: bool = Depends(knows_token)) -> dict[str, Any]:
        hangs = batcher.began is not None and time.monotonic() - batcher.began > answer_seconds
        failing = hangs or batcher.failures_in_a_row >= FAILURES_IN_A_ROW
        response.status_code = 503 if failing else 200
        status: dict[str, Any] = {"status": "failing" if failing else "ok"}
        if not knows:
            return status
        queue = {"texts": batcher.waiting, "most": batching.queue_size}
        return {**status, **description, "queue": queue}

    return app


def _token_check(token: str | None) -> Callable[[Bearer], bool]:
    """Whether a request has the token; without a token to compare with, every request has it."""

    def knows_token(bearer: Bearer) -> bool:
        if not token:
            return True
        credentials = bearer.credentials if bearer else ""
        return hmac.compare_digest(credentials.encode(), token.encode())

    return knows_token


async def _finite_scores(
    batcher: Batcher, texts: Sequence[str], answer_seconds: float
) -> list[float]:
    """The scores of the texts; HTTPException where they are late or one is not a number."""
    try:
        scores = await asyncio.wait_for(batcher.score(texts), answer_seconds)
    except asyncio.TimeoutError:
        message = f"no scores within {answer_seconds:g} s"
        raise HTTPException(503, message, RETRY_LATER) from None
    for number, score in enumerate(scores):
        if not math.isfinite(score):
            raise HTTPException(500, f"query {number} has the score {score}")
    return scores


async def _queries(request: Request) -> list[str]:
    """The texts of a request, whose length is checked before it is read."""
    if int(request.headers.get("content-length", BODY_BYTES + 1)) > BODY_BYTES:
        raise HTTPException(
            413, f"the request has no Content-Length, or one over {BODY_BYTES} bytes"
        )
    try:
        return RewardRequest.model_validate_json(await request.body()).query
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "body"
        message = f"{place}: {first['msg']}; send {{'query': [texts]}}"
        raise HTTPException(422, message) from None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_token(variable: str | None, file: Path | None) -> str | None:
    """The token from a file, or else from an environment variable's value; None without either."""
    text = file.read_text("utf-8") if file else variable
    if text is not None and not re.fullmatch(r"\s*[!-~]{16,}\s*", text):
        raise ValueError("the token needs 16 or more characters, as `openssl rand -hex 32` prints")
    return text and text.strip()


def bind(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet: clients are refused while the model loads."""
    return uvicorn.Config("", host=host, port=port, log_level="warning").bind_socket()


def make_server(app: FastAPI) -> uvicorn.Server:
    """A uvicorn server, which answers open requests after a signal."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # a connection is an open file
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    config = uvicorn.Config(
        app,
        ws="none",
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    return uvicorn.Server(config)
