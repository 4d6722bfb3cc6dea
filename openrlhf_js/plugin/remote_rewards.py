"""The reward of a response from reward models behind HTTP, alone or as a weighted sum."""

from __future__ import annotations

import argparse
import asyncio
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

from openrlhf_js.plugin.reward_servers import RewardServers
from openrlhf_js.plugin.reward_urls import RewardSource, parse
from openrlhf_js.reward_model.tokens import TOKEN_VARIABLE


class RemoteRewards:
    """Grades responses with one or several reward models, each on one or several servers."""

    def __init__(
        self, sources: Sequence[RewardSource], timeout_seconds: float, token: str | None = None
    ):
        """
        Args:
            sources: the models, from `reward_urls.parse`.
            timeout_seconds: how long a response may wait for its reward.
            token: the servers' bearer token.
        """
        self._models = [
            (source, RewardServers(source.urls, timeout_seconds, token)) for source in sources
        ]

    async def grade(self, query: str, prompt: str, label: Any) -> dict[str, Any]:
        """The reward of one response, as upstream's executor wants it.

        Args:
            query: the prompt and its response in one string, special tokens included.
            prompt: the prompt alone.
            label: of the prompt's row; any JSON.

        Returns:
            `rewards` and `scores`: the sum over the models of weight x reward. `extra_logs`: the
            servers' own figures and, of several models, each one's reward before weighting.

        Raises:
            BadReward: one of the models gave none.
        """
        content = {"query": [query], "prompts": [prompt], "labels": [label]}
        asked = [asyncio.ensure_future(servers.ask(content)) for _, servers in self._models]
        try:
            answers = await asyncio.gather(*asked)
        finally:  # without one of them there is no reward: the others need not go on asking
            for each in asked:
                each.cancel()
        weights = [source.weight for source, _ in self._models]
        logs: dict[str, float] = {}
        for (source, _), answer in zip(self._models, answers, strict=True):
            if len(self._models) > 1:
                logs[f"reward/{source.name}"] = answer.reward
            prefix = f"{source.name}/" if source.name else ""
            logs.update({f"{prefix}{key}": figure for key, figure in answer.logs.items()})
        return {
            "rewards": sum(w * a.reward for w, a in zip(weights, answers, strict=True)),
            "scores": sum(w * a.score for w, a in zip(weights, answers, strict=True)),
            "extra_logs": logs,
        }

    async def close(self) -> None:
        """Closes the connections."""
        await asyncio.gather(*(servers.close() for _, servers in self._models))


def client_of(args: argparse.Namespace) -> Callable[[], RemoteRewards] | None:
    """What makes the client that a run needs, in whichever process it is called; None for none.

    The token is read here, since a cluster's workers do not have this process's environment.

    Args:
        args: the nested arguments, with our `args.js`.
    """
    addresses = args.reward.remote_url
    if not addresses or args.train.agent_func_path or addresses[0].endswith(".py"):
        return None
    sources = parse(addresses, args.js.reward_weights)
    token = os.environ.get(TOKEN_VARIABLE)
    return functools.partial(RemoteRewards, sources, args.js.reward_timeout_seconds, token)
