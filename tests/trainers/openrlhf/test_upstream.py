"""docs/upstream.md: OpenRLHF with its patch makes our advantages with the page's adapter."""

import sys
from pathlib import Path
from types import SimpleNamespace

import openrlhf
import pytest
import torch
from kit import upstream_args
from openrlhf.trainer.ppo_utils.experience import Experience
from upstream_kit import code_of, patched

from openrlhf_js.estimators import LiveEstimator, key_of, squared_score_norms


def test_openrlhfs_hook_makes_our_advantages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two prompts with two responses each, which come in another order, in two steps."""
    wanted = "trainer.ppo_utils.experience_maker"
    folder = Path(openrlhf.__file__).parent
    module = patched(tmp_path, "openrlhf-0.11.2-hook.patch", folder, wanted)
    (tmp_path / "adapter.py").write_text(code_of("OpenRLHF"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "adapter", raising=False)
    args = upstream_args(
        algo__advantage__estimator="adapter:js_grad", rollout__n_samples_per_prompt=2
    )
    nothing = [None] * 4
    strategy = SimpleNamespace(args=args)
    maker = module.RemoteExperienceMaker(*nothing, SimpleNamespace(value=0.0), strategy, None)

    live = LiveEstimator("js_grad")
    seed = torch.manual_seed(0)
    places = torch.tensor([2, 0, 3, 1])
    mask = torch.arange(5) < torch.tensor([5, 3, 4, 2])[:, None]
    for _ in range(2):
        rewards = torch.rand(4, generator=seed)
        log_probs = -torch.rand(4, 5, generator=seed)
        experiences = [
            Experience(
                index=places[rows].tolist(),
                rewards=rewards[places[rows]],
                action_log_probs=log_probs[places[rows]],
                action_mask=mask[places[rows]],
                prompts=[f"prompt {place // 2}" for place in places[rows].tolist()],
                kl=torch.zeros(2, 5),
            )
            for rows in (slice(0, 2), slice(2, 4))
        ]
        made = maker.compute_advantages_and_returns(experiences)
        batch = live.batch(
            rewards.view(2, 2),
            squared_score_norms=squared_score_norms(log_probs, mask).view(2, 2),
            keys=torch.tensor([key_of("prompt 0"), key_of("prompt 1")]),
        )
        expected = live.estimate(batch).advantages.flatten().float()
        live.learn(batch)
        found = torch.cat([each.advantages for each in made])
        torch.testing.assert_close(found, expected[places, None] * mask[places])
