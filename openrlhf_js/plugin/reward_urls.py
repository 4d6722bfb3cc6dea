"""Which reward models a run asks over HTTP, with what weights, and on which servers.

--reward.remote_url http://a/get_reward,http://b/get_reward
    one model on two servers: either gives the reward
--reward.remote_url help=http://a/get_reward,help=http://b/get_reward,harm=http://c/get_reward
--js.reward_weights help=0.8,harm=0.2
    two models, the first on two servers: the reward is 0.8 x help + 0.2 x harm
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from openrlhf_js.plugin.errors import BadInput
from openrlhf_js.reward_model.tokens import TOKEN_VARIABLE

NAMED = re.compile(r"([A-Za-z][\w-]*)=(.*)", re.DOTALL)


class RewardSource(NamedTuple):
    """One reward model: what its reward is multiplied by, and the servers that have it."""

    name: str  # "" for the only one, if it was given none
    weight: float
    urls: tuple[str, ...]


def parse(addresses: Sequence[str], weights: str | None) -> list[RewardSource]:
    """The reward models that `--reward.remote_url` and `--js.reward_weights` describe.

    Args:
        addresses: of `--reward.remote_url`, cut at its commas; each `URL` or `NAME=URL`.
        weights: of `--js.reward_weights`: `NAME=NUMBER,...`, or None.

    Raises:
        BadInput: every problem found, one per line.
    """
    models: dict[str, list[str]] = {}
    addresses = [address.strip() for address in addresses]
    for address in addresses:
        named = NAMED.fullmatch(address)
        name, url = named.groups() if named else ("", address)
        models.setdefault(name, []).append(url)
    numbers, problems = _weights(weights)
    problems += [
        f"--reward.remote_url {url}: {problem}"
        for urls in models.values()
        for url in urls
        if (problem := _url_problem(url))
    ]
    if len(set(addresses)) < len(addresses):
        problems.append(f"--reward.remote_url {','.join(addresses)}: an address comes twice")
    if "" in models and len(models) > 1:
        problems.append(
            f"--reward.remote_url {','.join(addresses)}: some addresses have a name and some have "
            "none; servers of the same model get the same name"
        )
    elif weights is None and len(models) == 1:
        numbers = dict.fromkeys(models, 1.0)
    elif "" in models and not problems:
        problems.append(
            f"--js.reward_weights {weights}: the addresses of --reward.remote_url have no names; "
            "write NAME=http://..."
        )
    elif set(numbers) != set(models) and not problems:
        problems.append(
            f"--js.reward_weights {weights}: give one NAME=NUMBER for each reward model of "
            f"--reward.remote_url ({', '.join(models)})"
        )
    if problems:
        raise BadInput("\n".join(problems))
    return [RewardSource(name, numbers[name], tuple(urls)) for name, urls in models.items()]


def _weights(text: str | None) -> tuple[dict[str, float], list[str]]:
    numbers: dict[str, float] = {}
    problems = []
    for item in text.split(",") if text is not None else []:
        name, _, number = item.strip().partition("=")
        try:
            weight = float(number)
        except ValueError:
            weight = math.nan
        if name in numbers:
            problems.append(f"--js.reward_weights {text}: {name} comes twice")
        elif not name or not math.isfinite(weight) or weight == 0:
            problems.append(
                f"--js.reward_weights {item}: must be NAME=NUMBER, the number finite and not 0"
            )
        numbers[name] = weight
    return numbers, problems


def _url_problem(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # the port is only read here
    except ValueError as error:
        return f"is no address ({error})"
    if parts.scheme not in ("http", "https") or not host:
        return "neither a Python file (.py) nor an http(s) address"
    if parts.username or parts.password:
        return (
            "an address with a password in it would end up in logs: put a token into the "
            f"environment ({TOKEN_VARIABLE})"
        )
    return None
