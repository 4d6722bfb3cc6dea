"""A reward model in Ray must be one, and must read the policy's tokens as the policy wrote them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from openrlhf_js.plugin.reward_model_checks import reward_model_problems
from openrlhf_js.tiny import model
from openrlhf_js.tiny.tasks import TASKS


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("policy")
    tokenizer = model.make_tokenizer(TASKS["sort"])
    model.save(model.make_model(tokenizer, seed=0), tokenizer, folder)
    return folder


@pytest.fixture
def reward_model(policy, tmp_path) -> Path:
    return save(policy, tmp_path / "reward-model", model.make_tokenizer(TASKS["sort"]))


def save(policy: Path, folder: Path, tokenizer, outputs: int = 1) -> Path:
    from transformers import AutoConfig, AutoModelForSequenceClassification

    config = AutoConfig.from_pretrained(policy, num_labels=outputs)
    scorer = AutoModelForSequenceClassification.from_config(config)
    scorer.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def problems(folder: Path, policy: Path | str | None, normalize: bool = False) -> list[str]:
    return list(reward_model_problems(str(folder), policy and str(policy), "score", normalize))


def test_a_reward_model_with_the_policys_tokens_passes(reward_model, policy):
    assert problems(reward_model, policy) == []
    assert problems(reward_model, "meta-llama/Llama-3.2-3B-Instruct") == []  # not seen from here


def test_a_causal_model_is_none(policy):
    (said,) = problems(policy, policy)
    assert said.startswith("--reward.model_name_or_path: ") and "causal model" in said


def test_two_outputs_are_no_reward(policy, tmp_path):
    tokenizer = model.make_tokenizer(TASKS["sort"])
    assert problems(save(policy, tmp_path / "two", tokenizer, outputs=2), policy)


def test_other_tokens_would_be_read_as_other_text(policy, tmp_path):
    folder = save(policy, tmp_path / "other", model.make_tokenizer(TASKS["countdown"]))
    (said,) = problems(folder, policy)
    assert "which would read other text" in said and "rm serve" in said


def test_a_policy_whose_tokenizer_only_its_own_code_can_load_passes(reward_model, tmp_path):
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", null]}}'
    )
    assert problems(reward_model, tmp_path / "policy") == []


def test_normalising_needs_mean_and_std(reward_model, policy):
    (said,) = problems(reward_model, policy, normalize=True)
    assert "mean and std" in said
    path = reward_model / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "mean": 0.5, "std": 2.0}))
    assert problems(reward_model, policy, normalize=True) == []
