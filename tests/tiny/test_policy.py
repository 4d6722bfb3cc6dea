"""The plain-tensor Qwen2 against transformers."""

import random

import pytest
import torch
from kit import noisy

from openrlhf_js.tiny import model
from openrlhf_js.tiny.policy import TinyPolicy
from openrlhf_js.tiny.tasks import TASKS, draw


@pytest.fixture(scope="module", params=[4, 2], ids=["", "grouped_queries"])
def policy(request):
    tokenizer = model.make_tokenizer(TASKS["sort"])
    qwen = model.make_model(tokenizer, 0, width=32, layers=2)
    if request.param != 4:
        config = {**qwen.config.to_dict(), "num_key_value_heads": request.param}
        qwen = type(qwen)(type(qwen.config)(**config))
    return TinyPolicy(noisy(qwen), tokenizer)


@pytest.fixture
def prompts(policy):
    drawn = draw(TASKS["sort"].split(0, 40).train, 6, random.Random(0))  # of several lengths
    return policy.prompts([TASKS["sort"].prompt(item) for item in drawn])


def by_transformers(policy, prompts, responses):
    """Log-probabilities of all tokens (n * m, T, V), and of the responses' (n * m, T)."""
    repeats = len(responses) // len(prompts.tokens)
    tokens = torch.cat([prompts.tokens.repeat_interleave(repeats, 0), responses], 1)
    is_response = torch.ones_like(responses, dtype=torch.bool)
    mask = torch.cat([prompts.mask.repeat_interleave(repeats, 0), is_response], 1)
    output = policy.model(
        input_ids=tokens,
        attention_mask=mask.long(),
        position_ids=(mask.cumsum(1) - 1).clamp(min=0),
    )
    prompt_length = prompts.tokens.shape[1]
    log_probs = output.logits[:, prompt_length - 1 : -1].log_softmax(-1)
    return log_probs, log_probs.gather(-1, responses[..., None])[..., 0]


def gradients_of(policy, loss):
    policy.model.zero_grad()
    loss.backward()
    return [parameter.grad.clone() for parameter in policy.model.parameters()]


def test_log_probabilities_and_gradients_are_those_of_transformers(policy, prompts):
    responses = policy.sample(prompts, 3, 6, torch.Generator().manual_seed(0))
    ours = policy.log_probs(prompts, responses)
    _, theirs = by_transformers(policy, prompts, responses)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
    weights = torch.randn(ours.shape, generator=torch.Generator().manual_seed(1))
    our_gradients = gradients_of(policy, (ours * weights).sum())
    their_gradients = gradients_of(policy, (theirs * weights).sum())
    for our, their in zip(our_gradients, their_gradients, strict=True):
        torch.testing.assert_close(our, their, atol=1e-5 * float(their.abs().max()), rtol=0)


def test_greedy_responses_take_the_likeliest_token(policy, prompts):
    responses = policy.sample(prompts, 1, 6, None)
    logits, _ = by_transformers(policy, prompts, responses)
    ended = (responses == policy.tokenizer.eos_token_id).cumsum(1).roll(1, 1)
    ended[:, 0] = 0
    assert torch.equal(logits.argmax(-1)[ended == 0], responses[ended == 0])
    assert (responses[ended > 0] == policy.tokenizer.pad_token_id).all()


def test_samples_follow_the_distribution_and_their_seed(policy, prompts):
    def sample():
        tokens = policy.sample(prompts, 4000, 1, torch.Generator().manual_seed(0))
        return tokens[:, 0].view(6, -1)

    first = sample()
    assert torch.equal(first, sample())
    logits, _ = by_transformers(policy, prompts, first[:, :1])
    shares = torch.stack([(first == token).float().mean(1) for token in range(logits.shape[-1])], 1)
    assert (shares - logits[:, 0].exp()).abs().max() < 0.04  # 5 standard errors
