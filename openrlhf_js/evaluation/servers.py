"""Endpoints, the keys that they want, and whose turn it is."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

FAILURES = 3  # in a row, before an endpoint is left aside
FIRST_REST_SECONDS = 1.0  # doubles with every failure, up to:
LONGEST_REST_SECONDS = 60.0
PATIENCE_SECONDS = 300.0  # with endpoints of which none gives a reply
SPREAD = 0.1  # of a rest, so that those who waited for its end do not all come at once
KEY_SHOWN_AS = "[key]"
REAL_KEY_CHARACTERS = 12  # a shorter one, such as "EMPTY", may be a word of any text


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible endpoint.

    Attributes:
        url: its base, such as "https://api.openai.com/v1".
        model: the name that it knows the model by.
        key_name: the environment variable that holds its key; None where it wants none. The key
            itself is never held here.

    Raises:
        ValueError: the url is none, or holds what may be a secret.
    """

    url: str
    model: str
    key_name: str | None = None

    def __post_init__(self) -> None:
        base = self.url.strip().rstrip("/").removesuffix("/chat/completions")
        if "@" in base or "?" in base or "#" in base:
            raise ValueError(
                "an endpoint's url holds a user, a query or a fragment, which may be secret; give "
                "its base alone, such as https://api.openai.com/v1, and name the environment "
                "variable that holds the key"
            )
        try:
            found = httpx.URL(base)
            known = bool(found.host) and (found.port or 1) < 2**16
        except httpx.InvalidURL:
            known = False
        if not re.fullmatch(r"https?://[^/\s]\S*", base) or not known:
            raise ValueError(
                f"{self.url!r} is no url of an endpoint; give one such as http://127.0.0.1:8000/v1"
            )
        object.__setattr__(self, "url", base)


class Server:
    """An endpoint as requests find it: its key, and whether it is left aside for a while.

    Raises:
        ValueError: the environment variable of the key is not set, or holds no key.
    """

    def __init__(self, endpoint: Endpoint):
        self.endpoint = endpoint
        self.address = f"{endpoint.url}/chat/completions"
        self.rest_until = 0.0
        self.failing_since: float | None = None
        self._failures = 0
        self._key = _key(endpoint.key_name)

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    def without_key(self, text: str, shortest: int = 1) -> str:
        """The text, with the key blotted out if it holds it, and the key is not too short."""
        if len(self._key) < shortest:
            return text
        in_json = self._key.replace("/", "\\/")  # as some servers write it
        return text.replace(self._key, KEY_SHOWN_AS).replace(in_json, KEY_SHOWN_AS)

    def succeeded(self) -> None:
        self._failures, self.failing_since = 0, None

    def failed(self) -> None:
        """Counts a failure; after several in a row the endpoint is left aside for a while.

        One that comes during a rest is of a request from before it, and says nothing new.
        """
        now = time.monotonic()
        if self.failing_since is None:
            self.failing_since = now
        if self.rest_until > now:
            return
        self._failures += 1
        if self._failures >= FAILURES:
            doublings = min(self._failures - FAILURES, 30)
            self.rest(min(LONGEST_REST_SECONDS, FIRST_REST_SECONDS * 2**doublings))

    def rest(self, seconds: float) -> None:
        self.rest_until = max(self.rest_until, time.monotonic() + seconds)


class Turns:
    """Whose turn it is: one endpoint after the other, without those that are left aside.

    Raises:
        ValueError: there is no endpoint.
    """

    def __init__(self, servers: Sequence[Server]):
        if not servers:
            raise ValueError("no endpoint; give at least one url")
        self._servers = list(servers)

    def silent_seconds(self) -> float:
        """For how long none of them has given a reply, from its first failure on."""
        now = time.monotonic()
        return min(now - (each.failing_since or now) for each in self._servers)

    async def next(self, chance: float) -> Server:
        """The next one; where all are left aside, waits for the first that is not.

        Args:
            chance: a random number of [0, 1), which spreads the ends of the waits.
        """
        while True:
            now = time.monotonic()
            for place, server in enumerate(self._servers):
                if server.rest_until <= now:
                    del self._servers[place]
                    self._servers.append(server)
                    return server
            wait = min(server.rest_until for server in self._servers) - now
            await asyncio.sleep(wait * (1 + SPREAD * chance))


def _key(name: str | None) -> str:
    """The key in that environment variable, "" for no name; errors never show it."""
    if name is None:
        return ""
    key = os.environ.get(name, "").strip()
    if not key:
        raise ValueError(
            f"the environment variable {name} is not set; put the endpoint's key in it"
        )
    if not re.fullmatch(r"[!-~]+", key):
        raise ValueError(
            f"the environment variable {name} holds no key: spaces, line ends or characters "
            "that no header can carry"
        )
    return key
