"""An OpenAI-compatible endpoint: its models, and one request at a time (`run_all` makes many).

The `openai` package sends, and retries 429, 5xx and lost connections with back-off, and after a
`Retry-After` of up to two minutes.

An answer of status 400, 403, 413 or 422 may concern one request (moderation, a prompt that is too
long) or all of them (a wrong setting). It concerns one once any request has had a reply. Where none
has yet, a plain question with the same settings finds out.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import anyio
import openai

CONNECT_SECONDS = 4.0
LISTING_SECONDS = 5.0
RETRIES = 16  # about two minutes of back-off
UNANSWERED = 8  # requests in a row, with no reply to any other, that end the run
SHORTEST_KEY = 12  # a shorter one, such as "EMPTY", may be a word of any text
LARGEST_COUNT = 10**9  # of tokens
EXCERPT_CHARACTERS = 300
LOOPBACK = ("localhost", "127.0.0.1", "::1")
CHAT_PATH = "/chat/completions"

MAYBE_ONE_REQUEST = (400, 403, 413, 422)  # statuses of requests that are refused
TEMPORARY = (408, 409, 429)  # and all from 500 on
ADVICE = {
    401: "it needs an API key: name the environment variable that holds a valid one (--key_env)",
    404: "it has no model {model!r}, or the address is not its base, which usually ends in /v1",
}
REFUSED_ADVICE = "change the setting that it names, or the key (--key_env)"
PLAIN_QUESTION = [{"role": "user", "content": "Is water wet? Answer with yes or no."}]


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
        self.base_url = address.rstrip("/").removesuffix(CHAT_PATH)
        host = _checked_host(self.base_url)
        self.model = model or name
        self.root = ""
        self.timeout_seconds = timeout_seconds
        self._key = _key_of(api_key_env) if api_key_env else ""
        self._address: Any = {"base_url": self.base_url, "api_key": self._key or "none"}
        self._proxies = host not in LOOPBACK
        self._client: openai.AsyncOpenAI | None = None
        self._unanswered = 0
        self._last_reply: float | None = None  # when it came
        self._refuses_all: EndpointError | None = None

    def connect(self) -> Endpoint:
        """Checks within seconds that a server answers, and fills in the name of its only model."""
        roots = self._listed_models()
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
        """The models that the endpoint lists; {} where it lists none, or not in a known form.

        By name, the folder or hub id that the server was started with (`root`), "" where the
        endpoint does not say. vLLM's `created` is the time of the request and tells nothing.
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
            if error.status_code in (401, 403) or not self.model:
                raise EndpointError(
                    str(self._read(error.status_code, error.response.text))
                ) from None
        except (ValueError, TypeError, AttributeError):
            pass  # a page instead of a list
        return {}

    async def __aenter__(self) -> Endpoint:
        self._client = openai.AsyncOpenAI(
            **self._address,
            timeout=openai.Timeout(self.timeout_seconds, connect=CONNECT_SECONDS),
            max_retries=RETRIES,
            http_client=openai.DefaultAioHttpClient(trust_env=self._proxies),
        )
        self._plain_question_lock = asyncio.Lock()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._client:
            await self._client.close()

    async def chat(self, messages: Sequence[Any], **parameters: Any) -> Reply:
        """One reply, or NoReply or EndpointError; parameters that are None are not sent."""
        began = time.monotonic()
        answer = await self._answer(messages, parameters)
        if isinstance(answer, Reply):
            return answer
        if isinstance(answer, NoReply) and answer.refused:
            await self._check_that_others_are_answered(answer, parameters)
        elif isinstance(answer, NoReply):
            self._count_unanswered(answer, began)
        raise answer

    async def _answer(
        self, messages: Sequence[Any], parameters: Mapping[str, Any]
    ) -> Reply | NoReply | EndpointError:
        """The answer to a request."""
        assert self._client, "an endpoint is used inside `async with`"
        sent = {name: value for name, value in parameters.items() if value is not None}
        body = {"model": self.model, "messages": list(messages), **sent}
        try:
            with anyio.fail_after(self.timeout_seconds):
                text = await self._client.post(CHAT_PATH, cast_to=str, body=body)
        except openai.APIStatusError as error:
            return self._read(error.status_code, error.response.text)
        except TimeoutError:
            return NoReply(f"no reply within {self.timeout_seconds:g} s")
        except (openai.APIConnectionError, aiohttp.ClientError) as error:
            return NoReply(f"connection lost: {self._cause(error)}")
        answer = self._read(200, text)
        if isinstance(answer, Reply):
            self._unanswered = 0
            self._last_reply = time.monotonic()
        return answer

    async def _check_that_others_are_answered(
        self, refusal: NoReply, parameters: Mapping[str, Any]
    ) -> None:
        """EndpointError if no request has had a reply, and a plain question gets none either."""
        async with self._plain_question_lock:
            if self._last_reply is not None:
                return
            if self._refuses_all:
                raise self._refuses_all
            answer = await self._answer(PLAIN_QUESTION, parameters)
            if isinstance(answer, Reply):
                return
            if isinstance(answer, NoReply) and not answer.refused:
                raise answer  # which tells nothing of the settings
            self._refuses_all = EndpointError(
                f"{refusal}; it refuses a plain question as well: {REFUSED_ADVICE}"
            )
            raise self._refuses_all

    def _count_unanswered(self, answer: NoReply, began: float) -> None:
        """EndpointError where many in a row have had no reply, and no other since they began."""
        self._unanswered += 1
        silent = self._last_reply is None or self._last_reply < began
        if self._unanswered >= UNANSWERED and silent:
            raise EndpointError(f"{self.base_url} no longer replies; the last: {answer}")

    def _read(self, status: int, body: str) -> Reply | NoReply | EndpointError:
        """What an answer says."""
        body = self._scrubbed(body)
        if status == 200:
            try:
                return _reply(body)
            except ValueError as error:
                return NoReply(f"the answer holds no chat completion: {error}")
        message = f"{self.base_url} answered {status}: {_excerpt(body)}"
        if status in MAYBE_ONE_REQUEST:
            return NoReply(message, refused=True)
        if _is_temporary(status) and "insufficient_quota" not in body:
            return NoReply(message)
        advice = ADVICE.get(status, "change the setting that it names").format(model=self.model)
        return EndpointError(f"{message}; {advice}")

    def _cause(self, error: Exception) -> str:
        cause = error.__cause__ or error
        return self._scrubbed(str(cause) or type(cause).__name__)

    def _scrubbed(self, text: str) -> str:
        """The text without the API key, which an endpoint may repeat."""
        if len(self._key) < SHORTEST_KEY:
            return text
        escaped = self._key.replace("/", "\\/")  # as some write JSON
        return text.replace(self._key, "[key]").replace(escaped, "[key]")


def _checked_host(address: str) -> str:
    """The host of an address; ValueError if it is none, or may hold a secret."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{address!r} is no address; give one like http://localhost:8000/v1")
    if parts.username or parts.query:  # would be saved beside the results
        raise ValueError("an address with a user or a query may hold a secret; use --key_env")
    return parts.hostname


def _key_of(variable: str) -> str:
    """The API key in an environment variable."""
    key = os.environ.get(variable, "").strip()
    if not re.fullmatch(r"[!-~]+", key):
        raise ValueError(f"the environment variable {variable} holds no API key")
    return key


def _is_temporary(status: int) -> bool:
    return status in TEMPORARY or status >= 500


def _excerpt(body: str) -> str:
    return " ".join(body.split())[:EXCERPT_CHARACTERS]


def _reply(body: str) -> Reply:
    """The reply in the body of a chat completion; ValueError where there is none."""
    try:
        completion = json.loads(body)
        usage = completion.get("usage") or {}
        choice = completion["choices"][0]
        message = choice["message"]
        content = message.get("content")
        reasoning = message.get("reasoning_content") or message.get("reasoning")
        thinking_parts = _text(content, "thinking") if isinstance(content, list) else ""
        return Reply(
            text=_text(content, "text"),
            thinking=_text(reasoning, "text") or thinking_parts,
            finish_reason=_text(choice.get("finish_reason"), ""),
            prompt_tokens=_count(usage.get("prompt_tokens")),
            completion_tokens=_completion_tokens(usage),
        )
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError):
        raise ValueError(repr(_excerpt(body[:EXCERPT_CHARACTERS]))) from None


def _completion_tokens(usage: Mapping[str, Any]) -> int | None:
    """Tokens that are paid for; Gemini counts those of thinking in the total alone."""
    prompt = _count(usage.get("prompt_tokens"))
    completion = _count(usage.get("completion_tokens"))
    total = _count(usage.get("total_tokens"))
    if prompt is None or total is None:
        return completion
    return max(completion or 0, total - prompt)


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < LARGEST_COUNT else None


def _text(content: Any, kind: str) -> str:
    """A string, or the parts of that kind in a list, as text that UTF-8 can encode."""
    if isinstance(content, list):
        contents = [part.get(kind) for part in content if isinstance(part, dict)]
        content = "".join(_text(value, "text") for value in contents)
    return content.encode(errors="replace").decode() if isinstance(content, str) else ""
