"""Trainers that hand over one prompt group at a time: the class that docs/integrations.md shows."""

import pytest
import torch

from openrlhf_js.estimators import LiveEstimator, key_of, squared_score_norms


class GroupAdvantages:
    """js_grad, one prompt group at a time."""

    def __init__(self):
        self.live = LiveEstimator("js_grad")

    def advantages(self, prompt, rewards, log_probs, mask):
        """(m,) of a group's rewards (m,), log-probabilities (m, T) and mask (m, T)."""
        batch = self.live.batch(
            rewards[None],
            squared_score_norms=squared_score_norms(log_probs, mask)[None],
            keys=torch.tensor([key_of(prompt)]),
        )
        advantages = self.live.estimate(batch).advantages[0]
        self.live.learn(batch)  # last: the advantages rest on earlier groups
        return advantages


def baselines(last: list[float], prompt: str = "new", groups: int = 20) -> list[float]:
    """Of a last group with these rewards, after groups of an easy and of a hard prompt."""
    seed = torch.manual_seed(0)
    js_grad = GroupAdvantages()
    for group in range(groups):
        log_probs = -torch.rand(4, 9, generator=seed)
        earlier_prompt, solved = [("hard", 0.2), ("easy", 0.8)][group % 2]
        rewards = (torch.rand(4, generator=seed) < solved).double()
        found = js_grad.advantages(earlier_prompt, rewards, log_probs, log_probs < 0)
        assert found.isfinite().all()
    rewards = torch.tensor(last)
    log_probs = -torch.arange(1.0, 1 + 9 * len(last)).view(-1, 9) / 30
    advantages = js_grad.advantages(prompt, rewards, log_probs, log_probs < 0)
    return (rewards - advantages).tolist()


@pytest.mark.parametrize("rewards", [[0.0], [1.0, 0.0], [1.0, 0.0, 1.0]])
def test_a_baseline_rests_on_earlier_groups_and_on_the_other_responses(
    rewards: list[float],
) -> None:
    for own in range(len(rewards)):
        changed = list(rewards)
        changed[own] += 5
        assert baselines(changed)[own] == pytest.approx(baselines(rewards)[own], abs=1e-12)


def test_earlier_groups_tell_where_the_own_one_does_not() -> None:
    assert baselines([0.0], groups=0) == [0]  # no advantage
    assert 0.3 < baselines([0.0])[0] < 0.7
    assert baselines([1.0, 0.0], groups=0) == [0, 1]  # rloo
    low, high = baselines([1.0, 0.0])
    assert 0 < low < high < 1
    assert baselines([1.0, 0.0], "easy")[0] > baselines([1.0, 0.0], "hard")[0] + 0.2
