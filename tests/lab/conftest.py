"""Models of 3,000 parameters, pools of responses, and the gradient of every response by itself."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from kit import qwen

from openrlhf_js.lab.pool import Samples
from openrlhf_js.sampling.prompts import Prompt

TOKENS = 11


def small_model(dtype=torch.float32):
    """Random weights, in training mode and with dropout, which the lab has to turn off."""
    sizes = {"vocab_size": TOKENS, "max_position_embeddings": 64, "tie_word_embeddings": True}
    return qwen(**sizes, attention_dropout=0.5, initializer_range=0.3).to(dtype).train()


def pool(prompts=6, responses=30, seed=0, longest=9):
    """Random tokens with random rewards, 0 or 1; one response is empty."""
    rng = np.random.default_rng(seed)
    asked = [rng.integers(1, TOKENS, rng.integers(1, 6)).tolist() for _ in range(prompts)]
    said = [
        [
            rng.integers(1, TOKENS, rng.integers(1, longest)).astype(np.int32)
            for _ in range(responses)
        ]
        for _ in range(prompts)
    ]
    said[0][0] = np.zeros(0, np.int32)
    values = rng.beta(0.7, 0.7, prompts)
    rewards = (rng.random((prompts, responses)) < values[:, None]).astype(np.float64)
    named = [Prompt(f"prompt {i}", "", "", tokens) for i, tokens in enumerate(asked)]
    finished = np.ones_like(rewards, dtype=bool)
    greedy = (rng.random(prompts) < values).astype(np.float64)
    settings = {"temperature": 1.0, "model_sha256": "abc"}
    return Samples(named, said, rewards, finished, greedy, settings)


def score_gradients(model, samples, temperature=1.0):
    """(prompts, responses, parameters) grad log pi(y | x), in float64, one after the other."""
    exact = copy.deepcopy(model).double().eval()
    parameters = list(exact.parameters())
    found = np.zeros((*samples.rewards.shape, sum(each.numel() for each in parameters)))
    for i, prompt in enumerate(samples.prompts):
        for j, response in enumerate(samples.response_tokens[i]):
            tokens = [*prompt.tokens, *response.tolist()]
            logits = exact(torch.tensor([tokens])).logits[0] / temperature
            log_probability = torch.zeros((), dtype=torch.float64)
            for place in range(len(prompt.tokens), len(tokens)):
                log_probability = log_probability + logits[place - 1].log_softmax(0)[tokens[place]]
            if len(response):
                parts = torch.autograd.grad(log_probability, parameters)
                found[i, j] = torch.cat([part.flatten() for part in parts]).numpy()
    return found


@pytest.fixture(scope="session")
def kit():
    """The functions above."""
    functions = (small_model, pool, score_gradients)
    return SimpleNamespace(**{each.__name__: each for each in functions})


@pytest.fixture(scope="session")
def samples():
    return pool()


@pytest.fixture(scope="session")
def own(samples):
    """The score gradient of every response of `samples`."""
    return score_gradients(small_model(), samples)
