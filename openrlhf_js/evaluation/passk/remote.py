"""The old way to find a served model."""

from __future__ import annotations

from dataclasses import replace

import httpx

from openrlhf_js.evaluation.endpoint import LOOPBACK, Endpoint
from openrlhf_js.evaluation.servers import Server

PATIENCE_SECONDS = 30
MEND = "start it, or mend the address, which ends in /v1 as a rule"
SHOWN = 8  # names of models
SHOWN_TEXT = 60  # characters of an item
SEED_BITS = 31  # what every server takes


def endpoint_of(address: str, key_name: str | None, asks: bool = True) -> Endpoint:
    """The endpoint at an address: of the model after its `#`, or of the only one that it serves.

    Args:
        address: ends in /v1, as a rule, or in /v1#NAME.
        key_name: environment variable of the key, if the server wants one.
        asks: whether the server is needed even where the address names the model.

    Raises:
        ValueError: it is no address, or a name is needed, and the key's variable holds no key,
            there is no server, or it serves several models.
    """
    url, _, name = address.partition("#")
    found = Endpoint(url, name, key_name)
    if name and not asks:
        return found
    listing = _listing(found)  # a server that is down is told of now, and not after many attempts
    return found if name else replace(found, model=_only_model(found, listing))


def _listing(endpoint: Endpoint) -> httpx.Response:
    """What the server says of its models, whatever that is."""
    place = f"{endpoint.url}/models"
    headers = Server(endpoint).headers()
    own = {address: None for address in LOOPBACK}
    try:
        with httpx.Client(headers=headers, timeout=PATIENCE_SECONDS, mounts=own) as client:
            return client.get(place)
    except httpx.TransportError as error:
        kind = type(error).__name__
        raise ValueError(f"no server answers at {place} ({kind}): {MEND}") from None


def _only_model(endpoint: Endpoint, answer: httpx.Response) -> str:
    listing = f"{endpoint.url}/models"
    try:
        answer.raise_for_status()
        names = [str(each["id"]) for each in answer.json()["data"]]
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        hint = "give the key's variable with --key_env" if status in (401, 403) else MEND
        raise ValueError(f"{listing} answers with status {status}: {hint}") from None
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"{listing} does not say which models there are: name one, as in {endpoint.url}#NAME"
        ) from None
    if len(names) != 1:
        shown = ", ".join(names[:SHOWN])
        raise ValueError(
            f"{endpoint.url} serves {len(names)} models ({shown}): name one, as in "
            f"{endpoint.url}#NAME"
        )
    return names[0]
