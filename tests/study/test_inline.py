"""The inline engine: pairs of runs, its gradient, and its records."""

import math
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
import torch

from openrlhf_js.study import inline, prompts, rollout
from openrlhf_js.study.design import Run, StudySettings
from openrlhf_js.study.value_tracker import ValueTracker
from openrlhf_js.tasks.base import scored
from openrlhf_js.tiny.policy import load
from openrlhf_js.tiny.tasks import SOLVED, TASKS, UNSOLVABLE

SETTINGS = {"steps": 20, "held_out": 20, "width": 16, "layers": 1, "samples": 2, "seeds": 2}
ALL = ["rloo", "js", "remax"]


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """A study whose model has learned nothing, and whose rewards are those of random text."""
    folder = tmp_path_factory.mktemp("study")
    made = StudySettings(estimators=ALL, mixes=["natural", "mixed"], out=folder, **SETTINGS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TASKS, "sort", replace(TASKS["sort"], warm_start_steps=3, score=by_chance))
        prompts.warm_start("sort", made, lambda step: None)
        yield made


def by_chance(text, label):
    return scored("correct" if sum(map(ord, text)) % 3 == 0 else "wrong", "")


def sampled(policy, problems, run, greedy=False):
    generator = torch.Generator().manual_seed(0)
    return rollout.sample(policy, TASKS["sort"], problems, run.responses, generator, greedy=greedy)


def train(settings, **changes):
    run = settings.runs()[0]._replace(**changes)
    return inline.train(run, settings)


def test_runs_of_one_seed_have_the_same_prompts_in_the_same_order(settings):
    runs = settings.runs()
    assert len(set(runs)) == len(runs) == 2 * 2 * 3
    problems = {run: prompts.training_problems(run, settings) for run in runs}
    for run, given in problems.items():
        assert len(given) == 20 * 16
        pairs = [o for o in runs if (o.seed, o.mix) == (run.seed, run.mix)]
        assert all(problems[other] == given for other in pairs)
        others = [problems[o] for o in runs if o.seed != run.seed and o.mix == run.mix]
        assert all(given[:16] != other[:16] for other in others)
    held_out = {each.prompt for each in prompts.held_out("sort", settings)}
    assert not held_out & {each.prompt for given in problems.values() for each in given}


def test_a_run_is_repeated_exactly_and_starts_as_its_pair_does(settings):
    js, again, rloo = (train(settings, estimator=name) for name in ("js", "js", "rloo"))
    assert js == again
    assert js.curve[0] == rloo.curve[0]  # the first step's responses are the same
    assert js.curve != rloo.curve and js.curve != train(settings, seed=1).curve
    assert fmean(js.curve) == pytest.approx(js.reward, abs=1e-3)
    assert 0 <= js.pass1 <= 1 and js.gradient_variance > 0
    assert rloo.baseline_error == pytest.approx(1) and js.baseline_error != 1


def test_a_mix_has_a_third_that_is_solved_and_a_third_that_cannot_be(settings):
    run = settings.runs()[0]._replace(mix="mixed")
    given = prompts.training_problems(run, settings)
    labels = [each.label for each in given[:300]]
    assert labels.count(SOLVED) == labels.count(UNSOLVABLE) == 100
    policy = load(settings.start_of("sort"))
    rates = rollout.pass_rates(policy, TASKS["sort"], given[:30], 2)
    assert rates[1::3] == [1.0] * 10 and rates[2::3] == [0.0] * 10
    assert train(settings, mix="mixed").spread > 0.35  # values of 0, 1 and about 1/3


def test_alike_are_the_prompts_of_the_middle_third_by_pass_rate(settings, monkeypatch):
    run = settings.runs()[0]._replace(mix="alike")
    rated = lambda policy, task, given, samples: [len(each.prompt) / 99 for each in given]  # noqa: E731
    monkeypatch.setattr(prompts, "pass_rates", rated)
    lengths = {len(each.prompt) for each in prompts.training_problems(run, settings)}
    assert lengths <= {len("sort(123)="), len("sort(1234)=")}  # of 2 to 5 digits
    (settings.start_of("sort") / "alike.txt").unlink()


def test_distinct_prompts_come_again_once_in_every_pass_and_are_remembered(settings):
    again = settings.model_copy(update={"distinct": 40})
    run = settings.runs()[0]._replace(mix="mixed")
    given = prompts.training_problems(run, again)
    passes = [sorted(given[start : start + 40]) for start in range(0, 320, 40)]
    assert len(given) == 320 and all(each == passes[0] for each in passes)
    assert given[:40] != given[40:80]
    assert all(each.label == SOLVED for each in given[1:40:3] + given[41:80:3])
    assert again.identity() != settings.identity()
    plain, memory, tracker = (
        train(again, mix="mixed", estimator=name) for name in ("js_plus", "js_memory", "spo")
    )
    warm = again.model_copy(update={"offline": 8})
    assert warm.identity() != again.identity()
    assert train(warm, mix="mixed", estimator="js_memory").baseline_error < memory.baseline_error
    assert train(warm, estimator="spo", responses=1).baseline_error is None
    assert memory.baseline_error < 0.8 * plain.baseline_error
    assert 0 <= tracker.pass1 <= 1 and tracker.baseline_error is None


def test_a_tracker_starts_from_samples_and_forgets_as_fast_as_the_policy_moves(settings):
    policy = load(settings.start_of("sort"))
    run = settings.runs()[0]._replace(responses=2)
    given = prompts.training_problems(run, settings)[:4]
    keys, right = torch.arange(4), torch.tensor([8, 0, 3, 4]).double()
    tracker = ValueTracker(keys, right, 8)
    start = torch.stack([*tracker.counts.values()])
    assert torch.allclose(start, torch.stack([right + 0.5, 8.5 - right], 1) / 9 * 8)
    batch = sampled(policy, given, run)
    batch = batch._replace(rewards=torch.tensor([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0], [1.0, 0.0]]))
    found = tracker.advantages(keys, batch.rewards)
    expected = batch.rewards - (start[:, 0] / start.sum(1))[:, None]
    assert torch.allclose(found, (expected - expected.mean()) / expected.std())
    added = torch.tensor([[2.0, 0], [1, 1], [0, 2], [1, 1]])
    tracker.update(keys, batch, policy)
    once = torch.stack([*tracker.counts.values()])
    assert torch.allclose(once, 0.96 * start + added)  # nothing has moved yet
    batch = batch._replace(responses=torch.cat([batch.responses, batch.responses[:, -1:]], 1))
    policy.model.lm_head.weight.data *= 1.01
    tracker.update(keys, batch, policy)
    kept = (torch.stack([*tracker.counts.values()]) - added) / once
    assert torch.allclose(kept[:, 0], kept[:, 1])
    assert (kept > 0.8749).all() and (kept < 0.96).any()  # the other responses of a prompt moved
    assert ValueTracker(keys[:1], torch.zeros(1), 0).counts[0].tolist() == [0.5, 0.5]


def test_the_gradient_is_the_policy_gradient_however_it_is_cut(settings):
    policy = load(settings.start_of("sort"))
    run = settings.runs()[0]
    given = prompts.training_problems(run, settings)[:16]
    batch = sampled(policy, given, run)
    weights = torch.randn(16, 2, generator=torch.Generator().manual_seed(1))
    pad, end = policy.tokenizer.pad_token_id, policy.tokenizer.eos_token_id
    assert batch.responses.shape == (32, 6)
    batch.responses[0] = torch.tensor([5, pad, 7, end, pad, pad])  # the first pad was sampled
    valid = torch.ones(32, 6, dtype=torch.bool)
    for row, tokens in enumerate(batch.responses.tolist()):
        valid[row, tokens.index(end) + 1 if end in tokens else 6 :] = False
    assert valid[0].tolist() == [True] * 4 + [False] * 2
    loss = -(policy.log_probs(batch.prompts, batch.responses) * valid).sum(1)
    parameters = list(policy.model.parameters())
    each = [
        torch.autograd.grad(one, parameters, retain_graph=True) for one in loss * weights.ravel()
    ]
    vectors = torch.stack([torch.cat([g.ravel() for g in one]) for one in each]) / valid.sum()
    for parts in (1, 4):
        policy.model.zero_grad()
        sums = inline.set_gradient(policy, batch, weights, parts)
        found = torch.cat([p.grad.ravel() for p in parameters])
        torch.testing.assert_close(found, vectors.sum(0), atol=1e-6, rtol=1e-4)
    blocks = vectors.view(4, 8, -1).sum(1)
    assert sums.squares == pytest.approx(float(blocks.square().sum()), rel=1e-3)
    assert sums.square_of_sum == pytest.approx(float(found.square().sum()), rel=1e-3)
    assert (sums.responses, sums.squared_responses) == (32, 4 * 64)


def test_remax_gets_the_reward_of_a_greedy_response(settings):
    policy, run = load(settings.start_of("sort")), settings.runs()[2]
    assert run.estimator == "remax"
    given = prompts.training_problems(run, settings)[:16]
    batch = sampled(policy, given, run, greedy=True)
    assert batch.greedy_rewards.shape == (16,) and set(batch.greedy_rewards.tolist()) <= {0.0, 1.0}
    assert math.isfinite(train(settings, estimator="remax").gradient_variance)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"tasks": ["chess"]}, "unknown 'chess'; choose from sort, countdown, maze"),
        ({"estimators": ["gae"]}, "engine inline: unknown 'gae'"),
        (
            {"engine": "stack", "estimators": ["reinforce"]},
            "engine stack: unknown 'reinforce'",
        ),  # whitened
        ({"responses": [1]}, "rloo needs at least 2 responses per prompt, got 1"),
        ({"mixes": ["mixed"], "prompts": [2]}, "needs 3 prompts"),
        ({"engine": "stack", "vary": ["js.loss"]}, "must be NAME=A,B"),
        ({"reference": "js1"}, "--reference js1 is not among the estimators"),
        ({"train": ["--x"]}, "need --engine stack"),
        ({"engine": "stack", "width": 64}, "no model so narrow: --width 128"),
        ({"engine": "stack", "mixes": ["alike"]}, "'alike' is for the inline engine"),
    ],
)
def test_what_cannot_be_studied_is_refused(flags, told):
    with pytest.raises(Exception, match=told):
        StudySettings(**flags)


def test_a_run_is_listed_once_and_has_one_name():
    twice = StudySettings(estimators=["js", "js"], learning_rates=[1e-4, 0.0001], seeds=1)
    assert len(twice.runs()) == 1 and twice.compared_with == "js"
    run = Run("own", "natural", 64, 2, "js.loss=constant", "js", 2e-6, 3)
    assert run.name == "own-natural-64x2-js.loss=constant-js-2e-06-3"
    assert Path(run.name).name == run.name
