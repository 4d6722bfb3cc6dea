"""An OpenAI-compatible endpoint: one request, or many at a time.

The `openai` package sends, and retries 429, 5xx and lost connections with back-off and Retry-After.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import aiohttp
import anyio
import openai

CONNECT_SECONDS, LISTING_SECONDS = 4.0, 5.0
RETRIES = 16  # about two minutes of back-off
UNANSWERED = 8  # requests in a row, with no reply to any other, that end the run
SHORTEST_KEY = 12  # a shorter one, such as "EMPTY", may be a word of any text
EXCERPT_CHARACTERS = 300
LOOPBACK = ("localhost", "127.0.0.1", "::1")
ABOUT_ONE_REQUEST = re.compile(  # an answer of status 400 that others may not get
    r"content_filter|content management policy|context.length|token count|too long", re.IGNORECASE
)
ADVICE = {
    401: "it needs an API key: name the environment variable that holds a valid one (--key_env)",
    404: "it has no model {model!r}, or the address is not its base, which usually ends in /v1",
}

Job = TypeVar("Job")
Result = TypeVar("Result")


class Reply(NamedTuple):
    """One chat completion; the counts are None where the endpoint gives none."""

    text: str
    thinking: str  # where the endpoint returns it apart from the text
    finish_reason: str
    prompt_tokens: int | None
    completion_tokens: int | None


class EndpointError(ConnectionError):
    """The endpoint cannot be used, or no longer: the run ends."""


class NoReply(RuntimeError):
    """One request has no reply.

    `refused`: these messages never get one (too long, filtered). Otherwise another try may help,
    and the endpoint may charge for this one.
    """

    def __init__(self, message: str, refused: bool = False):
        super().__init__(message)
        self.refused = refused


class Endpoint:
    """A model at an OpenAI-compatible address; an async context manager.

    `#NAME` after the address names the model; without it or `model` it is the only one served. The
    timeout is for one reply, retries included.
    """

    def __init__(
        self,
        base_url: str,
        model: str = "",
        api_key_env: str | None = None,
        timeout_seconds: float = 600.0,
    ):
        address, _, name = base_url.strip().partition("#")
        self.base_url = address.rstrip("/").removesuffix("/chat/completions")
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{base_url!r} is no address; give one like http://localhost:8000/v1")
        if parts.username or parts.query:  # would be saved beside the results
            raise ValueError("an address with a user or a query may hold a secret; use --key_env")
        self.model, self.timeout_seconds = model or name, timeout_seconds
        self._key = os.environ.get(api_key_env, "").strip() if api_key_env else ""
        if api_key_env and not re.fullmatch(r"[!-~]+", self._key):
            raise ValueError(f"the environment variable {api_key_env} holds no API key")
        self._where: Any = {"base_url": self.base_url, "api_key": self._key or "none"}
        self._proxies = parts.hostname not in LOOPBACK
        self._client: openai.AsyncOpenAI | None = None
        self._unanswered, self._last_reply = 0, 0.0

    @contextmanager
    def client(self, timeout: Any = None, retries: int = RETRIES) -> Iterator[openai.OpenAI]:
        """The package's own client; what goes wrong with it is an EndpointError."""
        try:
            with openai.OpenAI(
                **self._where,
                timeout=timeout or openai.Timeout(self.timeout_seconds, connect=CONNECT_SECONDS),
                max_retries=retries,
                http_client=openai.DefaultHttpxClient(trust_env=self._proxies),
            ) as client:
                yield client
        except openai.APIConnectionError as error:
            raise EndpointError(
                f"no server answers at {self.base_url}: {self._cause(error)}"
            ) from None
        except openai.APIStatusError as error:
            said = self.read(error.status_code, error.response.text)
            raise EndpointError(str(said)) from None

    def connect(self) -> Endpoint:
        """Checks within seconds that a server answers, and fills in the name of its only model."""
        names: list[str] = []
        with self.client(openai.Timeout(LISTING_SECONDS, connect=CONNECT_SECONDS), 0) as client:
            try:
                names = [str(each.id) for each in client.models.list().data]
            except openai.APIStatusError as error:  # not every endpoint lists its models
                if error.status_code in (401, 403) or not self.model:
                    raise
            except (ValueError, TypeError, AttributeError):
                pass  # a page instead of a list
        if not self.model and len(names) != 1:
            raise ValueError(
                f"{self.base_url} serves {len(names)} models ({', '.join(names[:8])}): name one, "
                f"as in {self.base_url}#NAME"
            )
        self.model = self.model or names[0]
        return self

    async def __aenter__(self) -> Endpoint:
        self._client = openai.AsyncOpenAI(
            **self._where,
            timeout=openai.Timeout(self.timeout_seconds, connect=CONNECT_SECONDS),
            max_retries=RETRIES,
            http_client=openai.DefaultAioHttpClient(trust_env=self._proxies),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._client:
            await self._client.close()

    def request(self, messages: Sequence[Any], **parameters: Any) -> dict[str, Any]:
        """The body of a request; parameters that are None are not sent."""
        sent = {name: value for name, value in parameters.items() if value is not None}
        return {"model": self.model, "messages": list(messages), **sent}

    async def chat(self, messages: Sequence[Any], **parameters: Any) -> Reply:
        """One reply, or NoReply or EndpointError; parameters that are None are not sent."""
        assert self._client, "an endpoint is used inside `async with`"
        body = self.request(messages, **parameters)
        began = time.monotonic()
        try:
            with anyio.fail_after(self.timeout_seconds):
                answer = await self._client.post("/chat/completions", cast_to=str, body=body)
            found = self.read(200, answer)
        except openai.APIStatusError as error:
            found = self.read(error.status_code, error.response.text)
        except TimeoutError:
            found = NoReply(f"no reply within {self.timeout_seconds:g} s")
        except (openai.APIConnectionError, aiohttp.ClientError) as error:
            found = NoReply(f"connection lost: {self._cause(error)}")
        if isinstance(found, Reply):
            self._unanswered, self._last_reply = 0, time.monotonic()
            return found
        if isinstance(found, NoReply) and not found.refused:
            self._unanswered += 1
            if self._unanswered >= UNANSWERED and self._last_reply < began:
                found = EndpointError(f"{self.base_url} no longer replies; the last: {found}")
        raise found

    def read(self, status: int, body: str) -> Reply | NoReply | EndpointError:
        """What an answer says."""
        body = self._scrubbed(body)
        if status == 200:
            try:
                return _reply(body)
            except ValueError as error:
                return NoReply(f"the answer holds no chat completion: {error}")
        said = f"{self.base_url} answered {status}: {' '.join(body.split())[:EXCERPT_CHARACTERS]}"
        if status == 413 or (status == 400 and ABOUT_ONE_REQUEST.search(body)):
            return NoReply(said, refused=True)
        passes = status in (408, 409, 429) or status >= 500
        if passes and "insufficient_quota" not in body:
            return NoReply(said)
        advice = ADVICE.get(status, "change the setting that it names").format(model=self.model)
        return EndpointError(f"{said}; {advice}")

    def _cause(self, error: Exception) -> str:
        cause = error.__cause__ or error
        return self._scrubbed(str(cause) or type(cause).__name__)

    def _scrubbed(self, text: str) -> str:
        """The text without the API key, which an endpoint may repeat."""
        if len(self._key) >= SHORTEST_KEY:
            for key in (self._key, self._key.replace("/", "\\/")):  # as some write JSON
                text = text.replace(key, "[key]")
        return text


def _reply(body: str) -> Reply:
    try:
        found = json.loads(body)
        choice, usage = found["choices"][0], found.get("usage") or {}
        message = choice["message"]
        content = message.get("content")
        apart = message.get("reasoning_content") or message.get("reasoning")
        parts = content if isinstance(content, list) else None
        counts = [usage.get(f"{name}_tokens") for name in ("prompt", "completion", "total")]
        finish_reason = choice.get("finish_reason")
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError):
        raise ValueError(repr(" ".join(body[:EXCERPT_CHARACTERS].split()))) from None
    prompt, completion, total = (
        each if type(each) is int and 0 <= each < 10**9 else None for each in counts
    )
    if prompt is not None and total is not None:  # Gemini counts paid thinking in the total alone
        completion = max(completion or 0, total - prompt)
    thinking = _text(apart, "text") or _text(parts, "thinking")
    return Reply(_text(content, "text"), thinking, _text(finish_reason, ""), prompt, completion)


def _text(content: Any, kind: str) -> str:
    """A string, or the parts of that kind in a list, as text that UTF-8 can encode."""
    if isinstance(content, list):
        parts = [part.get(kind) for part in content if isinstance(part, dict)]
        content = "".join(_text(part, "text") for part in parts)
    return content.encode(errors="replace").decode() if isinstance(content, str) else ""


def run_all(
    endpoint: Endpoint,
    jobs: Iterable[Job],
    work: Callable[[Job], Awaitable[Result]],
    on_results: Callable[[list[tuple[Job, Result | NoReply]]], None],
    concurrency: int,
) -> None:
    """Runs `work` on every job, `concurrency` at a time, and hands over results as they come.

    `jobs` is read as needed, each after a result was handed over. `on_results` runs in a thread,
    one call at a time, with all that came since its last call; `NoReply` stands for a job without
    a reply. Whatever else `work` or `on_results` raises ends the run, as Ctrl-C does, once the
    results that came are handed over.
    """
    waiting, turn = iter(jobs), asyncio.Lock()
    came: list[tuple[Job, Result | NoReply]] = []

    async def hand_over() -> None:
        async with turn:
            if found := came[:]:
                came.clear()
                await asyncio.to_thread(on_results, found)

    async def worker() -> None:
        for job in waiting:
            try:
                came.append((job, await work(job)))
            except NoReply as error:
                came.append((job, error))
            await asyncio.shield(hand_over())

    async def everything() -> None:
        async with endpoint:
            workers = [asyncio.create_task(worker()) for _ in range(concurrency)]
            try:
                await asyncio.gather(*workers)
            finally:
                for each in workers:
                    each.cancel()
                await asyncio.gather(*workers, return_exceptions=True)
                await hand_over()

    asyncio.run(everything())
