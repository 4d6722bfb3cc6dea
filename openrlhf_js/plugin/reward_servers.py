"""The servers of one reward model: any of them may be asked, and any may fail and come back.

A server that does not answer rests: half a second at first, twice as long after each further
failure, and whichever query comes when the rest is over tries it again. All queries of this process
share that rest, so a server that has just come back meets one of them, not all at once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp

from openrlhf_js.plugin.errors import BadReward
from openrlhf_js.plugin.reward_answers import Answer, BadAnswer, excerpt, read_answer
from openrlhf_js.reward_model.tokens import TOKEN_VARIABLE

logger = logging.getLogger(__name__)

AT_ONCE = 512  # queries under way from one process; the others wait for their turn
FIRST_REST_SECONDS = 0.5
LONGEST_REST_SECONDS = 30.0
LOOK_SECONDS = 0.5  # how often a waiting query looks whether a server is back
CONNECT_SECONDS = 10.0
BAD_ANSWERS = 3  # after so many, the query is to blame, or the servers are no reward servers
SAY_AFTER_FAILURES = 3
LARGEST_ANSWER_BYTES = 1 << 18
BUSY = (408, 425, 429, 502, 503, 504)  # statuses of a server that may do better later


class _Unavailable(Exception):
    """No answer now; `rest_seconds` is what the server itself asked for, 0 if nothing."""

    def __init__(self, reason: str, rest_seconds: float = 0.0):
        super().__init__(reason)
        self.rest_seconds = rest_seconds


@dataclass(eq=False)
class _Server:
    url: str
    under_way: int = 0
    failures: int = 0  # in a row
    failed_at: float = 0.0
    unavailable_at: float = 0.0  # as failed_at, but for answers that were only no good
    rests_until: float = 0.0
    problem: str = "not asked"  # the last one
    down_since: float | None = None  # once it has been said


class RewardServers:
    """Asks the servers of one reward model, whichever is there, until one has answered."""

    def __init__(self, urls: tuple[str, ...], timeout_seconds: float, token: str | None = None):
        """
        Args:
            urls: of servers that would give the same answer.
            timeout_seconds: how long a response may wait for its reward in all; one request takes
                a fifth of it at most.
            token: sent to each as a bearer token.
        """
        self._servers = [_Server(url) for url in urls]
        self._timeout_seconds = timeout_seconds
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._session: aiohttp.ClientSession | None = None
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def ask(self, content: Mapping[str, Any]) -> Answer:
        """The answer to one query, from the first server that gives one.

        Args:
            content: what is posted, as JSON.

        Raises:
            BadReward: the model has no reward for it, only nonsense came back, or the time is up.
        """
        body = json.dumps(content).encode()
        async with self._turns:
            return await self._ask(body)

    async def close(self) -> None:
        """Closes the connections."""
        if self._session is not None:
            await self._session.close()

    async def _ask(self, body: bytes) -> Answer:
        deadline = time.monotonic() + self._timeout_seconds
        tried: set[_Server] = set()
        bad_answers = 0
        while (left := deadline - time.monotonic()) > 0:
            server = self._choose(tried)
            if server is None:
                rest = min(server.rests_until for server in self._servers) - time.monotonic()
                await asyncio.sleep(
                    min(left, LOOK_SECONDS, max(rest, 0.0)) + random.uniform(0, 0.1)
                )
                continue
            began = time.monotonic()
            server.under_way += 1
            try:
                answer = await self._post(server.url, body, min(left, self._timeout_seconds / 5))
            except (_Unavailable, BadAnswer) as error:
                self._failed(server, began, error)
                tried = tried | {server} if len(tried) + 1 < len(self._servers) else set()
                bad_answers += isinstance(error, BadAnswer)
                if bad_answers == BAD_ANSWERS:
                    raise BadReward(
                        f"{BAD_ANSWERS} answers were unusable; the last, from {server.url}: {error}"
                    ) from None
                continue
            except BadReward as error:
                self._answered(server, began)
                raise BadReward(f"{error}, says {server.url}") from None
            finally:
                server.under_way -= 1
            self._answered(server, began)
            return answer
        problems = "; ".join(f"{server.url}: {server.problem}" for server in self._servers)
        limit = f"{self._timeout_seconds:g} s (--js.reward_timeout_seconds)"
        raise BadReward(f"no reward within {limit}: {problems}")

    def _choose(self, tried: set[_Server]) -> _Server | None:
        """The server to ask now, None if all rest: one not tried before, with least to do."""
        now = time.monotonic()
        ready = [server for server in self._servers if server.rests_until <= now]
        if not ready:
            return None
        random.shuffle(ready)
        chosen = min(ready, key=lambda server: (server in tried, server.under_way))
        if chosen.failures:  # one query tries whether it is back; the others leave it alone
            chosen.rests_until = now + _rest_seconds(chosen.failures)
        return chosen

    async def _post(self, url: str, body: bytes, limit_seconds: float) -> Answer:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # AT_ONCE is the limit; servers close idle connections after some seconds
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=2.0),
                auto_decompress=False,  # a small body must not become a large one
                headers=self._headers,
            )
        limit = aiohttp.ClientTimeout(total=limit_seconds, sock_connect=CONNECT_SECONDS)
        try:
            async with self._session.post(
                url, data=body, timeout=limit, allow_redirects=False
            ) as response:
                answer = await _read(response)
                status, headers = response.status, response.headers
        except asyncio.TimeoutError:  # before ClientError: some are both
            raise _Unavailable(f"no answer within {limit_seconds:.0f} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise _Unavailable(f"{type(error).__name__}: {error}") from None
        if status in BUSY:
            asked = _retry_after(headers.get("Retry-After"))
            raise _Unavailable(f"status {status}: {excerpt(answer)}", asked)
        if status != 200:
            hint = f" ({TOKEN_VARIABLE} holds the token)" if status in (401, 403) else ""
            raise BadAnswer(f"status {status}{hint}: {excerpt(answer)}")
        return read_answer(answer)

    def _failed(self, server: _Server, began: float, error: Exception) -> None:
        now = time.monotonic()
        server.problem = str(error)
        asked = error.rest_seconds if isinstance(error, _Unavailable) else 0.0
        if began < server.failed_at:  # one of many that the same failure hit
            server.rests_until = max(server.rests_until, now + asked if asked else 0.0)
            return
        server.failures += 1
        server.failed_at = now
        if isinstance(error, _Unavailable):
            server.unavailable_at = now
        server.rests_until = now + max(asked, _rest_seconds(server.failures))
        if server.failures >= SAY_AFTER_FAILURES and server.down_since is None:
            server.down_since = now
            others = sum(not other.failures for other in self._servers)
            logger.warning(
                "the reward server %s does not answer (%s); %s, and it is tried again now and then",
                server.url,
                error,
                f"{others} of {len(self._servers)} go on" if others else "none is left",
            )

    def _answered(self, server: _Server, began: float) -> None:
        if began < server.unavailable_at:  # taken in before: whether it takes more is not known
            return
        if server.down_since is not None:
            seconds = time.monotonic() - server.down_since
            logger.warning("the reward server %s answers again (%.0f s)", server.url, seconds)
        server.failures, server.rests_until, server.down_since = 0, 0.0, None


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The body, or as much of one too long as no reader takes for an answer."""
    body = bytearray()
    async for chunk in response.content.iter_chunked(1 << 16):
        body += chunk
        if len(body) > LARGEST_ANSWER_BYTES:
            raise BadAnswer(f"more than {LARGEST_ANSWER_BYTES} bytes: {excerpt(bytes(body))}")
    return bytes(body)


def _rest_seconds(failures: int) -> float:
    longest = min(LONGEST_REST_SECONDS, FIRST_REST_SECONDS * 2.0 ** min(failures - 1, 10))
    return longest * random.uniform(0.5, 1.0)


def _retry_after(value: str | None) -> float:
    """The seconds of a Retry-After header, a number or a date; 0 if there is none to be read."""
    if not value:
        return 0.0
    try:
        if value.strip().isdecimal():
            seconds = float(value)
        else:
            seconds = (parsedate_to_datetime(value) - datetime.now(timezone.utc)).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return min(max(seconds, 0.0), LONGEST_REST_SECONDS)
