"""One group at a time: exactly unbiased, whatever comes late, and equal to the batch form."""

import copy
import itertools
import math
import pickle
import random
import re
import threading
import warnings
from collections import deque
from pathlib import Path

import pytest
import torch

from openrlhf_js.estimators import (
    LiveEstimator,
    OnlineBaseline,
    advantage,
    find_estimator,
    key_of,
    squared_score_norms,
)

# --- a world small enough to enumerate ------------------------------------------------------------

SIZES = {"a": 2, "b": 1}  # responses in a group; each is 0, the short one, or 1, the long one
REWARDS = {"a": (1.0, 0.3), "b": (0.8, 0.0)}
WEIGHTS = {"a": (0.5, 2.0), "b": (1.0, 3.0)}
LOGIT = {"a": 0.4, "b": -0.2}  # of the short response; that of the long one is 0
LEARNING_RATE = 1.5


def with_begin(online, step):
    online.begin(step)


def without_begin(online, step):
    """The step begins with its first group."""


def hand_over(online, prompt, responses, step):
    rewards = [REWARDS[prompt][response] for response in responses]
    weights = [WEIGHTS[prompt][response] for response in responses]
    rewards = torch.tensor(rewards, dtype=torch.float64)
    return online.advantages(prompt, rewards, score_weights=weights, step=step).tolist()


def probability_of_short(logit):
    return 1 / (1 + math.exp(-logit))


def gradient(logit, responses, advantages):
    """By the prompt's logit; the score is 1 - p for the short response, and -p for the long one."""
    short = probability_of_short(logit)
    scores = [(response == 0) - short for response in responses]
    return sum(a * s for a, s in zip(advantages, scores, strict=True)) / len(responses)


def true_gradient(prompt, logit):
    short = probability_of_short(logit)
    return short * (1 - short) * (REWARDS[prompt][0] - REWARDS[prompt][1])


def play(outcome, begin, knows_steps):
    """The error of every group's gradient, and the probability of this outcome.

    Steps 1 and 2 sample a group of each prompt. A group with a long response comes after the short
    groups of the next step. Step 2's policy is trained on what has come by then. At the end the
    groups of step 1 are handed over again.
    """
    online = OnlineBaseline("js_grad")
    for prompt, responses in (("a", (0, 1)), ("b", (0,)), ("b", (1,))):
        hand_over(online, prompt, responses, step=0 if knows_steps else None)
    arrivals = {
        group: group[0] + (1.8 if 1 in responses else 0.5) for group, responses in outcome.items()
    }
    in_order = sorted(outcome, key=lambda group: (arrivals[group], group))
    again = [group for group in outcome if group[0] == 1]
    logits = {1: dict(LOGIT), 2: dict(LOGIT)}
    errors = {}
    for place, (step, prompt) in enumerate(in_order + again):
        for starting, at in ((1, 0), (2, sum(time < 2 for time in arrivals.values()))):
            if place == at:
                begin(online, starting)
        responses = outcome[step, prompt]
        advantages = hand_over(online, prompt, responses, step if knows_steps else None)
        logit = logits[step][prompt]
        found = gradient(logit, responses, advantages)
        is_again = place >= len(in_order)
        errors[step, prompt, is_again] = found - true_gradient(prompt, logit)
        if arrivals[step, prompt] < 2 and not is_again:
            logits[2][prompt] += LEARNING_RATE * found
    probability = 1.0
    for (step, prompt), responses in outcome.items():
        short = probability_of_short(logits[step][prompt])
        probability *= math.prod(1 - short if response else short for response in responses)
    return errors, probability


def expected_errors(begin, *, knows_steps=True):
    """How far each group's expected gradient is from the true one of the policy that sampled it."""
    groups = [(step, prompt) for step in (1, 2) for prompt in SIZES]
    choices = [list(itertools.product((0, 1), repeat=SIZES[prompt])) for _, prompt in groups]
    total, expected = 0.0, {}
    for responses in itertools.product(*choices):
        outcome = dict(zip(groups, responses, strict=True))
        errors, probability = play(outcome, begin, knows_steps)
        total += probability
        for name, error in errors.items():
            expected[name] = expected.get(name, 0.0) + probability * error
    assert total == pytest.approx(1, abs=1e-12)
    return {name: abs(error) for name, error in expected.items()}


def test_the_gradient_is_exactly_unbiased_though_long_groups_come_late():
    errors = expected_errors(with_begin)
    assert len(errors) == 6
    assert max(errors.values()) < 1e-12


@pytest.mark.parametrize("knows_steps", [True, False])
def test_the_enumeration_sees_what_the_docstring_calls_a_bias(knows_steps):
    errors = expected_errors(without_begin, knows_steps=knows_steps)
    assert max(errors.values()) > 0.02


# --- as the batch form ----------------------------------------------------------------------------


def drawn(seed, sizes):
    """Prompts, rewards and weights of groups of these sizes; of four, two have the same prompt."""
    generator = torch.Generator().manual_seed(seed)
    prompts = [str((seed * 3 + place) % 7) for place in range(len(sizes))]
    if len(sizes) > 3:
        prompts[-1] = prompts[0]
    rewards = [torch.rand(size, generator=generator, dtype=torch.float64) for size in sizes]
    weights = [torch.rand(size, generator=generator, dtype=torch.float64) for size in sizes]
    return list(zip(prompts, rewards, weights, strict=True))


def batch_of(live, groups, step):
    """The same groups as a batch of a LiveEstimator."""
    prompts, rewards, weights = zip(*groups, strict=True)
    size = max(map(len, rewards))
    mask = torch.tensor([[place < len(row) for place in range(size)] for row in rewards])

    def padded(rows):
        return torch.stack([torch.cat([row, row.new_zeros(size - len(row))]) for row in rows])

    return live.batch(
        padded(rewards),
        mask=mask,
        squared_score_norms=padded(weights),
        keys=torch.tensor([key_of(prompt) for prompt in prompts]),
        step=step,
    )


def give(online, groups, step=None):
    return [
        online.advantages(prompt, rewards, score_weights=weights, step=step)
        for prompt, rewards, weights in groups
    ]


def known(online):
    """What is known when the newest step begins, as numbers."""
    states = online.state_dict()["states"]
    return states[max(states)]


def assert_same(one, other, **tolerance):
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], **tolerance)


EXACT = {"rtol": 0, "atol": 0}


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("js_grad", (3, 1, 4, 2, 2)), ("spo", (3, 2, 4)), ("dbb", (3, 2, 4))],
)
def test_a_step_is_learnt_as_the_batch_form_learns_it(name, sizes):
    online, live = OnlineBaseline(name), LiveEstimator(name)
    for step in range(5):
        online.begin(step)
        groups = drawn(step, sizes)
        before = LiveEstimator(name)
        before.load_state_dict(live.state_dict())
        batch = batch_of(live, groups, step)
        for found, group in zip(give(online, groups, step), groups, strict=True):
            alone = batch_of(before, [group], step)
            expected = before.estimate(alone).advantages[0]
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        live.learn(batch)
        online.begin(step + 1)
        assert_same(known(online), live.state_dict(), rtol=0, atol=1e-12)


def test_batches_of_one_group_and_estimators_without_a_memory_are_the_batch_form():
    online, live, rloo = OnlineBaseline("js_grad"), LiveEstimator("js_grad"), OnlineBaseline("rloo")
    for step in range(6):
        groups = drawn(step, (3, 3, 3, 3))
        rewards = torch.stack([rewards for _, rewards, _ in groups])
        assert torch.equal(torch.stack(give(rloo, groups, step)), advantage("rloo", rewards))
        for group, found in zip(groups, give(online, groups), strict=True):  # one at a time
            batch = batch_of(live, [group], step)
            assert torch.equal(found, live.estimate(batch).advantages[0])
            live.learn(batch)


def test_weights_are_made_of_log_probabilities():
    rewards, seed = torch.tensor([1.0, 0.0, 1.0]), torch.Generator().manual_seed(0)
    rows = [-torch.rand(size, generator=seed) for size in (4, 2, 5)]
    mask = torch.arange(5) < torch.tensor([[4], [2], [5]])
    padded = torch.full((3, 5), -9.0).masked_scatter(mask, torch.cat(rows))
    weights = squared_score_norms(padded, mask)
    (expected,) = OnlineBaseline("js_grad").advantages("p", rewards, score_weights=weights)[None]
    for inputs in (
        {"score_weights": weights.tolist()},
        {"log_probs": rows},
        {"log_probs": padded, "mask": mask},
        {"log_probs": list(padded), "mask": list(mask)},
    ):
        found = OnlineBaseline("js_grad").advantages("p", rewards, **inputs)
        torch.testing.assert_close(found, expected)


# --- late, again, at once, and elsewhere ----------------------------------------------------------


@pytest.fixture
def after_steps():
    """Makes an OnlineBaseline after steps 0 to 4, whose groups came in their order, or shuffled and
    late, and the advantages of each."""

    def make(late=False):
        online = OnlineBaseline("js_grad")
        found, waiting = {}, []
        rng = random.Random(1)
        for step in range(5):
            online.begin(step)
            waiting += [(step, place) for place in range(4)]
            rng.shuffle(waiting)
            arrived = 2 if late and step < 4 else len(waiting)
            for at, place in sorted(waiting[:arrived], key=lambda _: rng.random() if late else 0):
                (found[at, place],) = give(online, [drawn(at, (2, 3, 1, 2))[place]], at)
            waiting = waiting[arrived:]
        return online, found

    return make


def test_late_groups_have_what_was_known_at_their_step(after_steps):
    online, found = after_steps(late=True)
    (expected,) = give(online, [drawn(3, (2, 3, 1, 2))[1]], 3)
    assert torch.equal(found[3, 1], expected)
    first, second = OnlineBaseline("js_grad"), OnlineBaseline("js_grad", steps_kept=2)
    group = drawn(9, (3,))
    as_first = give(first, group, 0)[0]
    for step in (0, 1, 2, 3):
        give(second, drawn(step, (2, 2)), step)
    assert torch.equal(give(second, group, 1)[0], as_first)  # forgotten
    assert not torch.equal(give(second, group, 2)[0], as_first)


def test_a_late_group_is_learnt_with_what_was_known_at_its_step():
    online, live = OnlineBaseline("js_grad"), LiveEstimator("js_grad")
    groups = [drawn(step, (2, 3, 1, 2)) for step in range(3)]
    late = drawn(7, (3,))
    for step in range(3):
        online.begin(step)
        give(online, groups[step], step)
    give(online, late, 1)
    online.begin(3)
    live.learn(batch_of(live, groups[0], 0))
    first_batch, late_batch = batch_of(live, groups[1], 1), batch_of(live, late, 1)
    live.learn(first_batch)
    second_batch = batch_of(live, groups[2], 2)
    live.learn(late_batch)
    live.learn(second_batch)
    assert_same(known(online), live.state_dict(), rtol=0, atol=1e-12)


def test_the_order_of_arrival_within_a_step_changes_nothing():
    states = []
    for order in ((0, 1, 2, 3), (3, 1, 0, 2)):
        online = OnlineBaseline("js_grad")
        for step in range(3):
            groups = drawn(step, (2, 3, 1, 2))
            give(online, [groups[place] for place in order], step)
        states.append(known(online))
    assert_same(*states, **EXACT)


def test_a_group_that_comes_again_has_the_same_advantages(after_steps):
    online, found = after_steps()
    for (step, place), advantages in found.items():
        again = give(online, [drawn(step, (2, 3, 1, 2))[place]], step)
        assert torch.equal(again[0], advantages)


def test_a_group_of_one():
    online = OnlineBaseline("js_grad")
    assert online.advantages("p", [0.7], score_weights=[1], step=0).tolist() == [0]
    found = online.advantages("q", [1], score_weights=[2], step=1)
    torch.testing.assert_close(found, torch.tensor([0.3]))  # it rests on the 0.7


def test_threads_may_hand_over_at_once():
    alone, shared = OnlineBaseline("js_grad"), OnlineBaseline("js_grad")
    for step in range(3):
        groups = [drawn(10 * step + part, (2, 3)) for part in range(8)]
        for part in groups:
            give(alone, part, step)
        threads = [threading.Thread(target=give, args=(shared, part, step)) for part in groups]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(shared.groups()) == 48
    for online in (alone, shared):
        online.begin(3)
    assert_same(known(alone), known(shared), **EXACT)


def test_workers_that_merge_before_each_step_know_what_one_knows_that_saw_all():
    workers, one = [OnlineBaseline("js_grad") for _ in range(3)], OnlineBaseline("js_grad")
    for step in range(12):  # 72 groups: more than js_grad counts as earlier prompts
        for online in (*workers, one):
            online.begin(step)
        for place, worker in enumerate(workers):
            groups = drawn(10 * step + place, (2, 3))
            assert all(map(torch.equal, give(worker, groups, step), give(one, groups, step)))
        first, second, third = workers
        first.merge(second)
        first.merge(pickle.loads(pickle.dumps(third.groups())))  # in another process
        second.merge(first)
        third.merge(second)
        third.merge(first)  # which has nothing new
    one.begin(12)
    for worker in workers:
        worker.begin(12)
        assert_same(known(worker), known(one), **EXACT)


def test_a_forked_worker_is_another_one(monkeypatch):
    first = OnlineBaseline("js_grad")
    forked = copy.copy(first)  # with the same id and count
    vars(forked).update(_states={}, _recent=deque(), _last_numbers={})
    give(first, drawn(0, (2, 3)), 0)
    monkeypatch.setattr("os.getpid", lambda: -1)
    forked._numbers = itertools.count(1)
    give(forked, drawn(1, (2, 3)), 0)
    first.merge(forked)
    assert len(first.groups()) == 4


def test_workers_that_merge_later_know_the_same_prompts_but_other_sums():
    workers, one = [OnlineBaseline("js_grad") for _ in range(2)], OnlineBaseline("js_grad")
    for step in range(3):
        for place, worker in enumerate(workers):
            groups = drawn(10 * step + place, (2, 3))
            give(worker, groups, step)
            give(one, groups, step)
    workers[0].merge(workers[1])
    for online in (workers[0], one):
        online.begin(3)
    assert torch.equal(known(workers[0])["keys"], known(one)["keys"])
    assert not torch.equal(known(workers[0])["moments"], known(one)["moments"])


def test_a_resumed_baseline_goes_on_as_before(after_steps, tmp_path):
    online, _ = after_steps(late=True)
    torch.save(online.state_dict(), tmp_path / "state.pt")
    resumed = OnlineBaseline("js_grad")
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for step in (3, 5, 4, 6):
        groups = drawn(step + 20, (2, 1, 3))
        assert all(map(torch.equal, give(online, groups, step), give(resumed, groups, step)))
    resumed.merge(online)  # whose later groups are other ones to it
    assert len(resumed.groups()) == len(online.groups()) + 12


def test_what_was_merged_before_a_resume_is_not_merged_again(monkeypatch):
    monkeypatch.setattr("openrlhf_js.estimators.online.GROUPS_KEPT", 2)
    other = OnlineBaseline("js_grad")
    give(other, drawn(0, (2, 3)), 0)
    merged = other.groups()
    online = OnlineBaseline("js_grad")
    online.merge(merged)
    give(online, drawn(1, (2, 3)), 0)  # the others' are no longer kept
    resumed = OnlineBaseline("js_grad")
    resumed.load_state_dict(online.state_dict())
    resumed.merge(merged)
    assert resumed.groups() == online.groups()


# --- a user's own, and what does not fit ----------------------------------------------------------

OWN = """
from openrlhf_js.estimators import OnlineBaseline

class Online:
    '''js_grad, one group at a time.'''

    def __init__(self):
        self.online = OnlineBaseline("js_grad")

    def baseline(self, batch):
        self.online.begin(batch.step)
        baselines = batch.rewards.clone()
        for row, key in enumerate(batch.keys.tolist()):
            rewards = batch.rewards[row]
            baselines[row] -= self.online.advantages(key, rewards, step=batch.step)
        return baselines

    def learn(self, batch):
        pass

    def state_dict(self):
        return self.online.state_dict()

    def load_state_dict(self, state):
        self.online.load_state_dict(state)

class Last:
    def __init__(self):
        self.seen = {}

    def baseline(self, batch):
        import torch
        known = [self.seen.get(int(key), 0.5) for key in batch.keys]
        return torch.tensor(known)[:, None].expand_as(batch.rewards)

    def learn(self, batch):
        self.seen.update(zip(batch.keys.tolist(), batch.statistics.prompt_mean.tolist()))
"""


def test_the_check_of_a_users_own_baseline_finds_no_leak(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*weighs all responses alike")
        assert find_estimator(f"{tmp_path}/mine.py:Online").unbiased


def test_a_users_own_baseline_may_be_given_one_group_at_a_time(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    online = OnlineBaseline(f"{tmp_path}/mine.py:Last")
    assert online.advantages("p", [1, 0], step=0).tolist() == [0.5, -0.5]
    assert online.advantages("p", [1, 0], step=0).tolist() == [0.5, -0.5]  # the same step
    assert online.advantages("q", [1, 1, 1], step=0).tolist() == [0.5, 0.5, 0.5]
    assert online.advantages("q", [1, 0], step=1).tolist() == [0, -1]


PREDICTED = """
class Predicted:
    def baseline(self, batch):
        self.predicted = batch.rewards * 0 + 0.5
        return self.predicted

    def learn(self, batch):
        assert self.predicted.shape == batch.rewards.shape
"""


def test_a_users_own_baseline_is_asked_for_each_batch_before_it_learns_from_it(tmp_path):
    (tmp_path / "mine.py").write_text(PREDICTED)
    online = OnlineBaseline(f"{tmp_path}/mine.py:Predicted")
    online.advantages("p", [1, 0], step=0)
    online.advantages("q", [1, 0, 1], step=0)
    online.begin(1)


def test_a_prompt_may_be_known_by_its_tokens():
    online = OnlineBaseline("js_grad")
    for middle in range(2):  # a tensor this long is not written out by str()
        tokens = torch.zeros(1500, dtype=torch.int64)
        tokens[700] = middle
        online.advantages(tokens, [1, 0], step=0)
    assert len({group.key for group in online.groups()}) == 2


def test_all_groups_of_a_step_are_learnt_however_few_are_kept(monkeypatch):
    monkeypatch.setattr("openrlhf_js.estimators.online.GROUPS_KEPT", 2)
    few = OnlineBaseline("js_grad")
    monkeypatch.setattr("openrlhf_js.estimators.online.GROUPS_KEPT", 100)
    many = OnlineBaseline("js_grad")
    groups = drawn(0, (2, 3, 2, 1))
    for online in (few, many):
        give(online, groups, 0)
        online.begin(1)
    assert len(few.groups()) == 2
    assert torch.equal(known(few)["moments"], known(many)["moments"])


@pytest.mark.parametrize(
    ("name", "inputs", "message"),
    [
        ("js", {}, "js needs the other prompts of a batch: take js_grad"),
        ("bloo", {}, "bloo needs"),
        ("js_grad", {"rewards": [[1, 0]]}, "rewards must be a tensor"),
        ("js_grad", {"score_weights": [1.0]}, r"must have the rewards' shape \(1, 2\)"),
        ("js_grad", {"log_probs": [torch.zeros(3)]}, r"must have the rewards' shape \(1, 2\)"),
        ("js_grad", {"log_probs": torch.zeros(2, 3)}, "without it, padding would count"),
    ],
)
def test_what_does_not_fit_is_refused(name, inputs, message):
    with pytest.raises(ValueError, match=message):
        OnlineBaseline(name).advantages("p", **{"rewards": [1, 0], **inputs})


def test_the_code_on_the_page_runs():
    page = Path(__file__).parents[2] / "docs/integrations.md"
    section = page.read_text().partition("## One group at a time")[2]
    (code,) = re.findall(r"```python\n([^`]*OnlineBaseline[^`]*)```", section)
    names = {
        "step": 0,
        "prompt": "2 + 2 =",
        "rewards": torch.tensor([1.0, 0.0]),
        "log_probs": torch.tensor([[-0.1, -0.2], [-3.0, 0.0]]),
        "mask": torch.tensor([[True, True], [True, False]]),
    }
    exec(code, names)
    assert names["advantages"].tolist() == [1, -1]
