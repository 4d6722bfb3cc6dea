import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from kit import qwen, save_figures, save_seeing_policy

from openrlhf_js.common.processors import load_processor
from paired_eval.sampling.engines import Transformers, invert
from paired_eval.sampling.parameters import Parameters
from paired_eval.sampling.settings import EngineSettings

END = 10
PROMPTS = [[1, 2, 3], [4], [5, 6, 7, 8, 9, 1, 2], [3, 3]]
KEYS = [11, 22, 33, 44]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model with random weights, whose own defaults would change what is sampled."""
    path = tmp_path_factory.mktemp("model")
    context = {"max_position_embeddings": 64, "bos_token_id": None, "eos_token_id": END}
    qwen(vocab_size=11, initializer_range=0.4, **context).save_pretrained(path)
    defaults = {"do_sample": True, "top_k": 1, "repetition_penalty": 5.0, "eos_token_id": END}
    (path / "generation_config.json").write_text(json.dumps(defaults))
    return path


SETTINGS = EngineSettings(device="cpu", dtype="float32")
PARAMETERS = Parameters(temperature=1.0, top_p=1.0, max_new_tokens=12, seed=0)


def engine(folder, ends=(END,), processor=None):
    files = SimpleNamespace(folder=folder, ends=lambda: ends, processor=processor)
    return Transformers(files, SETTINGS, room=64)


def logits_after(model, tokens):
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0, -1].double()


def test_inverting_by_hand():
    logits = torch.tensor([[0.5, 0.2, 0.3]]).log().expand(6, 3)
    uniform = torch.tensor([0.0, 0.49, 0.51, 0.69, 0.71, 1 - 2**-53], dtype=torch.float64)
    assert invert(logits, uniform, 1.0, 1.0).tolist() == [0, 0, 1, 1, 2, 2]


def test_a_token_of_probability_0_is_never_drawn():
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]]).expand(3, 5)
    uniform = torch.tensor([0.0, 0.5, 1 - 2**-53], dtype=torch.float64)
    assert invert(logits, uniform, 1.0, 1.0).tolist() == [1, 3, 3]


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.5, 1.0), (2.0, 0.8), (1.0, 0.3)])
def test_shares_of_an_even_grid_are_the_probabilities(temperature, top_p):
    logits = torch.randn(7, generator=torch.Generator().manual_seed(1))
    count = 100_000
    uniform = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    drawn = invert(logits.expand(count, 7), uniform, temperature, top_p)
    wanted = np.exp(logits.double().numpy() / temperature)
    wanted /= wanted.sum()
    kept = np.zeros(7)
    total = 0.0
    for token in np.argsort(-wanted):  # the likeliest ones, until they have this probability
        if total < top_p:
            kept[token] = wanted[token]
            total += wanted[token]
    shares = np.bincount(drawn.numpy(), minlength=7) / count
    assert shares == pytest.approx(kept / kept.sum(), abs=2 / count)


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_sampling_is_what_a_slow_loop_without_padding_draws(folder, temperature):
    """The oracle takes the very distribution that a gradient of log-probabilities takes."""
    sampler = engine(folder)
    responses = sampler.sample(PROMPTS, PARAMETERS._replace(temperature=temperature), KEYS)
    for prompt, key, response in zip(PROMPTS, KEYS, responses, strict=True):
        uniform = np.random.default_rng(key).random(12)
        tokens = list(prompt)
        for u in uniform:
            scaled = logits_after(sampler.model, tokens) / temperature
            probabilities = torch.log_softmax(scaled, -1).exp().numpy()
            tokens.append(int(np.searchsorted(probabilities.cumsum(), u, side="right")))
            if tokens[-1] == END:
                break
        assert response.tolist() == tokens[len(prompt) :]


def test_greedy_is_the_likeliest_token_at_every_place(folder):
    sampler = engine(folder)
    for prompt, response in zip(PROMPTS, sampler.sample(PROMPTS, PARAMETERS, None), strict=True):
        tokens = list(prompt)
        while len(tokens) < len(prompt) + 12 and tokens[-1] != END:
            tokens.append(int(logits_after(sampler.model, tokens).argmax()))
        assert response.tolist() == tokens[len(prompt) :]


def test_images_are_where_their_prompts_say_whatever_the_padding(tmp_path):
    """The oracle runs the processor and the model on one prompt at a time, without a cache."""
    from PIL import Image

    folder = save_seeing_policy(tmp_path / "model")
    figures = save_figures(tmp_path)
    processor = load_processor(folder, False)
    images = [figures, (), figures[1:]]
    place = "<|vision_start|><|image_pad|><|vision_end|>"
    texts = [f"{place}ab{place}=", "cab=", f"{place}abcdefgh="]
    given = [
        processor(
            text=[text],
            images=[Image.open(path) for path in own] or None,
            return_tensors="pt",
        )
        for text, own in zip(texts, images, strict=True)
    ]
    sampler = engine(folder, ends=(), processor=processor)
    few = PARAMETERS._replace(max_new_tokens=6)
    prompts = [each["input_ids"][0].tolist() for each in given]
    media = [processor.image_token_id, processor.video_token_id]
    for inputs, response in zip(given, sampler.sample(prompts, few, None, images), strict=True):
        for token in response.tolist():
            with torch.no_grad():
                logits = sampler.model(**inputs).logits[0, -1]
            assert logits.index_fill(0, torch.tensor(media), -torch.inf).argmax() == token
            more = {"input_ids": token, "attention_mask": 1, "mm_token_type_ids": 0}
            for name, value in more.items():
                inputs[name] = torch.cat([inputs[name], torch.tensor([[value]])], 1)
