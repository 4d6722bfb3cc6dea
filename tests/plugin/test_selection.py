"""What chooses the prompts of a run: at the start, in checkpoints, in the asynchronous trainer."""

from types import SimpleNamespace

import pytest
import torch
from kit import upstream_args

from openrlhf_js.plugin.memory import keys_of
from openrlhf_js.plugin.selection import (
    keep_selection,
    learn_samples,
    resume_selection,
    start_selection,
)
from openrlhf_js.plugin.upstream import BadInput
from openrlhf_js.sampling.prompts import SourcedLabel, sourced


def prompts_of(texts, batch_size, episodes=2, max_steps=None):
    """What `start_selection` reads of a trainer with these prompts."""
    dataset = SimpleNamespace(
        prompts=texts, labels=["l"] * len(texts), datasources=["d"] * len(texts)
    )
    args = upstream_args(js__prompt_selection="weighted", rollout__batch_size=batch_size)
    args.train.num_episodes = episodes
    args.js.max_steps = max_steps
    return SimpleNamespace(
        args=args,
        prompts_dataloader=SimpleNamespace(dataset=dataset),
        samples_generator=SimpleNamespace(selector=None),
    )


def test_what_chooses_prompts_is_in_checkpoints(tmp_path):
    texts = [f"prompt {number}" for number in range(8)]
    kept = prompts_of(texts, 4)
    selector = start_selection(kept)
    assert kept.samples_generator.selector is selector
    keys = keys_of(texts[:4], [SourcedLabel("l")] * 4)
    assert not torch.isin(keys, selector.keys).any()  # without its datasource it is another prompt
    selector.learn(selector.keys[:4], torch.rand(4, 2), step=0)
    states = {"global_step": 1}
    keep_selection(states, selector)
    torch.save(states, tmp_path / "states.pt")
    loaded = torch.load(tmp_path / "states.pt", weights_only=True)

    resumed = prompts_of(texts, 4)
    again = start_selection(resumed)
    resume_selection(loaded, again)
    assert again.next_step == selector.next_step == 1
    assert torch.equal(again.choose(1), selector.choose(1))
    with pytest.raises(BadInput, match="did not choose its prompts: resume it with"):
        resume_selection({"global_step": 1}, again)
    others = start_selection(prompts_of(texts[1:], 4))
    with pytest.raises(BadInput, match="8 prompts is not of these 7"):
        resume_selection(loaded, others)
    with pytest.raises(BadInput, match="a batch of 4 prompts cannot be drawn from 1"):
        start_selection(prompts_of(["again"] * 8, 4))


@pytest.mark.parametrize(
    ("texts", "episodes", "max_steps", "message"),
    [
        ("abcdefgh", 1, None, "draws 8 prompts of 8 different ones"),
        ("abcdefgh", 9, 2, "draws 8 prompts of 8 different ones"),
        ("aabbccdd", 9, 1, "draws 4 prompts of 4 different ones"),
        ("aabbccdd", 1, None, None),  # each is drawn twice
        ("abcdefgh", 2, None, None),
        ("abcdefgh", 9, 3, None),
    ],
)
def test_prompts_of_which_none_comes_again_are_drawn_uniformly(
    capsys, texts, episodes, max_steps, message
):
    trainer = prompts_of(list(texts), 4, episodes=episodes, max_steps=max_steps)
    selector = start_selection(trainer)
    printed = capsys.readouterr().out
    assert trainer.samples_generator.selector is selector
    if message is None:
        assert len(selector) == len(set(texts))
        assert printed == ""
    else:
        assert selector is None
        assert printed.count("\n") == 1
        assert message in printed
        assert "--js.prompt_selection weighted changes nothing" in printed


def test_rewards_are_learnt_from_samples_as_they_were_graded():
    texts = list("abcd")
    selector = start_selection(prompts_of(texts, 2))
    twin = start_selection(prompts_of(texts, 2))
    rewards = torch.tensor([[1.0, 0.0], [torch.nan, 1.0]])
    samples = [
        SimpleNamespace(
            prompts=[texts[prompt]], labels=[sourced("l", "d")], rewards=rewards[prompt, [draw]]
        )
        for prompt in range(2)
        for draw in range(2)
    ]
    learn_samples(selector, samples, responses=2)
    keys = keys_of(texts[:2], [sourced("l", "d")] * 2)
    twin.learn(keys, rewards.nan_to_num(7.0), step=0, mask=rewards.isfinite())
    assert torch.equal(selector.sums, twin.sums)
    assert selector.next_step == 1
