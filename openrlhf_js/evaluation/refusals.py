"""What an endpoint will not do however often it is asked, and what its user can do about it."""

from __future__ import annotations

from openrlhf_js.evaluation.servers import Endpoint

# What says, in the answer of status 400, that these messages are the trouble and no others.
ABOUT_ONE_REQUEST = (
    b"content_filter",
    b"content management policy",
    b"context_length",
    b"context length",
    b"token count",
)


class EndpointRefused(RuntimeError):
    """An answer that asking again cannot mend; the message says what to do."""


class RequestRefused(EndpointRefused):
    """The endpoint refused these messages, and may answer others."""


class EndpointUnavailable(RuntimeError):
    """No reply, however often it was asked for; another time there may be one."""


def refusal(endpoint: Endpoint, status: int, shown: str, content: bytes) -> EndpointRefused:
    """The error for an answer with such a status.

    Args:
        shown: the answer's beginning, without a key.
        content: the answer.
    """
    said = f"{endpoint.url} answered {status}: {shown}; "
    lowered = content.lower()
    if status == 413 or (status == 400 and any(word in lowered for word in ABOUT_ONE_REQUEST)):
        return RequestRefused(said + "these messages are too long for it, or it filters them")
    return EndpointRefused(said + _advice(endpoint, status))


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
    if status == 429:
        return "the account has no credit left; add some, and call again"
    if 300 <= status < 400:
        return "it sends its callers elsewhere; give that address as the url"
    return "mend the parameters that it names, in the settings"
