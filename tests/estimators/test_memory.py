"""What is remembered of prompts: their keys, the table of them, and memories that are resumed."""

import pytest
import torch

from openrlhf_js.estimators import ESTIMATORS, LiveEstimator, key_of, make_batch
from openrlhf_js.estimators.memory import PromptTable

REMEMBERS = [name for name, record in ESTIMATORS.items() if record.remembers]


def visit(keys, mask=None):
    """A batch of these prompts, to learn from."""
    return make_batch(torch.zeros(len(keys), 1), mask=mask, keys=torch.as_tensor(keys))


def test_a_key_is_of_all_texts_and_the_same_in_every_process():
    assert key_of("a", "b") == 4792236251061426508
    assert len({key_of("a", "b"), key_of("ab"), key_of("a", None), key_of("b", "a")}) == 4
    assert 0 <= key_of("\ud800") < 2**63  # a lone surrogate


def test_a_table_has_what_was_put_last_of_prompts_that_have_answered():
    table = PromptTable(value=torch.zeros(0, dtype=torch.float64))
    table.put(visit([9, 4]), value=torch.tensor([1.0, 2.0]).double())
    answered = torch.tensor([[True], [False], [True]])
    table.put(visit([4, 6, 7], mask=answered), value=torch.tensor([3.0, 4.0, 5.0]).double())
    assert table.keys.tolist() == [4, 7, 9]
    assert table.known(torch.tensor([6, 7, 10])).tolist() == [False, True, False]
    assert table.get("value", visit([9, 6, 4]), new=-1.0).tolist() == [1, -1, 3]


def test_a_million_prompts_are_not_copied_at_every_step():
    table = PromptTable(value=torch.zeros(0, dtype=torch.float64))
    for first in (0, 500, 1000, 1500):
        table.put(visit(torch.arange(first, first + 700)), value=torch.ones(700).double())
    assert table.keys.equal(torch.arange(2200))
    values = table.columns["value"]
    table.put(visit(torch.arange(700)), value=torch.zeros(700).double())
    assert table.columns["value"] is values
    assert sum(column.nbytes for column in table.state_dict().values()) == 16 * 2200


def test_what_is_not_one_number_a_prompt_is_refused():
    with pytest.raises(ValueError, match=r"keys must be a tensor \(6,\), one a prompt; got \(12"):
        make_batch(torch.zeros(6, 2), keys=torch.arange(12))


@pytest.mark.parametrize("name", ["spo", "dbb"])
def test_an_estimator_of_single_prompts_wants_keys(name):
    with pytest.raises(ValueError, match=f"{name} needs the keys"):
        LiveEstimator(name).batch(torch.zeros(6, 2))


def step_of(live, step, device="cpu"):
    """The advantages of a batch of a run, once it is learnt; prompts come again, one twice."""
    generator = torch.Generator().manual_seed(step)
    keys = torch.randint(0, 12, (6,), generator=generator)
    keys[5] = keys[0]
    rewards = (torch.rand(6, 3, generator=generator) < 0.5).double()
    mask = torch.ones(6, 3, dtype=torch.bool)
    mask[0, step % 3] = False
    inputs = dict(
        squared_score_norms=torch.rand(6, 3, generator=generator),
        keys=keys,
        step=step,
    )
    batch = live.batch(rewards.to(device), mask=mask, **inputs)
    advantages = live.estimate(batch).advantages.cpu()
    live.learn(batch)
    return advantages


@pytest.mark.parametrize("name", REMEMBERS)
def test_a_resumed_estimator_goes_on_as_before(name):
    live = LiveEstimator(name)
    for step in (1, 2, 3, 4):
        step_of(live, step)
    saved = live.state_dict()
    expected = [step_of(live, step) for step in (5, 7)]  # which must leave what was saved as it is
    resumed = LiveEstimator(name)
    resumed.load_state_dict(saved)
    for step, advantages in zip((5, 7), expected, strict=True):
        assert torch.equal(step_of(resumed, step), advantages)
    assert not torch.equal(step_of(LiveEstimator(name), 8), step_of(live, 8))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", REMEMBERS)
def test_a_batch_on_a_gpu_has_the_advantages_of_one_on_the_cpu(name):
    on_cpu, on_gpu = LiveEstimator(name), LiveEstimator(name)
    for step in (1, 2, 3):
        expected = step_of(on_cpu, step)
        torch.testing.assert_close(step_of(on_gpu, step, device="cuda"), expected)
        on_gpu.load_state_dict(on_gpu.state_dict())
