"""Asks OpenAI-compatible endpoints for chat completions, many at a time."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import anyio
import httpx

from openrlhf_js.evaluation.rates import Limits, Pace, back_off_seconds, retry_after_seconds
from openrlhf_js.evaluation.refusals import (
    OTHER_NAME,
    EndpointRefused,
    EndpointSilent,
    EndpointUnavailable,
    ReplyLost,
    RequestRefused,
    refusal,
)
from openrlhf_js.evaluation.replies import NoReply, Reply, excerpt, read_reply
from openrlhf_js.evaluation.servers import (
    PATIENCE_SECONDS,
    REAL_KEY_CHARACTERS,
    Endpoint,
    Server,
    Turns,
)

__all__ = [
    "Chat",
    "Endpoint",
    "EndpointRefused",
    "EndpointSilent",
    "EndpointUnavailable",
    "Limits",
    "Reply",
    "ReplyLost",
    "RequestRefused",
]

MOST_LOST = 2  # replies to one request that may be charged for, and never came whole
REPLY_BYTES = 8 << 20  # of an answer: some 32,000 tokens need less than one MiB
CHARACTERS_PER_TOKEN = 4  # of English text, roughly; what an endpoint counts mends the pace
PASSING = (408, 409, 425, 429)  # statuses that may be gone a moment later, with 500 and above
AT_ONCE_SECONDS = 0.02  # a shorter wait for an endpoint is none
LONGEST_RETRY_AFTER_SECONDS = 600.0  # beyond it somebody should look before we go on
LOOPBACK = ("all://localhost", "all://127.0.0.1", "all://[::1]")  # never by way of a proxy


class _Passing(Exception):
    """What went wrong and may be gone a moment later."""


class _Lost(_Passing):
    """As before; but the endpoint may have made a reply, and charge for it."""


class Chat:
    """One or several endpoints of the same model; an async context manager.

    Requests go to the endpoints in turn. One that fails several times in a row is left aside, and
    tried again later. Proxies and certificates are taken from the environment, but for this
    machine's own addresses.

    Args:
        endpoints: at least one.
        limits: over all endpoints together.

    Attributes:
        retries: how many requests were sent again so far.
        under_way: how many are sent and not answered.

    Raises:
        ValueError: no endpoint, or the environment variable of a key is not set or holds no key.
    """

    def __init__(self, endpoints: Sequence[Endpoint], limits: Limits):
        self.retries = self.under_way = 0
        self._stopped = False
        self._turns = Turns([Server(endpoint) for endpoint in endpoints])
        self._limits = limits
        self._slots = asyncio.Semaphore(limits.concurrency)
        self._requests = Pace(limits.requests_per_minute)
        self._tokens = Pace(limits.tokens_per_minute)
        self._chance = random.Random()
        secure = any(endpoint.url.startswith("https") for endpoint in endpoints)
        self._certificates = (  # reading the real ones takes a while
            httpx.create_ssl_context() if secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        )
        self._clients: list[httpx.AsyncClient] = []
        self._free: list[httpx.AsyncClient] = []

    async def __aenter__(self) -> Chat:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for client in self._clients:
            await client.aclose()

    async def ask(
        self,
        messages: list[dict[str, str]],
        parameters: Mapping[str, Any],
        *,
        most_lost: int = MOST_LOST,
    ) -> Reply:
        """One chat completion.

        Args:
            messages: with `role` and `content`.
            parameters: such as temperature, max_tokens and seed; they are sent as they are, but
                for those that are None.
            most_lost: how many replies may be lost, by a time-out or in an answer of status 200
                that holds none, before it is given up: the endpoint may charge for each.

        Raises:
            EndpointRefused: an answer that asking again cannot mend; says what to do. If it is a
                RequestRefused, other messages may be answered.
            EndpointUnavailable: the attempts are used up, or the endpoint wants to be left alone
                for very long. If it is a ReplyLost, so many replies were lost; if it is an
                EndpointSilent, nobody has had one for PATIENCE_SECONDS.
        """
        given = {name: value for name, value in parameters.items() if value is not None}
        expected = sum(len(message["content"]) for message in messages) / CHARACTERS_PER_TOKEN
        problem, lost = "", 0
        for attempt in range(self._limits.attempts):
            if attempt:
                self.retries += 1
                await asyncio.sleep(back_off_seconds(attempt, self._chance.random()))
            async with self._slots:
                server = await self._turn(expected)
                if self._stopped:
                    raise EndpointUnavailable("stopped before it was asked")
                self.under_way += 1
                try:
                    reply = await self._send(server, {"messages": messages, **given})
                except _Passing as error:
                    problem = f"{server.endpoint.url} {error}"
                    lost += isinstance(error, _Lost)
                    if lost == most_lost:
                        raise ReplyLost(
                            f"a reply is lost, and may be charged for; {problem}"
                        ) from None
                    if (silent := self._turns.silent_seconds()) > PATIENCE_SECONDS:
                        raise EndpointSilent(
                            f"no endpoint has given a reply for {silent:.0f} s; the last: {problem}"
                        ) from None
                    continue
                finally:
                    self.under_way -= 1
            if reply.prompt_tokens is not None and reply.completion_tokens is not None:
                self._tokens.add(reply.prompt_tokens + reply.completion_tokens - expected)
            return reply
        raise EndpointUnavailable(
            f"no reply after {self._limits.attempts} attempts; the last: {problem}"
        )

    def stop(self) -> None:
        """Sends no more requests; those under way go on."""
        self._stopped = True

    async def _turn(self, expected_tokens: float) -> Server:
        """Waits until the pace allows a request, and some endpoint takes it.

        After an endpoint's rest the pace is kept anew, or all who waited for it would go at once.
        """
        while True:
            await self._requests.take(1)
            await self._tokens.take(expected_tokens)
            began = time.monotonic()
            server = await self._turns.next(self._chance.random())
            if time.monotonic() - began < AT_ONCE_SECONDS:
                return server

    async def _send(self, server: Server, sent: Mapping[str, Any]) -> Reply:
        """One attempt; raises _Passing where another one may do better."""
        body = json.dumps({"model": server.endpoint.model, **sent}).encode()
        try:
            with anyio.fail_after(self._limits.timeout_seconds):
                answer, content = await self._fetch(server, body)
        except (httpx.ReadTimeout, TimeoutError):
            server.failed()
            raise _Lost(f"did not answer in {self._limits.timeout_seconds:g} s") from None
        except httpx.TransportError as error:
            server.failed()
            said = server.without_key(str(error))
            raise _Passing(f"cannot be reached: {type(error).__name__} {said}".rstrip()) from None
        except (httpx.InvalidURL, UnicodeError):  # httpx reads what it is told not to follow
            raise EndpointRefused(
                f"{server.endpoint.url} sends its callers elsewhere, to what is no address"
            ) from None
        status = answer.status_code
        shown = excerpt(server.without_key(content.decode(errors="replace")))
        if status == 200:
            return _reply(server, content, shown)
        if status != 429 and status >= 500:
            server.failed()
        no_credit = status == 429 and b"insufficient_quota" in content
        if no_credit or (status not in PASSING and status < 500):
            most = sent.get(OTHER_NAME, sent.get("max_tokens"))
            raise refusal(server.endpoint, status, shown, content, most)
        wait = retry_after_seconds(answer.headers)
        if wait is not None and status in (429, 503):
            if wait > LONGEST_RETRY_AFTER_SECONDS:
                raise EndpointUnavailable(
                    f"{server.endpoint.url} answered {status} and wants to be left alone for "
                    f"{wait:,.0f} s: {shown}; call again then"
                )
            server.rest(wait)
        raise _Passing(f"answered {status}: {shown}")

    async def _fetch(self, server: Server, body: bytes) -> tuple[httpx.Response, bytes]:
        """Status, headers and body of an answer of bounded size."""
        content = bytearray()
        client = self._free.pop() if self._free else self._new_client()
        try:
            async with client.stream(
                "POST", server.address, content=body, headers=server.headers()
            ) as answer:
                try:
                    async for block in answer.aiter_raw():
                        content += block
                        if len(content) > REPLY_BYTES:
                            raise ReplyLost(
                                f"{server.endpoint.url} answered with more than {REPLY_BYTES:,} "
                                "bytes"
                            )
                except (httpx.NetworkError, httpx.RemoteProtocolError):
                    if answer.status_code != 200:
                        raise
                    server.failed()
                    raise _Lost("answered 200, and was cut off") from None
        finally:
            self._free.append(client)
        return answer, bytes(content)

    def _new_client(self) -> httpx.AsyncClient:
        """A client for one request at a time.

        The pool of a client for all would look at every connection at each request's begin and
        end; with 64 of them that takes most of the time.
        """
        limit = self._limits.timeout_seconds
        client = httpx.AsyncClient(
            # Nothing is unpacked: it might grow without end.
            headers={"Accept-Encoding": "identity", "Content-Type": "application/json"},
            # What could not even connect is free for sure, so that is told of before the time-out.
            timeout=httpx.Timeout(limit, connect=limit / 2, pool=None),
            mounts={address: None for address in LOOPBACK},
            verify=self._certificates,
        )
        self._clients.append(client)
        return client


def _reply(server: Server, content: bytes, shown: str) -> Reply:
    """The reply in an answer of status 200, without the key if the endpoint repeats it."""
    try:
        reply = read_reply(content)
    except NoReply as error:
        raise _Lost(f"answered 200 with {error}: {shown}") from None
    server.succeeded()
    return reply._replace(
        text=server.without_key(reply.text, REAL_KEY_CHARACTERS),
        thinking=server.without_key(reply.thinking, REAL_KEY_CHARACTERS),
        finish_reason=server.without_key(reply.finish_reason, REAL_KEY_CHARACTERS),
    )
