"""The plain-tensor Qwen2 and Llama against transformers."""

import copy
import random

import pytest
import torch
from kit import noisy
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from baseline_research.tiny import model
from baseline_research.tiny.policy import TinyPolicy
from baseline_research.tiny.tasks import TASKS, sample_items


@pytest.fixture(scope="module", params=["qwen2", "grouped_queries", "llama"])
def policy(request):
    tokenizer = model.make_tokenizer(TASKS["sort"].tokens)
    small_model = model.make_model(tokenizer, 0, width=32, layers=2)
    config = small_model.config.to_dict()
    if request.param == "grouped_queries":
        config["num_key_value_heads"] = 2
        small_model = type(small_model)(type(small_model.config)(**config))
    elif request.param == "llama":  # which has no bias, and here one matrix for tokens in and out
        names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
        sizes = {name: config[name] for name in names}
        llama_config = LlamaConfig(
            **sizes, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True
        )
        small_model = LlamaForCausalLM(llama_config)
    return TinyPolicy(noisy(small_model), tokenizer)


@pytest.fixture
def prompts(policy):
    items = sample_items(TASKS["sort"].split(0, 40).train, 6, random.Random(0))  # of all lengths
    return policy.prompts([TASKS["sort"].prompt(item) for item in items])


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


def assert_gradients_are(found, expected, atol):
    """Within so much of the largest number of each parameter's gradient."""
    for one, other in zip(found, expected, strict=True):
        scale = float(other.abs().max())
        torch.testing.assert_close(one.cpu(), other, atol=atol * scale, rtol=0)


def test_log_probabilities_and_gradients_are_those_of_transformers(policy, prompts):
    sampled = policy.sample(prompts, 3, 6, torch.Generator().manual_seed(0))
    responses = sampled.tokens
    ours = policy.log_probs(prompts, responses)
    written = responses != policy.tokenizer.pad_token_id
    torch.testing.assert_close(sampled.log_probs[written], ours[written], atol=1e-5, rtol=0)
    _, theirs = by_transformers(policy, prompts, responses)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
    weights = torch.randn(ours.shape, generator=torch.Generator().manual_seed(1))
    our_gradients = gradients_of(policy, (ours * weights).sum())
    their_gradients = gradients_of(policy, (theirs * weights).sum())
    assert_gradients_are(our_gradients, their_gradients, atol=1e-5)


def test_greedy_responses_take_the_likeliest_token(policy, prompts):
    responses = policy.sample(prompts, 1, 6, None).tokens
    logits, _ = by_transformers(policy, prompts, responses)
    ended = (responses == policy.tokenizer.eos_token_id).cumsum(1).roll(1, 1)
    ended[:, 0] = 0
    assert torch.equal(logits.argmax(-1)[ended == 0], responses[ended == 0])
    assert (responses[ended > 0] == policy.tokenizer.pad_token_id).all()


def test_samples_follow_the_distribution_and_their_seed(policy, prompts):
    def sample():
        tokens = policy.sample(prompts, 4000, 1, torch.Generator().manual_seed(0)).tokens
        return tokens[:, 0].view(6, -1)

    first = sample()
    assert torch.equal(first, sample())
    logits, _ = by_transformers(policy, prompts, first[:, :1])
    shares = torch.stack([(first == token).float().mean(1) for token in range(logits.shape[-1])], 1)
    assert (shares - logits[:, 0].exp()).abs().max() < 0.04  # 5 standard errors


def test_what_all_prompts_begin_with_is_computed_once_and_changes_nothing(policy, prompts):
    texts = policy.tokenizer.batch_decode(prompts.tokens, skip_special_tokens=True)
    asking = TinyPolicy(policy.model, policy.tokenizer, chat=True)
    asked = asking.prompts(texts)
    assert policy.tokenizer.decode(asked.beginning) == "sort("
    assert asked.tokens.shape[1] == prompts.tokens.shape[1] - len(asked.beginning)
    responses = policy.sample(prompts, 3, 6, None).tokens
    assert torch.equal(asking.sample(asked, 3, 6, None).tokens, responses)
    plain = policy.log_probs(prompts, responses)
    shared = asking.log_probs(asked, responses)
    torch.testing.assert_close(shared, plain, atol=1e-5, rtol=0)
    plain_gradients = gradients_of(policy, plain.sum())
    shared_gradients = gradients_of(policy, shared.sum())
    assert_gradients_are(shared_gradients, plain_gradients, atol=1e-5)
    alone = asking.prompts(texts[:1])  # a prompt keeps a token that its response begins from
    assert alone.tokens.shape == (1, 1)
    one = asking.log_probs(alone, responses[:3])
    torch.testing.assert_close(one, plain[:3], atol=1e-5, rtol=0)


def test_in_bfloat16_passes_are_rounded_and_weights_are_not(policy, prompts):
    rough = TinyPolicy(policy.model, policy.tokenizer, dtype=torch.bfloat16)
    responses = policy.sample(prompts, 3, 6, torch.Generator().manual_seed(0)).tokens
    log_probs = rough.log_probs(prompts, responses)
    assert log_probs.dtype == torch.float32
    difference = (log_probs - policy.log_probs(prompts, responses)).abs()
    assert 0 < difference.mean() < 0.05
    gradients = gradients_of(policy, log_probs.sum())
    assert {gradient.dtype for gradient in gradients} == {torch.float32}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_computes_what_a_cpu_does(policy, prompts):
    model_on_gpu = copy.deepcopy(policy.model).cuda()
    on_gpu = TinyPolicy(model_on_gpu, policy.tokenizer)
    first, again = (on_gpu.sample(prompts, 3, 6, on_gpu.generator(0)).tokens for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(
        on_gpu.sample(prompts, 1, 6, None).tokens, policy.sample(prompts, 1, 6, None).tokens
    )
    log_probs = on_gpu.log_probs(prompts, first)
    on_cpu = policy.log_probs(prompts, first)
    torch.testing.assert_close(log_probs, on_cpu, atol=1e-4, rtol=0)
    gpu_gradients = gradients_of(on_gpu, log_probs.sum())
    cpu_gradients = gradients_of(policy, on_cpu.sum())
    assert_gradients_are(gpu_gradients, cpu_gradients, atol=1e-4)


def test_another_architecture_is_refused(policy):
    other = GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=20))
    with pytest.raises(ValueError, match="is a gpt2; it must be one of qwen2, llama"):
        TinyPolicy(other, policy.tokenizer)
