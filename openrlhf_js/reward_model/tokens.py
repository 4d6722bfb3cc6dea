"""Who may ask: the bearer token, and where a server may listen without one."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
from pathlib import Path

TOKEN_VARIABLE = "OPENRLHF_JS_REWARD_TOKEN"  # of the environment, for servers and clients
SHORTEST_TOKEN = 16


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def read_token(variable: str | None, file: Path | None) -> str | None:
    """The token from a file or else from an environment variable's value; None if neither is given.

    Raises:
        ValueError: it cannot be read, or it is too short or not plain ASCII to be a secret.
    """
    try:
        text = file.read_text("ascii") if file else variable
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not ASCII"
        raise ValueError(f"the token file {file} cannot be read: {reason}") from None
    if text is None:
        return None
    token = text.strip()
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        raise ValueError(
            f"the token has {len(token)} characters; give {SHORTEST_TOKEN} or more, of printable "
            "ASCII, as `openssl rand -hex 32` prints them"
        )
    return token


def allowed(header: bytes | None, token: str) -> bool:
    """Whether an Authorization header brings the token.

    It is a bearer token, or the password of basic authentication: clients without a setting for
    tokens, as OpenRLHF's own, send that for http://any:TOKEN@host:port/get_reward.
    """
    scheme, _, given = (header or b"").strip().partition(b" ")
    given = given.strip()
    if scheme.lower() == b"basic":
        try:
            given = base64.b64decode(given, validate=True).partition(b":")[2]
        except binascii.Error:
            return False
    elif scheme.lower() != b"bearer":
        return False
    return hmac.compare_digest(given, token.encode())
