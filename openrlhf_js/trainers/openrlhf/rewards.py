"""Rewards from reward servers over HTTP: a client that retries and validates every answer."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import math
import os
import random
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import aiohttp
from pydantic import BaseModel, BeforeValidator, ConfigDict, HttpUrl, ValidationError

from openrlhf_js.reward_model import TOKEN_VARIABLE
from openrlhf_js.trainers.openrlhf.upstream import BadReward

logger = logging.getLogger(__name__)

AT_ONCE = 512  # open queries of one process; others wait
RETRY_SECONDS = 2.0  # at most, before a query that no server answered is sent again
CONNECT_SECONDS = 10.0
REFUSAL_SECONDS = 2.0  # a connection to a missing server is refused at once
UNUSABLE_ANSWERS = 3  # after so many, blame the query, or servers that are not reward servers
BUSY = (408, 425, 429, 502, 503, 504)  # statuses after which a retry may succeed


def address_problems(addresses: Sequence[str], may_start_later: bool) -> Iterator[str]:
    """The problems of the servers in `--reward.remote_url`, which may start beside a restart."""
    problems = {url: _url_problem(url) for url in addresses}
    must_be_there = not may_start_later and not any(problems.values())
    if must_be_there and all(map(_refuses, addresses)):
        problems[addresses[0]] = "no server there (connection refused)"
    for url, problem in problems.items():
        if problem:
            yield f"--reward.remote_url {url}: {problem}"


def _url_problem(url: str) -> str | None:
    try:
        parts = HttpUrl(url)
    except ValidationError as error:
        return f"neither a Python file (.py) nor an http(s) address ({error.errors()[0]['msg']})"
    if parts.username or parts.password:
        return f"a password in an address would end up in logs: use {TOKEN_VARIABLE} for a token"
    return None


def _refuses(url: str) -> bool:
    """Whether the connection is refused, since nothing listens there."""
    place: Any = HttpUrl(url)
    try:
        socket.create_connection((place.host, place.port), REFUSAL_SECONDS).close()
    except OSError as error:  # any other error may be over when the run starts
        return isinstance(error, ConnectionRefusedError)
    return False


# --- answers ----------------------------------------------------------------


class UnusableAnswer(Exception):
    """The answer has no reward server's form; another try or server may do better."""


class Answer(NamedTuple):
    """The reward of one response, its score for filtering and evaluation, and figures to log."""

    reward: float
    score: float
    logs: dict[str, float]


def _alone(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


Number = Annotated[float | None, BeforeValidator(_alone)]  # a number, or a list of one


class _Body(BaseModel):
    model_config = ConfigDict(strict=True)
    rewards: Number
    scores: Number = None
    extra_logs: Any = None


def read_answer(body: bytes) -> Answer:
    """The answer to a request with one query: {"rewards": [r], "scores": [s], "extra_logs": {}}.

    A number may stand alone or in a list of one. `scores` defaults to the reward. A figure in
    `extra_logs` that is not one finite number is left out. Raises UnusableAnswer if the body has
    another form, and BadReward if the reward is null, NaN or infinite.
    """
    try:
        content = _Body.model_validate_json(body)
    except ValidationError as error:
        raise UnusableAnswer(f"{error.errors()[0]['msg']:.100}: {excerpt(body)}") from None
    reward = content.rewards
    score = reward if content.scores is None else content.scores
    if reward is None or score is None or not (math.isfinite(reward) and math.isfinite(score)):
        raise BadReward(f"the reward is {reward}, and the score {score}")
    figures = {}
    logs = content.extra_logs if isinstance(content.extra_logs, dict) else {}
    for name, value in logs.items():
        figure = _alone(value)
        if type(figure) in (int, float) and abs(figure) <= sys.float_info.max:
            figures[name] = float(figure)
    return Answer(reward, score, figures)


def excerpt(body: bytes) -> str:
    """The beginning of a body, printable and on one line."""
    return repr(" ".join(body[:300].decode(errors="replace").split())[:150])


# --- servers ----------------------------------------------------------------


class _Unavailable(Exception):
    """No answer now; a later one may be."""


@dataclass(eq=False)
class _Server:
    url: str
    open_queries: int = 0
    problem: str | None = None  # the problem of its last answer


class RewardServers:
    """Asks the servers of one reward model, the least busy first, until one answers."""

    def __init__(self, urls: Sequence[str], timeout_seconds: float, token: str | None = None):
        """`timeout_seconds` limits a response in all; one request takes at most a fifth of it."""
        self._servers = [_Server(url) for url in urls]
        self._timeout_seconds = timeout_seconds
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._session: aiohttp.ClientSession | None = None
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def grade(self, query: str, prompt: str, label: Any) -> dict[str, Any]:
        """The reward of one response, in the form that upstream's executor wants.

        `query` is the prompt and its response in one string, special tokens included. Raises
        BadReward if there is no reward.
        """
        answer = await self._ask({"query": [query], "prompts": [prompt], "labels": [label]})
        return {"rewards": answer.reward, "scores": answer.score, "extra_logs": answer.logs}

    async def _ask(self, content: Mapping[str, Any]) -> Answer:
        """The first usable answer to one query; BadReward if there is none in time."""
        body = json.dumps(content).encode()
        unusable = 0
        async with self._turns:
            deadline = time.monotonic() + self._timeout_seconds
            while (seconds_left := deadline - time.monotonic()) > 0:
                for server in self._by_load():
                    seconds_left = deadline - time.monotonic()
                    if seconds_left <= 0:
                        break
                    limit_seconds = min(self._timeout_seconds / 5, seconds_left)
                    try:
                        return await self._try(server, body, limit_seconds)
                    except _Unavailable:
                        continue
                    except UnusableAnswer:
                        unusable += 1
                    if unusable == UNUSABLE_ANSWERS:
                        raise self._failed(f"{unusable} answers were unusable")
                await asyncio.sleep(min(seconds_left, RETRY_SECONDS * random.random()))
        limit = f"{self._timeout_seconds:g} s (--js.reward_timeout_seconds)"
        raise self._failed(f"no reward within {limit}")

    def _by_load(self) -> list[_Server]:
        """The servers, the least busy first; one that hangs stays busy and gets few queries."""
        servers = random.sample(self._servers, len(self._servers))
        return sorted(servers, key=lambda server: server.open_queries)

    def _failed(self, reason: str) -> BadReward:
        problems = [f"{server.url}: {server.problem or 'not asked'}" for server in self._servers]
        return BadReward(f"{reason}: {'; '.join(problems)}")

    async def _try(self, server: _Server, body: bytes, limit_seconds: float) -> Answer:
        server.open_queries += 1
        try:
            answer = await self._post(server.url, body, limit_seconds)
        except (_Unavailable, UnusableAnswer) as error:
            if server.problem is None:
                message = "the reward server %s does not answer (%s), and is retried"
                logger.warning(message, server.url, error)
            server.problem = str(error)
            raise
        except BadReward as error:
            raise BadReward(f"{error}, from {server.url}") from None
        finally:
            server.open_queries -= 1
        if server.problem:
            logger.warning("the reward server %s answers again", server.url)
        server.problem = None
        return answer

    async def close(self) -> None:
        """Closes the connections."""
        if self._session is not None:
            await self._session.close()

    async def _post(self, url: str, body: bytes, limit_seconds: float) -> Answer:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # no limit besides AT_ONCE; servers close idle connections after some seconds
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=2.0),
                headers=self._headers,
            )
        limit = aiohttp.ClientTimeout(total=limit_seconds, sock_connect=CONNECT_SECONDS)
        try:
            async with self._session.post(
                url, data=body, timeout=limit, allow_redirects=False
            ) as response:
                answer = await response.read()
                status = response.status
        except asyncio.TimeoutError:  # before ClientError: some are both
            raise _Unavailable(f"no answer within {limit_seconds:.0f} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise _Unavailable(f"{type(error).__name__}: {error}") from None
        if status in BUSY:
            raise _Unavailable(f"status {status}: {excerpt(answer)}")
        if status != 200:
            hint = f" ({TOKEN_VARIABLE} holds the token)" if status in (401, 403) else ""
            raise UnusableAnswer(f"status {status}{hint}: {excerpt(answer)}")
        return read_answer(answer)


def client_of(args: argparse.Namespace) -> RewardServers | None:
    """The client of a run with these nested arguments, for the process that grades; None if the
    run needs none.

    The token is read here, since a cluster's workers do not have this process's environment.
    """
    addresses = args.reward.remote_url
    if not addresses or args.train.agent_func_path or addresses[0].endswith(".py"):
        return None
    token = os.environ.get(TOKEN_VARIABLE)
    urls = [address.strip() for address in addresses]
    return RewardServers(urls, args.js.reward_timeout_seconds, token)
