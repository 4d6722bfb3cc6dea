from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from openrlhf.trainer.ppo_utils.experience import Experience
from torch.utils.data import DataLoader

from openrlhf_js.plugin import actors
from openrlhf_js.plugin.errors import UpstreamMismatch
from openrlhf_js.plugin.prompt_groups import PromptGroups

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
    with pytest.raises(UpstreamMismatch, match="do not lie in prompt order"):
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
