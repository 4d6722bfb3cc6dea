"""What a request for rewards must be: strict types, and limits on all that a client chooses."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import islice
from typing import Any

_STRING_OR_VALUE = re.compile(rb'"[^"]*"?|[\[{,]')  # where no quote is escaped
_SMALL_BODY = 1 << 16  # too short to hold many values


class BadRequest(ValueError):
    """What a client sent cannot be scored.

    Attributes:
        status: the HTTP status that says so.
    """

    def __init__(self, status: int, problem: str):
        super().__init__(problem)
        self.status = status


@dataclass(frozen=True)
class Limits:
    """What the server takes from its clients.

    Attributes:
        body_bytes: of a request.
        queries: of a request.
        characters: of a query.
        held_bytes: of all bodies that are being read or answered at a time.
        body_seconds: for a request's body to arrive.
        head_seconds: for its head.
        answer_seconds: for its scores to be computed.
        drain_seconds: for what is under way when the server is told to end.
    """

    body_bytes: int = 8 << 20
    queries: int = 1024
    characters: int = 1 << 18
    held_bytes: int = 256 << 20
    body_seconds: float = 20.0
    head_seconds: float = 10.0
    answer_seconds: float = 150.0
    drain_seconds: float = 60.0


def parse(body: bytes | bytearray, limits: Limits) -> list[str]:
    """The queries of a request's body; its prompts and labels are of no use to a reward model.

    Raises:
        BadRequest: what came, and what is allowed.
    """
    most = 32 * limits.queries
    if len(body) > _SMALL_BODY and _has_more_values(body, most):
        raise BadRequest(413, f"the body holds over {most} values: send fewer queries at once")
    try:
        data = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise BadRequest(400, f"the body is not UTF-8: byte {error.start}") from None
    except RecursionError:
        raise BadRequest(400, "the body is nested too deeply") from None
    except ValueError as error:
        raise BadRequest(400, f"the body is not JSON: {error!s:.100}") from None
    if not isinstance(data, dict):
        raise BadRequest(422, f'the body is {_kind(data)}; send {{"query": [texts]}}')
    if "query" not in data:
        raise BadRequest(422, 'there is no "query": send {"query": [texts]}')
    queries = data["query"]
    if not isinstance(queries, list):
        raise BadRequest(422, f'"query" is {_kind(queries)}; it must be a list of texts')
    if len(queries) > limits.queries:
        raise BadRequest(413, f"{len(queries)} queries; at most {limits.queries} at once")
    for number, query in enumerate(queries):
        if not isinstance(query, str):
            raise BadRequest(422, f"query {number} is {_kind(query)}; it must be a text")
        if len(query) > limits.characters:
            allowed = f"at most {limits.characters} are allowed"
            raise BadRequest(413, f"query {number} has {len(query)} characters; {allowed}")
        if not query.isascii() and any("\ud800" <= character <= "\udfff" for character in query):
            raise BadRequest(422, f"query {number} holds half a character (a lone surrogate)")
    return queries


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _has_more_values(body: bytes | bytearray, most: int) -> bool:
    """Whether the body has more texts, commas and brackets than that.

    A list or an object takes a hundred times the memory of its two bytes: this is known before any
    of them is made.
    """
    if sum(map(body.count, (b"[", b"{", b","))) <= most:  # at once, strings or not
        return False
    plain = body.replace(rb"\\", b"").replace(rb"\"", b"")
    return next(islice(_STRING_OR_VALUE.finditer(plain), most, None), None) is not None


def _kind(value: Any) -> str:
    """A JSON value's type, in JSON's words."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "a boolean", int: "a number"}
    return "null" if value is None else names.get(type(value), "a number")
