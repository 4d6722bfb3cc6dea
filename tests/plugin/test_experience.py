"""The experience maker against upstream's own, on rollouts that never met a model."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import pytest
import torch

from openrlhf_js import estimators
from openrlhf_js.plugin.errors import BadReward, UpstreamMismatch

N, M, LENGTH = 6, 4, 5


def make_args(estimator: str, **settings):
    """The nested arguments that upstream's experience maker reads."""
    args = SimpleNamespace(
        algo=SimpleNamespace(
            advantage=SimpleNamespace(estimator=estimator, gamma=1.0, lambd=1.0, no_std_norm=False),
            kl=SimpleNamespace(use_loss=False),
        ),
        rollout=SimpleNamespace(n_samples_per_prompt=M, max_new_tokens=LENGTH, micro_batch_size=4),
        reward=SimpleNamespace(
            clip_range=(-10, 10),
            overlong_buffer_len=None,
            overlong_penalty_factor=1.0,
            stop_properly_penalty_coef=None,
        ),
        train=SimpleNamespace(dynamic_batch_enable=False),
        data=SimpleNamespace(max_len=32),
        js=SimpleNamespace(shrinkage=None, half_life=None, on_bad_reward="stop", save_batches=None),
    )
    for key, value in settings.items():
        section, name = key.split("__")
        setattr(getattr(args, section), name, value)
    return args


def make_maker(cls, args, kl_coefficient=0.1):
    strategy = SimpleNamespace(args=args)
    return cls(None, None, None, None, SimpleNamespace(value=kl_coefficient), strategy, None)


def make_experiences(rewards, micro_batch_size=4, order=None, seed=0):
    """Experiences of (n, m) rewards, split and ordered as upstream might have done."""
    from openrlhf.trainer.ppo_utils.experience import Experience

    generator = torch.Generator().manual_seed(seed)
    flat = rewards.reshape(-1)
    lengths = torch.randint(1, LENGTH + 1, (len(flat),), generator=generator)
    kl = torch.randn(len(flat), LENGTH, generator=generator)
    order = list(range(len(flat))) if order is None else order
    made = []
    for start in range(0, len(flat), micro_batch_size):
        index = order[start : start + micro_batch_size]
        mask = torch.arange(LENGTH) < lengths[index].unsqueeze(1)
        made.append(
            Experience(
                index=index,
                rewards=flat[index].clone(),
                kl=kl[index] * mask,
                action_mask=mask,
                prompts=[f"prompt {i // M}" for i in index],
                response_length=lengths[index],
                truncated=lengths[index] == LENGTH,
                info={"reward": flat[index].clone()},
            )
        )
    return made


def by_response(experiences, name="advantages"):
    """(n * m, LENGTH) in prompt order."""
    rows = torch.cat([getattr(e, name) for e in experiences])
    index = list(itertools.chain.from_iterable(e.index for e in experiences))
    ordered = torch.empty_like(rows)
    ordered[index] = rows
    return ordered


@pytest.fixture
def rewards():
    return torch.rand(N, M, generator=torch.Generator().manual_seed(7))


@pytest.fixture
def makers():
    from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker

    from openrlhf_js.plugin.experience import ShrinkageExperienceMaker

    return RemoteExperienceMaker, ShrinkageExperienceMaker


def advantages(cls, args, rewards, **how):
    experiences = make_experiences(rewards, **how)
    return make_maker(cls, args).compute_advantages_and_returns(experiences)


PENALTIES = {"reward__overlong_buffer_len": 3, "reward__stop_properly_penalty_coef": 0.5}


@pytest.mark.parametrize("settings", [{}, PENALTIES], ids=["plain", "penalties"])
def test_our_way_through_upstream_is_upstreams_own_way(makers, rewards, settings):
    """js_fixed with shrinkage 0 is RLOO, so all around it must come out as upstream's rloo."""
    upstream, ours = makers
    expected = advantages(upstream, make_args("rloo", **settings), rewards)
    args = make_args("js_fixed", js__shrinkage=0.0, **settings)
    actual = advantages(ours, args, rewards)
    for name in ("advantages", "returns", "rewards"):
        torch.testing.assert_close(by_response(actual, name), by_response(expected, name))
    for one, other in zip(actual, expected, strict=True):
        assert one.info.keys() == other.info.keys()
        torch.testing.assert_close(one.info["reward"], other.info["reward"])
        torch.testing.assert_close(one.info["return"], other.info["return"])
    assert args.reward.overlong_buffer_len == settings.get("reward__overlong_buffer_len")


@pytest.mark.parametrize("name", ["rloo", "reinforce", "reinforce_baseline", "group_norm"])
def test_upstreams_estimators_run_upstreams_code(makers, rewards, name):
    upstream, ours = makers
    expected = advantages(upstream, make_args(name), rewards)
    actual = advantages(ours, make_args(name), rewards)
    assert torch.equal(by_response(actual), by_response(expected))


@pytest.mark.parametrize("name", ["js", "js_plus", "js1", "bloo"])
def test_the_whole_rollout_batch_makes_the_baseline_however_it_is_split(makers, rewards, name):
    _, ours = makers
    expected = estimators.advantage(name, rewards).reshape(-1)
    shuffled = torch.randperm(N * M, generator=torch.Generator().manual_seed(1)).tolist()
    for how in ({"micro_batch_size": 1}, {"micro_batch_size": 5, "order": shuffled}):
        maker = make_maker(ours, make_args(name), kl_coefficient=0.0)
        experiences = make_experiences(rewards, **how)
        mask = by_response(experiences, "action_mask")
        actual = by_response(maker.compute_advantages_and_returns(experiences))
        torch.testing.assert_close(actual, expected.unsqueeze(1) * mask)
        assert maker.metrics.keys() == estimators.diagnostics(name, rewards).keys()


def test_the_logged_rewards_are_rewards_and_not_advantages(makers, rewards):
    _, ours = makers
    done = advantages(ours, make_args("js"), rewards)
    logged = torch.cat([e.info["reward"] for e in done])
    torch.testing.assert_close(logged, rewards.reshape(-1))
    spread = torch.cat([e.info["group_reward_std"] for e in done])
    torch.testing.assert_close(spread, rewards.std(1).repeat_interleave(M))


def test_a_batch_too_small_for_the_estimator_teaches_nothing(makers, rewards):
    _, ours = makers
    maker = make_maker(ours, make_args("bloo"))
    experiences = make_experiences(rewards[:1])
    maker.compute_advantages_and_returns(experiences)
    assert not by_response(experiences).any() and maker.metrics == {}


def test_a_flag_that_no_longer_names_the_live_estimator_stops_the_run(makers, rewards):
    _, ours = makers
    args = make_args("js")
    maker = make_maker(ours, args)
    args.algo.advantage.estimator = "rloo"
    with pytest.raises(UpstreamMismatch, match="'rloo', but 'js' is live"):
        maker.compute_advantages_and_returns(make_experiences(rewards))


def test_masked_responses_count_nowhere_and_teach_nothing(makers, rewards):
    _, ours = makers
    rewards[1, 2] = math.nan
    args = make_args("js", js__on_bad_reward="mask", reward__stop_properly_penalty_coef=-0.5)
    maker = make_maker(ours, args)
    experiences = make_experiences(rewards)
    maker.compute_advantages_and_returns(experiences)
    table = by_response(experiences)
    assert (table[1 * M + 2] == 0).all() and table.isfinite().all()
    assert maker.metrics["js/masked_responses"] == 1
    logged = torch.cat([e.info["reward"] for e in experiences])
    others = torch.ones(N * M, dtype=torch.bool)
    others[1 * M + 2] = False
    assert logged[~others] == pytest.approx(logged[others].mean().item())


def test_a_bad_reward_stops_with_its_prompt(makers, rewards):
    _, ours = makers
    rewards[2, 0] = math.inf
    with pytest.raises(BadReward, match=r"reward is inf \(prompt 'prompt 2'\)"):
        advantages(ours, make_args("js"), rewards)


def test_remax_takes_the_greedy_reward_and_leaves_none_behind(makers, rewards):
    _, ours = makers
    greedy = rewards.mean(1)
    maker = make_maker(ours, make_args("remax"), kl_coefficient=0.0)
    samples = [
        SimpleNamespace(info={"greedy_reward": greedy[i // M : i // M + 1]}) for i in range(N * M)
    ]
    maker._greedy_rewards = maker._take_greedy_rewards(samples)
    assert all(sample.info == {} for sample in samples)
    experiences = make_experiences(rewards)
    mask = by_response(experiences, "action_mask")
    actual = by_response(maker.compute_advantages_and_returns(experiences))
    expected = (rewards - greedy.unsqueeze(1)).reshape(-1, 1) * mask
    torch.testing.assert_close(actual, expected)


def test_samples_without_a_reward_are_filled_so_that_a_batch_can_be_made():
    from openrlhf_js.plugin.experience import _fill_gaps

    full = SimpleNamespace(
        scores=torch.tensor([1.0]), info={"reward": torch.tensor([1.0]), "x": torch.tensor([3.0])}
    )
    bare = SimpleNamespace(scores=None, info={"reward": torch.tensor([math.nan])})
    _fill_gaps([full, bare])
    assert bare.info["x"].item() == 3.0 and bare.scores.isnan().all()


@pytest.mark.parametrize("name", ["js", "js_plus", "rloo"])
def test_the_clip_comes_after_the_baseline_and_leaves_the_reward_alone(makers, rewards, name):
    _, ours = makers
    rewards = 100 * rewards
    maker = make_maker(ours, make_args(name, reward__clip_range=(-3, 5)), kl_coefficient=0.0)
    done = maker.compute_advantages_and_returns(make_experiences(rewards))
    mask = by_response(done, "action_mask")
    raw = estimators.advantage(name, rewards).reshape(-1, 1)
    assert raw.min() < -3 and raw.max() > 5
    torch.testing.assert_close(by_response(done), raw.clamp(-3, 5) * mask)
    torch.testing.assert_close(by_response(done, "rewards"), rewards.reshape(-1))


@pytest.mark.parametrize("name", ["js", "js_plus"])
def test_rewards_of_any_scale_and_offset_give_the_same_advantages(makers, rewards, name):
    _, ours = makers
    args = make_args(name, reward__clip_range=(-1e9, 1e9))
    maker = make_maker(ours, args, kl_coefficient=0.0)
    plain = by_response(maker.compute_advantages_and_returns(make_experiences(rewards)))
    moved = make_experiences(50 * rewards - 7)
    torch.testing.assert_close(
        by_response(maker.compute_advantages_and_returns(moved)), 50 * plain, rtol=1e-3, atol=1e-3
    )


def half_life_maker(cls, **settings):
    return make_maker(cls, make_args("js_plus", **settings), kl_coefficient=0.0)


def test_each_batch_is_judged_by_the_earlier_ones_and_then_remembered(makers):
    _, ours = makers
    maker = half_life_maker(ours, js__half_life=5.0)
    history = estimators.start_history(5.0)
    generator = torch.Generator().manual_seed(3)
    for _ in range(3):
        rewards = torch.rand(N, M, generator=generator)
        experiences = make_experiences(rewards)
        mask = by_response(experiences, "action_mask")
        actual = by_response(maker.compute_advantages_and_returns(experiences))
        expected = estimators.advantage("js_plus", rewards, history=history).reshape(-1, 1)
        torch.testing.assert_close(actual, expected * mask)
        assert maker.metrics == estimators.diagnostics("js_plus", rewards, history=history)
        history = estimators.update_history(history, rewards)
        assert maker.history == history
    assert maker.metrics["js/running_prompts"] > 0
    plain = estimators.advantage("js_plus", rewards).reshape(-1, 1) * mask
    assert not torch.allclose(actual, plain, atol=1e-3)  # a batch that could show a difference


def test_masked_rewards_stay_out_of_the_history(makers, rewards):
    _, ours = makers
    maker = half_life_maker(ours, js__half_life=5.0, js__on_bad_reward="mask")
    rewards[1, 2] = math.nan
    maker.compute_advantages_and_returns(make_experiences(rewards))
    empty = estimators.start_history(5.0)
    assert maker.history == estimators.update_history(empty, rewards, rewards.isfinite())


def test_without_a_half_life_there_is_no_history(makers, rewards):
    _, ours = makers
    maker = half_life_maker(ours)
    maker.compute_advantages_and_returns(make_experiences(rewards))
    assert maker.history is None
    assert not any(key.startswith("js/running") for key in maker.metrics)
