"""Trainers that hand over one prompt group at a time: the class that docs/integrations.md shows."""

import re
from pathlib import Path

import pytest
import torch

PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"


def baselines(last: list[float], prompt: str = "new", groups: int = 20) -> list[float]:
    """Of a last group with these rewards, after groups of an easy and of a hard prompt."""
    names: dict = {}
    (code,) = re.findall(
        r"```python\n(import torch\n.*?class GroupAdvantages.*?)```", PAGE.read_text(), re.S
    )
    exec(code, names)
    seed = torch.manual_seed(0)
    js_grad = names["GroupAdvantages"]()
    for group in range(groups):
        log_probs = -torch.rand(4, 9, generator=seed)
        earlier_prompt, solved = [("hard", 0.2), ("easy", 0.8)][group % 2]
        rewards = (torch.rand(4, generator=seed) < solved).double()
        assert (
            js_grad.advantages(earlier_prompt, rewards, log_probs, log_probs < 0).isfinite().all()
        )
    rewards = torch.tensor(last)
    log_probs = -torch.arange(1.0, 1 + 9 * len(last)).view(-1, 9) / 30
    return (rewards - js_grad.advantages(prompt, rewards, log_probs, log_probs < 0)).tolist()


def test_a_baseline_rests_on_earlier_groups_and_on_the_other_responses() -> None:
    assert baselines([0.0], groups=0) == [0]  # no advantage
    assert 0.3 < baselines([0.0])[0] < 0.7
    assert baselines([1.0, 0.0], groups=0) == [0, 1]  # rloo
    assert baselines([1.0, 0.0], "easy")[0] > baselines([1.0, 0.0], "hard")[0] + 0.2
    for own, changed in enumerate(([6.0, 0.0], [1.0, 5.0])):
        assert baselines(changed)[own] == pytest.approx(baselines([1.0, 0.0])[own], abs=1e-12)
