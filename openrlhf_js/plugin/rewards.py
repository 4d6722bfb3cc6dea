"""Rewards from models behind HTTP: addresses and weights, a client that retries, safe answers.

With --reward.remote_url help=http://a/r,help=http://b/r,harm=http://c/r and --js.reward_weights
help=0.8,harm=0.2 there are two models, the first on two servers, and the reward is
0.8 x help + 0.2 x harm.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import math
import os
import random
import re
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import aiohttp
from pydantic import BaseModel, BeforeValidator, ConfigDict, HttpUrl, ValidationError

from openrlhf_js.plugin.upstream import BadInput, BadReward
from openrlhf_js.reward_model import TOKEN_VARIABLE

logger = logging.getLogger(__name__)

NAMED = re.compile(r"([A-Za-z][\w-]*)=(.*)", re.DOTALL)
AT_ONCE = 512  # open queries of one process; others wait
REST_SECONDS = 1.0  # of a server that failed
LOOK_SECONDS = 0.5  # how often a waiting query looks whether a server is back
CONNECT_SECONDS = 10.0
REFUSAL_SECONDS = 2.0  # a server that is not there says so at once
UNUSABLE_ANSWERS = 3  # then the query is to blame, or the servers are no reward servers
BUSY = (408, 425, 429, 502, 503, 504)  # statuses of a server that may do better later


class RewardSource(NamedTuple):
    """One reward model: the weight of its reward, and the servers that have it."""

    name: str  # "" for the only one, if it was given none
    weight: float
    urls: tuple[str, ...]


def parse(addresses: Sequence[str], weights: str | None) -> list[RewardSource]:
    """The reward models of `--reward.remote_url`, cut at its commas, and `--js.reward_weights`.

    Raises BadInput with every problem found, one per line.
    """
    models: dict[str, list[str]] = {}
    problems = []
    for address in addresses:
        named = NAMED.fullmatch(address.strip())
        name, url = named.groups() if named else ("", address.strip())
        models.setdefault(name, []).append(url)
        problem = _url_problem(url)
        if problem:
            problems.append(f"--reward.remote_url {url}: {problem}")
    numbers = _weights(weights or "")
    if weights is None and len(models) == 1:
        numbers = dict.fromkeys(models, 1.0)
    if set(numbers) != set(models) or (weights is not None and "" in models):
        problems.append(
            f"--js.reward_weights {weights}: give one NAME=NUMBER for each reward model, and "
            f"NAME=http://... for each address of --reward.remote_url {','.join(addresses)}"
        )
    if problems:
        raise BadInput("\n".join(problems))
    return [RewardSource(name, numbers[name], tuple(urls)) for name, urls in models.items()]


def _weights(text: str) -> dict[str, float]:
    """The weights by name; {} where one is no number."""
    pairs = [pair.partition("=") for pair in text.split(",")]
    try:
        return {name.strip(): float(number) for name, _, number in pairs}
    except ValueError:
        return {}


def _url_problem(url: str) -> str | None:
    try:
        parts = HttpUrl(url)
    except ValidationError as error:
        return f"neither a Python file (.py) nor an http(s) address ({error.errors()[0]['msg']})"
    if parts.username or parts.password:
        return f"a password in an address would end up in logs: use {TOKEN_VARIABLE} for a token"
    return None


def refused(source: RewardSource) -> bool:
    """Whether none of a model's servers accepts a connection."""

    def refuses(url: str) -> bool:
        place: Any = HttpUrl(url)
        try:
            socket.create_connection((place.host, place.port), REFUSAL_SECONDS).close()
        except OSError as error:  # whatever else it is may be over when the run has started
            return isinstance(error, ConnectionRefusedError)
        return False

    return all(map(refuses, source.urls))


# --- answers ----------------------------------------------------------------


class UnusableAnswer(Exception):
    """The server's answer is none of a reward server; another try or server may do better."""


class Answer(NamedTuple):
    """The reward of one response, the score for filtering and evaluation, and figures to log."""

    reward: float
    score: float
    logs: dict[str, float]


def _alone(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


Number = Annotated[float | None, BeforeValidator(_alone)]  # with or without a list around it


class _Body(BaseModel):
    model_config = ConfigDict(strict=True)
    rewards: Number
    scores: Number = None
    extra_logs: Any = None


def read_answer(body: bytes) -> Answer:
    """The answer to a request with one query: {"rewards": [r], "scores": [s], "extra_logs": {}}.

    A number may stand with or without a list of one around it. `scores` defaults to the reward. A
    figure of `extra_logs` that is not one finite number is left out. Raises UnusableAnswer if the
    body has another form, and BadReward if the reward is null, NaN or infinite.
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
    rests_until: float = 0.0
    problem: str | None = None  # of its last answer


class RewardServers:
    """Asks the servers of one reward model, whichever is there, until one has answered.

    A server that fails rests for a second. Then one query at a time tries it, so that a server that
    comes back meets one of them, not all at once.
    """

    def __init__(self, urls: tuple[str, ...], timeout_seconds: float, token: str | None = None):
        """`timeout_seconds` is for a response in all; one request takes at most a fifth of it."""
        self._servers = [_Server(url) for url in urls]
        self._timeout_seconds = timeout_seconds
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._session: aiohttp.ClientSession | None = None
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def ask(self, content: Mapping[str, Any]) -> Answer:
        """The first answer to one query; BadReward if there is none, or the time is up."""
        body = json.dumps(content).encode()
        reason = f"no reward within {self._timeout_seconds:g} s (--js.reward_timeout_seconds)"
        async with self._turns:
            deadline = time.monotonic() + self._timeout_seconds
            unusable = 0
            while (seconds_left := deadline - time.monotonic()) > 0:
                server = self._choose()
                if server is None:
                    seconds = LOOK_SECONDS * random.uniform(0.2, 1.0)
                    await asyncio.sleep(min(seconds_left, seconds))
                    continue
                try:
                    return await self._ask(
                        server, body, min(seconds_left, self._timeout_seconds / 5)
                    )
                except _Unavailable:
                    pass
                except UnusableAnswer:
                    unusable += 1
                if unusable == UNUSABLE_ANSWERS:
                    reason = f"{unusable} answers were unusable"
                    break
        problems = [f"{server.url}: {server.problem or 'not asked'}" for server in self._servers]
        raise BadReward(f"{reason}: {'; '.join(problems)}")

    async def _ask(self, server: _Server, body: bytes, limit_seconds: float) -> Answer:
        """One try; the server that has failed rests."""
        server.open_queries += 1
        try:
            answer = await self._post(server.url, body, limit_seconds)
        except (_Unavailable, UnusableAnswer) as error:
            if server.problem is None:
                message = "the reward server %s does not answer (%s), and is retried"
                logger.warning(message, server.url, error)
            server.problem = str(error)
            server.rests_until = time.monotonic() + REST_SECONDS
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

    def _choose(self) -> _Server | None:
        """The least busy of the servers that answer or are to be tried again; None if none is."""
        now = time.monotonic()
        ready = [
            server
            for server in self._servers
            if server.problem is None or (server.rests_until <= now and not server.open_queries)
        ]
        random.shuffle(ready)
        return min(ready, key=lambda server: server.open_queries, default=None)

    async def _post(self, url: str, body: bytes, limit_seconds: float) -> Answer:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # AT_ONCE is the limit; servers close idle connections after some seconds
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


class RemoteRewards:
    """Grades responses with one or several reward models, each on one or several servers."""

    def __init__(
        self, sources: Sequence[RewardSource], timeout_seconds: float, token: str | None = None
    ):
        self._models = [
            (source, RewardServers(source.urls, timeout_seconds, token)) for source in sources
        ]

    async def grade(self, query: str, prompt: str, label: Any) -> dict[str, Any]:
        """The reward of one response, as upstream's executor wants it.

        `query` is the prompt and its response in one string, special tokens included. `rewards` and
        `scores` are sums over the models of weight x reward. `extra_logs` has the servers' own
        figures and, of several models, each one's reward before weighting. Raises BadReward if one
        of the models gave none.
        """
        content = {"query": [query], "prompts": [prompt], "labels": [label]}
        queries = [asyncio.ensure_future(servers.ask(content)) for _, servers in self._models]
        try:
            answers = await asyncio.gather(*queries)
        finally:  # if one fails, the others' answers are of no use
            for waiting in queries:
                waiting.cancel()
        reward = 0.0
        score = 0.0
        logs: dict[str, float] = {}
        for (source, _), answer in zip(self._models, answers, strict=True):
            reward += source.weight * answer.reward
            score += source.weight * answer.score
            if len(self._models) > 1:
                logs[f"reward/{source.name}"] = answer.reward
            prefix = f"{source.name}/" if source.name else ""
            for name, figure in answer.logs.items():
                logs[prefix + name] = figure
        return {"rewards": reward, "scores": score, "extra_logs": logs}

    async def close(self) -> None:
        """Closes the connections."""
        for _, servers in self._models:
            await servers.close()


def client_of(args: argparse.Namespace) -> RemoteRewards | None:
    """The client of a run with these nested arguments, for whichever process grades; None if none
    is needed.

    The token is read here, since a cluster's workers do not have this process's environment.
    """
    addresses = args.reward.remote_url
    if not addresses or args.train.agent_func_path or addresses[0].endswith(".py"):
        return None
    sources = parse(addresses, args.js.reward_weights)
    token = os.environ.get(TOKEN_VARIABLE)
    return RemoteRewards(sources, args.js.reward_timeout_seconds, token)
