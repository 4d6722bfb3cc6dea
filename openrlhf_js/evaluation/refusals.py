"""What an endpoint will not do however often it is asked, and what its user can do about it."""

from __future__ import annotations

import re

from openrlhf_js.evaluation.servers import Endpoint

# What says, in the answer of status 400, that these messages are the trouble and no others.
ABOUT_ONE_REQUEST = (
    b"content_filter",
    b"content management policy",
    b"context_length",
    b"context length",
    b"token count",
)
# What says that max_tokens is more than the model can take at all, and what that is.
TOO_MANY_TOKENS = re.compile(
    rb"max(_completion)?_tokens\b.{0,40}\b(too large|(cannot|must not) be (greater|larger))"
)
CONTEXT_TOKENS = re.compile(rb"maximum context length is ([\d,]{1,20})")
OTHER_NAME = "max_completion_tokens"  # what OpenAI's newer models call max_tokens


class EndpointRefused(RuntimeError):
    """An answer that asking again cannot mend; the message says what to do."""


class RequestRefused(EndpointRefused):
    """The endpoint refused these messages, and may answer others."""


class EndpointUnavailable(RuntimeError):
    """No reply, however often it was asked for; another time there may be one."""


class EndpointSilent(EndpointUnavailable):
    """None of the endpoints has given a reply to anybody for long: no need to try the others."""


class ReplyLost(EndpointUnavailable):
    """Replies that never came whole, and for which the endpoint may charge nevertheless."""


def refusal(
    endpoint: Endpoint, status: int, shown: str, content: bytes, max_tokens: int | None
) -> EndpointRefused:
    """The error for an answer with such a status.

    Args:
        shown: the answer's beginning, without a key.
        content: the answer.
        max_tokens: that were asked for; None for no limit.
    """
    said = f"{endpoint.url} answered {status}: {shown}; "
    lowered = content.lower()
    if status == 400 and _never_fits(lowered, max_tokens):
        return EndpointRefused(
            f"{said}max_tokens leaves the model no room for any messages: give fewer (--max_tokens "
            "of a judge, --max_new_tokens otherwise, or the settings'), or serve it with a longer "
            "context"
        )
    if status == 413 or (status == 400 and any(word in lowered for word in ABOUT_ONE_REQUEST)):
        return RequestRefused(
            f"{said}these messages, with max_tokens for the reply, are too long for it, or it "
            "filters them"
        )
    if status == 400 and OTHER_NAME.encode() in lowered and b"instead" in lowered:
        return EndpointRefused(
            f"{said}a judge is asked so with --max_tokens_name {OTHER_NAME}, or `max_tokens_name: "
            f"{OTHER_NAME}` in its settings"
        )
    return EndpointRefused(said + _advice(endpoint, status))


def _never_fits(lowered: bytes, max_tokens: int | None) -> bool:
    """Whether max_tokens is refused whatever the messages are."""
    context = CONTEXT_TOKENS.search(lowered)
    if context:  # else it may be that these messages are too long for what is left
        return max_tokens is not None and max_tokens >= int(context[1].replace(b",", b"") or 0)
    return bool(TOO_MANY_TOKENS.search(lowered))


def _advice(endpoint: Endpoint, status: int) -> str:
    key = endpoint.key_name
    if status == 401:
        if key is None:
            return (
                "it wants a key: put one in an environment variable NAME, and give --key_env NAME"
            )
        return f"set the environment variable {key} to a key that it accepts"
    if status == 403:
        holder = f"the key in {key}" if key else "a call without a key"
        return f"{holder} may not use the model {endpoint.model!r}; ask for access, or take another"
    if status == 404:
        return (
            f"it has no model {endpoint.model!r}, or the url is not its base, which mostly ends in "
            "/v1"
        )
    if status in (402, 429):
        return "the account has no credit left; add some, and call again"
    if 300 <= status < 400:
        return "it sends its callers elsewhere; give that address as the url"
    return "mend the parameters that it names, in the settings"
