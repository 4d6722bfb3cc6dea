"""Models of 3,000 parameters, pools of responses, and the gradient of every response by itself."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from kit import qwen

from baseline_research.lab.pool import Samples
from paired_eval.sampling.prompts import Prompt

TOKENS = 11


def small_model(dtype=torch.float32):
    """Random weights, in training mode and with dropout, which the lab has to turn off."""
    model = qwen(
        vocab_size=TOKENS,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        attention_dropout=0.5,
        initializer_range=0.3,
    )
    return model.to(dtype).train()


def pool(prompts=6, responses=30, seed=0, longest=9):
    """Random tokens with random rewards, 0 or 1; one response is empty."""
    rng = np.random.default_rng(seed)
    prompt_tokens = []
    for _ in range(prompts):
        size = rng.integers(1, 6)
        prompt_tokens.append(rng.integers(1, TOKENS, size).tolist())
    response_tokens = []
    for _ in range(prompts):
        group = []
        for _ in range(responses):
            size = rng.integers(1, longest)
            group.append(rng.integers(1, TOKENS, size).astype(np.int32))
        response_tokens.append(group)
    response_tokens[0][0] = np.zeros(0, np.int32)
    values = rng.beta(0.7, 0.7, prompts)
    rewards = rng.random((prompts, responses)) < values[:, None]
    greedy_rewards = rng.random(prompts) < values
    return Samples(
        prompts=[Prompt(f"prompt {i}", "", "", tokens) for i, tokens in enumerate(prompt_tokens)],
        response_tokens=response_tokens,
        rewards=rewards.astype(np.float64),
        finished=np.ones((prompts, responses), dtype=bool),
        greedy_rewards=greedy_rewards.astype(np.float64),
        settings={"temperature": 1.0, "model_sha256": "abc"},
    )


def score_gradients(model, samples, temperature=1.0):
    """(prompts, responses, parameters) grad log pi(y | x), in float64, one after the other."""
    exact = copy.deepcopy(model).double().eval()
    parameters = list(exact.parameters())
    size = sum(parameter.numel() for parameter in parameters)
    gradients = np.zeros((*samples.rewards.shape, size))
    for i, prompt in enumerate(samples.prompts):
        for j, response in enumerate(samples.response_tokens[i]):
            if not len(response):
                continue
            tokens = prompt.tokens + response.tolist()
            logits = exact(torch.tensor([tokens])).logits[0] / temperature
            log_probability = torch.zeros((), dtype=torch.float64)
            for place in range(len(prompt.tokens), len(tokens)):
                log_probs = logits[place - 1].log_softmax(0)
                log_probability = log_probability + log_probs[tokens[place]]
            parts = torch.autograd.grad(log_probability, parameters)
            gradients[i, j] = torch.cat([part.flatten() for part in parts]).numpy()
    return gradients


def parabolas(minima, depths):
    """(B, 3) parabolas 1 + c (x - x0)^2 - c x0^2."""
    return np.array([[1.0, -2 * c * x, c] for x, c in zip(minima, depths, strict=True)])


@pytest.fixture(scope="session")
def kit():
    """The functions above."""
    return SimpleNamespace(small_model=small_model, pool=pool, parabolas=parabolas)


@pytest.fixture(scope="session")
def samples():
    return pool()


@pytest.fixture(scope="session")
def own(samples):
    """The score gradient of every response of `samples`."""
    return score_gradients(small_model(), samples)
