"""The experience maker against upstream's own, on rollouts that never met a model."""

import importlib.util
import itertools
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from queue import SimpleQueue
from types import ModuleType, SimpleNamespace

import numpy as np
import openrlhf
import pytest
import ray
import ray.cloudpickle
import torch
from kit import upstream_args
from openrlhf.models.utils import compute_reward as upstreams_reward
from openrlhf.trainer import ppo_trainer, ppo_trainer_async
from openrlhf.trainer.ppo_utils.experience import Experience
from openrlhf.trainer.ppo_utils.experience_maker import (
    RemoteExperienceMaker,
)
from openrlhf.utils.logging_utils import WandbLogger

from openrlhf_js import estimators
from openrlhf_js.common.store import Store
from openrlhf_js.estimators import key_of, make_batch
from openrlhf_js.plugin import experience as our_experience
from openrlhf_js.plugin import trainer
from openrlhf_js.plugin.experience import (
    ShrinkageExperienceMaker,
    SourcedPrompts,
    _fill_gaps,
    save_batch,
)
from openrlhf_js.plugin.memory import MEMORY, keep_memory, keys_of, resume_memory
from openrlhf_js.plugin.selection import PromptSelector
from openrlhf_js.plugin.upstream import BadInput, BadReward, UpstreamMismatch, plain_class
from openrlhf_js.sampling.prompts import SourcedLabel

N = 6
M = 4
LENGTH = 5


def make_args(estimator: str, **settings):
    """What upstream's experience maker reads."""
    sizes = {"rollout__n_samples_per_prompt": M, "rollout__max_new_tokens": LENGTH}
    sizes |= {"rollout__micro_batch_size": 4, "data__max_len": 32}
    return upstream_args(algo__advantage__estimator=estimator, **{**sizes, **settings})


def make_maker(cls, args, kl_coefficient=0.1):
    strategy = SimpleNamespace(args=args)
    return cls(None, None, None, None, SimpleNamespace(value=kl_coefficient), strategy, None)


def make_experiences(rewards, micro_batch_size=4, order=None, seed=0):
    """Experiences of (n, m) rewards, split and ordered as upstream might have done."""
    generator = torch.Generator().manual_seed(seed)
    flat = rewards.reshape(-1)
    lengths = torch.randint(1, LENGTH + 1, (len(flat),), generator=generator)
    kl = torch.randn(len(flat), LENGTH, generator=generator)
    log_probs = -torch.rand(len(flat), LENGTH, generator=generator)
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
                action_log_probs=log_probs[index],
                action_mask=mask,
                prompts=[f"prompt {i // M}" for i in index],
                labels=[f"label {i // M}" for i in index],
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


def advantages(cls, args, rewards):
    return make_maker(cls, args).compute_advantages_and_returns(make_experiences(rewards))


def without_kl(maker, rewards, **how):
    """The advantages of every token, (n * m, LENGTH), and the mask of the real ones."""
    experiences = make_experiences(rewards, **how)
    mask = by_response(experiences, "action_mask")
    return by_response(maker.compute_advantages_and_returns(experiences)), mask


def assert_logs(maker, name, rewards):
    """All that is said of the rewards alone, and what the log-probabilities add."""
    logged = {key: value for key, value in maker.metrics.items() if "gradient_noise" not in key}
    del logged["js/weight_right_over_wrong"]
    assert logged == estimators.diagnostics(name, rewards)


def our_maker(name, kl_coefficient=0.0, **settings):
    return make_maker(ShrinkageExperienceMaker, make_args(name, **settings), kl_coefficient)


PENALTIES = {"reward__overlong_buffer_len": 3, "reward__stop_properly_penalty_coef": 0.5}


@pytest.mark.parametrize("settings", [{}, PENALTIES], ids=["plain", "penalties"])
def test_our_way_through_upstream_is_upstreams_own_way(rewards, settings):
    """js_fixed with shrinkage 0 is RLOO, so all around it must come out as upstream's rloo."""
    expected = advantages(RemoteExperienceMaker, make_args("rloo", **settings), rewards)
    args = make_args("js_fixed", js__shrinkage=0.0, **settings)
    actual = advantages(ShrinkageExperienceMaker, args, rewards)
    for name in ("advantages", "returns", "rewards"):
        torch.testing.assert_close(by_response(actual, name), by_response(expected, name))
    for one, other in zip(actual, expected, strict=True):
        assert one.info.keys() == other.info.keys()
        torch.testing.assert_close(one.info["reward"], other.info["reward"])
        torch.testing.assert_close(one.info["return"], other.info["return"])
    assert args.reward.overlong_buffer_len == settings.get("reward__overlong_buffer_len")


@pytest.mark.parametrize("name", ["rloo", "reinforce_baseline", "group_norm"])
def test_upstreams_estimators_run_upstreams_code(rewards, name):
    expected, actual = (
        by_response(advantages(cls, make_args(name), rewards))
        for cls in (RemoteExperienceMaker, ShrinkageExperienceMaker)
    )
    assert torch.equal(actual, expected)


@pytest.mark.parametrize("name", ["js", "js1", "bloo"])
def test_the_whole_rollout_batch_makes_the_baseline_however_it_is_split(rewards, name):
    expected = estimators.advantage(name, rewards).reshape(-1)
    shuffled = torch.randperm(N * M, generator=torch.Generator().manual_seed(1)).tolist()
    for how in ({"micro_batch_size": 1}, {"micro_batch_size": 5, "order": shuffled}):
        maker = our_maker(name)
        actual, mask = without_kl(maker, rewards, **how)
        torch.testing.assert_close(actual, expected.unsqueeze(1) * mask)
        assert maker.metrics.keys() >= estimators.diagnostics(name, rewards).keys()


def test_the_logged_rewards_are_rewards_and_not_advantages(rewards):
    done = advantages(ShrinkageExperienceMaker, make_args("js"), rewards)
    logged = torch.cat([e.info["reward"] for e in done])
    torch.testing.assert_close(logged, rewards.reshape(-1))
    spread = torch.cat([e.info["group_reward_std"] for e in done])
    torch.testing.assert_close(spread, rewards.std(1).repeat_interleave(M))


def test_what_a_rank_gets_does_not_grow_with_the_batch(rewards):
    small, large = (
        advantages(ShrinkageExperienceMaker, make_args("js"), rewards.repeat(copies, 1))[0]
        for copies in (1, 100)
    )
    sizes = [len(ray.cloudpickle.dumps(each)) for each in (small, large)]
    assert sizes[1] < 1.1 * sizes[0]


def test_a_batch_too_small_for_the_estimator_teaches_nothing(rewards):
    maker = make_maker(ShrinkageExperienceMaker, make_args("bloo"))
    experiences = make_experiences(rewards[:1])
    maker.compute_advantages_and_returns(experiences)
    assert not by_response(experiences).any()
    assert maker.metrics == {}
    logged = torch.cat([experience.info["reward"] for experience in experiences])
    torch.testing.assert_close(logged, rewards[0])


def test_a_masked_response_of_a_batch_too_small_leaves_no_nan(rewards):
    rewards[0, 0] = math.nan
    maker = our_maker("bloo", js__on_bad_reward="mask", js__max_masked_share=0.5)
    experiences = make_experiences(rewards[:1])
    maker.compute_advantages_and_returns(experiences)
    assert not by_response(experiences).any()
    assert not by_response(experiences, "returns").any()
    assert not by_response(experiences, "action_mask").any()


def test_masked_responses_count_nowhere_and_teach_nothing(rewards):
    rewards[1, 2] = math.nan
    args = make_args("js", js__on_bad_reward="mask", reward__stop_properly_penalty_coef=-0.5)
    maker = make_maker(ShrinkageExperienceMaker, args)
    experiences = make_experiences(rewards)
    maker.compute_advantages_and_returns(experiences)
    table = by_response(experiences)
    assert (table[1 * M + 2] == 0).all()
    assert table.isfinite().all()
    assert maker.metrics["js/masked_responses"] == 1
    logged = torch.cat([e.info["reward"] for e in experiences])
    others = torch.ones(N * M, dtype=torch.bool)
    others[1 * M + 2] = False
    assert logged[~others] == pytest.approx(logged[others].mean().item())


def test_masks_that_leave_too_little_stop_with_the_graders_first_error(rewards, monkeypatch):
    monkeypatch.setattr(RemoteExperienceMaker, "make_experience_batch", lambda self, samples: None)
    half = N * M // 2
    graded = rewards.clone()
    graded.view(-1)[:half] = math.nan
    samples = [SimpleNamespace(rewards=graded[0, :1], info={}, scores=None) for _ in range(3)]
    for sample, error in zip(samples, (None, "KeyError: gone", "another"), strict=True):
        sample.error = error

    def masked(rewards, share):
        maker = our_maker("js", js__on_bad_reward="mask", js__max_masked_share=share)
        maker.make_experience_batch(samples)
        maker.compute_advantages_and_returns(make_experiences(rewards))
        return maker.metrics["js/masked_responses"]

    assert masked(graded, 0.5) == half
    with pytest.raises(BadReward, match=f"50% of a step's {N * M} .* The first: KeyError: gone"):
        masked(graded, 0.49)
    with pytest.raises(BadReward, match=f"100% of a step's {N * M} responses have no reward"):
        masked(torch.full_like(rewards, math.nan), 1.0)


def test_a_bad_reward_stops_with_its_prompt(rewards):
    rewards[2, 0] = math.inf
    rewards[-1, -1] = math.nan  # in another micro-batch
    with pytest.raises(BadReward, match=r"The first: inf \(prompt 'prompt 2'\)"):
        advantages(ShrinkageExperienceMaker, make_args("js"), rewards)


def test_remax_takes_the_greedy_reward_and_leaves_none_behind(rewards, monkeypatch):
    greedy = rewards.mean(1)
    maker = our_maker("remax")
    monkeypatch.setattr(RemoteExperienceMaker, "make_experience_batch", lambda self, samples: None)
    samples = [
        SimpleNamespace(scores=None, info={"greedy_reward": greedy[i // M : i // M + 1]})
        for i in range(N * M)
    ]
    maker.make_experience_batch(samples)
    assert all(sample.info == {} for sample in samples)
    actual, mask = without_kl(maker, rewards)
    expected = (rewards - greedy.unsqueeze(1)).reshape(-1, 1) * mask
    torch.testing.assert_close(actual, expected)


BINARY = {  # estimator, m, chance of a right answer -> share of the gradient that filtering leaves
    ("js_fixed", 2, 0.5): 0.75,
    ("js_fixed", 4, 0.5): 0.9375,
    ("js_fixed", 4, 0.1): 0.8175,
    ("rloo", 4, 0.1): 1.0,
}


@pytest.mark.parametrize(("name", "m", "chance"), BINARY)
def test_what_filtering_leaves_of_the_expected_gradient(name, m, chance):
    """All outcomes of one prompt, beside another that holds the batch mean at 0.5."""
    gradient_of_all = 0.0
    gradient_of_kept = 0.0  # where equal groups are dropped
    other_group = torch.tensor([0.0, 1.0] * (m // 2))
    for outcome in itertools.product((0.0, 1.0), repeat=m):
        group = torch.tensor(outcome)
        batch = torch.stack([group, other_group])
        advantage = estimators.advantage(name, batch, shrinkage=0.5)[0]
        score = torch.where(group == 1, 1 / chance, -1 / (1 - chance))  # d log p / d chance
        successes = sum(outcome)
        probability = chance**successes * (1 - chance) ** (m - successes)
        gradient = probability * (advantage * score).mean().item()
        gradient_of_all += gradient
        if 0 < successes < m:
            gradient_of_kept += gradient
    assert gradient_of_all == pytest.approx(1, abs=1e-5)
    assert gradient_of_kept == pytest.approx(BINARY[name, m, chance], abs=1e-5)


def test_the_error_of_reinforce_is_that_of_the_batch_mean_which_whitening_subtracts(rewards):
    maker = our_maker("reinforce")
    maker.compute_advantages_and_returns(make_experiences(rewards))
    assert_logs(maker, "reinforce++", rewards)


def test_samples_without_a_reward_are_filled_so_that_a_batch_can_be_made():
    full = SimpleNamespace(
        scores=torch.tensor([1.0]), info={"reward": torch.tensor([1.0]), "x": torch.tensor([3.0])}
    )
    bare = SimpleNamespace(scores=None, info={"reward": torch.tensor([math.nan])})
    _fill_gaps([full, bare])
    assert bare.info["x"].item() == 3.0
    assert bare.scores.isnan().all()


@pytest.mark.parametrize(
    ("settings", "mean_over_tokens"),
    [
        ({}, False),
        ({"js__loss": "token_mean"}, False),
        ({"js__loss": "constant"}, False),
        ({"js__loss": "sequence_mean"}, True),
        ({"actor__loss_agg_mode": "seq-mean-token-mean"}, True),
        ({"actor__policy_loss_type": "gspo"}, True),
    ],
)
def test_js_grad_weighs_responses_as_the_loss_does(rewards, settings, mean_over_tokens):
    maker = our_maker("js_grad", **settings)
    experiences = make_experiences(rewards, order=torch.randperm(N * M).tolist())
    mask = by_response(experiences, "action_mask")
    norms = estimators.squared_score_norms(
        by_response(experiences, "action_log_probs"), mask, mean_over_tokens=mean_over_tokens
    )
    expected = estimators.advantage(
        "js_grad", rewards, squared_score_norms=norms.view(rewards.shape)
    )
    assert not torch.equal(expected, estimators.advantage("js_grad", rewards))
    actual = by_response(maker.compute_advantages_and_returns(experiences))
    torch.testing.assert_close(actual, expected.reshape(-1, 1) * mask, rtol=0, atol=1e-6)


CLIPPED = ["js", "rloo", "group_norm", "dr_grpo", "reinforce_baseline", "flash_reinforce"]


def test_a_policy_without_probabilities_ends_the_run(rewards):
    experiences = make_experiences(rewards)
    experiences[0].action_log_probs[0, 0] = math.nan
    with pytest.raises(
        BadReward, match="log-probabilities are not finite in step 0: it has diverged"
    ):
        our_maker("js_grad").compute_advantages_and_returns(experiences)


@pytest.mark.parametrize("name", ["js", "rloo"])
def test_the_clip_comes_after_the_baseline(rewards, name):
    rewards = 100 * rewards
    actual, mask = without_kl(our_maker(name, reward__clip_range=(-3, 5)), rewards)
    raw = estimators.advantage(name, rewards).reshape(-1, 1)
    assert raw.min() < -3
    assert raw.max() > 5
    torch.testing.assert_close(actual, raw.clamp(-3, 5) * mask)


@pytest.mark.parametrize("name", [*CLIPPED, "reinforce", "gae"])
def test_what_is_clipped_is_said_once_with_its_share(name, rewards, monkeypatch, capsys):
    unclipped = []

    def compute_reward(reward, kl_coef, kl, **how):
        unclipped.append(reward)
        return upstreams_reward(reward, kl_coef, kl, **how)

    monkeypatch.setattr(our_experience, "compute_reward", compute_reward)
    maker = our_maker(name, reward__clip_range=(-0.4, 0.5))
    for step in range(1, 4):
        maker.step = step
        experiences = make_experiences(rewards if step > 1 else 0 * rewards)
        for each in experiences:
            each.values = torch.zeros_like(each.kl)
        unclipped.clear()
        maker.compute_advantages_and_returns(experiences)
        values = torch.cat(unclipped)
        share = ((values < -0.4) | (values > 0.5)).double().mean().item()
        said = capsys.readouterr().out
        assert (f"{share:.2%} of the " in said) == (step == 2)
        assert bool(said) == (step == 2)
    assert 0 < share < 1


@pytest.mark.parametrize("responses", [M, 1])
def test_the_past_of_each_prompt_and_its_label_make_the_baseline(monkeypatch, responses):
    """One prompt is in each batch twice, and one response has no reward."""
    monkeypatch.setitem(globals(), "M", responses)
    maker = our_maker("js_grad", js__on_bad_reward="mask", js__max_masked_share=0.5)
    live = estimators.LiveEstimator("js_grad")
    generator = torch.Generator().manual_seed(3)
    numbers = [*range(N - 1), 0]
    labels = [SourcedLabel(f"label {number}") for number in numbers]
    for label in labels:
        label.datasource = "maze"
    keys = torch.tensor([key_of(f"prompt {i}", f"label {i}", "maze") for i in numbers])
    for step in (1, 2, 3):
        rewards = torch.rand(N, M, generator=generator) + torch.tensor(numbers)[:, None]
        rewards[step, 0] = math.nan
        experiences = make_experiences(rewards, seed=step)
        for experience in experiences:
            groups = [number // M for number in experience.index]
            experience.prompts = [f"prompt {numbers[group]}" for group in groups]
            experience.labels = [labels[group] for group in groups]
        mask = by_response(experiences, "action_mask")
        log_probs = by_response(experiences, "action_log_probs")
        maker.step = step
        advantages = by_response(maker.compute_advantages_and_returns(experiences))
        norms = estimators.squared_score_norms(log_probs, mask).view(rewards.shape)
        batch = live.batch(
            rewards, mask=rewards.isfinite(), squared_score_norms=norms, keys=keys, step=step
        )
        expected = live.estimate(batch).advantages.float()
        torch.testing.assert_close(advantages, expected.reshape(-1, 1) * mask)
        assert (maker.metrics["js/past_slope"] > 0) == (step > 1)
        live.learn(batch)


def test_a_prompt_is_known_by_its_text_label_and_datasource():
    label = SourcedLabel("gold")
    label.datasource = "maze"
    keys = keys_of(["a", "a", "a", "b"], [label, SourcedLabel("gold"), "silver", "gold"])
    assert keys[0] == key_of("a", "gold", "maze")
    assert len(keys.unique()) == 4


def test_a_memory_begins_with_samples_of_the_training_prompts(tmp_path):
    samples = tmp_path / "p.jsonl"
    correct = {"a": [True] * 4, "b": [False, True, True]}  # by the prompt's uid
    with Store(samples, {"model": "m"}, ("uid", "draw")) as store:
        store.append(
            {"uid": uid, "draw": draw, "status": "correct" if is_correct else "wrong"}
            for uid, draws in correct.items()
            for draw, is_correct in enumerate(draws)
        )
        # graded again, which counts once; and refused, which counts not at all
        store.append([{"uid": "a", "draw": 0, "status": "correct", "graded_by": "newer"}])
        store.append([{"uid": "b", "draw": 3, "finish_reason": "refused", "refused": "too long"}])
    items = [
        {
            "uid": uid,
            "messages": [{"content": f"ask {uid}"}],
            "label": uid,
            "datasource": "math",
        }
        for uid in correct
    ]
    (tmp_path / "p.items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    args = make_args("js_grad", js__warm_memory=str(samples))
    args.data.apply_chat_template = False
    args.data.input_template = None
    memory = make_maker(ShrinkageExperienceMaker, args).estimator.memory
    keys = torch.tensor([key_of(f"ask {uid}", uid, "math") for uid in ("a", "b", "unknown")])
    past = memory.recall(make_batch(torch.zeros(3, 1), keys=keys, step=1))
    assert past.past_weight.tolist() == [4, 3, 0]  # responses
    assert past.past_reward.tolist() == [4, 2, 0]


# --- saved batches ------------------------------------------------------------------------------


def saved_experience(index, prompts, sequences, actions, advantages):
    """A digit is a token; 0 is padding."""
    tokens, acted, values = (
        torch.tensor([[int(digit) for digit in row] for row in table.split()])
        for table in (sequences, actions, advantages)
    )
    masks = {"attention_mask": (tokens > 0).long(), "action_mask": acted.bool()}
    return SimpleNamespace(
        index=index, prompts=list(prompts), sequences=tokens, advantages=values.float(), **masks
    )


def test_tokens_go_without_padding_and_in_prompt_order(tmp_path):
    shuffled = [  # two prompts with two responses, padded on the right
        saved_experience([3, 0], "ba", "7890 1200", "010 100", "040 100"),
        saved_experience([1, 2], "ab", "134 756", "11 11", "92 93"),
    ]

    def gather(values):
        flat = torch.cat([value.flatten() for value in values])
        return flat[torch.tensor([1, 2, 3, 0])].reshape(2, 2)

    path = tmp_path / "batches" / "batch_000007.npz"
    for estimator in ("rloo", "js"):  # a step that is repeated replaces what it left
        save_batch(path, shuffled, gather, rewards=np.eye(2), estimator=estimator)
    saved = np.load(path)
    assert saved["prompts"].tolist() == [["a", "a"], ["b", "b"]]
    assert saved["lengths"].tolist() == [[2, 3], [3, 3]]
    assert saved["tokens"].tolist() == [1, 2, 1, 3, 4, 7, 5, 6, 7, 8, 9]
    assert saved["advantages"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert saved["rewards"].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert str(saved["estimator"]) == "js"


# --- what checkpoints keep of earlier steps -------------------------------------------------------


def remembering(learned=False):
    """A maker whose estimator remembers, and has learned a batch or none."""
    estimator = estimators.LiveEstimator("js_grad")
    if learned:
        estimator.learn(make_batch(torch.rand(2, 3), keys=torch.tensor([7, 5]), step=3))
    return SimpleNamespace(estimator=estimator)


def past_of(maker):
    batch = make_batch(torch.zeros(3, 1), keys=torch.tensor([5, 6, 7]), step=4)
    past = maker.estimator.memory.recall(batch)
    of_steps = [sums.tolist() for sums in past.moments]
    of_prompts = [past.past_weight.tolist(), past.past_reward.tolist()]
    return past.origin.item(), of_steps, of_prompts


def test_a_selector_learns_the_penalised_rewards(rewards):
    texts = [f"prompt {number}" for number in range(N)]
    keys = torch.tensor([key_of(text, "l", "") for text in texts])
    experiences = make_experiences(rewards)
    for experience in experiences:
        experience.labels = ["l"] * len(experience.index)
    maker = our_maker("js", **PENALTIES)
    maker.selector, twin = (PromptSelector(keys, batch_size=N, seed=0) for _ in range(2))
    maker.compute_advantages_and_returns(experiences)
    penalised = by_response(experiences, "rewards").view(N, M)
    twin.learn(keys, penalised, torch.ones(N, M, dtype=torch.bool))
    torch.testing.assert_close(maker.selector.sums, twin.sums)


def test_saved_with_real_files_and_restored(tmp_path):
    kept = remembering(learned=True)
    states = {"global_step": 3, "episode": 1}
    keep_memory(states, kept)
    torch.save(states, tmp_path / "states.pt")
    loaded = torch.load(tmp_path / "states.pt", weights_only=True)
    fresh = remembering()
    resume_memory(loaded, fresh)
    assert past_of(fresh) == past_of(kept)
    del loaded[MEMORY]["moments"]
    with pytest.raises(BadInput, match="of another version of openrlhf_js: resume it with that"):
        resume_memory(loaded, remembering())


OWN = """
class Lazy:
    def baseline(self, batch):
        return batch.rewards * 0 + getattr(self, "mean", 0.5)

    def learn(self, batch):
        self.mean = float(batch.rewards.mean())

class Other(Lazy):
    pass

def of_keys(batch):
    return (batch.keys % 7).double()[:, None].expand_as(batch.rewards)
"""


def test_a_class_of_the_users_own_is_restored_and_no_other(tmp_path):
    def maker(name):
        path = tmp_path / "mine.py"
        path.write_text(OWN)
        return SimpleNamespace(estimator=estimators.LiveEstimator(f"{path}:{name}"))

    kept = maker("Lazy")
    states = {"global_step": 1}
    kept.estimator.learn(make_batch(torch.ones(2, 3)))
    keep_memory(states, kept)
    fresh = maker("Lazy")
    resume_memory(states, fresh)
    assert fresh.estimator.memory.object.mean == 1.0
    with pytest.raises(BadInput, match="holds the memory of another estimator"):
        resume_memory(states, maker("Other"))


def test_a_function_of_the_users_own_sees_the_keys(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(OWN)
    rewards = torch.rand(N, M)
    maker = our_maker(f"{path}:of_keys")
    experiences = make_experiences(rewards)
    mask = by_response(experiences, "action_mask")
    advantages = by_response(maker.compute_advantages_and_returns(experiences))
    keys = torch.tensor([key_of(f"prompt {i}", f"label {i}", "") for i in range(N)])
    expected = (rewards - (keys % 7)[:, None]).reshape(-1, 1) * mask
    torch.testing.assert_close(advantages, expected)


def test_a_resumed_run_does_not_begin_with_an_empty_memory():
    states = {"global_step": 3}
    keep_memory(states, SimpleNamespace(estimator=estimators.LiveEstimator("js")))
    maker = remembering()
    maker.args = upstream_args(algo__advantage__estimator="js_grad")
    with pytest.raises(BadInput, match="holds no memory, and js_grad would begin with an empty"):
        resume_memory(states, maker)
    maker.args.js.warm_memory = "samples.jsonl"
    resume_memory(states, maker)


def test_a_run_without_a_memory_keeps_none():
    fresh = remembering()
    states = {}
    resume_memory({"global_step": 0, "episode": 0}, fresh)
    assert len(fresh.estimator.memory.table) == 0
    for estimator in (None, estimators.LiveEstimator("js")):
        keep_memory(states, SimpleNamespace(estimator=estimator))
    assert states == {}


class Upstream:
    """What of upstream's trainer matters here; `disk` is what it saved last."""

    def __init__(self, pretrain, strategy):
        self.data_set = ppo_trainer.PromptDataset
        self.experience_maker = SimpleNamespace(
            live_estimator="js_grad", estimator=None, selector=None, metrics={}
        )
        self.actor_model_group = SimpleNamespace(_actor_handlers=[])
        self.kl_ctl = SimpleNamespace(value=0.1)
        self.disk = {"global_step": 0}
        self.order = torch.randperm(50).tolist()  # as the loader draws it
        self.samples_generator = SimpleNamespace(drawn=0, steps_left=10, selector=None)
        self.args = strategy.args
        self.tensorboard_logger = None
        self.wandb_logger = None
        self.generate_kwargs = {"max_len": 9, "temperature": 1.0}
        self.eval_dataloader = ["prompts"]
        self.evaluated = []
        self._last_eval_step = -1
        self.max_steps = 1000
        self.prompts_dataloader = SimpleNamespace(dataset=range(1000))

    def save_logs_and_checkpoints(self, global_step, logs_dict=None, client_states=None):
        self.disk = {**client_states, "global_step": global_step}

    def save_best_checkpoint(self, eval_metrics, global_step, client_states=None):
        self.disk = {**client_states, "global_step": global_step}

    def init_checkpoint_states(self):
        return self.disk

    def fit(self, episode, total_consumed_prompts):
        self.rollout_queue.put("done", block=True)

    def train_step(self, rollout_samples, global_step):
        means = {"rollout/reward_mean": 0.5, "rollout/response_length_mean": 3.0}
        return means, global_step + 1

    def evaluate(self, global_step, **generate_kwargs):
        self.evaluated.append((global_step, generate_kwargs))
        return {"eval_default_pass1": 1.0}

    def load_state_dict(self, state_dict):
        self.loaded = state_dict

    def _should_eval(self, global_step):
        return False

    def get_max_steps(self):
        return self.max_steps

    def _run_eval(self):
        return {"eval_default_pass1": 0.5}


def run_args(estimator="js_grad", **settings):
    """Of a run of 8 x 4 responses."""
    sizes = {"rollout__batch_size": 8, "rollout__n_samples_per_prompt": 4, "train__batch_size": 32}
    evaluation = {"eval__steps": 4, "eval__temperature": 0.5, "eval__n_samples_per_prompt": 2}
    asked = {"algo__advantage__estimator": estimator, "js__max_steps": 10}
    return upstream_args(**{**sizes, **evaluation, **asked, **settings})


@pytest.fixture
def start(monkeypatch):
    """Starts one of our actors on upstream's class, with a flag for js_grad."""
    for name in ("PromptDataset", "RemoteExperienceMaker", "blending_datasets"):
        monkeypatch.setattr(ppo_trainer, name, None)

    def start(ours, estimator="js_grad", **settings):
        strategy = SimpleNamespace(args=run_args(estimator, **settings))
        return plain_class(ours(ray.remote(Upstream)))("model", strategy)

    return start


def test_the_trainer_saves_and_restores_it(start):
    kept = remembering(learned=True)
    actor = start(trainer.shrinkage_trainer, algo__kl__target=0.05)
    maker = actor.experience_maker
    for save in (
        lambda: actor.save_logs_and_checkpoints(7, {}, {"episode": 0}),
        lambda: actor.save_best_checkpoint({}, 7, {"episode": 0}),
    ):
        maker.estimator = kept.estimator
        actor.kl_ctl.value = 0.3
        save()
        maker.estimator = remembering().estimator
        actor.kl_ctl.value = 0.1
        assert actor.init_checkpoint_states()["episode"] == 0
        assert past_of(maker) == past_of(kept)
        assert actor.kl_ctl.value == 0.3
    actor.kl_ctl.value = 0.2
    actor.args.algo.kl.target = None
    actor.init_checkpoint_states()
    assert actor.kl_ctl.value == 0.2  # a fixed coefficient is what the flag says


@pytest.mark.parametrize("ours", [trainer.shrinkage_trainer, trainer.sourced_generator])
def test_the_seed_of_the_run_decides_the_order_of_prompts(start, ours):
    first = start(ours, train__seed=1).order
    torch.rand(3)  # whatever else the process has drawn
    assert start(ours, train__seed=1).order == first != start(ours, train__seed=2).order


def test_a_resumed_run_counts_its_prompts_on(start):
    actor = start(trainer.shrinkage_trainer)
    place = {"total_consumed_prompts": 24, "data_loader_state_dict": {"place": 24}}
    actor.disk = {"global_step": 3, **place}
    actor.init_checkpoint_states()
    assert (actor.samples_generator.drawn, actor.samples_generator.steps_left) == (24, 7)
    del actor.samples_generator  # as the asynchronous trainer
    half = start(trainer.sourced_generator)
    half.load_state_dict(actor.init_checkpoint_states()["data_loader_state_dict"])
    half.rollout_queue = SimpleQueue()
    half.fit(episode=1, total_consumed_prompts=24)
    assert (half.samples_generator.drawn, half.samples_generator.steps_left) == (24, 7)
    assert half.loaded == {"place": 24}
    assert not half._should_eval(0)


def test_a_run_is_evaluated_before_its_first_step_and_at_its_last(start):
    actor = start(trainer.shrinkage_trainer)
    assert actor.max_steps == 10 * 8 * 4 // 32
    for step in (0, 4, 5):
        actor.disk["global_step"] = step
        actor.init_checkpoint_states()
        actor.save_logs_and_checkpoints(step, {}, {})
    actor.save_logs_and_checkpoints(10, {}, {})
    as_asked = {"max_len": 9, "temperature": 0.5, "n_samples_per_prompt": 2}
    assert actor.evaluated == [(0, as_asked), (10, as_asked)]
    actor.args.js.max_steps = 0
    actor.save_logs_and_checkpoints(10, {}, {})
    actor.args.eval.steps = math.inf
    actor.disk["global_step"] = 0
    actor.init_checkpoint_states()
    assert len(actor.evaluated) == 2


def test_the_asynchronous_trainer_is_evaluated_once_all_is_trained(start):
    half = start(trainer.sourced_generator)
    assert half._should_eval(0)
    assert half.max_steps == 10
    half._last_eval_step = 0
    half.samples_generator.steps_left = 0
    assert not half._should_eval(0)
    half.rollout_queue, half.rollout_slots = queue, slots = SimpleQueue(), SimpleQueue()
    for step in (8, 9, 10):  # of steps on the way, and the answer after the last
        slots.put(step)
    half.fit(episode=1, total_consumed_prompts=24)
    assert slots.empty()
    payloads = [queue.get() for _ in range(3)]
    assert payloads == [("eval", 10, {}), ("eval", 10, {"eval_default_pass1": 0.5}), "done"]


class Rollouts(Upstream):
    """Trains on so many rollouts, from where it is resumed."""

    rollouts = 0

    def fit(self, global_step=0):
        self.init_checkpoint_states()
        for step in range(self.rollouts):
            self.train_step([], global_step + step)


@pytest.mark.parametrize(("rollouts", "resumed_after", "fails"), [(0, 0, 1), (1, 0, 0), (0, 3, 0)])
def test_a_run_that_trains_nothing_fails(start, monkeypatch, rollouts, resumed_after, fails):
    monkeypatch.setitem(globals(), "Upstream", Rollouts)
    filtering = {"algo__dynamic_filtering_enable": True, "algo__dynamic_filtering_range": (0, 0.5)}
    actor = start(trainer.shrinkage_trainer, **filtering)
    actor.rollouts = rollouts
    actor.disk["global_step"] = resumed_after
    if not fails:
        return actor.fit()
    with pytest.raises(BadInput, match=r"size 8 prompts have .*_filtering_range 0 0\.5"):
        actor.fit()


def evaluated(datasources, rewards):
    """Upstream's metrics, and ours, of prompts that are all alike."""
    data = SimpleNamespace(datasources=datasources)
    loader = [([source], ["prompt"], ["label"], [None]) for source in datasources]
    samples = [
        SimpleNamespace(
            prompts=["prompt"],
            rewards=torch.tensor([float(reward)]),
            response_length=torch.tensor([3]),
            truncated=torch.tensor([False]),
        )
        for pair in rewards
        for reward in pair
    ]
    upstreams = ppo_trainer.compute_eval_metrics(loader, samples, 2)
    ours = trainer.metrics_by_datasource(SimpleNamespace(dataset=data), samples, 2)
    assert samples[0].prompts == ["prompt"]
    return upstreams, ours


def test_two_evaluation_sets_with_the_same_prompts_are_two():
    upstreams, ours = evaluated(["a", "b", "a", None], [(1, 1), (0, 1), (1, 1), (0, 0)])
    assert upstreams["eval_None_pass1"] == 0.625  # of all: as long as it is so, ours is needed
    assert {name: ours[f"eval_{name}_pass1"] for name in ("a", "b", "default")} == {
        **{"a": 1.0, "b": 0.5, "default": 0.0},
    }
    assert ours["eval_b_pass2"] == 1.0
    assert ours["eval_num_samples"] == 8


def test_wandb_draws_evaluations_over_the_step_that_upstream_logs(start, monkeypatch):
    calls = []

    class Wandb(ModuleType):
        """Notes what is defined and logged."""

        api = SimpleNamespace(api_key="key")

        def __getattr__(self, name):
            return lambda *args, **named: calls.append((name, args, named))

    def steps():
        return [
            named["step_metric"]
            for name, args, named in calls
            if name == "define_metric" and args == ("eval/*",)
        ]

    class Logged(Upstream):
        def __init__(self, pretrain, strategy):
            super().__init__(pretrain, strategy)
            self.wandb_logger = WandbLogger(strategy.args)

    monkeypatch.setitem(sys.modules, "wandb", Wandb("wandb"))
    monkeypatch.setitem(globals(), "Upstream", Logged)
    actor = start(trainer.shrinkage_trainer, logger__wandb__key="key")
    actor.wandb_logger.log_eval(3, {"eval_a_pass1": 0.5})
    name, (logged,), _ = calls[-1]
    assert name == "log"
    assert steps()[-1] in logged
    assert steps()[0] not in logged  # upstream's: as long as it is so, ours is needed


def test_a_trainer_whose_live_estimator_is_another_stops(start):
    with pytest.raises(UpstreamMismatch, match="asked for estimator 'js', but 'js_grad' is live"):
        start(trainer.shrinkage_trainer, estimator="js")


# --- datasources --------------------------------------------------------------------------------


def sourced(rows, tokenizer, **settings):
    """Our data set of rows."""
    flags = {"data__label_key": "label", **settings}
    args = upstream_args(**flags)
    if tokenizer is None:
        args.train.agent_func_path = "agent"  # prompts are not measured
    strategy = SimpleNamespace(args=args, is_rank_0=lambda: False)
    return SourcedPrompts(rows, tokenizer=tokenizer, strategy=strategy)


ROWS = [
    {"input": "a", "label": "gold", "datasource": "maze/easy"},
    {"input": "b", "label": 5, "datasource": "maze"},
    {"input": "c", "label": "gold", "datasource": None},
    {"input": "d", "label": "gold"},
]


@pytest.fixture
def data():
    return sourced(ROWS, tokenizer=None)


def test_a_text_label_carries_the_datasource_and_stays_that_text(data):
    source, prompt, label, images = data[0]
    assert (source, prompt, label, images) == ("maze/easy", "a", "gold", None)
    sent = ray.cloudpickle.loads(ray.cloudpickle.dumps(label))
    assert sent.datasource == label.datasource == "maze/easy"
    assert json.dumps([sent, f"{sent}", sent + "!"]) == '["gold", "gold", "gold!"]'
    assert {"gold": 1}[sent] == 1
    assert type(str(sent)) is str


def test_other_labels_pass_as_they_are(data):
    assert data[1] == ("maze", "b", 5, None)
    assert not hasattr(data[2][2], "datasource")  # a null in the file is none
    assert data[3][2].datasource == "default"  # upstream's word for a row without one


def test_the_datasource_survives_upstreams_loader_and_its_draw(data):
    from openrlhf.trainer.ppo_utils.samples_generator import _collect_prompt_batch
    from torchdata.stateful_dataloader import StatefulDataLoader

    loader = StatefulDataLoader(data, 1, collate_fn=data.collate_fn, num_workers=0)
    prompts, labels, _, _ = _collect_prompt_batch(iter(loader), 1)
    assert (prompts, labels) == (["a"], ["gold"])
    assert labels[0].datasource == "maze/easy"


def count_words(text, **_):
    """A tokenizer of which each word is one token."""
    return SimpleNamespace(input_ids=[one.split() for one in text])


LONG = [{"input": "word " * count, "label": f"{count}"} for count in (5, 1, 7, 2)]


def test_long_prompts_are_refused(start):
    data = sourced(LONG, count_words, data__max_len=8, rollout__max_new_tokens=4)
    said = "more than 4 tokens, which --data.max_len 8 leaves beside 4 for the response: 2 of 4, up"
    assert said in data.problem
    assert "to 7 in row 3; raise --data.max_len" in data.problem
    half = start(trainer.sourced_generator, rollout__batch_size=4)
    half.eval_dataloader = None
    half.prompts_dataloader = SimpleNamespace(dataset=data, state_dict=dict, load_state_dict=id)
    with pytest.raises(BadInput, match="prompts of more than 4 tokens"):
        half.get_max_steps()
    data.problem = None
    assert half.get_max_steps() == half.max_steps


def test_long_prompts_are_dropped_with_all_that_belongs_to_them(capsys):
    data = sourced(
        LONG, count_words, data__max_len=8, rollout__max_new_tokens=4, js__on_long_prompt="drop"
    )
    assert data.problem is None
    assert len(data) == 2
    assert [data[i][1:3] for i in range(2)] == [("word ", "1"), ("word word ", "2")]
    assert "left out prompts of more than 4 tokens" in capsys.readouterr().out
    none = sourced(LONG[2:3], count_words, data__max_len=8, js__on_long_prompt="drop")
    assert none.problem is None  # a prompt may leave one token without --rollout.max_new_tokens
    none = sourced(LONG[2:3], count_words, data__max_len=7, js__on_long_prompt="drop")
    assert "no prompt is left" in none.problem


def test_an_empty_prompt_is_refused_unless_an_agent_writes_what_the_model_reads():
    rows = [{"input": "word", "label": "1"}, {"input": " ", "label": "1"}]
    assert sourced(rows, count_words).problem == "row 2 is an empty prompt: leave it out"
    assert sourced(rows, count_words, train__agent_func_path="agent.py").problem is None


def test_prompts_with_images_are_left_to_upstream_where_the_model_sees():
    processor = SimpleNamespace(tokenizer=count_words, image_processor=None)
    rows = [{**LONG[0], "images": ["a.png"]}, {**LONG[0], "images": None}]
    problem = sourced(rows, processor, data__max_len=5).problem
    assert "1 of 2, up to 5 in row 2" in problem


def test_both_actors_that_read_prompts_do_it_with_our_data_set(start):
    """The synchronous trainer, and the half of the asynchronous one that generates."""
    assert ppo_trainer_async.prepare_datasets is ppo_trainer.prepare_datasets
    assert "PromptDataset" in ppo_trainer.prepare_datasets.__code__.co_names
    for ours in (trainer.shrinkage_trainer, trainer.sourced_generator):
        assert start(ours).data_set is SourcedPrompts


@pytest.fixture
def patched(tmp_path, monkeypatch):
    """Upstream's experience maker with docs/openrlhf-0.11.2.patch; the rest is installed."""
    files = "trainer/ppo_utils/experience_maker.py", "cli/train_ppo_ray.py"
    for name in files:
        target = tmp_path / "openrlhf" / name
        target.parent.mkdir(parents=True)
        shutil.copy(Path(openrlhf.__file__).parent / name, target)
    diff = (Path(__file__).parents[2] / "docs/openrlhf-0.11.2.patch").read_text()
    subprocess.run(["patch", "-p1"], cwd=tmp_path, input=diff, text=True, check=True)
    compile((tmp_path / "openrlhf" / files[1]).read_text(), files[1], "exec")
    for name in ("advantage_estimators", "experience_maker"):
        full = f"openrlhf.trainer.ppo_utils.{name}"
        path = tmp_path / "openrlhf/trainer/ppo_utils" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(full, path)
        monkeypatch.setitem(sys.modules, full, importlib.util.module_from_spec(spec))
        spec.loader.exec_module(sys.modules[full])
    return sys.modules[full]


def test_the_patch_for_upstream_adds_js_and_changes_no_other_estimator(patched, rewards):
    made = {}
    for name in patched.ADVANTAGE_ESTIMATORS:
        maker = make_maker(patched.RemoteExperienceMaker, make_args(name), kl_coefficient=0.0)
        made[name], mask = without_kl(maker, rewards)
        if name != "js":
            maker = make_maker(RemoteExperienceMaker, make_args(name), kl_coefficient=0.0)
            torch.testing.assert_close(made[name], without_kl(maker, rewards)[0])
    ours = estimators.advantage("js", rewards).reshape(-1, 1) * mask
    torch.testing.assert_close(made["js"], ours)
    assert len(made) == 7
