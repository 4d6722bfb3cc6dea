"""A baseline of the user's own, in a file: what works, and what is said of what does not."""

import pytest
import torch

from openrlhf_js.estimators import LiveEstimator, advantage, baseline, find_estimator

FILE = '''
"""My baselines."""
from __future__ import annotations
from collections import defaultdict
from dataclasses import dataclass
import torch

@dataclass
class Setting:
    weight: float = 1.0

def halfway(batch):
    """Half way between rloo and bloo."""
    statistics = batch.statistics
    return (statistics.loo_prompt_mean + statistics.loo_batch_mean[:, None]) / 2

def leaky(batch):
    return batch.statistics.prompt_mean[:, None].expand_as(batch.rewards)

def total_less_own(batch):
    others = batch.rewards.shape[1] - 1
    return (batch.rewards.sum(1, keepdim=True) - batch.rewards) / others

def in_place(batch):
    return batch.rewards.sub_(batch.rewards.mean())

def lists(batch):
    return [[0.5] * batch.rewards.shape[1] for _ in batch.rewards]

def narrow(batch):
    return batch.statistics.prompt_mean

def not_finite(batch):
    return batch.statistics.loo_prompt_mean / batch.statistics.reward_variance[:, None]

def failing(batch):
    return batch.no_such_thing

number = 3

class Last:
    """What each prompt had the last time."""

    def __init__(self):
        self.seen = {}

    def baseline(self, batch):
        known = [self.seen.get(int(key), 0.5) for key in batch.keys]
        return torch.tensor(known)[:, None].expand_as(batch.rewards)

    def learn(self, batch):
        means = batch.statistics.prompt_mean.tolist()
        self.seen.update(zip(batch.keys.tolist(), means))

class Shared(Last):
    seen = {}

    def __init__(self):
        pass

class LeakyAtFirst(Last):
    def baseline(self, batch):
        return super().baseline(batch) + (not self.seen) * batch.rewards

class LeakyLater(Last):
    def baseline(self, batch):
        return super().baseline(batch) + bool(self.seen) * batch.rewards

class Misspelt(Last):
    def learn(self, batch):
        batch.keyz

class WithLambda(Last):
    def __init__(self):
        self.seen = defaultdict(lambda: 0.5)

class WithObject(Last):
    def __init__(self):
        self.seen, self.setting = {}, Setting()

class Forgetful:
    def baseline(self, batch):
        return torch.zeros_like(batch.rewards)
'''
REWARDS = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "a folder" / "mine.py"
    path.parent.mkdir()
    path.write_text(FILE)
    return str(path)


def test_a_function(mine):
    record = find_estimator(f"{mine}:halfway")
    assert record.unbiased
    assert not record.remembers
    assert record.summary == "Half way between rloo and bloo."
    expected = (baseline("rloo", REWARDS) + baseline("bloo", REWARDS)) / 2
    torch.testing.assert_close(baseline(f"{mine}:halfway", REWARDS), expected)
    torch.testing.assert_close(advantage(f"{mine}:halfway", REWARDS), REWARDS - expected)
    assert baseline(f"{mine}:lists", REWARDS).eq(0.5).all()


def test_rewards_that_a_baseline_changes_are_its_own_copy(mine):
    rewards = REWARDS.double()
    with pytest.warns(UserWarning, match="in_place: a baseline moves with its own reward"):
        advantages = advantage(f"{mine}:in_place", rewards)
    torch.testing.assert_close(advantages, rewards.mean().expand_as(rewards))


def test_a_baseline_with_its_own_reward_is_found(mine):
    for name in ("leaky", "LeakyAtFirst", "LeakyLater"):
        with pytest.warns(UserWarning, match=f"{name}: a baseline moves with its own reward"):
            assert not find_estimator(f"{mine}:{name}").unbiased


@pytest.mark.filterwarnings("error")
def test_rounding_is_no_bias(mine):
    record = find_estimator(f"{mine}:total_less_own")
    assert record.unbiased
    torch.testing.assert_close(baseline(record.name, REWARDS), baseline("rloo", REWARDS))


def test_an_edited_file_is_read_again_and_a_relative_path_from_where_one_is(tmp_path, monkeypatch):
    for folder, value in (("one", 1), ("two", 2)):
        path = tmp_path / folder / "mine.py"
        path.parent.mkdir()
        path.write_text(f"def f(batch): return batch.rewards * 0 + {value}")
        monkeypatch.chdir(path.parent)
        live = LiveEstimator("mine.py:f")
        assert baseline("mine.py:f", REWARDS).eq(value).all()
        path.write_text(f"def f(batch): return batch.rewards * 0 + {value + 4}")
        assert baseline("mine.py:f", REWARDS).eq(value + 4).all()
        # a run keeps what it began with
        assert live.estimate(live.batch(REWARDS)).baseline.eq(value).all()


def test_a_class_remembers(mine):
    with pytest.raises(ValueError, match="Last needs the keys of the prompts"):
        advantage(f"{mine}:Last", REWARDS)
    live = LiveEstimator(f"{mine}:Last")
    keys = torch.tensor([3, 4, 5])
    first = live.batch(REWARDS, keys=keys, step=1)
    assert live.estimate(first).baseline.eq(0.5).all()
    live.learn(first)
    resumed = LiveEstimator(f"{mine}:Last")
    resumed.load_state_dict(live.state_dict())
    again = resumed.batch(REWARDS[:2], keys=torch.tensor([4, 9]), step=2)
    assert resumed.estimate(again).baseline[:, 0].tolist() == [1.0, 0.5]
    assert find_estimator(f"{mine}:Last").unbiased


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("narrow", r"must return one baseline a response, of shape \(6, 3\); got \(6,\)"),
        ("not_finite", "the baseline of prompt 0, response 0 is inf"),
        ("failing", r"AttributeError in mine.py, line \d+: 'Batch' object has no attribute"),
        ("number", "'int' object is not callable"),
        ("nothing", r"mine.py has no nothing\."),
        ("Shared", "learns into seen, which belongs to the class and is in no checkpoint"),
        ("Misspelt", r"AttributeError in mine.py, line \d+: 'Batch' object has no attribute 'keyz"),
        ("WithLambda", "a checkpoint cannot hold its state .*lambda"),
        ("WithObject", "a checkpoint cannot hold its state .*Setting"),
        ("Forgetful", "'Forgetful' object has no attribute 'learn'"),
    ],
)
def test_what_does_not_fit_is_said_at_once(mine, name, message):
    with pytest.raises(ValueError, match=message):
        find_estimator(f"{mine}:{name}")


def test_no_such_file(tmp_path):
    with pytest.raises(ValueError, match="there is no such file"):
        find_estimator(f"{tmp_path}/none.py:f")
