"""A model behind an OpenAI-compatible address: one request at a time (`run_all` makes many).

The `openai` package sends each request. It retries 429, 5xx and lost connections with back-off, and
waits as long as `Retry-After` says.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import anyio
import openai

CONNECT_SECONDS = 4.0
LISTING_SECONDS = 5.0
RETRIES = 16  # about two minutes of back-off
PAUSE_SECONDS = 8.0  # at least, after these, where the server limits the rate
SHORTEST_KEY = 12  # a shorter one, such as "EMPTY", may be a word of any text
LARGEST_COUNT = 10**9  # of tokens
EXCERPT_CHARACTERS = 300
LOOPBACK = ("localhost", "127.0.0.1", "::1")
CHAT_PATH = "/chat/completions"

FILTERED = "content_filter"  # a finish reason
REFUSALS = (400, 403, 413, 422)  # of this request, or of all: see `complete.Triage`
TEMPORARY = (408, 409, 429)  # and all from 500 on
ADVICE = {
    401: "it needs an API key: name the environment variable that holds a valid one (--key_env)",
    404: "it has no model {model!r}, or the address is not its base, which usually ends in /v1",
}


class Reply(NamedTuple):
    """One chat completion; the counts are None if the server gives none."""

    text: str
    thinking: str  # if the server returns it apart from the text
    finish_reason: str
    prompt_tokens: int | None
    completion_tokens: int | None


class EndpointError(ConnectionError):
    """The server cannot be used, so the run ends."""


class NoReply(RuntimeError):
    """One request has no reply.

    `refused`: the server will not answer it (too long, filtered). Otherwise another try may help.
    """

    def __init__(self, message: str, refused: bool = False):
        super().__init__(message)
        self.refused = refused


class Endpoint:
    """A model at an OpenAI-compatible address; an async context manager.

    `#NAME` after the address names the model. Without it and without `model`, `connect` takes the
    only model that is served. The timeout is for one reply, retries included.
    """

    def __init__(
        self,
        base_url: str,
        model: str = "",
        api_key_env: str | None = None,
        timeout_seconds: float = 600.0,
    ):
        address, _, name = base_url.strip().partition("#")
        self.base_url = address.rstrip("/").removesuffix(CHAT_PATH)
        host = _checked_host(self.base_url)
        self.model = model or name
        self.root = ""
        self.timeout_seconds = timeout_seconds
        self._key = _key_of(api_key_env) if api_key_env else ""
        self._address: Any = {"base_url": self.base_url, "api_key": self._key or "none"}
        self._proxies = host not in LOOPBACK
        self._client: openai.AsyncOpenAI | None = None

    def connect(self) -> Endpoint:
        """Checks within seconds that a server answers; fills in the name of its only model."""
        roots = self._listed_models()
        if not self.model and not roots:
            raise ValueError(
                f"{self.base_url} lists no models: correct the address, which usually ends in /v1, "
                f"or name a model, as in {self.base_url}#NAME"
            )
        if not self.model and len(roots) != 1:
            names = ", ".join(list(roots)[:8])
            raise ValueError(
                f"{self.base_url} serves {len(roots)} models ({names}): name one, as in "
                f"{self.base_url}#NAME"
            )
        self.model = self.model or next(iter(roots))
        self.root = roots.get(self.model, "")
        return self

    def _listed_models(self) -> dict[str, str]:
        """Returns the `root` of each model that the server lists, by name; {} if it lists none.

        The root is the folder or hub id that the server loaded, or "" if it does not say.
        """
        try:
            with openai.OpenAI(
                **self._address,
                timeout=openai.Timeout(LISTING_SECONDS, connect=CONNECT_SECONDS),
                max_retries=0,
                http_client=openai.DefaultHttpxClient(trust_env=self._proxies),
            ) as client:
                cards = client.models.list().data
            return {str(card.id): str(getattr(card, "root", "") or "") for card in cards}
        except openai.APIConnectionError as error:
            cause = self._cause(error)
            raise EndpointError(f"no server answers at {self.base_url}: {cause}") from None
        except openai.APIStatusError as error:  # not every endpoint lists its models
            if error.status_code == 401 or not self.model:
                message = str(self._error(error.status_code, error.response.text))
                raise EndpointError(message) from None
        except (ValueError, TypeError, AttributeError):
            pass  # a web page instead of a list
        return {}

    async def __aenter__(self) -> Endpoint:
        self._client = openai.AsyncOpenAI(
            **self._address,
            timeout=openai.Timeout(self.timeout_seconds, connect=CONNECT_SECONDS),
            max_retries=RETRIES,
            http_client=openai.DefaultAioHttpClient(trust_env=self._proxies),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._client:
            await self._client.close()

    async def chat(self, messages: Sequence[Any], **parameters: Any) -> Reply:
        """Returns the reply, or raises NoReply or EndpointError; omits parameters that are None."""
        assert self._client, "an endpoint is used inside `async with`"
        sent = {name: value for name, value in parameters.items() if value is not None}
        body = {"model": self.model, "messages": list(messages), **sent}
        limited = None
        try:
            with anyio.fail_after(self.timeout_seconds):
                while True:
                    try:
                        text = await self._client.post(CHAT_PATH, cast_to=str, body=body)
                        break
                    except openai.RateLimitError as error:
                        limited = self._error(error.status_code, error.response.text)
                        if isinstance(limited, EndpointError):  # its quota is used up
                            raise limited from None
                        await anyio.sleep(_pause(error.response.headers.get("retry-after", "")))
        except openai.APIStatusError as error:
            raise self._error(error.status_code, error.response.text) from None
        except TimeoutError:
            message = f"no reply within {self.timeout_seconds:g} s"
            if limited is not None:
                message += f": {limited}; it limits your rate: lower the concurrency"
            raise NoReply(message) from None
        except (openai.APIConnectionError, aiohttp.ClientError) as error:
            raise NoReply(f"connection lost: {self._cause(error)}") from None
        return _reply(self._scrubbed(text))

    def _error(self, status: int, body: str) -> NoReply | EndpointError:
        """The error for a status other than 200."""
        body = self._scrubbed(body)
        message = f"{self.base_url} answered {status}: {_excerpt(body)}"
        if status in REFUSALS:
            return NoReply(message, refused=True)
        is_temporary = status in TEMPORARY or status >= 500
        if is_temporary and "insufficient_quota" not in body:
            return NoReply(message)
        advice = ADVICE.get(status, "change the setting that it names").format(model=self.model)
        return EndpointError(f"{message}; {advice}")

    def _cause(self, error: Exception) -> str:
        cause = error.__cause__ or error
        return self._scrubbed(str(cause) or type(cause).__name__)

    def _scrubbed(self, text: str) -> str:
        """The text without the API key, which a server may repeat."""
        if len(self._key) < SHORTEST_KEY:
            return text
        escaped = self._key.replace("/", "\\/")  # as some write JSON
        return text.replace(self._key, "[key]").replace(escaped, "[key]")


def _checked_host(address: str) -> str:
    """The host of an address; ValueError if it has none, or may hold a secret."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{address!r} is not an address; give one like http://localhost:8000/v1")
    if parts.username or parts.query:  # would be saved beside the results
        raise ValueError("an address with a user or a query may hold a secret; use --key_env")
    return parts.hostname


def _key_of(variable: str) -> str:
    """The API key in an environment variable."""
    key = os.environ.get(variable, "").strip()
    if not re.fullmatch(r"[!-~]+", key):
        raise ValueError(f"the environment variable {variable} holds no API key")
    return key


def _pause(retry_after: str) -> float:
    """Seconds to wait where a server limits the rate, as it says or as we choose."""
    try:
        return max(PAUSE_SECONDS, float(retry_after))
    except ValueError:  # none, or a date
        return PAUSE_SECONDS


def _excerpt(body: str) -> str:
    return " ".join(body.split())[:EXCERPT_CHARACTERS]


def _reply(body: str) -> Reply:
    """Parses the body of a chat completion; NoReply if it holds none."""
    try:
        completion = json.loads(body)
        usage = completion.get("usage") or {}
        choice = completion["choices"][0]
        message = choice["message"]
        content = message.get("content") or message.get("refusal")
        finish_reason = _text(choice.get("finish_reason"), "")
        reasoning = message.get("reasoning_content") or message.get("reasoning")
        thinking_parts = _text(content, "thinking") if isinstance(content, list) else ""
        reply = Reply(
            text=_text(content, "text"),
            thinking=_text(reasoning, "text") or thinking_parts,
            finish_reason=finish_reason,
            prompt_tokens=_count(usage.get("prompt_tokens")),
            completion_tokens=_completion_tokens(usage),
        )
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError):
        excerpt = _excerpt(body[:EXCERPT_CHARACTERS])
        raise NoReply(f"the answer holds no chat completion: {excerpt!r}") from None
    if finish_reason == FILTERED:
        raise NoReply("the server's filter cut the reply off", refused=True)
    return reply


def _completion_tokens(usage: Mapping[str, Any]) -> int | None:
    """Tokens to pay for; Gemini counts those of its thinking only in the total."""
    prompt = _count(usage.get("prompt_tokens"))
    completion = _count(usage.get("completion_tokens"))
    total = _count(usage.get("total_tokens"))
    if prompt is None or total is None:
        return completion
    return max(completion or 0, total - prompt)


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < LARGEST_COUNT else None


def _text(content: Any, kind: str) -> str:
    """A string, or the parts of this kind in a list, as text that UTF-8 can encode."""
    if isinstance(content, list):
        contents = [part.get(kind) for part in content if isinstance(part, dict)]
        content = "".join(_text(value, "text") for value in contents)
    return content.encode(errors="replace").decode() if isinstance(content, str) else ""
