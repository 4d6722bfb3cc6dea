"""verl's own `compute_advantage`, called as its trainer does."""

import math
import random
import uuid
import warnings
from pathlib import Path
from statistics import mean, variance

import numpy as np
import pytest
import torch
from verl import DataProto
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY
from verl.trainer.ppo.ray_trainer import compute_advantage

from openrlhf_js.estimators import advantage, diagnostics
from openrlhf_js.integrations.verl import register

Groups = dict[str, list[float]]
draws = random.Random(1)
EQUAL = {f"uid{i}": [draws.gauss(i, 1 + i) for _ in range(4)] for i in range(5)}
RAGGED = {f"uid{i}": [draws.gauss(i, 1) for _ in range(m)] for i, m in enumerate((4, 2, 1, 3, 4))}


def in_verl(estimator: str, groups: Groups, padding: int = 0) -> Groups:
    """The advantages that verl's tokens get, in the groups' order.

    The responses come shuffled, each with its reward on two tokens and some tokens masked. Padding
    is verl's: responses without a token to train on, under a uid of their own.
    """
    rows = [(uid, j) for uid in groups for j in range(len(groups[uid]))]
    random.Random(0).shuffle(rows)
    rewards = torch.zeros(len(rows) + padding, 4)
    rewards[: len(rows), 0] = 0.25
    rewards[: len(rows), 3] = torch.tensor([groups[uid][j] for uid, j in rows]) - 0.25
    mask = torch.zeros_like(rewards, dtype=torch.int64)
    mask[: len(rows)] = torch.randint(2, (len(rows), 4), generator=torch.manual_seed(0))
    mask[: len(rows), 1] = 1
    uids = np.array([uid for uid, _ in rows] + ["pad"] * padding, dtype=object)
    tensors = {"token_level_rewards": rewards, "response_mask": mask}
    batch = compute_advantage(DataProto.from_dict(tensors, {"uid": uids}), estimator).batch
    found = batch["advantages"]
    assert torch.equal(found, batch["returns"])
    assert torch.equal(found, found[:, 1:2] * mask)
    by_row = dict(zip(rows, found[:, 1].tolist(), strict=False))
    return {uid: [by_row[uid, j] for j in range(len(group))] for uid, group in groups.items()}


def paper(groups: Groups, factor: bool) -> Groups:
    """The paper's formulas as they stand there."""
    n = len(groups)
    found = {}
    for i, rewards in groups.items():
        m = len(rewards)
        others = [each for k, each in groups.items() if k != i]
        mu_others = mean(mean(each) for each in others)
        v = mean(variance(each) / m for each in others)
        s = mean((mean(each) - mu_others) ** 2 for each in others)
        weight = v / (v + s) * ((n - 1) / n if factor else 1)
        own = [mean(rewards[:j] + rewards[j + 1 :]) for j in range(m)]
        found[i] = [rewards[j] - (1 - weight) * own[j] - weight * mu_others for j in range(m)]
    return found


def flat(groups: Groups) -> torch.Tensor:
    return torch.tensor([value for group in groups.values() for value in group])


def test_js_is_the_papers_formula() -> None:
    """With (n-1)/n; without it, the distance to rloo's advantage is n/(n-1) times this one."""
    js = flat(in_verl("js", EQUAL))
    rloo = flat(in_verl("rloo", EQUAL))
    torch.testing.assert_close(js, flat(paper(EQUAL, factor=True)))
    torch.testing.assert_close(rloo + 5 / 4 * (js - rloo), flat(paper(EQUAL, factor=False)))


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("name", ["js", "js_plus", "bloo", "qae", "mc_grpo"])
def test_ragged_groups_get_the_estimators_advantages(name: str, padding: int) -> None:
    mask = torch.arange(4) < torch.tensor([len(group) for group in RAGGED.values()])[:, None]
    rewards = torch.zeros(5, 4)
    rewards[mask] = flat(RAGGED)
    expected = advantage(name, rewards, mask=mask)[mask]
    torch.testing.assert_close(flat(in_verl(name, RAGGED, padding)), expected)


def test_verls_opo_is_ours() -> None:
    """verl's own, of responses with different numbers of tokens."""
    assert ADV_ESTIMATOR_REGISTRY["opo"].__module__ == "verl.trainer.ppo.core_algos"
    mask = torch.tensor([[1, 0, 0], [1, 1, 1], [1, 1, 0], [1, 1, 1]])
    rewards = torch.tensor([[1.0, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 1]])
    uids = np.array(["a", "a", "b", "b"])
    theirs, _ = ADV_ESTIMATOR_REGISTRY["opo"](rewards, mask, uids)
    ours = advantage("opo", rewards.sum(1), groups=uids, lengths=mask.sum(1))
    torch.testing.assert_close(theirs, ours[:, None] * mask)


def step_of(estimator: str, rewards: list[float], **columns: object) -> list[float]:
    """A step of two prompts with two responses each, as verl calls an estimator."""
    tokens = torch.tensor(rewards)[:, None]
    uids = np.array([uuid.uuid4().hex] * 2 + [uuid.uuid4().hex] * 2)
    advantages, _ = ADV_ESTIMATOR_REGISTRY[estimator](
        token_level_rewards=tokens, response_mask=torch.ones_like(tokens), index=uids, **columns
    )
    return [round(value, 4) for value in advantages[:, 0].tolist()]


def test_a_memory_needs_the_prompts() -> None:
    prompts = np.empty(4, dtype=object)
    prompts[:] = [
        [{"content": "1?"}],
        [{"content": "1?"}],
        [{"content": "2?"}],
        [{"content": "2?"}],
    ]
    columns = {"non_tensor_batch": {"raw_prompt": prompts}}
    first = step_of("dbb", [1.0, 1.0, 0.0, 0.0], **columns)
    second = step_of("dbb", [1.0, 1.0, 0.0, 0.0], **columns)
    # alpha and beta of the first prompt: 2.5 and 0.5, then 3.25 and 0.25
    assert first[0] == round((0.5 / 2.5) ** 0.5, 4)
    assert second[0] == round((0.25 / 3.25) ** 0.5, 4)
    with pytest.raises(ValueError, match="js_memory remembers prompts, and this verl does not"):
        step_of("js_memory", [1.0, 1.0, 0.0, 0.0])


def test_the_figures_are_kept_and_a_single_prompt_is_a_warning() -> None:
    in_verl("js_plus", EQUAL)
    metrics = ADV_ESTIMATOR_REGISTRY["js_plus"].metrics
    assert metrics == pytest.approx(diagnostics("js_plus", flat(EQUAL).view(5, 4)))
    assert 0 < metrics["js/shrinkage_mean"] < 1
    alone = {"alone": [1.0, 0.0]}
    with pytest.warns(UserWarning, match="js_plus needs the other prompts of a batch"):
        in_verl("js_plus", alone, padding=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        in_verl("js_plus", alone)  # it was said once
        in_verl("qae", alone)


def test_a_baseline_of_the_users_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def tenth(batch):\n    return batch.rewards * 0 + 0.1\n")
    register(f"{file}:tenth")
    assert step_of("tenth", [1.0, 0.0, 0.5, 0.5]) == [0.9, -0.1, 0.4, 0.4]


def test_what_cannot_work_raises() -> None:
    with pytest.raises(ValueError, match="bloo needs at least 2 prompts"):
        in_verl("bloo", {"alone": [1.0, 0.0]})
    with pytest.raises(ValueError, match="is nan; allowed are finite"):
        in_verl("js", {"one": [math.nan, 0.5], "two": [1.0, 0.0]})
