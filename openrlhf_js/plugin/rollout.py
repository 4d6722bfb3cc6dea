"""The rollout actor: no response leaves it with a reward that nobody computed.

Upstream logs a grader's exception at INFO and continues with `None`. Here the reward is checked in
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

from openrlhf_js.plugin.rewards import RemoteRewards
from openrlhf_js.plugin.upstream import BadReward, plain_class

logger = logging.getLogger(__name__)

GREEDY_REWARD = "greedy_reward"  # the key under which remax's reward travels with a response
ERROR = "openrlhf_js_error"
GRADING_THREADS = 64

_error: ContextVar[Exception | None] = ContextVar("grader's error", default=None)


def as_number(reward: Any) -> float:
    """The one finite number in a grader's reward: a number, or a tensor, array or list of one."""
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
    """Makes the reward and the score of a graded response finite floats, in place.

    `error` is the grader's exception. With `on_bad_reward` "stop" a bad reward raises BadReward;
    with "mask" it becomes NaN, which the experience maker masks.
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
    """Upstream's executor with our HTTP client; its responses keep a grader's error as `ERROR`."""

    def __init__(self, remote_rm_url: Any, remote: RemoteRewards | None = None):
        super().__init__(remote_rm_url)
        self._remote = remote

    async def _fetch_rewards_via_func(self, *lists: Any) -> Any:
        return await _remember_error(super()._fetch_rewards_via_func(*lists))

    async def _fetch_rewards_via_http(self, *lists: Any) -> Any:
        assert self._remote is not None
        return await _remember_error(asyncio.gather(*map(self._remote.grade, *lists)))

    async def execute(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
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
    """Upstream's rollout actor, its rewards settled; defined here so that Ray sends it by value.

    Args:
        actor_class: upstream's `@ray.remote` class.
        on_bad_reward: "stop" or "mask".
        greedy: whether each prompt also gets one greedy response (remax), whose reward the other
            responses carry in their logs under `GREEDY_REWARD`.
        remote: makes, in the actor, the client of reward models behind HTTP.
    """

    class CheckedRollout(plain_class(actor_class)):  # type: ignore[misc]
        executor: Any

        async def __init__(  # type: ignore[misc]  # Ray awaits it
            self, *args: Any, remote_rm_url: Any = None, **kwargs: Any
        ) -> None:
            await super().__init__(*args, remote_rm_url=remote_rm_url, **kwargs)
            # Graders run in its threads. A few graders that hang would fill asyncio's own pool,
            # which has a few threads per core.
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
            # without endpoints of its own, a reward model in Ray grades the response later
            if getattr(self.executor, "reward_endpoints", True):
                for response in [*responses, *(best for (best,) in extra)]:
                    settle(response, response.pop(ERROR, None), on_bad_reward)
            for (best,) in extra:
                for response in responses:
                    logs = response.get("extra_logs") or {}
                    response["extra_logs"] = {**logs, GREEDY_REWARD: best["reward"]}
            return responses

    return ray.remote(CheckedRollout)
