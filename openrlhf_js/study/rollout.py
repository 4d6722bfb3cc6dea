"""Responses of the tiny policy, and their rewards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from openrlhf_js.tiny.policy import PaddedPrompts, TinyPolicy
from openrlhf_js.tiny.tasks import Problem, TinyTask, value_of

MEASURING_SEED = 0  # of pass rates, the same for all runs
PROMPTS_AT_ONCE = 100


class Rollout(NamedTuple):
    """One step's prompts with their responses and rewards."""

    prompts: PaddedPrompts  # (n, P)
    responses: Tensor  # (n * m, T)
    rewards: Tensor  # (n, m)
    greedy_rewards: Tensor | None  # (n,)


def sample(
    policy: TinyPolicy,
    task: TinyTask,
    problems: Sequence[Problem],
    responses: int,
    generator: torch.Generator,
    *,
    greedy: bool = False,
) -> Rollout:
    """Samples and grades so many responses to each problem, and with `greedy` one greedy one."""
    prompts = policy.prompts([problem.prompt for problem in problems])
    sampled = policy.sample(prompts, responses, task.max_new_tokens, generator)
    greedy_rewards = None
    if greedy:
        greedy_responses = policy.sample(prompts, 1, task.max_new_tokens, None)
        greedy_rewards = _grade(policy, task, problems, greedy_responses).squeeze(1)
    return Rollout(
        prompts=prompts,
        responses=sampled,
        rewards=_grade(policy, task, problems, sampled),
        greedy_rewards=greedy_rewards,
    )


def mixed_groups(rewards: Tensor) -> Tensor:
    """(n,) bool: groups whose mean reward is between 0 and 1, as DAPO keeps them."""
    means = rewards.mean(1)
    return (means > 0) & (means < 1)


def kept_groups(rollout: Rollout, kept: Tensor) -> Rollout:
    """The groups of a rollout for which `kept` (n,) is true."""
    responses_per_prompt = rollout.rewards.shape[1]
    greedy_rewards = rollout.greedy_rewards
    return Rollout(
        prompts=PaddedPrompts(rollout.prompts.tokens[kept], rollout.prompts.mask[kept]),
        responses=rollout.responses[kept.repeat_interleave(responses_per_prompt)],
        rewards=rollout.rewards[kept],
        greedy_rewards=None if greedy_rewards is None else greedy_rewards[kept],
    )


def joined(rollouts: Sequence[Rollout], pad_token: int) -> Rollout:
    """The groups of several rollouts, prompts padded on the left and responses on the right."""
    if len(rollouts) == 1:
        return rollouts[0]
    longest_prompt = max(rollout.prompts.tokens.shape[1] for rollout in rollouts)
    longest_response = max(rollout.responses.shape[1] for rollout in rollouts)
    tokens, masks, responses = [], [], []
    for rollout in rollouts:
        on_left = (longest_prompt - rollout.prompts.tokens.shape[1], 0)
        on_right = (0, longest_response - rollout.responses.shape[1])
        tokens.append(F.pad(rollout.prompts.tokens, on_left, value=pad_token))
        masks.append(F.pad(rollout.prompts.mask, on_left, value=False))
        responses.append(F.pad(rollout.responses, on_right, value=pad_token))
    greedy_rewards = [
        rollout.greedy_rewards for rollout in rollouts if rollout.greedy_rewards is not None
    ]
    return Rollout(
        prompts=PaddedPrompts(torch.cat(tokens), torch.cat(masks)),
        responses=torch.cat(responses),
        rewards=torch.cat([rollout.rewards for rollout in rollouts]),
        greedy_rewards=torch.cat(greedy_rewards) if greedy_rewards else None,
    )


def _grade(
    policy: TinyPolicy, task: TinyTask, problems: Sequence[Problem], responses: Tensor
) -> Tensor:
    """(n, m) rewards of responses (n * m, T)."""
    responses_per_prompt = len(responses) // len(problems)
    rewards = []
    for number, text in enumerate(policy.texts(responses)):
        label = problems[number // responses_per_prompt].label
        rewards.append(value_of(task, text, label))
    return torch.tensor(rewards).view(len(problems), responses_per_prompt)


def pass_rates(
    policy: TinyPolicy, task: TinyTask, problems: Sequence[Problem], samples: int
) -> list[float]:
    """The mean reward of each problem's samples."""
    generator = torch.Generator().manual_seed(MEASURING_SEED)
    rates: list[float] = []
    for start in range(0, len(problems), PROMPTS_AT_ONCE):
        chunk = problems[start : start + PROMPTS_AT_ONCE]
        rates += sample(policy, task, chunk, samples, generator).rewards.mean(1).tolist()
    return rates


def valid_tokens(policy: TinyPolicy, responses: Tensor) -> Tensor:
    """(b, T) bool: up to the end; a padding token before it was sampled."""
    ends = (responses == policy.tokenizer.eos_token_id).long()
    return ends.cumsum(1) == ends
