"""The lines for slime that docs/integrations.md shows, with samples of its fields."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from openrlhf_js.estimators import LiveEstimator, squared_score_norms

PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"


def test_the_pasted_lines_are_a_live_estimator() -> None:
    names: dict = {}
    (code,) = re.findall(r"```python\n(# my_slime.py\n.*?)```", PAGE.read_text(), re.S)
    exec(code, names)
    rewards, log_probs = [1.0, 0.0, 0.0, 1.0], [[-0.1, -2.0], [-1.0], [-0.5, -0.2], [-3.0]]
    samples = [
        SimpleNamespace(
            prompt=[{"role": "user", "content": prompt}],
            rollout_log_probs=own,
            response_length=len(own),
            loss_mask=None if prompt == "a" else [0, 1][-len(own) :],
            get_reward_value=lambda args, reward=reward: reward,
        )
        for prompt, reward, own in zip("abab", rewards, log_probs, strict=True)
    ]
    raw, found = names["advantages"](None, samples)
    padded = torch.tensor([[-0.1, -2.0], [-0.5, -0.2], [-1.0, 0], [-3.0, 0]])
    mask = torch.tensor([[1, 1], [1, 1], [1, 0], [1, 0]])
    live = LiveEstimator("js_grad")
    weights = squared_score_norms(padded, mask).view(2, 2)
    batch = live.batch([[1.0, 0], [0, 1]], squared_score_norms=weights)
    (a, b), (c, d) = live.estimate(batch).advantages.tolist()
    assert raw == rewards and found == pytest.approx([a, c, b, d])
    assert len(names["live"].memory.table) == 2
