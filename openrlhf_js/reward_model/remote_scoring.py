"""Scores the texts of all pairs with servers that speak OpenRLHF's `/get_reward`."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import httpx

from openrlhf_js.reward_model.score_file import ScoreFile, is_reward
from openrlhf_js.reward_model.scoring import (
    Progress,
    ScoringFailed,
    Texts,
    checked,
    open_parts,
    texts_of,
)

ATTEMPTS = 6  # of one request, over all servers
FIRST_WAIT_SECONDS = 0.5  # doubles with every attempt
PASSING = (429, 500, 502, 503, 504)  # statuses that may be gone a moment later
ANSWER_BYTES = 1 << 20  # of any answer, and so much more for each text:
ANSWER_BYTES_PER_TEXT = 1 << 10
SAME_REWARD = 0.05  # what a text's rewards in two batches may differ by, in bfloat16


class Told(NamedTuple):
    """What servers say of their scores at `/health`; None is what they do not, or not all, say.

    Attributes:
        normalized: whether scores are (reward - mean) / std.
        mean, std: those that the scores were normalised by.
    """

    normalized: bool | None
    mean: float | None
    std: float | None


UNTOLD = Told(None, None, None)  # OpenRLHF's own server has no /health


class Servers:
    """Servers of one reward model.

    Args:
        urls: such as `http://127.0.0.1:5000/get_reward`.
        timeout_seconds: for connecting, and for each wait for a piece of an answer.
        token: sent as a bearer token if it is given.
    """

    def __init__(self, urls: Sequence[str], *, timeout_seconds: float, token: str | None = None):
        self.urls = list(urls)
        self._turn = itertools.count()
        headers = {"Accept-Encoding": "identity"}  # nothing is unpacked: it might grow without end
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._client = httpx.AsyncClient(
            headers=headers,
            timeout=timeout_seconds,
            limits=httpx.Limits(max_connections=None),
            trust_env=False,
        )

    async def score_pairs(
        self, texts: Texts, file: ScoreFile, *, at_once: int, in_flight: int, progress: Progress
    ) -> Told:
        """As `scoring.score_pairs`, with `in_flight` requests at the same time.

        Returns:
            What all servers say of their scores.

        Raises:
            ScoringFailed: no server answers, or an answer is not what was asked for.
            ValueError: the servers, or what they gave before, are not of one model.
        """
        async with self._client:
            known = next(iter(file.rewards.items()), None)
            await self._check_agreement(
                texts[known[0] if known else 0][0], known[1].chosen if known else None
            )
            told = {await self._told(url) for url in self.urls}
            parts = open_parts(texts, file, at_once)

            async def work() -> None:
                for part in parts:
                    rewards = await self._ask(self._in_turn(), texts_of(part, texts))
                    file.append(checked(part, rewards))
                    progress(len(file.rewards))

            tasks = [asyncio.create_task(work()) for _ in range(in_flight)]
            try:
                await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            return told.pop() if len(told) == 1 else UNTOLD

    async def _told(self, url: str) -> Told:
        """What `/health`, beside the server's `/get_reward`, says of the scores."""
        try:
            _, body = await self._fetch("GET", str(httpx.URL(url).join("health")), ANSWER_BYTES)
            found = json.loads(body)
        except (httpx.TransportError, ScoringFailed, ValueError, RecursionError):
            return UNTOLD
        if not isinstance(found, dict) or type(found.get("normalized")) is not bool:
            return UNTOLD
        if not found["normalized"]:
            return Told(False, None, None)
        mean, std = (found.get(name) for name in ("mean", "std"))
        return Told(True, mean, std) if is_reward(mean) and is_reward(std) else UNTOLD

    async def _check_agreement(self, text: str, expected: float | None) -> None:
        """Asks every server for one text's reward, which may be known from before."""
        for url in self.urls:
            (reward,) = await self._ask([url], [text])
            rewards = checked([0], [reward, reward])  # a finite number
            if expected is not None and not _alike(rewards[0].chosen, expected):
                raise ValueError(
                    f"{url} gives {reward:.6g} for a text that had {expected:.6g}: not the same "
                    "model; give servers of one model, or name a new folder"
                )
            expected = rewards[0].chosen

    def _in_turn(self) -> list[str]:
        """All servers, another one first each time."""
        first = next(self._turn) % len(self.urls)
        return self.urls[first:] + self.urls[:first]

    async def _ask(self, urls: Sequence[str], texts: Sequence[str]) -> list[float]:
        problem = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(FIRST_WAIT_SECONDS * 2 ** (attempt - 1))
            url = urls[attempt % len(urls)]
            try:
                status, body = await self._post(url, texts)
            except httpx.TransportError as error:
                problem = f"{url}: {type(error).__name__} {error}".rstrip()
                continue
            if status == 200:
                return _rewards(url, body, len(texts))
            problem = f"{url} answered {status}: {body[:200].decode(errors='replace')!r}"
            if status not in PASSING:
                break
        raise ScoringFailed(f"no rewards after {attempt + 1} attempts; the last: {problem}")

    async def _post(self, url: str, texts: Sequence[str]) -> tuple[int, bytes]:
        most = ANSWER_BYTES + ANSWER_BYTES_PER_TEXT * len(texts)
        return await self._fetch("POST", url, most, json={"query": list(texts)})

    async def _fetch(self, method: str, url: str, most: int, **sent: Any) -> tuple[int, bytes]:
        """Status and body of an answer of at most so many bytes."""
        body = bytearray()
        async with self._client.stream(method, url, **sent) as answer:
            async for block in answer.aiter_raw():
                body += block
                if len(body) > most:
                    raise ScoringFailed(f"{url}: the answer is larger than {most} bytes")
        return answer.status_code, bytes(body)


def _rewards(url: str, body: bytes, count: int) -> list[float]:
    """What an answer holds, an entry for each text; what each is, `checked` finds out."""
    try:
        answer: Any = json.loads(body)
        rewards = answer["rewards"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ScoringFailed(f"{url}: an answer without rewards: {body[:200]!r}") from None
    if not isinstance(rewards, list) or len(rewards) != count:
        came = f"{len(rewards)} rewards" if isinstance(rewards, list) else "no list of rewards"
        raise ScoringFailed(f"{url}: {count} texts got {came}")
    return rewards


def _alike(reward: float, expected: float) -> bool:
    return abs(reward - expected) <= SAME_REWARD * (1 + abs(expected))
