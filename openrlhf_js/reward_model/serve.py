"""The reward service: OpenRLHF's `/get_reward`, with `/health` and `/metrics`."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from starlette.routing import Route

from openrlhf_js.reward_model.batching import Batcher, Full, Part, Scorer, ScoringFailed
from openrlhf_js.reward_model.intake import (
    ClientGone,
    Headers,
    Intake,
    Receive,
    Refused,
    Scope,
    Send,
    send_json,
)
from openrlhf_js.reward_model.metrics import CONTENT_TYPE, Metrics
from openrlhf_js.reward_model.model import Description
from openrlhf_js.reward_model.requests import BadRequest, Limits, parse
from openrlhf_js.reward_model.tokens import allowed

FAILURES_IN_A_ROW = 3  # after so many, the model is taken for broken
CLIENT_GONE = 499  # a status for the metrics alone
WRONG_TOKEN = "the bearer token is missing or wrong"

log = logging.getLogger(__name__)


class RewardService:
    """Answers requests with the scores of one model.

    Args:
        score: as `RewardModel.score_batches`; runs in one thread of its own.
        description: what `/health` says of the model.
        limits: what is taken from clients.
        token: what they must bring; None lets everybody in.
        batch_size, max_wait_seconds, queue_size: see `Batcher`.

    Attributes:
        draining: whether new requests are refused, since the server is about to end.
        under_way: requests that are being read, scored or answered.
    """

    def __init__(
        self,
        score: Scorer,
        description: Description,
        limits: Limits,
        token: str | None = None,
        *,
        batch_size: int = 64,
        max_wait_seconds: float = 0.003,
        queue_size: int = 8192,
    ):
        self._description = description
        self._limits = limits
        self._token = token
        self._intake = Intake(limits)
        self._batcher = Batcher(score, batch_size, max_wait_seconds, queue_size, self._tell)
        self._metrics = Metrics(lambda: self._batcher.waiting)
        self._failures = 0  # of the model, in a row
        self.draining = False
        self.under_way = 0

    def app(self) -> FastAPI:
        """The application, for an ASGI server."""
        app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
        # as plain ASGI: what a body must be, `requests` says, before all of it is in memory
        app.router.routes.append(Route("/get_reward", _Endpoint(self), methods=["POST"]))
        app.get("/health")(self._health)
        app.get("/metrics")(self._show_metrics)
        return app

    def close(self) -> None:
        """Ends the model's thread."""
        self._batcher.close()

    def _tell(self, part: Part) -> None:
        self._failures = self._failures + 1 if part.failed else 0
        self._metrics.part(part)

    async def _health(self, request: Request, response: Response) -> dict[str, Any]:
        self._let_in(request)
        failing = self._failures >= FAILURES_IN_A_ROW
        status = "draining" if self.draining else "failing" if failing else "ok"
        response.status_code = 200 if status == "ok" else 503
        queue = {"texts": self._batcher.waiting, "most": self._batcher.queue_size}
        return {"status": status, **asdict(self._description), "queue": queue}

    async def _show_metrics(self, request: Request) -> Response:
        self._let_in(request)
        return Response(self._metrics.text(), media_type=CONTENT_TYPE)

    def _let_in(self, request: Request) -> None:
        header = request.headers.get("authorization", "").encode("latin-1")
        if self._token and not allowed(header, self._token):
            raise HTTPException(401, WRONG_TOKEN, {"www-authenticate": "Bearer"})

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request to `/get_reward`."""
        began = time.perf_counter()
        self.under_way += 1
        status = 500
        try:
            scores = await self._scores(dict(scope["headers"]), receive)
            status = 200
            await send_json(send, 200, {"rewards": scores, "scores": scores, "extra_logs": {}})
        except Refused as refused:
            status = refused.status
            problem = {"detail": str(refused)}
            await send_json(send, status, problem, retry=refused.retry, close=refused.close)
        except ClientGone:
            status = CLIENT_GONE
        except asyncio.CancelledError:  # the time to drain is over
            status = 503
            problem = {"detail": "the server has ended"}
            await send_json(send, status, problem, retry=True, close=True)
        finally:
            self.under_way -= 1
            self._metrics.request(status, time.perf_counter() - began)

    async def _scores(self, headers: Headers, receive: Receive) -> list[float]:
        if self._token and not allowed(headers.get(b"authorization"), self._token):
            raise Refused(401, WRONG_TOKEN, close=True)
        if self.draining:
            raise Refused(503, "the server is about to end", retry=True, close=True)
        body = await self._intake.read(headers, receive)
        try:
            scores = await self._score(parse(body, self._limits), receive)
        except BadRequest as bad:
            raise Refused(bad.status, str(bad)) from None
        finally:
            self._intake.release(body)
        odd = [number for number, score in enumerate(scores) if not math.isfinite(score)]
        if odd:
            self._metrics.not_finite()
            log.error("the score of a query is %s", scores[odd[0]])
            raise Refused(500, f"query {odd[0]} has the score {scores[odd[0]]}, which is no number")
        return scores

    async def _score(self, texts: Sequence[str], receive: Receive) -> list[float]:
        """The scores, unless the client hangs up first or they take too long."""
        if not texts:
            return []
        loop = asyncio.get_running_loop()
        scoring = loop.create_task(self._batcher.score(texts))
        hanging_up = loop.create_task(_wait_for_disconnect(receive))
        try:
            await asyncio.wait(
                {scoring, hanging_up},
                timeout=self._limits.answer_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if scoring.done():
                return scoring.result()
            if hanging_up.done():
                raise ClientGone
            raise Refused(503, f"no scores within {self._limits.answer_seconds:g} s", retry=True)
        except Full as full:
            raise Refused(503, str(full), retry=True) from None
        except ScoringFailed as failed:
            log.error("the model failed: %s", failed)
            raise Refused(500, "the model failed on this batch") from None
        finally:
            scoring.cancel()
            hanging_up.cancel()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class _Endpoint:
    """An object rather than a function, so that the router calls it as plain ASGI."""

    def __init__(self, service: RewardService):
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._service.answer(scope, receive, send)
