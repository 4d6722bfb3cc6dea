"""Tasksets of verifiers as an agent of OpenRLHF, for `--train.agent_func_path agent.py`.

# agent.py
from openrlhf_js.trainers.openrlhf.tasksets import executor
from openrlhf_js.trainers.verifiers import Tasks

TASKS = Tasks({"taskset": {"id": "my_tasks"}, "agent": {...}})
AgentExecutor = executor(TASKS)
if __name__ == "__main__":
    TASKS.write("tasks.jsonl")
"""

from __future__ import annotations

import copy
from itertools import groupby
from typing import Any

from openrlhf.utils.agent import AgentExecutorBase
from renderers.client import OverlongPromptError

from openrlhf_js.trainers.verifiers import Sampled, Scored, Tasks, Unscored


def executor(tasks: Tasks) -> type[AgentExecutorBase]:
    """The executor of a taskset; a row's label is its task.

    A rollout that was not scored gets the error as its reward, which `--js.on_bad_reward` stops at
    or masks.
    """

    class TasksetExecutor(AgentExecutorBase):  # type: ignore[misc]
        async def execute(
            self,
            prompt: str,
            label: str,
            sampling_params: Any,
            max_length: int,
            hf_tokenizer: Any,
            llm_engine: Any,
            images: Any = None,
        ) -> dict[str, Any]:
            async def sample(context: list[int], stop: list[int]) -> Sampled:
                room = max_length - len(context)
                if room < 1:
                    raise OverlongPromptError(
                        prompt_len=len(context), max_prompt_len=max_length - 1
                    )
                params = copy.deepcopy(sampling_params)
                params.max_tokens = min(params.max_tokens or room, room)
                params.stop_token_ids = [*(params.stop_token_ids or ()), *stop]
                params.logprobs = params.logprobs or 0
                (output,) = (await llm_engine.generate(context, params)).outputs
                token_ids = list(output.token_ids)
                pairs = zip(token_ids, output.logprobs, strict=True)
                log_probs = [known[token].logprob for token, known in pairs]
                return Sampled(token_ids, log_probs, output.finish_reason == "length")

            reward: Any
            try:
                async with tasks.places:
                    row = await tasks.run(label, hf_tokenizer.name_or_path, sample)
                reward = row.reward
            except Unscored as error:
                tokens = hf_tokenizer(prompt, add_special_tokens=False)["input_ids"]
                tokens = [*tokens[: max_length - 1], hf_tokenizer.eos_token_id]
                mask = [False] * (len(tokens) - 1) + [True]
                row = Scored(tokens, mask, [0.0] * len(tokens), None, {}, is_cut_off=False)
                reward = error
            return {
                "prompt": prompt,
                "label": label,
                "images": images,
                "mm_train_inputs": None,
                "reward": reward,
                "scores": row.reward,
                "observation_tokens": row.token_ids,
                "action_ranges": _ranges(row.mask),
                "rollout_log_probs": None if sampling_params.logprobs is None else row.log_probs,
                "truncated": row.is_cut_off,
                "extra_logs": row.logs,
            }

    return TasksetExecutor


def _ranges(mask: list[bool]) -> list[tuple[int, int]]:
    """The first and the last place + 1 of each run of True."""
    ranges = []
    for is_sampled, run in groupby(range(len(mask)), key=mask.__getitem__):
        places = list(run)
        if is_sampled:
            ranges.append((places[0], places[-1] + 1))
    return ranges
