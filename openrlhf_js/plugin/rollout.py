"""The rollout actor: no response leaves it with a reward that nobody computed.

Upstream logs a grader's exception at INFO and goes on with `None`. Here the reward is checked in
the process that asked for it, where the prompt and the error are still known.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import math
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import ray
import torch
from openrlhf.utils.agent import SingleTurnAgentExecutor

from openrlhf_js.plugin.errors import BadReward
from openrlhf_js.plugin.remote_rewards import RemoteRewards
from openrlhf_js.plugin.upstream import plain_class

logger = logging.getLogger(__name__)

GREEDY_REWARD = "greedy_reward"  # the key under which remax's reward travels with a response

ERROR = "openrlhf_js_error"

GRADING_THREADS = 64

_error: ContextVar[Exception | None] = ContextVar("grader's error", default=None)


def as_number(reward: Any) -> float:
    """The one finite number that a grader returned for one response.

    Args:
        reward: a number, or a tensor, array or list that holds exactly one.

    Raises:
        BadReward: it is None, not finite, not a number, or not exactly one.
    """
    try:
        values = torch.as_tensor(reward, dtype=torch.float64).flatten().tolist()
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise BadReward(f"the reward is {reward!r}, not a number") from None
    if len(values) != 1:
        raise BadReward(f"{len(values)} rewards came back for one response")
    if not math.isfinite(values[0]):
        raise BadReward(f"the reward is {values[0]}")
    return values[0]


def settle(response: dict[str, Any], error: Exception | None, on_bad_reward: str) -> None:
    """Makes the reward and the score of a graded response finite floats, or masks the response.

    Args:
        response: as upstream's executor returns it; changed in place.
        error: what the grader raised, if it did.
        on_bad_reward: "stop" raises; "mask" leaves a NaN reward, which the experience maker masks.

    Raises:
        BadReward: there is no such reward and `on_bad_reward` is "stop".
    """
    try:
        if isinstance(error, BadReward):
            raise error
        if error:
            raise BadReward(f"the grader failed: {type(error).__name__}: {error}")
        score = response.get("scores")
        response["reward"] = as_number(response.get("reward"))
        response["scores"] = response["reward"] if score is None else as_number(score)
    except BadReward as bad:
        prompt, label = str(response.get("prompt")), str(response.get("label"))
        message = f"{bad} (prompt {prompt[-400:]!r}, label {label[:200]!r})"
        if on_bad_reward == "stop":
            raise BadReward(message) from error
        logger.warning("response masked: %s", message)
        response.update(reward=math.nan, scores=None, extra_logs={})


class RememberingExecutor(SingleTurnAgentExecutor):
    """Upstream's executor with our HTTP client, whose responses also bear a grader's error."""

    def __init__(self, remote_rm_url: Any, remote: RemoteRewards | None = None):
        """
        Args:
            remote_rm_url: upstream's argument: a reward file or addresses.
            remote: asks the addresses, where there are any.
        """
        super().__init__(remote_rm_url)
        self._remote = remote

    async def _fetch_rewards_via_func(self, *lists: Any) -> Any:
        return await _remember_error(super()._fetch_rewards_via_func(*lists))

    async def _fetch_rewards_via_http(self, *lists: Any) -> Any:
        assert self._remote is not None
        return await _remember_error(asyncio.gather(*map(self._remote.grade, *lists)))

    async def execute(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """One response, as upstream's executor returns it, with the key `ERROR`."""
        _error.set(None)
        response = await super().execute(*args, **kwargs)
        return {**response, ERROR: _error.get()}


async def _remember_error(grading: Awaitable[Any]) -> Any:
    try:
        answers = await grading
        for answer in answers:
            if not isinstance(answer, dict):
                raise TypeError(f"it returned {type(answer).__name__}, not a dict of rewards")
    except Exception as error:  # upstream swallows it one frame up
        _error.set(error)
        raise
    return answers


def checked_rollout(
    actor_class: Any,
    on_bad_reward: str,
    greedy: bool,
    remote: Callable[[], RemoteRewards] | None = None,
) -> Any:
    """Upstream's rollout actor, its rewards settled; made in here so that Ray sends it by value.

    Args:
        actor_class: upstream's `@ray.remote` class.
        on_bad_reward: "stop" or "mask".
        greedy: whether each prompt also gets one greedy response (remax), whose reward the other
            responses bear in their logs under `GREEDY_REWARD`.
        remote: makes, in the actor, the client of reward models behind HTTP; None without any.

    Returns:
        An actor class that takes the same arguments.
    """

    class CheckedRollout(plain_class(actor_class)):  # type: ignore[misc]
        executor: Any

        async def __init__(  # type: ignore[misc]  # Ray awaits it
            self, *args: Any, remote_rm_url: Any = None, **kwargs: Any
        ) -> None:
            await super().__init__(*args, remote_rm_url=remote_rm_url, **kwargs)
            # graders run in its threads; asyncio's own, a few for each core, a few answers that
            # hang would fill
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(GRADING_THREADS))
            if type(self.executor) is SingleTurnAgentExecutor:
                self.executor = RememberingExecutor(remote_rm_url, remote and remote())

        async def generate_responses(
            self, prompt: str, label: str, sampling_params: Any, *args: Any, **kwargs: Any
        ) -> list[dict[str, Any]]:
            jobs = [super().generate_responses(prompt, label, sampling_params, *args, **kwargs)]
            if greedy:
                at_zero = copy.deepcopy(sampling_params)
                at_zero.temperature, at_zero.top_p, at_zero.top_k = 0.0, 1.0, 0
                one = {**kwargs, "num_samples": 1}
                jobs.append(super().generate_responses(prompt, label, at_zero, *args, **one))
            responses, *extra = await asyncio.gather(*jobs)
            # without endpoints of its own, a reward model in the trainer's loop will grade it
            if getattr(self.executor, "reward_endpoints", True):
                for response in [*responses, *(best for (best,) in extra)]:
                    settle(response, response.pop(ERROR, None), on_bad_reward)
            for (best,) in extra:
                for response in responses:
                    logs = response.get("extra_logs") or {}
                    response["extra_logs"] = {**logs, GREEDY_REWARD: best["reward"]}
            return responses

    return ray.remote(CheckedRollout)
