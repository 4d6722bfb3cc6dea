"""A reward model in Ray normalises by what stands in its config.json."""

from __future__ import annotations

import pytest
import torch

from openrlhf_js.tiny import model
from openrlhf_js.tiny.tasks import TASKS


@pytest.fixture
def save(tmp_path):
    from transformers import AutoModelForSequenceClassification

    def save(**scale: float):
        tokenizer = model.make_tokenizer(TASKS["sort"])
        config = model.make_model(tokenizer, seed=0).config
        config.update({"num_labels": 1, **scale})
        scorer = AutoModelForSequenceClassification.from_config(config)
        scorer.to(torch.bfloat16).save_pretrained(tmp_path)
        return str(tmp_path)

    return save


def load(folder: str, kind: str, normalize: bool):
    from openrlhf_js.plugin.reward_scale import load_with_scale

    how = {"normalize_reward": normalize, "attn_implementation": "sdpa"}
    return load_with_scale(folder, kind, param_dtype="bf16", **how).eval()


@pytest.mark.parametrize("kind", ["reward", "critic"])
def test_mean_and_std_are_those_of_the_config(save, kind):
    loaded = load(save(mean=0.5, std=0.25), kind, normalize=True)
    assert (loaded.mean.item(), loaded.std.item()) == (0.5, 0.25)


def test_the_reward_is_normalised(save):
    folder = save(mean=0.5, std=0.25)
    ids = torch.tensor([[2, 3, 4, 1]])
    with torch.no_grad():
        plain = load(folder, "reward", normalize=False)(ids, torch.ones_like(ids))
        scaled = load(folder, "reward", normalize=True)(ids, torch.ones_like(ids))
    torch.testing.assert_close(scaled, (plain - 0.5) / 0.25)


def test_without_them_a_critic_is_left_as_it_is_and_a_reward_model_refused(save):
    folder = save()
    loaded = load(folder, "critic", normalize=True)
    assert (loaded.mean.item(), loaded.std.item()) == (0.0, 1.0)
    assert load(folder, "reward", normalize=False).std.item() == 1.0
    with pytest.raises(ValueError, match="has no mean and std"):
        load(folder, "reward", normalize=True)
