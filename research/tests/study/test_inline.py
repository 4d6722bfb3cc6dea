"""The inline engine: pairs of runs, their prompts, the gradient, and what is measured."""

import math
from dataclasses import replace
from statistics import fmean

import pytest
import torch

from answer_graders.programs.settings import SettingsError
from answer_graders.record import scored
from baseline_research.study.design import InlineStudy
from baseline_research.study.inline import engine, prompts, rollout
from baseline_research.study.inline.training import Loss, Training, set_gradient
from baseline_research.study.runs import Run
from baseline_research.tiny import model
from baseline_research.tiny.policy import TinyPolicy, load
from baseline_research.tiny.record import SOLVED, UNSOLVABLE, Problem
from baseline_research.tiny.tasks import END, TASKS


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """A study whose model has learned nothing, and whose rewards are those of random text."""
    study = InlineStudy(
        estimators=["rloo", "js", "remax"],
        mixes=["natural", "mixed"],
        steps=20,
        seeds="2",
        held_out=20,
        samples=2,
        width=16,
        layers=1,
        out=tmp_path_factory.mktemp("study"),
    )
    with pytest.MonkeyPatch.context() as patch:
        by_chance = replace(TASKS["sort"], warm_start_steps=3, score=score_by_chance)
        patch.setitem(TASKS, "sort", by_chance)
        prompts.warm_start("sort", study)
        yield study


@pytest.fixture
def policy(settings):
    return load(settings.start_of("sort"))


def score_by_chance(text, label):
    correct = sum(map(ord, text)) % 3 == 0
    return scored("correct" if correct else "wrong", "")


def first_run(settings, **changes):
    return settings.runs()[0]._replace(**changes)


def train(settings, **changes):
    return engine.train(first_run(settings, **changes), settings)


def test_a_run_tells_its_steps(settings):
    notes = []
    run = first_run(settings)
    engine.train(run, settings.model_copy(update={"steps": 2}), notes.append)
    assert notes == [f"{run.name}, step 0 of 2", f"{run.name}, step 1 of 2"]


def sampled(policy, problems, greedy=False):
    generator = torch.Generator().manual_seed(0)
    return rollout.sample(policy, TASKS["sort"], problems, 2, generator, greedy=greedy)


def test_runs_of_one_seed_have_the_same_prompts_in_the_same_order(settings):
    runs = settings.runs()
    assert len(set(runs)) == len(runs) == 2 * 2 * 3
    problems = {run: prompts.training_problems(run, settings) for run in runs}
    held_out = {problem.prompt for problem in prompts.held_out("sort", settings)}
    for run in runs:
        assert len(problems[run]) == 20 * 16
        assert held_out.isdisjoint(problem.prompt for problem in problems[run])
        for other in runs:
            if other.mix != run.mix:
                continue
            if other.seed == run.seed:
                assert problems[other] == problems[run]
            else:
                assert problems[other][:16] != problems[run][:16]


def test_a_run_is_repeated_exactly_and_starts_as_its_pair_does(settings):
    js = train(settings, estimator="js")
    rloo = train(settings, estimator="rloo")
    assert train(settings, estimator="js") == js
    assert js.curve[0] == rloo.curve[0]  # the first step's responses are the same
    assert js.curve != rloo.curve
    assert js.curve != train(settings, estimator="js", seed=1).curve
    assert fmean(js.curve) == pytest.approx(js.reward, abs=1e-3)
    assert 0 <= js.pass1 <= 1
    assert js.gradient_variance > 0
    assert rloo.baseline_error == pytest.approx(1)
    assert js.baseline_error != 1


def test_without_samples_pass_at_4_is_that_of_each_prompts_probability(settings, monkeypatch):
    assert train(settings).pass4 is None
    monkeypatch.setattr(engine, "held_out_rates", lambda *_: [0.5, 0.0])
    exact = engine.train(first_run(settings), settings.model_copy(update={"samples": 0}))
    assert (exact.pass1, exact.pass4) == (0.25, (1 - 0.5**4) / 2)


def test_greedy_responses_are_those_of_a_rollout(settings, policy, monkeypatch):
    monkeypatch.setattr(rollout, "PROMPTS_AT_ONCE", 7)
    problems = prompts.held_out("sort", settings)
    of_rollout = sampled(policy, problems, greedy=True).greedy_rewards.mean().item()
    assert rollout.greedy_reward(policy, TASKS["sort"], problems) == pytest.approx(of_rollout)
    assert 0 <= train(settings).greedy <= 1


def test_a_mix_has_a_third_that_is_solved_and_a_third_that_cannot_be(settings, policy):
    problems = prompts.training_problems(first_run(settings, mix="mixed"), settings)
    labels = [problem.label for problem in problems[:300]]
    assert labels.count(SOLVED) == labels.count(UNSOLVABLE) == 100
    rates = rollout.pass_rates(policy, TASKS["sort"], problems[:30], samples=2)
    assert rates[1::3] == [1.0] * 10
    assert rates[2::3] == [0.0] * 10
    assert train(settings, mix="mixed").dead > 0.6


def test_alike_are_the_prompts_of_the_middle_third_by_pass_rate(settings, monkeypatch):
    def rate_by_length(policy, task, problems, samples):
        return [len(problem.prompt) / 99 for problem in problems]

    monkeypatch.setattr(prompts, "pass_rates", rate_by_length)
    problems = prompts.training_problems(first_run(settings, mix="alike"), settings)
    lengths = {len(problem.prompt) for problem in problems}
    assert lengths <= {len("sort(123)="), len("sort(1234)=")}  # of 2 to 5 digits
    (settings.start_of("sort") / "alike.txt").unlink()


def test_distinct_prompts_come_again_once_in_every_pass(settings):
    repeating = settings.model_copy(update={"distinct": 40})
    problems = prompts.training_problems(first_run(settings, mix="mixed"), repeating)
    assert len(problems) == 320
    passes = [problems[start : start + 40] for start in range(0, 320, 40)]
    for one_pass in passes:
        assert sorted(one_pass) == sorted(passes[0])
        solved = one_pass[1::3]
        assert all(problem.label == SOLVED for problem in solved)
    assert passes[0] != passes[1]
    assert repeating.identity() != settings.identity()


def test_prompts_that_come_again_are_remembered(settings):
    names = ["js", "js_grad", "spo"]
    repeating = settings.model_copy(update={"distinct": 40, "estimators": names})
    without_memory = train(repeating, mix="mixed", estimator="js")
    memory = train(repeating, mix="mixed", estimator="js_grad")
    tracker = train(repeating, mix="mixed", estimator="spo")
    assert memory.baseline_error < 0.8 * without_memory.baseline_error
    assert 0 <= tracker.pass1 <= 1
    assert tracker.baseline_error is None


OWN = """
class Tracker:
    def __init__(self):
        self.batches = 0
    def baseline(self, batch):
        assert batch.lengths.shape == batch.rewards.shape
        return batch.statistics.loo_prompt_mean
    def learn(self, batch):
        self.batches += 1

def half(batch):
    return batch.rewards * 0 + 0.5
"""


def test_a_baseline_of_the_users_own(settings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    own = settings.model_copy(update={"estimators": ["rloo", "mine.py:Tracker", "mine.py:half"]})
    own = InlineStudy(**own.model_dump(exclude={"seeds"}), seeds="2")
    label = list(own.estimator_names)[1]
    assert label.startswith("mine.py:Tracker@")
    tracked = train(own, estimator=label)
    rloo = train(own, estimator="rloo")
    assert tracked.curve == rloo.curve
    assert tracked.baseline_error == pytest.approx(1)
    file.write_text(OWN + "\n")
    with pytest.raises(ValueError, match="has its file changed"):
        train(own, estimator=label)  # another file is another estimator
    with pytest.raises(SettingsError, match="has no missing"):
        InlineStudy(estimators=["mine.py:missing"])


def slow_valid(responses, end):
    """(b, T) whether a token comes before the end or is it."""
    valid = torch.ones_like(responses, dtype=torch.bool)
    for row, tokens in enumerate(responses.tolist()):
        if end in tokens:
            valid[row, tokens.index(end) + 1 :] = False
    return valid


def slow_gradients(policy, batch, valid, weights):
    """(b, parameters) what each response contributes, one after the other."""
    log_probs = policy.log_probs(batch.prompts, batch.responses)
    losses = -(log_probs * valid).sum(1) * weights.ravel() / valid.sum()
    parameters = list(policy.model.parameters())
    rows = []
    for loss in losses:
        gradients = torch.autograd.grad(loss, parameters, retain_graph=True)
        rows.append(torch.cat([gradient.ravel() for gradient in gradients]))
    return torch.stack(rows)


def test_the_gradient_is_the_policy_gradient_however_it_is_cut(settings, policy):
    problems = prompts.training_problems(first_run(settings), settings)[:16]
    batch = sampled(policy, problems)
    assert batch.responses.shape == (32, 6)
    pad = policy.tokenizer.pad_token_id
    end = policy.tokenizer.eos_token_id
    batch.responses[0] = torch.tensor([5, pad, 7, end, pad, pad])  # the first pad was sampled
    batch = batch._replace(valid=rollout.valid_tokens(policy, batch.responses))
    valid = slow_valid(batch.responses, end)
    assert valid[0].tolist() == [True, True, True, True, False, False]
    weights = torch.randn(16, 2, generator=torch.Generator().manual_seed(1))
    by_response = slow_gradients(policy, batch, valid, weights)
    gradient = by_response.sum(0)
    for micro_batches in (1, 4):
        sums = set_gradient(policy, batch, weights, micro_batches).sums
        made = torch.cat([weight.grad.ravel() for weight in policy.model.parameters()])
        torch.testing.assert_close(made, gradient, atol=1e-6, rtol=1e-4)
    by_micro_batch = by_response.view(4, 8, -1).sum(1)
    assert sums.squares == pytest.approx(float(by_micro_batch.square().sum()), rel=1e-3)
    assert sums.square_of_sum == pytest.approx(float(gradient.square().sum()), rel=1e-3)
    assert sums.responses == 32
    assert sums.squared_responses == 4 * 8**2


def test_remax_gets_the_reward_of_a_greedy_response(settings, policy):
    problems = prompts.training_problems(first_run(settings), settings)[:16]
    greedy_rewards = sampled(policy, problems, greedy=True).greedy_rewards
    assert greedy_rewards.shape == (16,)
    assert set(greedy_rewards.tolist()) <= {0.0, 1.0}
    assert math.isfinite(train(settings, estimator="remax").gradient_variance)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"tasks": ["chess"]}, "'chess'"),
        ({"estimators": ["gae"]}, "'gae'"),
        ({"mixes": ["mixed"], "prompts": [2]}, "3 prompts"),
        ({"seeds": "9-8"}, "--seeds"),
        ({"tasks": ["questions"]}, "for each other"),
    ],
)
def test_what_cannot_be_studied_is_refused(flags, message):
    with pytest.raises(SettingsError, match=message):
        InlineStudy(**flags)


def exact_score(text, label):
    return scored("correct" if text == label + END else "wrong", "")


def test_the_probability_of_the_right_response_is_the_pass_rate():
    task = replace(TASKS["sort"], score=exact_score, right_response=str)
    tokenizer = model.make_tokenizer(task.tokens)
    policy = TinyPolicy(model.make_model(tokenizer, 0, width=32, layers=1), tokenizer)
    problems = [Problem("sort(02)=", ""), Problem("sort(99)=", "9")]  # the end alone, and later
    probabilities = rollout.right_probabilities(policy, task, problems)
    rates = rollout.pass_rates(policy, task, problems, 20_000)
    assert rates[0] > 0.02
    assert probabilities == pytest.approx(rates, abs=0.006)  # 4 standard errors


def other_score(text, label):
    return scored("wrong" if text == label else "correct", "")


def test_a_changed_task_is_another_task(settings, monkeypatch):
    start = settings.start_of("sort")
    assert settings.start_of("sort") == start
    for change in ({"slip": 0.5}, {"score": other_score}, {"prompt": lambda item: "a"}):
        with monkeypatch.context() as patch:
            patch.setitem(TASKS, "sort", replace(TASKS["sort"], **change))
            assert settings.start_of("sort") != start


def test_runs_of_seeds_from_anywhere_are_listed_once():
    assert list(InlineStudy(seeds="3").seed_range) == [0, 1, 2]
    twice = InlineStudy(estimators=["js", "js"], learning_rates=[1e-4, 0.0001], seeds="7-8")
    assert [run.seed for run in twice.runs()] == [7, 8]
    assert twice.compared_with == "js"
    run = Run("own", "natural", 64, 2, "js", 2e-6, 3)
    assert run.name == "own-natural-64x2-js-2e-06-3"


def test_later_passes_clip_the_ratio_as_ppo_does():
    log_probs = torch.tensor([[0.5], [0.1], [0.5], [0.5]]).log()
    sampled = log_probs - torch.tensor([[1.3], [1.1], [0.6], [0.6]]).log()
    advantages = torch.tensor([[2.0], [2.0], [-1.0], [1.0]])
    loss = Loss(sampled=sampled, clip=0.2)
    expected = [-1.2 * 2, -1.1 * 2, 0.8, -0.6]  # the worse of the ratio and the clipped one
    found = loss.of(log_probs, advantages, slice(0, 4)).flatten().tolist()
    assert found == pytest.approx(expected, rel=1e-5)
    unclipped = loss._replace(clip=0.0).of(log_probs[:1], advantages[:1], slice(0, 1))
    assert unclipped.item() == pytest.approx(-1.3 * 2, rel=1e-5)


def test_the_kl_term_is_the_third_estimate():
    log_probs = torch.tensor([[0.5], [0.25]]).log()
    reference = torch.tensor([[0.25], [0.25]]).log()
    advantages = torch.zeros(2, 1)
    found = Loss(reference=reference, kl=0.1).of(log_probs, advantages, slice(0, 2))
    expected = 0.1 * (0.5 - math.log(0.5) - 1)
    assert found.flatten().tolist() == pytest.approx([expected, 0.0], abs=1e-7)


def test_the_rate_rises_over_the_warm_up_and_every_pass_is_an_update(policy, monkeypatch):
    run = Run("sort", "natural", 4, 2, "rloo", learning_rate=4e-4, seed=0)
    training = Training(run, policy, InlineStudy(warm_up=3, passes=2, kl=0.01))
    rates = []
    monkeypatch.setattr(
        training.optimizer,
        "step",
        lambda: rates.append(training.optimizer.param_groups[0]["lr"]),
    )
    problems = [TASKS["sort"].problem(digits) for digits in ("21", "312", "4321", "54")]
    for number in range(5):
        training.step(number, problems)
    assert rates == pytest.approx([1e-4, 1e-4, 2e-4, 2e-4, 3e-4, 3e-4] + 4 * [4e-4])


def test_a_constant_loss_divides_by_the_most_tokens_that_responses_may_have(policy):
    run = Run("sort", "natural", 4, 2, "rloo", learning_rate=1e-4, seed=0)
    problems = [TASKS["sort"].problem(digits) for digits in ("21", "312", "4321", "54")]
    sampled = rollout.sample(policy, TASKS["sort"], problems, 2, policy.generator(0))
    advantages = torch.tensor([[1.0, -1.0]] * 4)
    gradients = []
    for divided_by in ("token_mean", "constant"):
        loss = Training(run, policy, InlineStudy(loss=divided_by))._loss(sampled)
        set_gradient(policy, sampled, advantages, 1, loss)
        gradients.append(torch.cat([p.grad.flatten() for p in policy.model.parameters()]))
    tokens = int(sampled.valid.sum())
    share = tokens / (8 * TASKS["sort"].max_new_tokens)
    assert torch.allclose(gradients[1], share * gradients[0], rtol=1e-4, atol=1e-8)
