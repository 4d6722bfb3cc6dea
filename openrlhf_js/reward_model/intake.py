"""Takes requests in and sends answers out, whatever a client does with its connection."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import anyio

from openrlhf_js.reward_model.requests import Limits

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = dict[bytes, bytes]

RETRY_AFTER_SECONDS = b"1"
# Of a body that is too large, so much is read and let go of: else its sender, who is at it, would
# not hear the answer.
LINGER = 4  # times the allowed body
LINGER_SECONDS = 2.0


class Refused(Exception):
    """A request that is answered with an error.

    Attributes:
        status: the HTTP status.
        retry: whether the same request may go well a little later.
        close: whether the connection ends, since the rest of the request is not read.
    """

    def __init__(self, status: int, problem: str, *, retry: bool = False, close: bool = False):
        super().__init__(problem)
        self.status = status
        self.retry = retry
        self.close = close


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


class Intake:
    """Reads bodies, and knows how much memory they take together.

    Attributes:
        held_bytes: of the bodies that were read and not released, and of those being read.
    """

    def __init__(self, limits: Limits):
        self._limits = limits
        self.held_bytes = 0

    def release(self, body: bytearray) -> None:
        """Says that a request is answered."""
        self.held_bytes -= len(body)

    async def read(self, headers: Headers, receive: Receive) -> bytearray:
        """The whole body; its bytes are held until it is released.

        Raises:
            Refused: it is of a kind, a size or a slowness that is not allowed.
            ClientGone: the client has hung up.
        """
        _check_kind(headers)
        most = self._limits.body_bytes
        declared = headers.get(b"content-length", b"0")
        size = int(declared) if declared.isdigit() and len(declared) < 20 else most + 1
        body = bytearray()
        try:
            with anyio.fail_after(self._limits.body_seconds):
                if size > most:
                    await self._let_go(receive, size)
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGone
                    chunk = message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) + len(chunk) > most:
                        await self._let_go(receive, len(body) + len(chunk), more)
                    if self.held_bytes + len(chunk) > self._limits.held_bytes:
                        raise Refused(503, "too much is being read", retry=True, close=more)
                    body += chunk
                    self.held_bytes += len(chunk)
                    if not more:
                        return body
        except BaseException as error:
            self.release(body)
            if isinstance(error, TimeoutError):
                allowed = f"it has {self._limits.body_seconds:g} s"
                raise Refused(408, f"the body did not arrive: {allowed}", close=True) from None
            raise

    async def _let_go(self, receive: Receive, size: int, more: bool = True) -> None:
        """Reads the rest of a body that is too large, keeping nothing; always raises."""
        most = self._limits.body_bytes
        left = LINGER * most
        with anyio.move_on_after(min(LINGER_SECONDS, self._limits.body_seconds / 4)):
            while more and left > 0 and size <= LINGER * most:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                left -= len(message.get("body", b"")) + 1
                more = message.get("more_body", False)
        raise Refused(413, f"the body is too large: at most {most} bytes are allowed", close=more)


def _check_kind(headers: Headers) -> None:
    kind = headers.get(b"content-type", b"").decode("latin-1").lower()
    media_type, *parameters = (part.strip() for part in kind.split(";"))
    if media_type != "application/json":
        came = repr(media_type[:60]) if media_type else "missing"
        raise Refused(415, f"content-type is {came}; it must be application/json", close=True)
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name == "charset" and value.strip('"') not in ("utf-8", "utf8", "us-ascii"):
            raise Refused(415, f"charset is {value[:40]!r}; it must be utf-8", close=True)
    coding = headers.get(b"content-encoding", b"identity").strip().lower()
    if coding != b"identity":
        came = repr(coding[:40].decode("latin-1"))
        raise Refused(415, f"content-encoding is {came}; bodies must be uncompressed", close=True)
    transfer = headers.get(b"transfer-encoding", b"chunked").strip().lower()
    if transfer != b"chunked":
        came = repr(transfer[:40].decode("latin-1"))
        raise Refused(415, f"transfer-encoding is {came}; only chunked is known", close=True)


async def send_json(
    send: Send, status: int, content: Any, *, retry: bool = False, close: bool = False
) -> None:
    """Sends an answer."""
    body = json.dumps(content, allow_nan=False).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if retry:
        headers.append((b"retry-after", RETRY_AFTER_SECONDS))
    if close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
