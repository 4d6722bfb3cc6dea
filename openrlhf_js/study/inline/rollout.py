"""Responses of the tiny policy, and their rewards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from openrlhf_js.tiny.policy import PaddedPrompts, TinyPolicy
from openrlhf_js.tiny.tasks import Problem, TinyTask, value_of

MEASURING_SEED = 0  # of pass rates, the same for all runs
PROMPTS_AT_ONCE = 100


class Rollout(NamedTuple):
    """One step's prompts with their responses and rewards."""

    prompts: PaddedPrompts  # (n, P)
    responses: Tensor  # (n * m, T)
    log_probs: Tensor  # (n * m, T)
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
        greedy_responses = policy.sample(prompts, 1, task.max_new_tokens, None).tokens
        greedy_rewards = _grade(policy, task, problems, greedy_responses).squeeze(1)
    return Rollout(
        prompts=prompts,
        responses=sampled.tokens,
        log_probs=sampled.log_probs,
        rewards=_grade(policy, task, problems, sampled.tokens),
        greedy_rewards=greedy_rewards,
    )


def mixed_groups(rewards: Tensor) -> Tensor:
    """(n,) bool: groups whose mean reward is between 0 and 1, as DAPO keeps them."""
    means = rewards.mean(1)
    return (means > 0) & (means < 1)


def kept_groups(rollout: Rollout, kept: Tensor) -> Rollout:
    """The groups of a rollout for which `kept` (n,) is true."""
    responses_per_prompt = rollout.rewards.shape[1]
    rows = kept.repeat_interleave(responses_per_prompt)
    greedy_rewards = rollout.greedy_rewards
    return Rollout(
        prompts=rollout.prompts.at(kept),
        responses=rollout.responses[rows],
        log_probs=rollout.log_probs[rows],
        rewards=rollout.rewards[kept],
        greedy_rewards=None if greedy_rewards is None else greedy_rewards[kept],
    )


def joined(policy: TinyPolicy, problems: Sequence[Problem], rollouts: Sequence[Rollout]) -> Rollout:
    """The groups of several rollouts, which are those of these problems in their order."""
    if len(rollouts) == 1 or not problems:
        return rollouts[0]
    responses = [response for rollout in rollouts for response in rollout.responses]
    log_probs = [values for rollout in rollouts for values in rollout.log_probs]
    greedy_rewards = [
        rollout.greedy_rewards for rollout in rollouts if rollout.greedy_rewards is not None
    ]
    return Rollout(
        prompts=policy.prompts([problem.prompt for problem in problems]),
        responses=pad_sequence(
            responses, batch_first=True, padding_value=policy.tokenizer.pad_token_id
        ),
        log_probs=pad_sequence(log_probs, batch_first=True),
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
    generator = policy.generator(MEASURING_SEED)
    rates: list[float] = []
    for start in range(0, len(problems), PROMPTS_AT_ONCE):
        chunk = problems[start : start + PROMPTS_AT_ONCE]
        rates += sample(policy, task, chunk, samples, generator).rewards.mean(1).tolist()
    return rates


@torch.no_grad()
def right_probabilities(
    policy: TinyPolicy, task: TinyTask, problems: Sequence[Problem]
) -> list[float]:
    """The probability of the right response to each problem: its pass rate without any noise.

    That is exact where one response alone is right, as it is written.
    """
    probabilities: list[float] = []
    for start in range(0, len(problems), PROMPTS_AT_ONCE):
        chunk = problems[start : start + PROMPTS_AT_ONCE]
        responses = right_responses(policy, task, chunk)
        prompts = policy.prompts([problem.prompt for problem in chunk])
        log_probs = policy.log_probs(prompts, responses) * valid_tokens(policy, responses)
        probabilities += log_probs.sum(1).exp().tolist()
    return probabilities


def right_responses(policy: TinyPolicy, task: TinyTask, problems: Sequence[Problem]) -> Tensor:
    """(n, T) a right response to each problem with its end, padded behind it."""
    end = str(policy.tokenizer.eos_token)
    responses = []
    for problem in problems:
        text = task.right_response(problem.label) + end
        tokens = policy.tokenizer(text, add_special_tokens=False).input_ids
        responses.append(torch.tensor(tokens))
    return pad_sequence(responses, batch_first=True, padding_value=policy.tokenizer.pad_token_id)


def valid_tokens(policy: TinyPolicy, responses: Tensor) -> Tensor:
    """(b, T) bool: up to the end; a padding token before it was sampled."""
    ends = (responses == policy.tokenizer.eos_token_id).long()
    return ends.cumsum(1) == ends
