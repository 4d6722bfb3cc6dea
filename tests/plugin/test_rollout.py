"""No response leaves the rollout actor with a reward that nobody computed."""

from __future__ import annotations

import asyncio
import math
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import ray
import torch

from openrlhf_js.plugin.rewards import RemoteRewards, RewardSource
from openrlhf_js.plugin.rollout import (
    ERROR,
    GREEDY_REWARD,
    RememberingExecutor,
    as_number,
    checked_rollout,
    settle,
)
from openrlhf_js.plugin.upstream import BadReward, plain_class


@pytest.mark.parametrize("reward", [1, 0.5, True, [0.5], torch.tensor([2.0]), np.float32(3)])
def test_one_finite_number_is_a_reward(reward):
    assert as_number(reward) == float(torch.as_tensor(reward).flatten()[0])


@pytest.mark.parametrize("reward", [None, math.nan, math.inf, "good", [], [1.0, 2.0], {"a": 1}])
def test_anything_else_is_not(reward):
    with pytest.raises(BadReward):
        as_number(reward)


class _Engine:
    async def generate(self, tokens, params, multi_modal_data=None):
        output = SimpleNamespace(token_ids=[5, 6], finish_reason="stop", logprobs=None)
        return SimpleNamespace(outputs=[output])


class _Tokenizer:
    def __call__(self, text, **_):
        return {"input_ids": torch.tensor([[1, 2, 3]])}

    def decode(self, tokens, **_):
        return "the query"


async def execute(*executor) -> dict:
    return await RememberingExecutor(*executor).execute(
        prompt="the prompt",
        label="the label",
        sampling_params=SimpleNamespace(max_tokens=4, logprobs=None),
        max_length=16,
        hf_tokenizer=_Tokenizer(),
        llm_engine=_Engine(),
    )


def respond(tmp_path, grader: str, on_bad_reward: str):
    path = tmp_path / "grader.py"
    path.write_text(f"def reward_func(queries, prompts, labels):\n    {grader}\n")
    response = asyncio.run(execute([str(path)]))
    settle(response, response.pop(ERROR), on_bad_reward)
    return response


def test_a_good_reward_passes_as_a_float(tmp_path):
    response = respond(tmp_path, "return {'rewards': [0.25], 'extra_logs': {'n': 1}}", "stop")
    assert (response["reward"], response["scores"]) == (0.25, 0.25)
    assert response["extra_logs"] == {"n": 1}


BAD = {
    "raise KeyError('gone')": "KeyError: 'gone'",
    "return None": "TypeError: it returned NoneType",
    "return [1.0]": "TypeError: it returned list",
    "return {}": "the reward is None",
    "return {'rewards': [float('nan')]}": "the reward is nan",
    "return {'rewards': []}": "0 rewards came back",
    "return {'rewards': 10**400}": "not a number",
}


@pytest.mark.parametrize(("grader", "message"), BAD.items())
def test_a_bad_reward_stops_or_is_marked_for_masking(tmp_path, grader, message):
    with pytest.raises(BadReward, match="the prompt") as caught:
        respond(tmp_path, grader, "stop")
    assert message in str(caught.value)
    masked = respond(tmp_path, grader, "mask")
    assert math.isnan(masked["reward"]) and masked["scores"] is None


def test_a_served_reward_that_cannot_be_had_stops_or_is_marked_for_masking():
    nobody = "http://127.0.0.1:9/get_reward"

    async def respond():
        remote = RemoteRewards([RewardSource("", 1.0, (nobody,))], timeout_seconds=0.5)
        response = await execute([nobody], remote)
        await remote.close()
        return response

    response = asyncio.run(respond())
    error = response.pop(ERROR)
    with pytest.raises(BadReward, match=r"no reward within 0\.5 s") as caught:
        settle(dict(response), error, "stop")
    assert nobody in str(caught.value) and "the prompt" in str(caught.value)
    settle(response, error, "mask")
    assert math.isnan(response["reward"]) and response["scores"] is None


class _Params:
    temperature, top_p, top_k = 0.7, 0.9, 40


class _Rollout:
    """Upstream's rollout actor as far as `checked_rollout` leans on it."""

    executor = object()  # an agent's, of its own making

    async def generate_responses(self, prompt, label, sampling_params, num_samples=1):
        self.asked = [*getattr(self, "asked", []), (sampling_params.temperature, num_samples)]
        reward = 9.0 if sampling_params.temperature == 0 else 1.0
        return [{"reward": reward, "extra_logs": {}} for _ in range(num_samples)]


@pytest.mark.parametrize("greedy", [False, True])
def test_remax_asks_for_one_more_response_at_temperature_zero(greedy):
    cls = plain_class(checked_rollout(ray.remote(_Rollout), "stop", greedy))
    actor = cls.__new__(cls)
    responses = asyncio.run(actor.generate_responses("prompt", "label", _Params(), num_samples=3))
    assert [response["reward"] for response in responses] == [1.0] * 3
    logs = [response["extra_logs"] for response in responses]
    assert logs == ([{GREEDY_REWARD: 9.0}] * 3 if greedy else [{}] * 3)
    assert sorted(actor.asked) == ([(0.0, 1), (0.7, 3)] if greedy else [(0.7, 3)])


def test_answers_that_hang_do_not_keep_others_from_being_graded():
    class Actor:
        executor = object()

        async def __init__(self, remote_rm_url=None):
            pass

    async def grade():
        await actor.__init__()
        hang = threading.Event()
        hanging = [asyncio.to_thread(hang.wait, 20) for _ in range(40)]
        waiting = asyncio.gather(*hanging)
        await asyncio.sleep(0)  # those come first
        try:
            return await asyncio.wait_for(asyncio.to_thread(str, "graded"), 10)
        finally:
            hang.set()
            await waiting

    cls = plain_class(checked_rollout(ray.remote(Actor), "stop", greedy=False))
    actor = cls.__new__(cls)
    assert asyncio.run(grade()) == "graded"
