"""Responses of the tiny policy, and their rewards."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from baseline_research.tiny.policy import PaddedPrompts, TinyPolicy
from baseline_research.tiny.record import Problem, TinyTask

MEASURING_SEED = 0  # of pass rates, the same for all runs
PROMPTS_AT_ONCE = 100


class Rollout(NamedTuple):
    """One step's prompts with their responses and rewards."""

    prompts: PaddedPrompts  # (n, P)
    responses: Tensor  # (n * m, T)
    valid: Tensor  # (n * m, T) bool, True where a token is
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
    """Samples and grades m responses to each problem, and with `greedy` also a greedy one."""
    prompts = policy.prompts([problem.prompt for problem in problems])
    sampled = policy.sample(prompts, responses, task.max_new_tokens, generator)
    greedy_rewards = None
    if greedy:
        greedy_responses = policy.sample(prompts, 1, task.max_new_tokens, None).tokens
        greedy_rewards = _grade(policy, task, problems, greedy_responses).squeeze(1)
    return Rollout(
        prompts=prompts,
        responses=sampled.tokens,
        valid=valid_tokens(policy, sampled.tokens),
        log_probs=sampled.log_probs,
        rewards=_grade(policy, task, problems, sampled.tokens),
        greedy_rewards=greedy_rewards,
    )


def _grade(
    policy: TinyPolicy, task: TinyTask, problems: Sequence[Problem], responses: Tensor
) -> Tensor:
    """(n, m) rewards of responses (n * m, T)."""
    responses_per_prompt = len(responses) // len(problems)
    rewards = []
    for number, text in enumerate(policy.texts(responses)):
        label = problems[number // responses_per_prompt].label
        rewards.append(task.reward(text, label))
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


def greedy_reward(policy: TinyPolicy, task: TinyTask, problems: Sequence[Problem]) -> float:
    """The mean reward of the greedy responses."""
    rewards: list[float] = []
    for start in range(0, len(problems), PROMPTS_AT_ONCE):
        chunk = problems[start : start + PROMPTS_AT_ONCE]
        prompts = policy.prompts([problem.prompt for problem in chunk])
        responses = policy.sample(prompts, 1, task.max_new_tokens, None).tokens
        rewards += _grade(policy, task, chunk, responses).flatten().tolist()
    return fmean(rewards)


@torch.no_grad()
def right_probabilities(
    policy: TinyPolicy, task: TinyTask, problems: Sequence[Problem]
) -> list[float]:
    """The probability of the right response to each problem: its pass rate without sampling noise.

    Exact if only one response, in one spelling, is right.
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
    """(n, T) a right response to each problem with its end token, padded on the right."""
    end = str(policy.tokenizer.eos_token)
    responses = []
    for problem in problems:
        text = task.right_response(problem.label) + end
        tokens = policy.tokenizer(text, add_special_tokens=False).input_ids
        responses.append(torch.tensor(tokens))
    return pad_sequence(responses, batch_first=True, padding_value=policy.tokenizer.pad_token_id)


def valid_tokens(policy: TinyPolicy, responses: Tensor) -> Tensor:
    """(b, T) bool: True up to the end token; a padding token before it was sampled."""
    ends = (responses == policy.tokenizer.eos_token_id).long()
    return ends.cumsum(1) == ends
