"""The experience maker against upstream's own, on rollouts that never met a model."""

import importlib.util
import itertools
import math
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import openrlhf
import pytest
import torch
from kit import upstream_args
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker

from openrlhf_js import estimators
from openrlhf_js.estimators import key_of, make_batch
from openrlhf_js.trainers.openrlhf.experience import (
    PromptOrder,
    ShrinkageExperienceMaker,
    save_batch,
)
from openrlhf_js.trainers.openrlhf.records import Outcome, Sample
from openrlhf_js.trainers.openrlhf.upstream import BadInput, BadReward

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


def our_maker(name, kl_coefficient=0.0, **settings):
    return make_maker(ShrinkageExperienceMaker, make_args(name, **settings), kl_coefficient)


def key_of_prompt(number):
    return key_of(f"prompt {number}", "label", "maze")


def make_experiences(rewards, micro_batch_size=4, order=None, seed=0, **of_outcomes):
    """Samples of (n, m) rewards, split and ordered as upstream might have done.

    `of_outcomes` are lists (n m,) of what is in each response's outcome.
    """
    generator = torch.Generator().manual_seed(seed)
    flat = rewards.reshape(-1)
    lengths = torch.randint(1, LENGTH + 1, (len(flat),), generator=generator)
    kl = torch.randn(len(flat), LENGTH, generator=generator)
    log_probs = -torch.rand(len(flat), LENGTH, generator=generator)
    order = list(range(len(flat))) if order is None else order
    outcomes = [Outcome(number // M, key_of_prompt(number // M)) for number in range(len(flat))]
    for name, values in of_outcomes.items():
        outcomes = [
            outcome._replace(**{name: value})
            for outcome, value in zip(outcomes, values, strict=True)
        ]
    made = []
    for start in range(0, len(flat), micro_batch_size):
        index = order[start : start + micro_batch_size]
        mask = torch.arange(LENGTH) < lengths[index].unsqueeze(1)
        made.append(
            Sample(
                index=index,
                rewards=flat[index].clone(),
                kl=kl[index] * mask,
                action_log_probs=log_probs[index],
                action_mask=mask,
                values=torch.zeros(len(index), LENGTH),
                prompts=[f"prompt {i // M}" for i in index],
                response_length=lengths[index],
                truncated=lengths[index] == LENGTH,
                info={"reward": flat[index].clone()},
                outcomes=[outcomes[i] for i in index],
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
        assert one.info.keys() == other.info.keys() == {"reward", "return", "group_reward_std"}
        torch.testing.assert_close(one.info, other.info)
    assert args.reward.overlong_buffer_len == settings.get("reward__overlong_buffer_len")


@pytest.mark.parametrize("name", ["rloo", "reinforce_baseline", "group_norm"])
def test_upstreams_estimators_run_upstreams_code(rewards, name):
    expected, actual = (
        by_response(advantages(cls, make_args(name), rewards))
        for cls in (RemoteExperienceMaker, ShrinkageExperienceMaker)
    )
    assert torch.equal(actual, expected)


@pytest.mark.parametrize("name", ["js", "bloo"])
def test_the_whole_rollout_batch_makes_the_baseline_however_it_is_split(rewards, name):
    expected = estimators.advantage(name, rewards).reshape(-1)
    shuffled = torch.randperm(N * M, generator=torch.Generator().manual_seed(1)).tolist()
    for how in ({"micro_batch_size": 1}, {"micro_batch_size": 5, "order": shuffled}):
        maker = our_maker(name)
        actual, mask = without_kl(maker, rewards, **how)
        torch.testing.assert_close(actual, expected.unsqueeze(1) * mask)
        assert maker.metrics.keys() >= estimators.diagnostics(name, rewards).keys()
        assert maker.batch.keys.tolist() == [key_of_prompt(number) for number in range(N)]


def test_outcomes_go_with_their_responses_and_gaps_between_tasks_are_filled(rewards):
    """A masked response has no logs."""
    samples = []
    for number in range(N * M):
        (sample,) = make_experiences(rewards[:1, :1])
        sample.info["accuracy"] = torch.tensor([float(number)])
        sample.outcomes = [Outcome(number // M, number)]
        samples.append(sample)
    del samples[5].info["accuracy"]
    samples[7].scores = torch.tensor([1.0])
    maker = our_maker("js")
    maker.tokenizer = SimpleNamespace(pad_token_id=0)
    made = maker.split_rollout_samples(samples)
    keys = [outcome.prompt_key for sample in made for outcome in sample.outcomes]
    assert keys == [number for sample in made for number in sample.index] == list(range(N * M))
    accuracies = torch.cat([sample.info["accuracy"] for sample in made])
    assert accuracies[5].item() == pytest.approx((sum(range(N * M)) - 5) / (N * M - 1))
    assert torch.cat([sample.scores for sample in made]).isnan().sum() == N * M - 1


def test_masked_responses_count_nowhere_and_teach_nothing(rewards):
    rewards[1, 2] = math.nan
    args = make_args("js", js__on_bad_reward="mask", reward__stop_properly_penalty_coef=-0.5)
    maker = make_maker(ShrinkageExperienceMaker, args)
    experiences = make_experiences(rewards)
    maker.compute_advantages_and_returns(experiences)
    masked = 1 * M + 2
    for name in ("advantages", "returns", "action_mask"):
        assert not by_response(experiences, name)[masked].any()
    assert by_response(experiences).isfinite().all()
    assert maker.metrics["js/masked_responses"] == 1
    logged = torch.cat([e.info["reward"] for e in experiences])
    others = torch.arange(N * M) != masked
    assert logged[masked] == pytest.approx(logged[others].mean().item())


def test_masks_that_leave_too_little_stop_with_the_graders_first_error(rewards):
    half = N * M // 2
    graded = rewards.clone()
    graded.view(-1)[:half] = math.nan
    errors = [None, "KeyError: gone", "another"] + [None] * (N * M - 3)
    graded.view(-1)[0] = 1.0

    def masked(rewards, share):
        maker = our_maker("js", js__on_bad_reward="mask", js__max_masked_share=share)
        experiences = make_experiences(rewards, error=errors)
        maker.compute_advantages_and_returns(experiences)
        return maker.metrics["js/masked_responses"]

    assert masked(graded, 0.5) == half - 1
    with pytest.raises(
        BadReward, match=f"{half - 1} of a step's {N * M} .* The first: KeyError: gone"
    ):
        masked(graded, 0.45)
    with pytest.raises(BadReward, match=f"{N * M} of a step's {N * M} responses have no reward"):
        masked(torch.full_like(rewards, math.nan), 1.0)


def test_a_reward_outside_an_estimators_range_is_bad_input(rewards):
    with pytest.raises(BadInput, match=r"--algo.advantage.estimator: maxrl takes rewards between"):
        our_maker("maxrl").compute_advantages_and_returns(make_experiences(rewards - 5))


def test_a_bad_reward_stops_with_its_prompt(rewards):
    rewards[2, 0] = math.inf
    rewards[-1, -1] = math.nan  # in another micro-batch
    with pytest.raises(BadReward, match=r"The first: inf \(prompt 'prompt 2'\)"):
        advantages(ShrinkageExperienceMaker, make_args("js"), rewards)


def test_a_policy_without_probabilities_ends_the_run(rewards):
    experiences = make_experiences(rewards)
    experiences[0].action_log_probs[0, 0] = math.nan
    with pytest.raises(BadReward, match="not finite in step 1: it has diverged"):
        our_maker("js_grad").compute_advantages_and_returns(experiences)


def test_remax_takes_the_greedy_reward(rewards):
    greedy = rewards.mean(1)
    shuffled = torch.randperm(N * M, generator=torch.Generator().manual_seed(1)).tolist()
    of_responses = greedy.repeat_interleave(M).tolist()
    actual, mask = without_kl(
        our_maker("remax"), rewards, order=shuffled, greedy_reward=of_responses
    )
    expected = (rewards - greedy.unsqueeze(1)).reshape(-1, 1) * mask
    torch.testing.assert_close(actual, expected)
    of_responses[0] = math.nan
    with pytest.raises(BadReward, match="The first: the greedy one"):
        without_kl(our_maker("remax"), rewards, greedy_reward=of_responses)


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


@pytest.mark.parametrize("name", ["js", "rloo"])
def test_the_clip_comes_after_the_baseline_and_is_said_once(rewards, name, capsys):
    rewards = 100 * rewards
    maker = our_maker(name, reward__clip_range=(-3, 5))
    actual, mask = without_kl(maker, rewards)
    raw = estimators.advantage(name, rewards).reshape(-1, 1)
    assert raw.min() < -3
    assert raw.max() > 5
    torch.testing.assert_close(actual, raw.clamp(-3, 5) * mask)
    share = ((raw < -3) | (raw > 5)).double().mean().item()
    said = f"openrlhf_js: {share:.2%} of the advantages of step 1 are beyond --reward.clip_range"
    assert said in capsys.readouterr().out
    without_kl(maker, rewards)
    assert capsys.readouterr().out == ""


def saved_experience(index, prompts, sequences, actions, advantages):
    """A digit is a token; 0 is padding."""
    tokens, acted, values = (
        torch.tensor([[int(digit) for digit in row] for row in table.split()])
        for table in (sequences, actions, advantages)
    )
    return Sample(
        index=index,
        prompts=list(prompts),
        sequences=tokens,
        attention_mask=(tokens > 0).long(),
        action_mask=acted.bool(),
        advantages=values.float(),
        rewards=torch.tensor(index).float(),
        outcomes=[Outcome(number // 2, 0) for number in index],
    )


def test_tokens_are_saved_without_padding_and_in_prompt_order(tmp_path):
    shuffled = [  # two prompts with two responses, padded on the right
        saved_experience([3, 0], "ba", "7890 1200", "010 100", "040 100"),
        saved_experience([1, 2], "ab", "134 756", "11 11", "92 93"),
    ]
    batch = make_batch([[0.0, 1.0], [2.0, 3.0]], squared_score_norms=torch.ones(2, 2))
    path = tmp_path / "batches" / "batch_000007.npz"
    for estimator in ("rloo", "js"):  # a step that is repeated replaces what it left
        save_batch(path, estimator, batch, PromptOrder(shuffled, responses=2))
    saved = np.load(path)
    assert saved["prompts"].tolist() == [["a", "a"], ["b", "b"]]
    assert saved["lengths"].tolist() == [[2, 3], [3, 3]]
    assert saved["tokens"].tolist() == [1, 2, 1, 3, 4, 7, 5, 6, 7, 8, 9]
    assert saved["advantages"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert saved["rewards"].tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert str(saved["estimator"]) == "js"


@pytest.fixture
def patched(tmp_path, monkeypatch):
    """Upstream's experience maker with docs/openrlhf-0.11.2.patch; the rest is installed."""
    files = "trainer/ppo_utils/experience_maker.py", "cli/train_ppo_ray.py"
    for name in files:
        target = tmp_path / "openrlhf" / name
        target.parent.mkdir(parents=True)
        shutil.copy(Path(openrlhf.__file__).parent / name, target)
    diff = (Path(__file__).parents[3] / "docs/openrlhf-0.11.2.patch").read_text()
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
