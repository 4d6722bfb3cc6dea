"""Prompt groups, dynamic batches and the normalisation of reward models in upstream's actors."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from openrlhf.trainer.ppo_utils.experience import Experience
from torch.utils.data import DataLoader

from openrlhf_js.plugin import actors
from openrlhf_js.plugin.actors import PromptGroups, load_with_scale
from openrlhf_js.plugin.upstream import UpstreamMismatch
from openrlhf_js.tiny import model
from openrlhf_js.tiny.tasks import TASKS

PROMPTS, RESPONSES = 6, 4


def buffer_of(prompts: list[str], micro_batch_size: int) -> PromptGroups:
    buffer = PromptGroups(micro_batch_size, RESPONSES, packing_samples=False)
    count = len(prompts)
    buffer.append(
        Experience(
            sequences=torch.arange(3 * count).reshape(count, 3),
            attention_mask=torch.ones(count, 3, dtype=torch.long),
            action_mask=torch.ones(count, 2, dtype=torch.bool),
            prompts=prompts,
            labels=["label"] * count,
        )
    )
    return buffer


@pytest.mark.parametrize("groups_each", [1, 2])
def test_micro_batches_are_whole_prompt_groups_in_any_order(groups_each):
    prompts = [f"prompt {i // RESPONSES}" for i in range(PROMPTS * RESPONSES)]
    buffer = buffer_of(prompts, groups_each * RESPONSES)
    # as upstream's ActorPPOTrainer.ppo_train makes it
    loader = DataLoader(
        buffer,
        batch_size=buffer.sample_batch_size,
        shuffle=True,
        drop_last=True,
        collate_fn=buffer.collate_fn,
    )
    orders, seen = set(), []
    for _ in range(20):
        batches = list(loader)
        assert [len(batch.sequences) for batch in batches] == [groups_each * RESPONSES] * (
            PROMPTS // groups_each
        )
        for batch in batches:
            assert all(batch.prompts.count(prompt) == RESPONSES for prompt in batch.prompts)
        orders.add(tuple(batch.prompts[0] for batch in batches))
        seen = sorted(row for batch in batches for row in batch.sequences[:, 0].tolist())
        assert seen == list(range(0, 3 * len(prompts), 3))  # every response once
    assert len(orders) > 1


def test_responses_out_of_prompt_order_stop_the_run():
    buffer = buffer_of(["one", "two"] * RESPONSES, RESPONSES)
    with pytest.raises(UpstreamMismatch, match="are not in prompt order"):
        buffer[0]


@pytest.mark.parametrize("before", [("experience", 0.1), ("experience",)])
def test_dynamic_batches_tell_the_engine_which_micro_batch_is_the_last(before):
    told, trained = [], []
    engine = SimpleNamespace(set_gradient_accumulation_boundary=told.append)
    trainer = SimpleNamespace(
        replay_buffer=SimpleNamespace(dynamic_optimizer_step=[0, 0, 1, 1]),
        training_step=lambda *args: trained.append((args, told[-1])),
    )
    actors.sum_dynamic_batches(trainer, engine, step_at=len(before))
    for step in range(4):
        trainer.training_step(*before, step, None)
    assert told == [False, False, True, True]
    assert trained == [((*before, step, None), step >= 2) for step in range(4)]


def test_actors_that_are_not_ours_are_not_trained_with():
    ours, other = SimpleNamespace(is_ours=None), SimpleNamespace()
    actors.confirm(SimpleNamespace(_actor_handlers=[ours, ours]))
    with pytest.raises(UpstreamMismatch, match="are not those of openrlhf_js"):
        actors.confirm(SimpleNamespace(_actor_handlers=[ours, other]))


# --- reward models and critics in Ray --------------------------------------------------------


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
